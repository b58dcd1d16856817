"""The verdict on a heap: the first of an allocator's rules that holds for its evidence, whatever the unknown part of that is.

An allocator supplies evidence (HeapEvidence, whose cases are the corners of what is possible), its rows of rules (VerdictRule) and its
hints; judge_heap() decides. The thresholds of all verdicts are in this file.
"""

from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common import findings
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import CERTAIN, GUESS, SURENESS, Finding, StepSentence
from gdbheapx.common.units import Sentence, SentenceSize, format_share, join_sentences, make_sentence

# ---- thresholds
SMALL_BYTES = 1 << 20
"""Below this a heap is not worth a verdict."""
LITTLE_BYTES = 8 * SMALL_BYTES
"""The same of a heap that mostly is address space alone, and of an allocator that holds 3 MiB when it is hardly used."""
IN_USE_SHARE = 0.8
"""From this share of a heap on the program has it."""
KEPT_PERCENT = 50
"""From this part of a heap on its free memory is the verdict."""
MUCH_BYTES, MUCH_KEPT_PARTS = 64 * SMALL_BYTES, 3
"""More free memory than this is from a smaller part (1/MUCH_KEPT_PARTS) of the heap on."""
MOST_PARTS = 2
"""One cause is the verdict on the free memory where it explains more than this part (1/MOST_PARTS) of it: blocks in use between,
unmerged chunks, arenas that threads left."""
SPREAD_PARTS, SPREAD_RATIO = 4, 2
"""Free regions of slabs are the verdict on an allocator from this part (1/SPREAD_PARTS) of what it holds on, and from SPREAD_RATIO times
its other free memory on."""
WORTH_BYTES = 16 * SMALL_BYTES
"""Most findings next to a verdict are about more than this; a process below it is small, and a leak above it the verdict."""
HUGE_SHARE = 4
"""Memory in huge pages is the verdict from this part (1/HUGE_SHARE) of what the allocator has in RAM on."""
SMALL_HUGE_BYTES = 4 * SMALL_BYTES
"""Where it is this part of RSS (1/HUGE_SHARE), less than WORTH_BYTES in huge pages is worth a finding."""
MATTERS, MATTERS_BYTES = 0.1, 8 * SMALL_BYTES
"""An allocator with a smaller share of the memory gets no verdict of its own, nor one with fewer bytes that are not half of it."""
MUCH_SHARE = 0.25
"""From this share on memory outside malloc, and shared pages, are worth a finding."""
CACHE_PERCENT = 50
"""From this part of the memory on page cache is the verdict, about which there is nothing to do. In release 1.0: where it is largest."""
LEAKED_PERCENT, LEAKED_PERCENT_1_0 = 5, 10
"""Of the memory in use: less is lost once, at a start or by a library, by many programs that do not grow. In release 1.0 it was more."""

# ---- kinds
IN_USE = "in-use"
"""The program has it: the state of a healthy process, and of one that leaks what it still points to."""
LEAKED = "leaked"
"""Nothing points to much of the memory in use."""
GROWING = "growing"
"""More of it is in use than before: said of two readings only."""
KEPT = "kept"
"""Free memory that the allocator keeps."""
FRAGMENTED = "fragmented"
"""Free blocks are kept because of neighbours in use: said only where an allocator's structure shows it."""
RUNTIME = "runtime"
"""Most of the memory is in pools of a runtime, such as CPython's, a JVM's or Go's."""
INCONCLUSIVE = "inconclusive"
"""No verdict: unread memory would decide it, or malloc belongs to an allocator that is not read here."""
SMALL = "small"
KINDS = (IN_USE, LEAKED, GROWING, KEPT, FRAGMENTED, RUNTIME, INCONCLUSIVE, SMALL)
_HOARDING, _UNREAD, OUTSIDE_1_0, HUGE_PAGES_1_0 = "hoarding", "unread", "not-malloc", "huge-pages"
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
    findings.MOSTLY_RUNTIME: (RUNTIME, OUTSIDE_1_0),
}
"""By code: the kind, and the one that it had in 1.0. A code that begins with `mostly-` and is not here: in use, outside malloc."""
HELD_BY_PROGRAM = (findings.IN_USE, findings.PART_HELD)
"""Codes of a verdict by which the program has most of an allocator's memory, or all that is not worth a word."""
UNBOUNDED = 1 << 60
"""More than any process has: the most that something unknown may be where nothing limits it."""


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
    """The verdict itself, then what else is notable."""
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
    kind, old = _BY_CODE[code] if not code.startswith(findings.MOSTLY) or code in _BY_CODE else (IN_USE, OUTSIDE_1_0)
    return HeapVerdict(kind, lines, code, GUESS if kind == INCONCLUSIVE else sure, lines[0].evidence, kind_1_0=old, code_1_0=code)


def with_causes(judged: HeapVerdict, said: Sequence[Finding]) -> HeapVerdict:
    """Return the verdict with the causes among the findings of the same answer."""
    known = {line.code: VerdictCause(line.code, line.size_bytes, line.hint) for line in reversed(said) if line.code in findings.CAUSES}
    return judged._replace(confidence=judged.sure, causes=list(known.values())[::-1])


def with_end(judged: HeapVerdict, line: Finding) -> HeapVerdict:
    """Add that malloc ended the process; of a small heap that is the verdict."""
    if judged.kind == SMALL:
        return of_lines([line], judged.sure)
    return judged._replace(lines=[*judged.lines, line])


def less_sure(missing: Sequence[str], sure: str = CERTAIN) -> str:
    """Return the confidence of a verdict that does not depend on these unknown inputs: one step less for each."""
    return SURENESS[min(SURENESS.index(sure) + len(missing), len(SURENESS) - 1)]


# ---- evidence and rules


class HeapCase(NamedTuple):
    """The bytes of a heap where everything is known, as far as they take memory; a field that an allocator does not have is 0."""

    held: int
    used: int
    free: int
    """What the allocator keeps: of one with extents its unused pages, those of huge pages included."""
    cached: int = 0
    between: int = 0
    """Free pieces between blocks in use: part of `free`, except for free regions of slabs."""
    left: int = 0
    """Of `free` at the ends of arenas whose threads have ended."""
    unmerged: int = 0
    """Of `free` below the tops of thread arenas."""
    huge_dirty: int = 0
    """Of `free`, dirty pages in huge pages, which no purge reaches."""
    metadata: int = 0
    rounding: int = 0
    """What blocks are rounded up by: it is no part of them, and goes only with them."""
    gone: int = 0
    """What takes no memory, and is in no other field."""
    gone_free: int = 0
    """Of it in free memory; the rest is in blocks that were never written to."""


Ask = Callable[[Callable[[HeapCase], bool]], bool]
"""Whether a condition on the figures holds."""


class VerdictRule(NamedTuple):
    """A row of an allocator's rules, of which the first that holds decides."""

    code: str
    holds: Callable[[Ask], bool]
    """Asks conditions that are linear in the figures."""
    what: str
    """The word that the line begins with."""
    phrase: str = ""
    """What the bytes are."""
    part: str = "used"
    """The field of HeapCase that has them."""
    causes: Sequence["VerdictRule"] = ()
    """Rows that say more, where one of them holds whatever the unknown is."""


class HeapEvidence(NamedTuple):
    """Everything that a verdict on a heap is a function of."""

    cases: Sequence[HeapCase]
    """The corners of what is possible: a single one where everything is known."""
    parts: Mapping[str, str]
    """By field of HeapCase: what the details call it."""
    small: str
    """The evidence where it is not worth a verdict."""
    missing: Sequence[str] = ()
    """What could not be read."""
    unsure: Sequence[str] = ()
    """Further inputs that are not known and make no other verdict possible."""
    gone: str = ""
    """What the details say of memory that is not there."""
    unread_hint: Optional[str] = None
    """What helps where the missing part decides."""
    are_zeros_silent: bool = False
    """A core in which blocks that were never written to are pages of zeros like those that the program wrote: they may have been in RAM."""


def list_ends(known: Optional[int], most: int, least: int = 0) -> List[int]:
    """Return the value, or the least and the most that it can be."""
    return [known] if known is not None else [least, most] if most > least else [most]


def is_small(ask: Ask) -> bool:
    """Return True if a heap is not worth a verdict."""
    return ask(lambda case: case.held < SMALL_BYTES)


def is_mostly_used(ask: Ask) -> bool:
    """Return True if the program has nearly all of a heap."""
    return ask(lambda case: case.used >= IN_USE_SHARE * (case.held - case.rounding))


def is_much_kept(ask: Ask) -> bool:
    """Return True if the allocator has enough free memory for a verdict."""
    return ask(lambda case: 100 * case.free >= KEPT_PERCENT * case.held) or (
        ask(lambda case: case.free > MUCH_BYTES) and ask(lambda case: MUCH_KEPT_PARTS * case.free >= case.held)
    )


def is_rest(ask: Ask) -> bool:
    """Return True: the last row of rules."""
    return True


def is_fragmented(ask: Ask) -> bool:
    """Return True if most of the free memory lies between blocks in use."""
    return ask(lambda case: MOST_PARTS * case.between > case.free)


ALLOCATED, KEPT_BY_MALLOC = "allocated by the program", "free memory that malloc keeps"
USUAL_RULES = (
    VerdictRule(findings.SMALL_HEAP, is_small, "Small"),
    VerdictRule(findings.IN_USE, is_mostly_used, "In use", ALLOCATED),
    VerdictRule(findings.FREED_AND_HELD, is_much_kept, "Kept", KEPT_BY_MALLOC, "free"),
    VerdictRule(findings.PART_HELD, is_rest, "In use", ALLOCATED),
)
"""Rules for an allocator that has none of its own."""


def find_possible_rules(rules: Sequence[VerdictRule], cases: Sequence[HeapCase]) -> List[VerdictRule]:
    """Return every rule that can be the first to hold for figures between those of the cases, the corners of what is possible.

    Conditions are linear: what holds at all corners holds everywhere between them. Where one holds at some corners only, both answers are
    followed.
    """
    results: List[VerdictRule] = []
    scripts: List[List[bool]] = [[]]
    while scripts:
        script = scripts.pop()
        asked: List[bool] = []

        def ask(condition: Callable[[HeapCase], bool], script: List[bool] = script, asked: List[bool] = asked) -> bool:
            if len(asked) < len(script):
                asked.append(script[len(asked)])
            else:
                seen = {condition(case) for case in cases}
                if len(seen) > 1:
                    scripts.append([*asked, False])
                asked.append(True in seen)
            return asked[-1]

        rule = next(rule for rule in rules if rule.holds(ask))
        if rule not in results:
            results.append(rule)
    return results


def judge_heap(evidence: HeapEvidence, rules: Sequence[VerdictRule], hint: Callable[[str], Optional[str]]) -> HeapVerdict:
    """Return the verdict, or that there is none for what could not be read. `hint`: what is said of a code."""
    possible = find_possible_rules(rules, evidence.cases)
    if len(possible) > 1:
        what = "cannot read %s, and the verdict depends on it" % _join_names(evidence)
        return of_lines([inconclusive_finding(what, _say_least(evidence), evidence.unread_hint)])
    rule = possible[0]
    causes = find_possible_rules(rule.causes, evidence.cases) if rule.causes else ()
    rule = causes[0] if len(causes) == 1 else rule
    line = Finding(rule.what, evidence.small, None, rule.code)
    if rule.code != findings.SMALL_HEAP:
        size = min(getattr(case, rule.part) for case in evidence.cases)
        amount = part_of(size, evidence.cases[0].held if len(evidence.cases) == 1 else None)
        evidence_line = make_sentence("%s are %s", amount, rule.phrase)
        line = Finding(rule.what, evidence_line, hint(rule.code), rule.code, _make_details(evidence, rule.part), size)
    touched, other = _judge_touched(evidence, rules) if evidence.are_zeros_silent else (evidence.cases, possible[0])
    if other is possible[0]:
        return of_lines([line], less_sure([*evidence.missing, *evidence.unsure]))
    of_all = part_of(getattr(touched[0], other.part), touched[0].held)
    zeros = make_sentence("if the pages of zeros in its blocks were in RAM, %s are %s", of_all, other.phrase)
    details = join_sentences("; ", [*filter(None, [line.details]), zeros])
    return of_lines([line._replace(details=details)], less_sure([*evidence.missing, *evidence.unsure, "which pages of zeros were in RAM"]))


def _judge_touched(evidence: HeapEvidence, rules: Sequence[VerdictRule]) -> Tuple[List[HeapCase], VerdictRule]:
    """Return the cases, and the rule that decides, where all blocks in use were in RAM."""
    lacking = [case.gone - case.gone_free for case in evidence.cases]
    touched = [case._replace(held=case.held + size, used=case.used + size) for case, size in zip(evidence.cases, lacking)]
    return touched, find_possible_rules(rules, touched)[0]


def _join_names(evidence: HeapEvidence) -> str:
    names = evidence.missing or ["which pages are in RAM"]
    return names[0] if len(names) == 1 else "%s and %s" % (", ".join(names[:-1]), names[-1])


def _say_least(evidence: HeapEvidence) -> Sentence:
    """Return lower bounds of use and free memory. No percentage of an unknown sum is given."""
    least = [min(getattr(case, name) for case in evidence.cases) for name in ("used", "free")]
    words = [evidence.parts[name] for name in ("used", "free")]
    return make_sentence("at least %s are %s, at least %s are %s", SentenceSize(least[0]), words[0], SentenceSize(least[1]), words[1])


def _make_details(evidence: HeapEvidence, part: str) -> Sentence:
    """Return the other figures, with shares where all is known."""
    if len(evidence.cases) > 1:
        return make_sentence("%s; unknown, and without weight here: %s", _say_least(evidence), _join_names(evidence))
    case = evidence.cases[0]
    others = [(getattr(case, name), phrase) for name, phrase in evidence.parts.items() if name != part]
    said = [make_sentence("%s (%s) are %s", SentenceSize(size), format_share(size, case.held), phrase) for size, phrase in others]
    return make_sentence("%s%s", join_sentences(", ", said), evidence.gone)


def part_of(part_bytes: int, whole_bytes: Optional[int]) -> Sentence:
    """Return the figures that a line of a verdict begins with; `whole_bytes`: None where they are the least of what is possible."""
    if whole_bytes is None:
        return make_sentence("at least %s", SentenceSize(part_bytes))
    return make_sentence("%s of %s (%s)", SentenceSize(part_bytes), SentenceSize(whole_bytes), format_share(part_bytes, whole_bytes))


def inconclusive_finding(lacking: str, known: str, hint: Optional[str], code: str = findings.EVIDENCE_MISSING) -> Finding:
    """The line where unread memory decides. `known`: the figures that are known anyway."""
    return Finding("Inconclusive", lacking, hint, code, known)


GROWING_HINT = "that is normal unless it keeps growing: `%s` now, later `%s`" % (
    hint_command("snapshot now.snap"),
    hint_command("diff now.snap"),
)
"""What is said where the program has most of the memory."""
GREW_HINT = "that is normal unless it grew: %s compares it with an earlier snapshot" % hint_command("diff OLD")
"""The same of a core."""


def usual_hint(code: str) -> Optional[str]:
    """Return what is said of a code where the allocator has nothing to say."""
    return GROWING_HINT if code == findings.IN_USE else None


def usual_verdict(
    held_bytes: int,
    used_bytes: int,
    taken_bytes: Optional[int],
    beyond_bytes: int = 0,
    overhead_bytes: int = 0,
    between_bytes: int = 0,
    rules: Sequence[VerdictRule] = USUAL_RULES,
) -> HeapVerdict:
    """Return the verdict by what an allocator holds and what of that is in use. `taken_bytes`: what of it takes memory, in use or free;
    None: not known. `beyond_bytes`: the most that could not be read. `overhead_bytes`: what of it is neither in use nor free.
    `between_bytes`: what of the free rest lies between blocks in use.
    """
    gone = max(0, held_bytes - taken_bytes) if taken_bytes is not None else 0
    cases = []
    for gone_used in {max(0, gone - held_bytes + used_bytes), min(gone, used_bytes)}:
        for beyond, beyond_used in {(0, 0), (beyond_bytes, 0), (beyond_bytes, beyond_bytes)}:
            held, used = held_bytes - gone + beyond, used_bytes - gone_used + beyond_used
            cases.append(HeapCase(held, used, max(0, held - used - overhead_bytes), between=between_bytes))
    missing = ["which pages are in RAM"] * (taken_bytes is None) + ["the whole heap"] * (beyond_bytes > 0)
    small = make_sentence("%s requested from the kernel", SentenceSize(held_bytes - gone))
    words = {"used": "in use by the program", "free": "free in the allocator"}
    return judge_heap(HeapEvidence(cases, words, small, missing), rules, usual_hint)


def what_is_in_use(code: Optional[str], statuses: Sequence[str] = ("used",)) -> List[StepSentence]:
    """Return the commands that show the blocks, where the program has most of the memory, or part of it. `statuses`: of the allocator's
    blocks in use.
    """
    if code not in HELD_BY_PROGRAM:
        return []
    steps = [StepSentence(hint_command("chunks --histogram"), "shows which sizes are in use")]
    if code == findings.IN_USE:
        largest = "chunks %s --sort size" % " ".join("--status " + status for status in statuses)
        steps.append(StepSentence(hint_command(largest), "lists the largest blocks"))
    return steps
