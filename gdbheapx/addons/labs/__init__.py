"""Add-on for what is tried out: functions that may have allocated blocks, by the program's code."""
