"""Analyse the totals, for any allocator."""
