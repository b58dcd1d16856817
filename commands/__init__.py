"""One file per command: arguments, analysis, report. Installed as gdbheapx.commands."""
