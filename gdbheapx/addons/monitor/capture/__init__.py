"""The last look: a handler for core_pattern that takes a snapshot of a crashed process while the kernel keeps it."""
