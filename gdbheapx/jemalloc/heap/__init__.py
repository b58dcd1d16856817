"""Arenas, extents and slabs, and their totals."""
