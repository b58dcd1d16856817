"""What help says of mimalloc, by command."""

HELP = {
    "arenas": """mimalloc: one row per thread that owns pages, one for pages that no thread owns (abandoned: its thread ended, or, in
release 3, the page was full), one for shared memory; held = used + free + freed by others + never used + spans + overhead, to the
byte. `freed by others` is memory that other threads have freed and the owner has not collected.
""",
    "bins": "mimalloc: block sizes, with pages, blocks in use, free, freed by other threads, and never handed out.\n",
    "chunks": """mimalloc: blocks are used, free or remote-free (freed by another thread, not collected); reserve was never handed out; span
and returned are slices without a page. An aligned block begins at or after the address shown.
""",
    "pins": "mimalloc: a `slab` is one of its pages, which goes back when its last block is freed and collected.\n",
    "tcache": "mimalloc has no thread caches: each thread owns its pages, and `arenas` shows them.\n",
}
