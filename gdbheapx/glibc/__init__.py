"""What the bytes mean: glibc malloc."""
