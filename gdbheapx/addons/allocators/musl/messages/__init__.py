"""What is said of musl's malloc."""
