"""Walks over musl's mallocng."""
