"""What threads have: tsd, thread caches."""
