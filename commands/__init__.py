"""Contain one file per command: arguments, analysis, report. Installed as gdbheapx.commands."""
