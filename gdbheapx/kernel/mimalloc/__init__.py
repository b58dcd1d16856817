"""mimalloc's free lists."""
