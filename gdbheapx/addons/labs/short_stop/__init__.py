"""Copy a process while it runs: a pause of milliseconds for the last of what it wrote meanwhile."""
