"""The rules of jemalloc: which are broken, and where."""
