"""How one jemalloc was built: where it is, its symbols, types and constants, each proven before it is believed."""
