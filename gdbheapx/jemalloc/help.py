"""Help texts about jemalloc, by command."""

from gdbheapx.allocators.records import Returning

PURGE = Returning("purge", "purged", "a purge", takes=frozenset(("arena", "is_decayed")))
HELP = {
    "arenas": """jemalloc: allocated = used + cached, per arena, in jemalloc's own six terms; `reclaimable` is the sum of dirty and
muzzy pages.
""",
    "bins": "jemalloc: size classes with slabs, regions and unused extents.\n",
    "chunks": """jemalloc: blocks are used, cached (in a thread cache) or free regions of slabs; dirty, muzzy, retained and pinned
(memory that the program's extent hooks can never return) are its unused extents.
""",
    "malloc-stats": "jemalloc: malloc_stats_print's text; --json has its keys.\n",
    "profile": "jemalloc: with prof:true; its own dump is prof.dump.\n",
    "purge": "jemalloc: by mallctl: dirty and muzzy pages of one arena or of all, with --decay those that have decayed by now.\n",
    "tcache": "jemalloc: includes caches that the program made with tcache.create, which belong to no thread (`explicit`).\n",
    "tunables": "jemalloc: every opt_ variable, where it was set (if that is visible), and its background threads.\n",
}
