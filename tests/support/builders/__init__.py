"""Synthetic heaps: bytes made from a list of what should be in them, with the totals that follow from the list alone."""
