"""Attribute the memory of a process: every mapping gets an owner, by the kernel's data and by its position."""
