"""What is said of mimalloc."""
