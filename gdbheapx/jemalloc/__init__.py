"""What the bytes mean: jemalloc 5."""
