"""What gives a jemalloc away in an object that names nothing: texts, the thread-local image, the bins. Facts of its builds, as data.

For 64-bit little-endian machines; seen in builds of 4.5.0 to HEAD (May 2026), tikv-jemallocator 0.4 to 0.7, pyarrow, polars, duckdb.
"""

import re
from typing import NamedTuple, Tuple

PREFIX_MARK = "opt_narenas"
"""A variable that is external in every release: what stands before it is the private prefix. (arenas_lock is static from 5.3.1 on.)"""
PUBLIC_PREFIXES = ("", "je_", "_rjem_")
"""Usual ones: a release before 5 has too little .bss to be searched for traces, and is known by what it exports alone."""

ARENA_POINTERS = 4095
"""MALLOCX_ARENA_LIMIT: arenas[] is that long and begins as zeros in every release of 5, so that an object with less .bss holds none."""

TEXT = b"<jemalloc>: "
"""Every message of jemalloc's own begins so; a build has 20 to 45 of them."""
LEAST_TEXTS = 8
"""A program that reads logs may have a few."""

VERSION_TAIL = re.compile(rb"-(\d{1,6})-g([0-9a-f]{1,40})\0")
"""The end of JEMALLOC_VERSION. Its start, found from there: a pattern that begins with digits takes ten times as long."""
VERSION_HEAD = re.compile(rb"\d{1,3}\.\d{1,3}\.\d{1,3}\Z")
VERSION_HEAD_BYTES = 11

CONF_VARIABLE = re.compile(rb"MALLOC_CONF\0")
"""The end of the environment variable's name: JEMALLOC_CPREFIX"MALLOC_CONF" (jemalloc.c: obtain_malloc_conf)."""
CONF_HEAD = re.compile(rb"\0([A-Z0-9_]{0,60})\Z")
CONF_HEAD_BYTES = 64

PROFILE = re.compile(rb"heap_v2/%\w{1,3}\n  t\*: ")
"""The head of a heap profile (prof.c, from 5.3.0 prof_data.c): code that only a build with --enable-prof keeps."""

RTREE_CTX = (b"\1" + bytes(15)) * 24
"""tsd_s.rtree_ctx in the thread-local image from 5.3.0 on: 24 entries whose leafkey is RTREE_LEAFKEY_INVALID (rtree_tsd.h)."""
TICKER = (1000).to_bytes(4, "little") * 2
"""arena_decay_ticker there: {tick, nticks}, ARENA_DECAY_NTICKS_PER_UPDATE."""


class TsdImage(NamedTuple):
    """How one release's tsd_s lies around rtree_ctx."""

    release: str
    state: int
    """The byte behind rtree_ctx: tsd_state_uninitialized."""
    ticker_offsets: Tuple[int, ...]
    """Of arena_decay_ticker from rtree_ctx, in the builds seen: quantum 16 first."""


TSD_IMAGES = (
    TsdImage("5.3.0", 6, (-280, -296, -344)),  # -296: quantum 8, -344: pages of 64 KiB
    TsdImage("5.3.0-196-ga25b9b8b", 6, (-288,)),
    TsdImage("5.3.1", 6, (-328, -336)),
    TsdImage("after 5.3.1", 5, (-288,)),
)

PAGE_BYTES = (4096, 16384, 65536)
"""Pages that jemalloc is built for; the first bin's slab is one (sc.h)."""
SMALLEST_CLASS_BYTES = 8
BIN_STRIDES = (40, 88)
"""sizeof(bin_info_t): with flat bitmaps, and with trees of them, as pages of 64 KiB need (bitmap.h)."""
LEAST_BINS = 24
MOST_SHARDS = 64

BLOCK_BYTES = 2 << 20
"""Blocks of an arena's metadata begin at a multiple of this and are multiples of it long (base.c: HUGEPAGE)."""
MOST_BLOCK_BYTES = 1 << 40
BASE_OFFSETS = (0xC0, 0x4C0)
"""Of base_t from the start of its first block: behind base_block_s, which is longer with pages of 64 KiB."""
ARENA_BYTES = 128 << 10
"""arena_t has up to 100 KB; arena_t.base stands near its end."""
