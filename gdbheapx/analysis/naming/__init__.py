"""Paths of blocks as the program's language writes them: from a module, a variable or a frame."""
