"""Decide between in use, leaked and kept by the allocator: the engine behind the verdicts on every allocator and on the memory as a
whole.
"""

from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

from gdbheapx import findings
from gdbheapx.hints import hint_command
from gdbheapx.model import CERTAIN, GUESS, SURENESS, Finding, StepSentence
from gdbheapx.units import Sentence, SentenceSize, format_share, make_sentence

IN_USE = "in-use"
"""The program has it: the state of a healthy process, and of one that leaks what it still points to."""
LEAKED = "leaked"
"""Nothing points to much of the memory in use."""
GROWING = "growing"
"""More of it is in use than before: said of two readings only."""
KEPT = "kept"
"""Free memory that the allocator keeps."""
FRAGMENTED = "fragmented"
"""Free blocks are kept because of neighbours in use: said only where an allocator's structure tells."""
RUNTIME = "runtime"
"""Most of the memory is in pools of a runtime, such as CPython's, a JVM's or Go's."""
INCONCLUSIVE = "inconclusive"
"""No verdict: unread memory would decide it, or malloc belongs to an allocator that is not read here."""
SMALL = "small"
KINDS = (IN_USE, LEAKED, GROWING, KEPT, FRAGMENTED, RUNTIME, INCONCLUSIVE, SMALL)
_HOARDING, _UNREAD, _NOT_MALLOC, HUGE_PAGES_1_0 = "hoarding", "unread", "not-malloc", "huge-pages"
_BY_CODE: Dict[str, Tuple[str, str]] = {
    findings.IN_USE: (IN_USE, "leak-like"),
    findings.PART_HELD: (IN_USE, "mixed"),
    findings.LEAKED: (LEAKED, "leaked"),
    findings.FREED_AND_HELD: (KEPT, _HOARDING),
    findings.ARENAS_LEFT: (KEPT, _HOARDING),
    findings.UNMERGED: (KEPT, _HOARDING),
    findings.UNUSED_PAGES: (KEPT, _HOARDING),
    findings.GIVEN_BACK_IN_RAM: (KEPT, _HOARDING),
    findings.BLOCKLESS: (KEPT, HUGE_PAGES_1_0),
    findings.FREE_BETWEEN: (FRAGMENTED, "fragmented"),
    findings.FREE_REGIONS: (FRAGMENTED, "fragmented"),
    findings.SMALL_HEAP: (SMALL, "small"),
    findings.ABORTED_IN_MALLOC: (SMALL, "small"),
    findings.EVIDENCE_MISSING: (INCONCLUSIVE, _UNREAD),
    findings.OWNER_UNREAD: (INCONCLUSIVE, _UNREAD),
    findings.ALLOCATOR_UNREAD: (INCONCLUSIVE, _UNREAD),
    findings.NO_ALLOCATOR: (INCONCLUSIVE, _UNREAD),
    findings.MOSTLY_RUNTIME: (RUNTIME, _NOT_MALLOC),
}
"""By code: the kind, and the one that it had in 1.0. A code that begins with `mostly-` and is not here: in use, outside malloc."""

HELD_BY_PROGRAM = (findings.IN_USE, findings.PART_HELD)
"""Codes of a verdict by which the program has most of an allocator's memory, or all that is not worth a word."""
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


class VerdictCause(NamedTuple):
    """Reason why memory is where it is, as far as it is known."""

    code: str
    """Of a finding of the same answer."""
    bytes: Optional[int]
    """How much of the memory is due to it; None where that is not known."""
    cure: Optional[str]


class HeapVerdict(NamedTuple):
    """The answer."""

    kind: str
    """One of KINDS."""
    lines: Sequence[Finding]
    """The verdict itself, then what else stands out."""
    code: Optional[str] = None
    """Of the first line: what exactly it is (findings.py)."""
    sure: str = CERTAIN
    """`certain` (it follows from what the allocator and the kernel say), `likely`, `guess`: as sure as whose the memory is."""
    evidence: Optional[str] = None
    """Of the first line."""
    confidence: Optional[str] = None
    """The same as `sure`."""
    causes: Sequence[VerdictCause] = ()
    """Those that are known."""
    kind_1_0: Optional[str] = None
    """The kind that release 1.0 gave the same figures."""
    code_1_0: Optional[str] = None


def of_lines(lines: Sequence[Finding], sure: str = CERTAIN) -> HeapVerdict:
    """A verdict that its first line states: its code decides the kind. Nothing is sure without evidence."""
    code = lines[0].code or findings.EVIDENCE_MISSING
    kind, old = _BY_CODE[code] if not code.startswith(findings.MOSTLY) or code in _BY_CODE else (IN_USE, _NOT_MALLOC)
    return HeapVerdict(kind, lines, code, GUESS if kind == INCONCLUSIVE else sure, lines[0].evidence, kind_1_0=old, code_1_0=code)


def with_causes(judged: HeapVerdict, said: Sequence[Finding]) -> HeapVerdict:
    """Return the verdict with the causes among the findings of the same answer."""
    known = {line.code: VerdictCause(line.code, line.size_bytes, line.hint) for line in reversed(said) if line.code in findings.CAUSES}
    return judged._replace(confidence=judged.sure, causes=list(known.values())[::-1])


def possible_verdicts(decide: Callable[[Ask[F]], T], cases: Sequence[F]) -> List[T]:
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
    """Return the confidence of a verdict that does not depend on these unknown inputs: one step less for each."""
    return SURENESS[min(SURENESS.index(sure) + len(missing), len(SURENESS) - 1)]


GROWING_HINT = "that is normal unless it keeps growing: `%s` now, later `%s`" % (
    hint_command("snapshot now.snap"),
    hint_command("diff now.snap"),
)
"""What is said where the program has most of the memory."""
GREW_HINT = "that is normal unless it grew: %s compares it with an earlier snapshot" % hint_command("diff OLD")
"""The same of a core."""


def in_use(used_bytes: int, held_bytes: Optional[int], hint: Optional[str] = GROWING_HINT, code: str = findings.IN_USE) -> Finding:
    """The line on memory that the program has. `held_bytes`: None where the figures are the least of what is possible."""
    return Finding(
        "In use", make_sentence("%s are allocated by the program", part_of(used_bytes, held_bytes)), hint, code, size_bytes=used_bytes
    )


def kept_finding(free_bytes: int, held_bytes: Optional[int], hint: Optional[str], code: str, keeper: str = "malloc") -> Finding:
    """The line on free memory that an allocator keeps; `held_bytes` as of in_use()."""
    return Finding(
        "Kept",
        make_sentence("%s are free memory that %s keeps", part_of(free_bytes, held_bytes), keeper),
        hint,
        code,
        size_bytes=free_bytes,
    )


def part_of(part_bytes: int, whole_bytes: Optional[int]) -> Sentence:
    """The figures that a line of a verdict begins with; `whole_bytes` as of in_use()."""
    if whole_bytes is None:
        return make_sentence("at least %s", SentenceSize(part_bytes))
    return make_sentence("%s of %s (%s)", SentenceSize(part_bytes), SentenceSize(whole_bytes), format_share(part_bytes, whole_bytes))


def inconclusive_finding(lacking: str, known: str, hint: Optional[str], code: str = findings.EVIDENCE_MISSING) -> Finding:
    """The line where unread memory decides. `known`: the figures that stand anyway."""
    return Finding("Inconclusive", lacking, hint, code, known)


def what_is_in_use(code: Optional[str], statuses: Sequence[str] = ("used",)) -> List[StepSentence]:
    """The commands that show it, where the program has most of the memory, or part of it. `statuses`: of the allocator's blocks in use."""
    if code not in HELD_BY_PROGRAM:
        return []
    steps = [StepSentence(hint_command("chunks --histogram"), "shows which sizes are in use")]
    if code == findings.IN_USE:
        steps.append(
            StepSentence(
                hint_command("chunks %s --sort size" % " ".join("--status " + status for status in statuses)), "lists the largest blocks"
            )
        )
    return steps


class HeldBytes(NamedTuple):
    """Bytes that an allocator holds and how many of them are in use."""

    held: int
    used: int
    overhead: int = 0
    """What is neither in use nor free: its own structures, what could not be read."""

    @property
    def free(self) -> int:
        return max(0, self.held - self.used - self.overhead)


def usual_verdict(
    held_bytes: int, used_bytes: int, taken_bytes: Optional[int], beyond_bytes: int = 0, overhead_bytes: int = 0
) -> HeapVerdict:
    """The verdict by what an allocator holds and what of that is in use. `taken_bytes`: what of it takes memory, in use or free; None: not
    known. `beyond_bytes`: the most that could not be read. `overhead_bytes`: what of it is neither in use nor free."""
    gone = max(0, held_bytes - taken_bytes) if taken_bytes is not None else 0
    bounds = {max(0, gone - held_bytes + used_bytes), min(gone, used_bytes)}
    weights = [HeldBytes(held_bytes - gone, used_bytes - part, overhead_bytes) for part in bounds]
    beyond = (0, beyond_bytes) if beyond_bytes else ()
    weights += [weight._replace(held=weight.held + beyond_bytes, used=weight.used + part) for weight in weights for part in beyond]
    kinds = possible_verdicts(_usual_code, weights)
    missing = ["which pages are in RAM"] * (taken_bytes is None) + ["the whole heap"] * (beyond_bytes > 0)
    least = [min(part) for part in zip(*((weight.used, weight.free) for weight in weights))]
    known = make_sentence("at least %s are in use by the program, at least %s are free in the allocator", *map(SentenceSize, least))
    if len(kinds) > 1:
        what = "cannot read %s, and the verdict depends on it" % (" and ".join(missing) or "which blocks are in RAM")
        return of_lines([inconclusive_finding(what, known, None)])
    (code,), (held, used, _) = kinds, weights[0]
    if code == findings.SMALL_HEAP:
        return of_lines(
            [Finding("Small", make_sentence("%s requested from the kernel", SentenceSize(held)), None, code)], less_sure(missing)
        )
    free, whole = weights[0].free, held if len(weights) == 1 else None
    if code == findings.FREED_AND_HELD:
        line = kept_finding(free if whole else least[1], whole, None, code)
        known = make_sentence("%s (%s) are in use by the program", SentenceSize(used), format_share(used, held)) if whole else known
    else:
        line = in_use(used if whole else least[0], whole, GROWING_HINT if code == findings.IN_USE else None, code)
        known = make_sentence("%s (%s) are free in the allocator", SentenceSize(free), format_share(free, held)) if whole else known
    return of_lines([line._replace(details=known)], less_sure(missing))


def _usual_code(ask: Ask[HeldBytes]) -> str:
    """The decision; each condition is linear in the figures."""
    if ask(lambda weight: weight.held < SMALL_BYTES):
        return findings.SMALL_HEAP
    if ask(lambda weight: weight.used >= 0.8 * weight.held):
        return findings.IN_USE
    return findings.FREED_AND_HELD if is_much(ask, lambda weight: weight.free, lambda weight: weight.held) else findings.PART_HELD


def is_much(ask: Ask[F], part: Callable[[F], int], held: Callable[[F], int]) -> bool:
    """Enough of what is held to be the verdict; `ask` as in outcomes()."""
    return ask(lambda figures: 2 * part(figures) >= held(figures)) or (
        ask(lambda figures: part(figures) > MUCH_BYTES) and ask(lambda figures: 3 * part(figures) >= held(figures))
    )
