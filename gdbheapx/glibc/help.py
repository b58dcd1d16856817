"""Help texts about glibc's malloc, by command."""

from gdbheapx.allocators.records import Returning

TRIM = Returning("trim", "trimmed", "malloc_trim", is_owners=True, takes=frozenset(("pad_bytes",)))
HELP = {
    "arenas": """glibc: for every arena system = used + tcache + fast + free + top + overhead + unparsed, to the byte. `tcache` counts
chunks in any thread's cache, `fast` those in fastbins; both look used in memory, but are not. `reclaimable` is what
malloc_trim(0) would return to the OS by its own rules; `resident` is the part of it that is in RAM (live processes only).
Three columns appear only where they add something: `exclusive` is the part of `resident` that the machine gets back, if
a forked process shares the rest; `returned, resident` is memory that was returned to the OS or never used, yet is still
in RAM; `huge pages` is the part of the heaps on transparent huge pages. See docs/explanation/in-ram.md.
""",
    "bins": "glibc: free chunks by bin.\n",
    "chunks": "glibc: a chunk in a thread cache or fastbin is listed as such, not as used.\n",
    "malloc-stats": "glibc: the text of malloc_stats(3) without its 32-bit overflow; --json gives mallinfo2's ten fields.\n",
    "tunables": "glibc: mp_.\n",
}
