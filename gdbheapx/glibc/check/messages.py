"""What malloc aborts with, by rule and release (malloc/malloc.c: malloc_printerr, assert)."""

from typing import Dict, Optional, Tuple

from gdbheapx.glibc import codes
from gdbheapx.glibc.layouts import is_within
from gdbheapx.layout.struct import Version
from gdbheapx.problems import Code

FOREVER = (99, 0)
Message = Tuple[Version, Version, str]
"""First and last release that says it."""

_OLD_TOP = "(old_top == initial_top (av) && old_size == 0)"
_TOP = "((unsigned long) (old_size) >= MINSIZE && prev_inuse (old_top) && ((unsigned long) old_end & (pagesize - 1)) == 0)"
_SYSMALLOC = "%s || %s" % (_OLD_TOP, _TOP)
_TOP_MESSAGES: Tuple[Message, ...] = (
    ((2, 12), (2, 35), "sysmalloc: Assertion `%s' failed." % _SYSMALLOC),
    ((2, 36), (2, 37), "Fatal glibc error: malloc assertion failure in sysmalloc: %s" % _SYSMALLOC),
    ((2, 38), FOREVER, "(sysmalloc): assertion failed: %s" % _SYSMALLOC),
)


def _always(text: str) -> Tuple[Message, ...]:
    return (((2, 12), FOREVER, text),)


def _since(release: Version, text: str, before: Optional[str] = None) -> Tuple[Message, ...]:
    newer = ((release, FOREVER, text),)
    return newer if before is None else (*newer, ((2, 12), (release[0], release[1] - 1), before))


_RULES: Dict[str, Tuple[Code, Tuple[Message, ...]]] = {
    "chunk-size-small": (codes.CHUNK_SMALL, _always("free(): invalid size")),
    "chunk-size-misaligned": (codes.CHUNK_MISALIGNED, _always("free(): invalid size")),
    "chunk-mmapped-bit": (codes.CHUNK_MMAPPED_BIT, _always("munmap_chunk(): invalid pointer")),
    "chunk-overrun": (codes.CHUNK_OVERRUN, _always("double free or corruption (out)")),
    "chunk-size-zero": (codes.FENCEPOST_INSIDE, _always("free(): invalid size")),
    "unsorted-size": (
        codes.CHUNK_SMALL,
        _since((2, 29), "malloc(): invalid size (unsorted)", "malloc(): memory corruption"),
    ),
    "unsorted-next-size": (codes.CHUNK_SMALL, _since((2, 29), "malloc(): invalid next size (unsorted)")),
    "unsorted-prev-size": (codes.PREV_SIZE_WRONG, _since((2, 29), "malloc(): mismatching next->prev_size (unsorted)")),
    "unsorted-prev-inuse": (codes.BINNED_USED, _since((2, 29), "malloc(): invalid next->prev_inuse (unsorted)")),
    "unsorted-links": (codes.BIN_BROKEN, _since((2, 29), "malloc(): unsorted double linked list corrupted")),
    "unsorted-head": (codes.BIN_BROKEN, _always("free(): corrupted unsorted chunks")),
    "smallbin-links": (codes.BIN_BROKEN, _always("malloc(): smallbin double linked list corrupted")),
    "smallbin-head": (
        codes.BIN_BROKEN,
        _since((2, 41), "free(): chunks in smallbin corrupted", "malloc(): smallbin double linked list corrupted"),
    ),
    "largebin-links": (codes.BIN_BROKEN, _always("corrupted double-linked list")),
    "largebin-head": (codes.BIN_BROKEN, _since((2, 30), "malloc(): largebin double linked list corrupted (bk)")),
    "largebin-order": (codes.LARGE_ORDER, ()),
    "largebin-nextsize": (codes.LARGE_LINKS, _since((2, 22), "corrupted double-linked list (not small)")),
    "bin-size": (codes.ENTRY_SIZE, ()),
    "bin-entry-in-use": (codes.BINNED_USED, ()),
    "bin-entry-not-a-chunk": (codes.BINNED_ASTRAY, ()),
    "bins-mismatch": (codes.BINS_DISAGREE, _always("corrupted double-linked list")),
    "prev-size": (codes.PREV_SIZE_WRONG, _since((2, 26), "corrupted size vs. prev_size")),
    "free-neighbours": (codes.FREE_NEIGHBOURS, ()),
    "free-not-in-bin": (codes.NOT_BINNED, _always("corrupted double-linked list")),
    "double-free": (codes.CACHED_FREE, _always("double free or corruption (!prev)")),
    "arena-bit": (codes.ARENA_BIT, ()),
    "free-arena-bit": (codes.ARENA_BIT, ()),
    "first-chunk": (codes.FIRST_CHUNK, _since((2, 29), "corrupted size vs. prev_size while consolidating")),
    "fastbin-unaligned": (codes.FASTBIN_BROKEN, (((2, 32), (2, 42), "malloc(): unaligned fastbin chunk detected"),)),
    "fastbin-link": (codes.FASTBIN_BROKEN, ()),
    "fastbin-double-free": (codes.FASTBIN_BROKEN, (((2, 12), (2, 42), "double free or corruption (fasttop)"),)),
    "fastbin-size": (codes.ENTRY_SIZE, (((2, 12), (2, 42), "malloc(): memory corruption (fast)"),)),
    "tcache-unaligned": (codes.CACHE_BROKEN, _since((2, 32), "malloc(): unaligned tcache chunk detected")),
    "tcache-link": (codes.CACHE_BROKEN, ()),
    "tcache-double-free": (codes.CACHE_BROKEN, _since((2, 29), "free(): double free detected in tcache 2")),
    "tcache-count": (codes.CACHE_MISCOUNTS, ()),
    "tcache-too-many": (codes.CACHE_MISCOUNTS, _since((2, 33), "free(): too many chunks detected in tcache")),
    "tcache-size": (codes.ENTRY_SIZE, ()),
    "tcache-key": (codes.CACHE_KEY, ()),
    "listed-twice": (codes.LISTED_TWICE, _since((2, 29), "free(): double free detected in tcache 2")),
    "listed-not-a-chunk": (codes.LISTED_ASTRAY, _always("free(): invalid pointer")),
    "listed-outside": (codes.LISTED_OUTSIDE, ()),
    "top-size": (codes.TOP_WRONG, _since((2, 29), "malloc(): corrupted top size")),
    "top-small": (codes.TOP_WRONG, _TOP_MESSAGES),
    "top-prev-inuse": (codes.TOP_WRONG, _TOP_MESSAGES),
    "top-page-end": (codes.TOP_WRONG, _TOP_MESSAGES),
    "top-flags": (codes.TOP_WRONG, ()),
    "top-short": (codes.TOP_SHORT, _TOP_MESSAGES),
    "top-unmapped": (codes.TOP_UNREADABLE, ()),
    "top-missing": (codes.NO_TOP, ()),
    "break-below-top": (codes.BREAK_DISAGREES, _always("break adjusted to free malloc space")),
    "break-mismatch": (codes.BREAK_DISAGREES, ()),
    "run-not-found": (codes.RUN_NOT_FOUND, ()),
    "fencepost-missing": (codes.NO_FENCEPOST, ()),
    "system-mem": (codes.SYSTEM_MEM_SMALL, ()),
    "bytes-not-located": (codes.NOT_LOCATED, ()),
    "system-mem-max": (codes.ARENA_STATE, ()),
    "attached-threads": (codes.ARENA_STATE, ()),
    "arena-mutex": (codes.ARENA_STATE, ()),
    "arena-flags": (codes.ARENA_STATE, ()),
    "binmap": (codes.BINMAP_WRONG, ()),
    "arena-ring": (codes.RING_BROKEN, ()),
    "arena-ring-open": (codes.RING_OPEN, ()),
    "main-arena-lost": (codes.MAIN_ARENA_LOST, ()),
    "heap-arena": (codes.HEAP_CHAIN, ()),
    "heap-prev": (codes.HEAP_CHAIN, ()),
    "heap-size": (codes.HEAP_CHAIN, ()),
    "heap-sum": (codes.HEAP_CHAIN, ()),
    "heap-info": (codes.HEAP_DAMAGED, ()),
    "heap-unmapped": (codes.HEAP_UNREADABLE, ()),
    "chunk-unmapped": (codes.CHUNK_UNREADABLE, ()),
    "mmapped-count": (codes.MP_DISAGREES, ()),
    "mmapped-header": (codes.MAPPED_HEADER, _always("munmap_chunk(): invalid pointer")),
    "mmapped-as-used": (codes.MAPPED_HEADER, _always("double free or corruption (out)")),
    "mmapped-as-small": (codes.MAPPED_HEADER, _always("free(): invalid size")),
    "mmapped-as-wild": (codes.MAPPED_HEADER, _since((2, 43), "free(): invalid size", "free(): invalid pointer")),
    "mmapped-flags": (codes.MAPPED_HEADER, ()),
    "mmapped-size": (codes.MAPPED_HEADER, ()),
}
"""Code and messages by the rule's name."""

RULE_NAMES = tuple(_RULES)


def code_of(rule: str) -> Code:
    """The code of a rule's findings."""
    return _RULES[rule][0]


def abort_of(rule: str, release: Optional[Version]) -> Optional[str]:
    """What that release says; of an unknown release what the newest one does."""
    messages = _RULES[rule][1]
    for first, last, text in messages:
        if release is None or is_within(release, first, last):
            return text
    return None
