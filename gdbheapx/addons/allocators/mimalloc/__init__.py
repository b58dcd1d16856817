"""mimalloc 1.8 to 3.4: what its segments, page map and free lists mean."""
