"""Codes of what can be wrong with a musl malloc (gdbheapx/problems.py)."""

from gdbheapx.problems import Code, Severity

GROUPS_CUT = Code("groups-incomplete", Severity.TIME)
AREA_UNREADABLE = Code("meta-area-unreadable", Severity.UNREAD)
AREA_BROKEN = Code("meta-area-broken", Severity.DAMAGE)
"""It does not begin with the secret, or is on the list twice."""
META_WRONG = Code("meta-wrong", Severity.DAMAGE)
"""A size class, masks or a length that cannot be."""
GROUP_BACK = Code("group-meta-mismatch", Severity.DAMAGE)
"""A group does not lead back to its meta."""
GROUP_OVERLAP = Code("groups-overlap", Severity.DAMAGE)
GROUP_OUTSIDE = Code("group-outside-slots", Severity.DAMAGE)
GROUP_UNMAPPED = Code("group-not-mapped", Severity.DAMAGE)
HEADER_UNREADABLE = Code("slot-header-unreadable", Severity.UNREAD)
HEADER_BROKEN = Code("slot-header-broken", Severity.DAMAGE)
"""The header of a block in use contradicts its slot."""
BLOCK_OVERRUN = Code("block-overrun", Severity.DAMAGE)
"""A byte that is always 0, behind a block or in a header, is not."""
SLOT_CHANGING = Code("slot-changing", Severity.MOMENT)
"""A thread is handing the slot out, or freeing it."""
USAGE_WRONG = Code("class-usage-mismatch", Severity.MOMENT)
"""usage_by_class counts other slots than the groups have: a thread is making a group, or giving one up; or one of them is damaged."""
MORE_BROKEN = Code("more-broken", Severity.DAMAGE)
"""Places that are not told one by one."""
