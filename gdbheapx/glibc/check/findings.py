"""Broken rules as they are collected: each place once, with its arena, and what else may explain it."""

from bisect import bisect_right
from typing import Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.rules import INSIDE, LOCKED, MOST_BROKEN, BrokenRule, Suspect
from gdbheapx.glibc import code
from gdbheapx.glibc.check.messages import abort_of, code_of
from gdbheapx.glibc.context import ArenaWalk, Context
from gdbheapx.model import Address

SIGABRT = 6
CRASHES = (4, 7, 8, 11)
"""SIGILL, SIGBUS, SIGFPE, SIGSEGV: malloc does not get them unless what it reads is damaged; nor does it abort."""
FRAME_WORDS = 8
"""So many words from the stack pointer on are taken for return addresses of a leaf function or a system call."""


class Moment(NamedTuple):
    """What of a process can be in the middle of a change."""

    locked: FrozenSet[int]
    """Addresses of arenas whose mutex is held."""
    inside: bool
    """A thread stands in malloc's code."""
    is_single: bool
    """There is one thread, which takes no lock (SINGLE_THREAD_P, 2.27)."""

    def evidence(self, arena: Optional[int], is_cache: bool) -> Optional[str]:
        """What may explain a contradiction in this arena, or in a thread cache."""
        if arena in self.locked:
            return LOCKED
        if self.inside and (self.is_single or is_cache):
            return INSIDE
        return None


def moment(context: Context, walks: Sequence[ArenaWalk]) -> Moment:
    """Who was changing what. A core of a process that crashed, or that malloc itself has ended, shows what was wrong before."""
    threads = context.target.threads()
    spans = code.spans(context.target, context.glibc.module) or []

    def is_inside(address: Optional[int]) -> bool:
        return address is not None and any(span.start <= address < span.end for span in spans)

    died = [thread for thread in threads[:1] if thread.signal]
    if any(thread.signal in (*CRASHES, SIGABRT) for thread in died):
        return Moment(frozenset(), False, False)
    locked = frozenset(walk.arena.address for walk in walks if walk.arena.state["mutex"])
    inside = any(is_inside(thread.pc) or any(map(is_inside, _near_stack(context, thread.stack_pointer))) for thread in threads)
    return Moment(locked, inside, len(threads) == 1)


def _near_stack(context: Context, pointer: Optional[int]) -> List[int]:
    if pointer is None:
        return []
    word = context.glibc.geometry.word_bytes
    return context.target.words_in(context.target.read_prefix(pointer & -word, FRAME_WORDS * word))


class Findings:
    """All of one heap."""

    def __init__(self, context: Context, walks: Sequence[ArenaWalk], when: Moment) -> None:
        self._context, self._when = context, when
        self._found: Dict[Tuple[str, Optional[int]], BrokenRule] = {}
        page = context.glibc.geometry.page_bytes
        spans = [(start, end, walk) for walk in walks for start, end in walk.ranges(page)]
        spans += [(walk.arena.address, walk.arena.address + walk.arena.state.size_bytes, walk) for walk in walks if walk.arena.is_main]
        self._spans = sorted(spans, key=lambda span: span[:2])
        self._starts = [span[0] for span in self._spans]

    @property
    def rows(self) -> List[BrokenRule]:
        """In the order found. What is said of one address has one suspect."""
        suspects = {one.address: one.suspect for one in self._found.values() if one.suspect is not None and one.address is not None}
        return [
            one if one.suspect is not None else one._replace(suspect=suspects.get(one.address or Address(0)))
            for one in self._found.values()
        ]

    def arena_of(self, address: Optional[int]) -> Optional[ArenaWalk]:
        """The arena that owns this address."""
        place = bisect_right(self._starts, address) - 1 if address is not None else -1
        return self._spans[place][2] if place >= 0 and address is not None and address < self._spans[place][1] else None

    def has(self, *rules: str) -> bool:
        """One of these rules is broken somewhere."""
        return any(rule in rules for rule, _ in self._found)

    def add(self, rule: str, address: Optional[int], what: str, suspect: Optional[Suspect] = None, is_cache: bool = False) -> None:
        """One more, unless it is there already."""
        key = (rule, address)
        if key in self._found or len(self._found) >= MOST_BROKEN:
            return
        walk, glibc = self.arena_of(address), self._context.glibc
        self._found[key] = BrokenRule(
            allocator=glibc.id,
            arena=walk.arena.index if walk is not None else None,
            code=code_of(rule),
            address=Address(address) if address is not None else None,
            rule=rule,
            abort=abort_of(rule, glibc.version),
            suspect=suspect,
            what=what,
            evidence=self._when.evidence(walk.arena.address if walk is not None else None, is_cache),
        )
