"""Tells where a process's memory went, from gdb, without rebuilding, restarting or recording anything."""

__version__ = "0.1.0"
