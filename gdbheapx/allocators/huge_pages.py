"""Memory that an allocator gave back or never used and that is in RAM all the same: huge pages do that. Figures in, sentences out."""

from typing import List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common import findings
from gdbheapx.common.model import CERTAIN, GUESS, LIKELY, Finding, StepSentence
from gdbheapx.common.units import SentenceSize, format_share, make_sentence
from gdbheapx.common.verdict import HUGE_PAGES_1_0, HUGE_SHARE, SMALL_BYTES, SMALL_HUGE_BYTES, WORTH_BYTES, HeapVerdict, of_lines
from gdbheapx.inferior.base import HugePages

HUGE, LOCKED, LAZY, UNTOLD = "huge pages", "locked memory", "MADV_FREE", "cause unknown"
"""Why it is there."""
_WHAT = ("%s that %s returned, or never used, are still in RAM: %s", "%s that %s gave back stay in RAM until the kernel needs them: %s")
_HINTS = {
    LOCKED: "mlockall or mlock keeps these pages in RAM, and madvise cannot return them: lock less memory",
    LAZY: "the kernel takes these pages when it needs memory, and nothing has to be done",
    UNTOLD: "neither huge pages nor locked memory explain it; /proc/PID/smaps shows more about the mappings",
}


class Returned(NamedTuple):
    """Memory that one allocator gave back or never used, and that is resident all the same."""

    name: str
    """The allocator's, for sentences."""
    address_space_bytes: Optional[int]
    """All of it, in RAM or not; None if that is not known."""
    resident_bytes: Optional[int]
    huge_bytes: Optional[int]
    """Parts of huge pages among them; None where the kernel does not show it."""
    what: str
    """Such as `retained`."""
    cure: Optional[StepSentence]
    """The allocator's own option against it, for the next start; None if it has none here."""
    lazy_bytes: Optional[int] = None
    """What of the resident bytes was given to MADV_FREE; None where that is not known."""


class Blockless(NamedTuple):
    """Huge pages of one allocator's memory where it has no block: a huge page becomes resident as a whole at the first touch."""

    name: str
    huge_bytes: Optional[int]
    """None where the kernel does not show it."""
    zero_bytes: Optional[int]
    """What of it holds zeros: the most that would not be in RAM without huge pages. Zeros that the program wrote (calloc clears blocks)
    look the same: so no verdict on it is certain. None if that is not known."""
    rss_bytes: Optional[int]
    """Of the whole process."""
    asked: str
    """Who asked for huge pages, where it is the allocator; else empty."""
    cures: Sequence[StepSentence]
    """The allocator's own."""


class Judged(NamedTuple):
    """A sentence on it."""

    finding: Finding
    cause: str
    """HUGE, LOCKED, LAZY or UNTOLD."""
    sure: str
    steps: Sequence[StepSentence]
    """What keeps it from coming back, the nearest first; nothing gives it back now but the program's own madvise."""


def judge_huge_pages(returned: Returned, facts: Optional[HugePages]) -> Optional[Judged]:
    """The sentence, the cause, and how sure that is; None if it is not worth one."""
    resident = returned.resident_bytes or 0
    if resident < WORTH_BYTES:
        return None
    cause, sure = _explain_cause(returned, facts)
    of = "" if returned.address_space_bytes is None else make_sentence(" of %s", SentenceSize(returned.address_space_bytes))
    huge = make_sentence(", %s of that in huge pages", SentenceSize(returned.huge_bytes)) if returned.huge_bytes else ""
    is_set = facts is not None and facts.setting is not None and cause != LAZY
    setting = "; transparent_hugepage/enabled is %s" % facts.setting if is_set and facts is not None else ""
    evidence = make_sentence(_WHAT[cause == LAZY], SentenceSize(resident), returned.name, cause)
    details = make_sentence("%s%s %s%s%s", SentenceSize(resident), of, returned.what, huge, setting)
    steps = _list_cures(returned, facts) if cause == HUGE else []
    finding = Finding("Kept", evidence, _HINTS.get(cause) or str(steps[0]), findings.GIVEN_BACK_IN_RAM, details, resident)
    return Judged(finding, cause, sure, steps)


def is_worth_telling(huge_bytes: Optional[int], rss_bytes: Optional[int]) -> bool:
    """So much of a process is in huge pages without a block."""
    huge = huge_bytes or 0
    return huge >= WORTH_BYTES or (huge >= SMALL_HUGE_BYTES and rss_bytes is not None and HUGE_SHARE * huge >= rss_bytes)


def judge_blockless(found: Blockless, facts: Optional[HugePages]) -> Optional[Judged]:
    """The sentence on what huge pages fill without a block; None if it is not worth one: what the program wrote would be there anyway."""
    huge, rss = found.huge_bytes, found.rss_bytes
    if huge is None or not is_worth_telling(huge if found.zero_bytes is None else found.zero_bytes, rss):
        return None
    setting = facts.setting if facts is not None else None
    asked = "transparent_hugepage/enabled is always" if setting == "always" else found.asked or "the program asked for them (madvise)"
    of = "" if rss is None else make_sentence(" of %s RSS (%s)", SentenceSize(rss), format_share(huge, rss))
    saved = make_sentence("without huge pages not all of that would be in RAM")
    if found.zero_bytes is not None:
        what = "at most %s of that, which hold zeros, would not be in RAM without huge pages"
        saved = make_sentence(what, SentenceSize(found.zero_bytes))
    evidence = make_sentence("%s%s are parts of huge pages where %s has no block", SentenceSize(huge), of, found.name)
    steps = [*found.cures, *_list_cures(Returned(found.name, None, None, huge, "", None), facts)]
    finding = Finding("Kept", evidence, str(steps[0]), findings.BLOCKLESS, make_sentence("%s; %s", saved, asked), huge)
    return Judged(finding, HUGE, LIKELY, steps)


def add_huge_page_verdict(
    returned: Optional[Judged], resident_bytes: Optional[int], held_bytes: int, otherwise: HeapVerdict
) -> HeapVerdict:
    """The allocator's verdict with this in its place: first where it is much of what is held, else after the first line."""
    if returned is None:
        return otherwise
    if not decides_verdict(resident_bytes, held_bytes):
        return otherwise._replace(lines=[otherwise.lines[0], returned.finding, *otherwise.lines[1:]])
    judged = of_lines([returned.finding, *otherwise.lines], returned.sure)
    return judged._replace(kind_1_0=HUGE_PAGES_1_0) if returned.cause == HUGE else judged


def decides_verdict(part_bytes: Optional[int], held_bytes: int) -> bool:
    """So much of what is held that it is the verdict; what is not known is not."""
    return HUGE_SHARE * (part_bytes or 0) >= held_bytes


def may_decide(resident_bytes: Optional[int], address_space_bytes: int, is_core: bool) -> bool:
    """True if its resident part is unknown and could be the verdict. A core never shows that: it has such pages as zeros."""
    return resident_bytes is None and address_space_bytes > SMALL_BYTES and not is_core


def _explain_cause(returned: Returned, facts: Optional[HugePages]) -> Tuple[str, str]:
    resident = returned.resident_bytes or 0
    if 2 * (returned.lazy_bytes or 0) >= resident:
        return LAZY, CERTAIN
    if returned.huge_bytes is not None and 2 * returned.huge_bytes >= resident:
        return HUGE, CERTAIN
    if facts is not None and facts.locked_bytes and 2 * facts.locked_bytes >= resident:
        return LOCKED, LIKELY
    if returned.huge_bytes is not None or (facts is not None and (facts.setting in (None, "never") or facts.allowed is False)):
        return UNTOLD, GUESS
    return HUGE, LIKELY


def _list_cures(returned: Returned, facts: Optional[HugePages]) -> List[StepSentence]:
    cures = [returned.cure] if returned.cure is not None else []
    why = "in the program or its launcher disables huge pages for the process"
    cures.append(StepSentence("prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)", why))
    if facts is not None and facts.setting == "always":
        why = "limits huge pages to programs that ask for them, on the whole machine"
        cures.append(StepSentence("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled", why))
    if returned.huge_bytes is None:
        cures.append(StepSentence("grep AnonHugePages /proc/PID/smaps", "shows whether the mappings have huge pages"))
    return cures


def huge_page_steps(judged: HeapVerdict, returned: Optional[Judged]) -> Sequence[StepSentence]:
    """Return steps against huge pages where they are the verdict."""
    return returned.steps if returned is not None and judged.code == returned.finding.code else ()
