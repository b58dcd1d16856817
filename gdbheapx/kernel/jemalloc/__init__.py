"""jemalloc: the rtree and the extents that it names."""
