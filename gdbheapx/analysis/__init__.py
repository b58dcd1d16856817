"""What follows from the totals, for any allocator."""
