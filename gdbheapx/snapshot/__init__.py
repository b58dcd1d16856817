"""One look as a file: what every command said of it, and what the larger answers consist of. It has no byte of the program's data."""
