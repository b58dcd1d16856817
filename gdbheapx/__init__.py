"""Tells where a process's memory went, from gdb, without rebuilding, restarting or recording anything."""

__version__ = "1.0.0rc1"
