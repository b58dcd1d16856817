"""glibc's malloc found by what its memory looks like: without symbols, packs, debug files, or any file of the libc at all."""
