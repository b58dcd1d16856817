"""Texts about jemalloc: verdict, findings, tables, statistics."""
