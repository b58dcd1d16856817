"""Contain all code that uses gdb: the target that gdb opens, and control of a stopped process."""
