"""What help says of tcmalloc, by command."""

HELP = {
    "arenas": """tcmalloc: one row, as it has one page heap: system = used + central + transfer + cached + tails + free spans +
returned, to the byte. `bins` shows each size class.
""",
    "bins": "tcmalloc: size classes with their spans and objects; class 0 is blocks with a span of their own.\n",
    "chunks": """tcmalloc: blocks are used, free (in their span), transfer or tcache (in a cache); free-span and returned are unused pages,
tail is the end of a span that holds no object.
""",
    "profile": "tcmalloc: the full library, with TCMALLOC_SAMPLE_PARAMETER; its own dump is GetHeapSample.\n",
    "purge": "tcmalloc: calls MallocExtension_ReleaseFreeMemory(); thread caches are not flushed.\n",
    "tcache": "tcmalloc: from 2.16 on a cache's thread is found by its thread-local storage; where that fails the row has no thread.\n",
}
