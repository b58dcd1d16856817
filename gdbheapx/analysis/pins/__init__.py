"""Which used blocks keep free memory from being returned."""
