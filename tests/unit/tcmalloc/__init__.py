"""Tests of gdbheapx/tcmalloc."""
