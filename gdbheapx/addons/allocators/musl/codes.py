"""Codes of what can be wrong with a musl malloc (gdbheapx/common/problems.py)."""

from gdbheapx.common.problems import ProblemCode, Severity

GROUPS_CUT = ProblemCode("groups-incomplete", Severity.TIME)
AREA_UNREADABLE = ProblemCode("meta-area-unreadable", Severity.UNREAD)
AREA_BROKEN = ProblemCode("meta-area-broken", Severity.DAMAGE)
"""It does not begin with the secret, or is on the list twice."""
META_WRONG = ProblemCode("meta-wrong", Severity.DAMAGE)
"""A size class, masks or a length that cannot be."""
GROUP_BACK = ProblemCode("group-meta-mismatch", Severity.DAMAGE)
"""A group does not lead back to its meta."""
GROUP_OVERLAP = ProblemCode("groups-overlap", Severity.DAMAGE)
GROUP_OUTSIDE = ProblemCode("group-outside-slots", Severity.DAMAGE)
GROUP_UNMAPPED = ProblemCode("group-not-mapped", Severity.DAMAGE)
HEADER_UNREADABLE = ProblemCode("slot-header-unreadable", Severity.UNREAD)
HEADER_BROKEN = ProblemCode("slot-header-broken", Severity.DAMAGE)
"""The header of a block in use contradicts its slot."""
BLOCK_OVERRUN = ProblemCode("block-overrun", Severity.DAMAGE)
"""A byte that is always 0, after a block or in a header, is not."""
SLOT_CHANGING = ProblemCode("slot-changing", Severity.MOMENT)
"""A thread is handing the slot out, or freeing it."""
USAGE_WRONG = ProblemCode("class-usage-mismatch", Severity.MOMENT)
"""usage_by_class counts other slots than the groups have: a thread is making a group, or giving one up; or one of them is damaged."""
MORE_BROKEN = ProblemCode("more-broken", Severity.DAMAGE)
"""Places that are not reported one by one."""
