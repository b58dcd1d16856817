"""Broken rules as they are collected: each place once, with its arena, and what else may explain it.

What malloc aborts with, by rule (malloc/malloc.c: malloc_printerr, assert).
"""

from bisect import bisect_right
from typing import Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.answers import INSIDE, LOCKED, MOST_BROKEN, BrokenRule, RuleSuspect
from gdbheapx.glibc import code, codes
from gdbheapx.glibc.context import ArenaWalk, Context
from gdbheapx.model import TargetAddress
from gdbheapx.problems import ProblemCode

_SYSMALLOC = (
    "(old_top == initial_top (av) && old_size == 0) || "
    "((unsigned long) (old_size) >= MINSIZE && prev_inuse (old_top) && ((unsigned long) old_end & (pagesize - 1)) == 0)"
)
"""What every release's message of this assertion contains."""
SIGABRT = 6
CRASHES = (4, 7, 8, 11)
"""SIGILL, SIGBUS, SIGFPE, SIGSEGV: malloc does not get them unless what it reads is damaged; nor does it abort."""
FRAME_WORDS = 8
"""So many words from the stack pointer on are taken for return addresses of a leaf function or a system call."""


_RULES: Dict[str, Tuple[ProblemCode, Optional[str]]] = {
    "chunk-size-small": (codes.CHUNK_SMALL, "free(): invalid size"),
    "chunk-size-misaligned": (codes.CHUNK_MISALIGNED, "free(): invalid size"),
    "chunk-mmapped-bit": (codes.CHUNK_MMAPPED_BIT, "munmap_chunk(): invalid pointer"),
    "chunk-overrun": (codes.CHUNK_OVERRUN, "double free or corruption (out)"),
    "chunk-size-zero": (codes.FENCEPOST_INSIDE, "free(): invalid size"),
    "unsorted-size": (
        codes.CHUNK_SMALL,
        "malloc(): invalid size (unsorted)",
    ),
    "unsorted-next-size": (codes.CHUNK_SMALL, "malloc(): invalid next size (unsorted)"),
    "unsorted-prev-size": (codes.PREV_SIZE_WRONG, "malloc(): mismatching next->prev_size (unsorted)"),
    "unsorted-prev-inuse": (codes.BINNED_USED, "malloc(): invalid next->prev_inuse (unsorted)"),
    "unsorted-links": (codes.BIN_BROKEN, "malloc(): unsorted double linked list corrupted"),
    "unsorted-head": (codes.BIN_BROKEN, "free(): corrupted unsorted chunks"),
    "smallbin-links": (codes.BIN_BROKEN, "malloc(): smallbin double linked list corrupted"),
    "smallbin-head": (
        codes.BIN_BROKEN,
        "free(): chunks in smallbin corrupted",
    ),
    "largebin-links": (codes.BIN_BROKEN, "corrupted double-linked list"),
    "largebin-head": (codes.BIN_BROKEN, "malloc(): largebin double linked list corrupted (bk)"),
    "largebin-order": (codes.LARGE_ORDER, None),
    "largebin-nextsize": (codes.LARGE_LINKS, "corrupted double-linked list (not small)"),
    "bin-size": (codes.ENTRY_SIZE, None),
    "bin-entry-in-use": (codes.BINNED_USED, None),
    "bin-entry-not-a-chunk": (codes.BINNED_ASTRAY, None),
    "bins-mismatch": (codes.BINS_DISAGREE, "corrupted double-linked list"),
    "prev-size": (codes.PREV_SIZE_WRONG, "corrupted size vs. prev_size"),
    "free-neighbours": (codes.FREE_NEIGHBOURS, None),
    "free-not-in-bin": (codes.NOT_BINNED, "corrupted double-linked list"),
    "double-free": (codes.CACHED_FREE, "double free or corruption (!prev)"),
    "arena-bit": (codes.ARENA_BIT, None),
    "free-arena-bit": (codes.ARENA_BIT, None),
    "first-chunk": (codes.FIRST_CHUNK, "corrupted size vs. prev_size while consolidating"),
    "fastbin-unaligned": (codes.FASTBIN_BROKEN, "malloc(): unaligned fastbin chunk detected"),
    "fastbin-link": (codes.FASTBIN_BROKEN, None),
    "fastbin-double-free": (codes.FASTBIN_BROKEN, "double free or corruption (fasttop)"),
    "fastbin-size": (codes.ENTRY_SIZE, "malloc(): memory corruption (fast)"),
    "tcache-unaligned": (codes.CACHE_BROKEN, "malloc(): unaligned tcache chunk detected"),
    "tcache-link": (codes.CACHE_BROKEN, None),
    "tcache-double-free": (codes.CACHE_BROKEN, "free(): double free detected in tcache 2"),
    "tcache-count": (codes.CACHE_MISCOUNTS, None),
    "tcache-too-many": (codes.CACHE_MISCOUNTS, "free(): too many chunks detected in tcache"),
    "tcache-size": (codes.ENTRY_SIZE, None),
    "tcache-key": (codes.CACHE_KEY, None),
    "listed-twice": (codes.LISTED_TWICE, "free(): double free detected in tcache 2"),
    "listed-not-a-chunk": (codes.LISTED_ASTRAY, "free(): invalid pointer"),
    "listed-outside": (codes.LISTED_OUTSIDE, None),
    "top-size": (codes.TOP_WRONG, "malloc(): corrupted top size"),
    "top-small": (codes.TOP_WRONG, _SYSMALLOC),
    "top-prev-inuse": (codes.TOP_WRONG, _SYSMALLOC),
    "top-page-end": (codes.TOP_WRONG, _SYSMALLOC),
    "top-flags": (codes.TOP_WRONG, None),
    "top-short": (codes.TOP_SHORT, _SYSMALLOC),
    "top-unmapped": (codes.TOP_UNREADABLE, None),
    "top-missing": (codes.NO_TOP, None),
    "break-below-top": (codes.BREAK_DISAGREES, "break adjusted to free malloc space"),
    "break-mismatch": (codes.BREAK_DISAGREES, None),
    "run-not-found": (codes.RUN_NOT_FOUND, None),
    "fencepost-missing": (codes.NO_FENCEPOST, None),
    "system-mem": (codes.SYSTEM_MEM_SMALL, None),
    "bytes-not-located": (codes.NOT_LOCATED, None),
    "system-mem-max": (codes.ARENA_STATE, None),
    "attached-threads": (codes.ARENA_STATE, None),
    "arena-mutex": (codes.ARENA_STATE, None),
    "arena-flags": (codes.ARENA_STATE, None),
    "binmap": (codes.BINMAP_WRONG, None),
    "arena-ring": (codes.RING_BROKEN, None),
    "arena-ring-open": (codes.RING_OPEN, None),
    "main-arena-lost": (codes.MAIN_ARENA_LOST, None),
    "heap-arena": (codes.HEAP_CHAIN, None),
    "heap-prev": (codes.HEAP_CHAIN, None),
    "heap-size": (codes.HEAP_CHAIN, None),
    "heap-sum": (codes.HEAP_CHAIN, None),
    "heap-info": (codes.HEAP_DAMAGED, None),
    "heap-unmapped": (codes.HEAP_UNREADABLE, None),
    "chunk-unmapped": (codes.CHUNK_UNREADABLE, None),
    "mmapped-count": (codes.MP_DISAGREES, None),
    "mmapped-header": (codes.MAPPED_HEADER, "munmap_chunk(): invalid pointer"),
    "mmapped-as-used": (codes.MAPPED_HEADER, "double free or corruption (out)"),
    "mmapped-as-small": (codes.MAPPED_HEADER, "free(): invalid size"),
    "mmapped-as-wild": (codes.MAPPED_HEADER, "free(): invalid pointer"),
    "mmapped-flags": (codes.MAPPED_HEADER, None),
    "mmapped-size": (codes.MAPPED_HEADER, None),
}
"""By the rule's name its code and the message that a current malloc aborts with, None where it does not notice. Older releases may have
other words."""

RULE_NAMES = tuple(_RULES)


def code_of(rule: str) -> ProblemCode:
    """The code of a rule's findings."""
    return _RULES[rule][0]


def abort_of(rule: str) -> Optional[str]:
    """Return what malloc aborts with where it meets a broken rule, or None."""
    return _RULES[rule][1]


class CheckMoment(NamedTuple):
    """Locks and threads that explain a contradiction in a process that was stopped in the middle of a change."""

    locked: FrozenSet[int]
    """Addresses of arenas whose mutex is held."""
    inside: bool
    """A thread stands in malloc's code."""
    is_single: bool
    """There is one thread, which takes no lock (SINGLE_THREAD_P, 2.27)."""

    def evidence(self, arena: Optional[int], is_cache: bool) -> Optional[str]:
        """Return what may explain a contradiction in this arena or in a thread cache, or None."""
        if arena in self.locked:
            return LOCKED
        if self.inside and (self.is_single or is_cache):
            return INSIDE
        return None


def read_moment(context: Context, walks: Sequence[ArenaWalk]) -> CheckMoment:
    """Return which arenas are locked and whether a thread is inside malloc. A core of a process that crashed or aborted shows what was
    wrong before.
    """
    threads = context.target.threads()
    spans = code.find_glibc_code_spans(context.target, context.glibc.module) or []

    def is_inside(address: Optional[int]) -> bool:
        return address is not None and any(span.start <= address < span.end for span in spans)

    died = [thread for thread in threads[:1] if thread.signal]
    if any(thread.signal in (*CRASHES, SIGABRT) for thread in died):
        return CheckMoment(frozenset(), False, False)
    locked = frozenset(walk.arena.address for walk in walks if walk.arena.state["mutex"])
    inside = any(is_inside(thread.pc) or any(map(is_inside, _near_stack(context, thread.stack_pointer))) for thread in threads)
    return CheckMoment(locked, inside, len(threads) == 1)


def _near_stack(context: Context, pointer: Optional[int]) -> List[int]:
    if pointer is None:
        return []
    word = context.glibc.geometry.word_bytes
    return context.target.words_in(context.target.read_prefix(pointer & -word, FRAME_WORDS * word))


class Findings:
    """Broken rules of one heap, each place once."""

    def __init__(self, context: Context, walks: Sequence[ArenaWalk], when: CheckMoment) -> None:
        self._context, self._when = context, when
        self._found: Dict[Tuple[str, Optional[int]], BrokenRule] = {}
        page = context.glibc.geometry.page_bytes
        spans = [(start, end, walk) for walk in walks for start, end in walk.ranges(page)]
        spans += [(walk.arena.address, walk.arena.address + walk.arena.state.size_bytes, walk) for walk in walks if walk.arena.is_main]
        self._spans = sorted(spans, key=lambda span: span[:2])
        self._starts = [span[0] for span in self._spans]

    @property
    def rows(self) -> List[BrokenRule]:
        """Return all in the order found; findings at one address share a suspect."""
        suspects = {row.address: row.suspect for row in self._found.values() if row.suspect is not None and row.address is not None}
        return [
            row if row.suspect is not None else row._replace(suspect=suspects.get(row.address or TargetAddress(0)))
            for row in self._found.values()
        ]

    def arena_of(self, address: Optional[int]) -> Optional[ArenaWalk]:
        """The arena that owns this address."""
        place = bisect_right(self._starts, address) - 1 if address is not None else -1
        return self._spans[place][2] if place >= 0 and address is not None and address < self._spans[place][1] else None

    def has(self, *rules: str) -> bool:
        """Return whether one of these rules is broken anywhere."""
        return any(rule in rules for rule, _ in self._found)

    def add(self, rule: str, address: Optional[int], what: str, suspect: Optional[RuleSuspect] = None, is_cache: bool = False) -> None:
        """Add a broken rule unless its place has it already."""
        key = (rule, address)
        if key in self._found or len(self._found) >= MOST_BROKEN:
            return
        walk, glibc = self.arena_of(address), self._context.glibc
        self._found[key] = BrokenRule(
            allocator=glibc.id,
            arena=walk.arena.index if walk is not None else None,
            code=code_of(rule),
            address=TargetAddress(address) if address is not None else None,
            rule=rule,
            abort=abort_of(rule),
            suspect=suspect,
            what=what,
            evidence=self._when.evidence(walk.arena.address if walk is not None else None, is_cache),
        )
