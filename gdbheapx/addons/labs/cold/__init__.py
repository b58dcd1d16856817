"""Find memory in use that nothing touches."""
