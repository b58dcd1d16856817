"""What a program itself calls a block: the way to it from a module, a variable or a frame, as the language writes it."""
