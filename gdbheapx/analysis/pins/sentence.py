"""What pins say in a sentence, and as a finding for other answers."""

from typing import List, Optional

from gdbheapx.analysis.census.signature import PLACE
from gdbheapx.analysis.pins.find import CACHED, OWN, Group, Kept
from gdbheapx.analysis.pins.owner import LEAKED, SEVERAL
from gdbheapx.findings import PINNED
from gdbheapx.model import Finding
from gdbheapx.units import Said, Size, join_sentences, plural, say, share

STATUSES = {CACHED: "in thread caches", OWN: "the allocator's own"}
HELD = {SEVERAL: "held by several owners", LEAKED: "leaked"}


def blocks(group: Group) -> Said:
    """`1204 blocks (96.0 KiB, Entry, held by g_index)`."""
    parts: List[Said] = [say("%s", Size(group.pins_bytes))]
    if group.status in STATUSES:
        parts.append(say(STATUSES[group.status]))
    elif group.signature is not None:
        parts.append(say("pointed to by %s" if group.sure == PLACE else "%s", group.signature))
    elif group.size_bytes is not None and group.pins_blocks > 1:
        parts.append(say("of %s each", Size(group.size_bytes)))
    if group.owner is not None:
        parts.append(say("%s", HELD.get(group.owner, "held by %s" % group.owner)))
    return say("%s (%s)", plural(group.pins_blocks, "block"), join_sentences(", ", parts))


def of(group: Group) -> Said:
    """The sentence on one group that has blocks."""
    return say("%s %s %s", blocks(group), "keeps" if group.pins_blocks == 1 else "keep", Size(group.kept_bytes))


def largest(found: Kept) -> Optional[Group]:
    """The group that keeps most; None where no block keeps anything."""
    return max((one for one in found.groups if one.pins_blocks), key=lambda one: one.kept_bytes, default=None)


def finding(found: Kept) -> Optional[Finding]:
    """The group that keeps most, for an answer about all of memory; None where no block keeps anything."""
    group = largest(found)
    if group is None:
        return None
    part = share(group.kept_bytes, found.kept_bytes or 0)
    evidence = "%s of %s of free memory that cannot be returned; nothing but these blocks keeps %s"
    what = say("%s of free memory from being returned", of(group))
    return Finding(
        what, say(evidence, part, Size(found.kept_bytes), Size(group.alone_bytes)), "`gdbheapx pins` lists all such blocks", PINNED
    )
