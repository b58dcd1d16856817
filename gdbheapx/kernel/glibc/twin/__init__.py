"""The same in Python."""
