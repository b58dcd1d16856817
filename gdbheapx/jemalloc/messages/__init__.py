"""The verdict on jemalloc; findings and pages are in gdbheapx/jemalloc/text.py."""
