"""The entry points of the shell and of gdb, and the run of one command."""
