"""Base of every walk: sources of bytes, windows onto them, page tables, and the native library itself."""
