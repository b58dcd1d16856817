"""Is it a leak, or is the allocator holding it: what the verdicts on every allocator share."""

from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

from gdbheapx import findings
from gdbheapx.model import CERTAIN, GUESS, SURENESS, Finding
from gdbheapx.units import Size, say, share

NOT_MALLOC = "not-malloc"
LEAK_LIKE = "leak-like"
HOARDING = "hoarding"
FRAGMENTED = "fragmented"
"""Free blocks are kept because of neighbours in use: said only where an allocator's structure tells."""
MIXED = "mixed"
HUGE_PAGES = "huge-pages"
"""What the allocator gave back is in RAM all the same, as parts of huge pages that it still uses."""
UNREAD = "unread"
"""No verdict: what could not be read would decide it, or malloc belongs to an allocator that is not read here."""
SMALL = "small"

SMALL_BYTES = 1 << 20
"""Below this a heap is not worth a verdict."""
MUCH_BYTES = 64 * SMALL_BYTES
"""From here on a third of the heap is worth a verdict."""
UNBOUNDED = 1 << 60
"""More than any process has: the most that something unknown may be where nothing limits it."""
T = TypeVar("T")
F = TypeVar("F")
Ask = Callable[[Callable[[F], bool]], bool]
"""Whether a condition on the figures holds."""


class Verdict(NamedTuple):
    """The answer."""

    kind: str
    lines: Sequence[Finding]
    """The verdict itself, then what else stands out."""
    code: Optional[str] = None
    """Of the first line: what exactly it is (findings.py)."""
    sure: str = CERTAIN
    """`certain` (it follows from what the allocator and the kernel say), `likely`, `guess`: as sure as whose the memory is."""
    evidence: Optional[str] = None
    """Of the first line."""


def of_lines(kind: str, lines: Sequence[Finding], sure: str = CERTAIN) -> Verdict:
    """A verdict that its first line states. Nothing is sure of what is unread."""
    return Verdict(kind, lines, lines[0].code, GUESS if kind == UNREAD else sure, lines[0].evidence)


def outcomes(decide: Callable[[Ask[F]], T], cases: Sequence[F]) -> List[T]:
    """Every answer that `decide` can come to for figures between those of `cases`, the corners of what is possible.

    `decide(ask)` asks one condition after the other, each of them linear in the figures: what holds at all corners holds everywhere between
    them. Where a condition holds at some corners only, both answers are followed.
    """
    found: List[T] = []
    scripts: List[List[bool]] = [[]]
    while scripts:
        script = scripts.pop()
        asked: List[bool] = []

        def ask(condition: Callable[[F], bool], script: List[bool] = script, asked: List[bool] = asked) -> bool:
            if len(asked) < len(script):
                asked.append(script[len(asked)])
            else:
                seen = {condition(one) for one in cases}
                if len(seen) > 1:
                    scripts.append([*asked, False])
                asked.append(True in seen)
            return asked[-1]

        answer = decide(ask)
        if answer not in found:
            found.append(answer)
    return found


def less_sure(missing: Sequence[str], sure: str = CERTAIN) -> str:
    """As sure as a verdict is that stands although these inputs are unknown: a step less for each."""
    return SURENESS[min(SURENESS.index(sure) + len(missing), len(SURENESS) - 1)]


HELD = "leak-like: the program itself holds the memory, a leak only if it grows"
"""What is said where most of the memory is in use."""
GROWING = "to see what grows: gdbheapx snapshot FILE now and some time later, then gdbheapx diff OLD NEW"
"""What to do then."""


def usual(held_bytes: int, used_bytes: int, free_bytes: int, hint: Optional[str]) -> Tuple[str, List[Finding]]:
    """(kind, its line) by what is in use and what is free of all that an allocator holds; `hint`: what would give free memory back."""
    if held_bytes < SMALL_BYTES:
        return SMALL, [Finding("the heap is small", say("%s requested from the kernel", Size(held_bytes)), None, findings.SMALL_HEAP)]
    parts = Size(used_bytes), Size(held_bytes), share(used_bytes, held_bytes), Size(free_bytes), share(free_bytes, held_bytes)
    evidence = say("%s of %s (%s) are in use by the program, %s (%s) are free in the allocator", *parts)
    if used_bytes >= 0.8 * held_bytes:
        return LEAK_LIKE, [Finding(HELD, evidence, GROWING, findings.IN_USE)]

    def ask(condition: Callable[[Tuple[int, int]], bool]) -> bool:
        return condition((free_bytes, held_bytes))

    if is_much(ask, lambda one: one[0], lambda one: one[1]):
        return HOARDING, [
            Finding("hoarding: the allocator holds memory that the program has freed", evidence, hint, findings.FREED_AND_HELD)
        ]
    return MIXED, [Finding("mixed: part is in use, part is held by the allocator", evidence, hint, findings.PART_HELD)]


def is_much(ask: Ask[F], part: Callable[[F], int], held: Callable[[F], int]) -> bool:
    """Enough of what is held to be the verdict; `ask` as in outcomes()."""
    return ask(lambda one: 2 * part(one) >= held(one)) or (
        ask(lambda one: part(one) > MUCH_BYTES) and ask(lambda one: 3 * part(one) >= held(one))
    )
