"""One look as a file: what commands found in it, as records, and the graph of all blocks. It has no byte of the program's data."""
