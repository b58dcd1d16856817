"""Memory that an allocator gave back or never used and that is in RAM all the same: huge pages do that. Figures in, sentences out."""

from typing import List, NamedTuple, Optional, Tuple

from gdbheapx.analysis import codes
from gdbheapx.analysis.verdict import SMALL_BYTES, human
from gdbheapx.model import Finding
from gdbheapx.target.base import HugePages

LEAST_BYTES = 16 * SMALL_BYTES
"""Below this nobody would ask."""
SHARE = 4
"""It is the verdict where it is this part (1/SHARE) of what the allocator has in RAM."""
CERTAIN, LIKELY, GUESS = "certain", "likely", "guess"


class Returned(NamedTuple):
    """What one allocator gave back or never used, and yet is in RAM."""

    name: str
    """The allocator's, for sentences."""
    address_space_bytes: int
    """All of it, in RAM or not."""
    resident_bytes: Optional[int]
    huge_bytes: Optional[int]
    """Parts of huge pages among them; None where the kernel does not tell."""
    what: str
    """Such as `retained`."""
    cure: Optional[str]
    """The allocator's own option against it, for the next start; None if it has none here."""


def judge(found: Returned, facts: Optional[HugePages]) -> Optional[Tuple[Finding, str]]:
    """The sentence and how sure it is; None if it is not worth one."""
    resident = found.resident_bytes or 0
    if resident < LEAST_BYTES:
        return None
    cause, sure = _cause(found, facts)
    what = "%s: %s that %s gave back is in RAM all the same" % (cause, human(resident), found.name)
    evidence = "%s of %s %s %s resident" % (human(resident), human(found.address_space_bytes), found.what, "are")
    if found.huge_bytes:
        evidence += ", %s of that in huge pages" % human(found.huge_bytes)
    if facts is not None and facts.setting is not None:
        evidence += "; transparent_hugepage/enabled is %s" % facts.setting
    return Finding(what, evidence, "; ".join(_cures(found, facts, sure)) or None, codes.GIVEN_BACK_IN_RAM), sure


def _cause(found: Returned, facts: Optional[HugePages]) -> Tuple[str, str]:
    resident = found.resident_bytes or 0
    if found.huge_bytes is not None and 2 * found.huge_bytes >= resident:
        return "huge pages", CERTAIN
    if facts is not None and facts.locked_bytes and 2 * facts.locked_bytes >= resident:
        return "locked memory", LIKELY
    if facts is not None and facts.setting in (None, "never"):
        return "not huge pages", GUESS
    return "huge pages", LIKELY if found.huge_bytes is None else GUESS


def _cures(found: Returned, facts: Optional[HugePages], sure: str) -> List[str]:
    if facts is not None and facts.locked_bytes and 2 * facts.locked_bytes >= (found.resident_bytes or 0):
        return ["mlockall or mlock keeps pages in RAM that madvise cannot give back: lock less"]
    cures = [found.cure] if found.cure else []
    if facts is not None and facts.setting == "always":
        cures.append("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (the whole machine)")
    if facts is None or facts.setting != "never":
        cures.append("prctl(PR_SET_THP_DISABLE) in the program or its launcher before it starts")
    if sure != CERTAIN:
        cures.append("AnonHugePages in /proc/PID/smaps shows whether the mappings have huge pages")
    return cures
