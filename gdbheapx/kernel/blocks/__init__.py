"""The stream of blocks, whatever the allocator."""
