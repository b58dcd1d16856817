"""The toy allocator's folder of the kernel."""
