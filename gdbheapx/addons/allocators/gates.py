"""The add-on's allocators as the core meets them: by what a target with one is known, and what help says of each."""

import re
from typing import Mapping

from gdbheapx.allocators.fingerprints import Fingerprint, Gate, TextFingerprint
from gdbheapx.allocators.records import NeverReturns, Returning
from gdbheapx.common.hints import hint_command

MI_HINT = "mi_stats_print in the program shows what it holds, and so does MIMALLOC_SHOW_STATS=1 when the program exits"
MI_NEVER_RETURNS = NeverReturns(
    "mimalloc returns memory as its threads allocate and free, or call mi_collect(true); gdbheapx calls nothing in it",
    "to return it sooner, start with MIMALLOC_PURGE_DELAY=0 (2.0: MIMALLOC_DECOMMIT_DELAY=0)",
)
MI_TEXTS = TextFingerprint("mimalloc", (b"mimalloc: error: ", b"mimalloc: warning: "), True, MI_HINT)
"""options.c; in every build seen, stripped Rust programs and wheels included."""

TC_TEXTS = TextFingerprint("tcmalloc", (b"TCMALLOC_RELEASE_RATE", b"MALLOC: + "), True, "look again once the program has allocated memory")
"""In any program that has it: a variable of the environment (src/page_heap.cc), a line of malloc_stats (src/tcmalloc.cc)."""
TC_RELEASE = Returning("purge", "purged", "a purge")
TC_FILES = re.compile(r"libtcmalloc")
TC_FUNCTION, OF_GOOGLE = "tc_malloc", "MallocExtension_Internal_GetNumericProperty"
"""Exported by gperftools' libraries, and by no other; exported by programs with google's tcmalloc, which has the name and hardly a struct
in common, and is not read."""
GOOGLE_HINT = (
    "print tcmalloc::MallocExtension::GetStats() in the program; Envoy: GET /memory of its admin port; MongoDB: db.serverStatus().tcmalloc"
)
GOOGLE = TextFingerprint("google's tcmalloc", (b"Bytes in per-CPU cache freelist", b"MALLOC: + "), True, GOOGLE_HINT)
"""In any program that has google's, since its first commit of 2020: lines of GetStats() (tcmalloc.cc, later global_stats.cc).
gperftools' has no caches by CPU."""

MUSL_HINT = "its malloc is found by its structure: `%s` says what is missing" % hint_command("doctor")
MUSL_LIBRARY = TextFingerprint(
    "musl", (b"musl libc (", b"Dynamic Program Loader"), True, MUSL_HINT, re.compile(rb"\0(\d+\.\d+\.\d+)[^\0]{0,40}\0").pattern
)
"""musl's libc.so, which is its dynamic linker as well: ldso/dynlink.c; the version of version.h is next to it."""
MUSL_STATIC = TextFingerprint("musl", (b"No error information",), True, MUSL_HINT)
"""Linked into a program: src/errno/__strerror.h, the text of error 0. Debian's musl 1.2.3, Alpine's 1.2.5."""

REPLACING = (MI_TEXTS, TC_TEXTS, GOOGLE)
"""Allocators that take the place of a C library's malloc in a static program: a text of theirs says that malloc is not the library's."""

MI_HELP = {
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
TC_HELP = {
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
MUSL_HELP = {
    "arenas": """musl: one row, as musl has no arenas: system = used + free + overhead + unparsed, to the byte. `used` counts slots
with blocks in use; `bins` shows how much of these was asked for. `overhead` is metas, headers, and what groups leave of their pages. Of a
living process no page of the heap is read.
""",
    "bins": "musl: each size class with its groups and slots; class 63 has blocks with a mapping of their own.\n",
    "chunks": "musl: the size of a block in use is the requested size, exactly; in the histogram it is the slot's.\n",
    "pins": "musl: a place is a group with all that were cut out of its slots; it is unmapped when the last block in it is freed.\n",
    "tcache": "musl has no thread caches.\n",
}

GATES: Mapping[str, Gate] = {
    "gdbheapx.addons.allocators.mimalloc.entry": Gate(
        "mimalloc",
        Fingerprint(functions=("mi_malloc",)),
        re.compile(r"libmimalloc"),
        (MI_TEXTS,),
        least_data_bytes=8 << 10,  # its main heap alone takes 3 KiB and more
        help=MI_HELP,
    ),
    "gdbheapx.addons.allocators.tcmalloc.entry": Gate(
        "tcmalloc",
        Fingerprint(functions=(TC_FUNCTION, OF_GOOGLE), files=TC_FILES, texts=(TC_TEXTS, GOOGLE), library_texts=(GOOGLE,)),
        TC_FILES,
        (TC_TEXTS, GOOGLE),
        frozenset(("meter", "exact-reading", "profile")),
        returns="purge",
        help=TC_HELP,
    ),
    "gdbheapx.addons.allocators.musl.entry": Gate(
        "musl",
        Fingerprint(variables=("__malloc_context",), texts=(MUSL_STATIC,), library_texts=(MUSL_LIBRARY,)),
        re.compile(r"ld-musl-|libc\.musl-|libc\.so$"),
        help=MUSL_HELP,
    ),
}
"""By the module that has the allocator's ALLOCATOR, in the order in which the registry has them."""
