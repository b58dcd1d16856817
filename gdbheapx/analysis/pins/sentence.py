"""What pins say in a sentence, and as a finding for other answers."""

from typing import Optional

from gdbheapx.analysis.census.signature import PLACE
from gdbheapx.analysis.pins.find import CACHED, LEAKED, OWN, SEVERAL, Group, Kept
from gdbheapx.findings import PINNED
from gdbheapx.model import Finding
from gdbheapx.units import Said, Size, plural, say, share


def blocks(group: Group) -> Said:
    """`1204 blocks (96.0 KiB, Entry, held by g_index)`."""
    parts = [say("%s", Size(group.pins_bytes))]
    if group.status == CACHED:
        parts.append(say("in thread caches"))
    elif group.status == OWN:
        parts.append(say("the allocator's own"))
    elif group.signature is not None:
        parts.append(say("at %s" if group.sure == PLACE else "%s", group.signature))
    elif group.size_bytes is not None:
        parts.append(
            say("of %s each" if group.pins_blocks > 1 else "%s", Size(group.size_bytes)) if group.pins_blocks > 1 else say("not named")
        )
    if group.owner is not None:
        words = {SEVERAL: "held by several owners", LEAKED: "leaked"}
        parts.append(say("%s", words.get(group.owner, "held by %s" % group.owner)))
    template = "%s (" + ", ".join("%s" for _ in parts) + ")"
    return say(template, plural(group.pins_blocks, "block"), *parts)


def of(group: Group) -> Said:
    """The sentence on one group."""
    if not group.pins_blocks:
        return say("%s stay although nothing in use is in the way (%s)", Size(group.kept_bytes), group.where)
    keep = "keeps" if group.pins_blocks == 1 else "keep"
    return say("%s %s %s", blocks(group), keep, Size(group.kept_bytes))


def largest(found: Kept) -> Optional[Group]:
    """The group that keeps most; None where nothing in use keeps anything."""
    return max((one for one in found.groups if one.pins_blocks), key=lambda one: one.kept_bytes, default=None)


def finding(found: Kept) -> Optional[Finding]:
    """The largest group, for an answer about all of memory."""
    group = largest(found)
    if group is None:
        return None
    evidence = say(
        "%s of %s that cannot be returned%s",
        share(group.kept_bytes, found.kept_bytes),
        Size(found.kept_bytes),
        say("; %s of it by them alone", Size(group.alone_bytes)),
    )
    return Finding(of(group), evidence, "`gdbheapx pins` lists all of them", PINNED)
