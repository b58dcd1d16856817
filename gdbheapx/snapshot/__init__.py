"""Store one reading in a file: the results of commands, as records, and the graph of all blocks. The file has no byte of the program's
data.
"""
