"""Whose the memory of a process is: every mapping gets an owner, from what the kernel says and from how it lies."""
