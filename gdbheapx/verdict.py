"""Is it a leak, or is the allocator holding it: what the verdicts on every allocator share."""

from typing import Callable, List, NamedTuple, Optional, Sequence, TypeVar

from gdbheapx import findings
from gdbheapx.model import CERTAIN, GUESS, SURENESS, Finding, Step
from gdbheapx.units import Size, say, share

NOT_MALLOC = "not-malloc"
LEAK_LIKE = "leak-like"
LEAKED = "leaked"
"""Nothing points to much of what is in use."""
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
    results: List[T] = []
    scripts: List[List[bool]] = [[]]
    while scripts:
        script = scripts.pop()
        asked: List[bool] = []

        def ask(condition: Callable[[F], bool], script: List[bool] = script, asked: List[bool] = asked) -> bool:
            if len(asked) < len(script):
                asked.append(script[len(asked)])
            else:
                seen = {condition(case) for case in cases}
                if len(seen) > 1:
                    scripts.append([*asked, False])
                asked.append(True in seen)
            return asked[-1]

        answer = decide(ask)
        if answer not in results:
            results.append(answer)
    return results


def less_sure(missing: Sequence[str], sure: str = CERTAIN) -> str:
    """As sure as a verdict is that stands although these inputs are unknown: a step less for each."""
    return SURENESS[min(SURENESS.index(sure) + len(missing), len(SURENESS) - 1)]


HELD = "leak-like: the program itself holds the memory, a leak only if it grows"
"""What is said where most of the memory is in use."""
IN_USE = "the program holds the memory"
"""The same where another line says what is wrong with it."""
GROWING = "to see what grows: gdbheapx snapshot FILE now and some time later, then gdbheapx diff OLD NEW"
"""What to do then."""
GROWN = "to see what grew: gdbheapx diff OLD, with a snapshot that was made earlier"
"""The same of a core."""


def what_is_in_use(kind: str, statuses: Sequence[str] = ("used",)) -> List[Step]:
    """The commands that show it, where the program has most of the memory, or part of it. `statuses`: of the allocator's blocks in use."""
    if kind not in (LEAK_LIKE, MIXED):
        return []
    steps = [Step("chunks --histogram", "shows which sizes are in use")]
    if kind == LEAK_LIKE:
        steps.append(Step("chunks %s --sort size" % " ".join("--status " + status for status in statuses), "lists the largest blocks"))
    return steps


class Weight(NamedTuple):
    """What takes memory of all that an allocator holds."""

    held: int
    used: int
    overhead: int = 0
    """What is neither in use nor free: its own structures, what could not be read."""

    @property
    def free(self) -> int:
        return max(0, self.held - self.used - self.overhead)


def usual(held_bytes: int, used_bytes: int, taken_bytes: Optional[int], beyond_bytes: int = 0, overhead_bytes: int = 0) -> Verdict:
    """The verdict by what an allocator holds and what of that is in use. `taken_bytes`: what of it takes memory, in use or free; None: not
    known. `beyond_bytes`: the most that could not be read. `overhead_bytes`: what of it is neither in use nor free."""
    gone = max(0, held_bytes - taken_bytes) if taken_bytes is not None else 0
    bounds = {max(0, gone - held_bytes + used_bytes), min(gone, used_bytes)}
    weights = [Weight(held_bytes - gone, used_bytes - part, overhead_bytes) for part in bounds]
    beyond = (0, beyond_bytes) if beyond_bytes else ()
    weights += [weight._replace(held=weight.held + beyond_bytes, used=weight.used + part) for weight in weights for part in beyond]
    kinds = outcomes(_usual_kind, weights)
    missing = ["what is in RAM"] * (taken_bytes is None) + ["the whole heap"] * (beyond_bytes > 0)
    known = say(
        "at least %s are in use by the program, at least %s are free in the allocator",
        *(Size(min(part)) for part in zip(*((weight.used, weight.free) for weight in weights))),
    )
    if len(kinds) > 1:
        what = "no verdict: cannot read %s, and the verdict hangs on that" % (" and ".join(missing) or "which blocks are in RAM")
        return of_lines(UNREAD, [Finding(what, known, None, findings.EVIDENCE_MISSING)])
    (kind,), (held, used, _) = kinds, weights[0]
    if kind == SMALL:
        known = say("%s requested from the kernel", Size(held))
    elif len(weights) == 1:
        parts = Size(used), Size(held), share(used, held), Size(weights[0].free), share(weights[0].free, held)
        known = say("%s of %s (%s) are in use by the program, %s (%s) are free in the allocator", *parts)
    what, code, hint = _USUAL[kind]
    return of_lines(kind, [Finding(what, known, hint, code)], less_sure(missing))


_USUAL = {
    SMALL: ("the heap is small", findings.SMALL_HEAP, None),
    LEAK_LIKE: (HELD, findings.IN_USE, GROWING),
    HOARDING: ("hoarding: the allocator holds memory that the program has freed", findings.FREED_AND_HELD, None),
    MIXED: ("mixed: part is in use, part is held by the allocator", findings.PART_HELD, None),
}


def _usual_kind(ask: Ask[Weight]) -> str:
    """The decision; each condition is linear in the figures."""
    if ask(lambda weight: weight.held < SMALL_BYTES):
        return SMALL
    if ask(lambda weight: weight.used >= 0.8 * weight.held):
        return LEAK_LIKE
    return HOARDING if is_much(ask, lambda weight: weight.free, lambda weight: weight.held) else MIXED


def is_much(ask: Ask[F], part: Callable[[F], int], held: Callable[[F], int]) -> bool:
    """Enough of what is held to be the verdict; `ask` as in outcomes()."""
    return ask(lambda figures: 2 * part(figures) >= held(figures)) or (
        ask(lambda figures: part(figures) > MUCH_BYTES) and ask(lambda figures: 3 * part(figures) >= held(figures))
    )
