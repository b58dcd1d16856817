"""All that knows gdb: the target that it opens, and its hands on a process."""
