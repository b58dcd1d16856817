"""The only code that changes a process: it would rather refuse than harm."""
