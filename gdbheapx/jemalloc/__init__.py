"""Interpretation of memory as jemalloc 5."""
