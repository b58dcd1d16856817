"""Living processes: memory, /proc, threads held still."""
