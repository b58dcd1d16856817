"""What is told of damage in musl's structures, each place once with its reason."""

from typing import TYPE_CHECKING, Dict, List, NamedTuple, Tuple

from gdbheapx.addons.allocators.musl import codes
from gdbheapx.addons.allocators.musl import native_records as api
from gdbheapx.hints import ask
from gdbheapx.inferior.base import Module, Target
from gdbheapx.kernel.blocks.slots import SLOT_UNREADABLE, SlotTallies
from gdbheapx.problems import Code, Report, Severity
from gdbheapx.units import number

if TYPE_CHECKING:
    from gdbheapx.addons.allocators.musl.allocator import Counted

MOST_TOLD = 20
SIGSEGV = 11
OF_GROUPS: Dict[int, Tuple[Code, str]] = {
    api.GROUP_AREA_UNREADABLE: (codes.AREA_UNREADABLE, "cannot read an area of metas: the groups of it and of those behind it are unknown"),
    api.GROUP_AREA_CHECK: (codes.AREA_BROKEN, "an area of metas does not begin with musl's secret: the groups behind it are unknown"),
    api.GROUP_AREA_AGAIN: (codes.AREA_BROKEN, "the list of areas returns to an earlier area"),
    api.GROUP_CLASS: (codes.META_WRONG, "a meta has a size class that musl does not have"),
    api.GROUP_MASKS: (codes.META_WRONG, "a meta calls a slot free twice, or one that its group does not have"),
    api.GROUP_PLACE: (codes.META_WRONG, "a meta gives its group a place or a length that cannot be"),
    api.GROUP_OVERLAP: (codes.GROUP_OVERLAP, "a group lies across another one, or in a slot that is free"),
    api.GROUP_MAKING: (codes.SLOT_CHANGING, "a thread is making a group, or giving one up"),
    api.GROUP_UNMAPPED: (codes.GROUP_UNMAPPED, "a group reaches beyond its mapping"),
    api.GROUP_OUTSIDE: (codes.GROUP_OUTSIDE, "a group that was cut out of a slot lies in no slot"),
}
OF_SLOTS: Dict[int, Tuple[Code, str]] = {
    SLOT_UNREADABLE: (codes.HEADER_UNREADABLE, "cannot read the header of a group, or of a block in use, which counts as its whole slot"),
    api.HEAD_BACK: (codes.GROUP_BACK, "a group does not point back to its meta"),
    api.HEAD_MARK: (codes.GROUP_OVERLAP, "a group lies in a slot that is not marked as its"),
    api.HEADER_INDEX: (codes.HEADER_BROKEN, "the header of a block in use has the index of another slot"),
    api.HEADER_OFFSET: (codes.HEADER_BROKEN, "the header of a block in use does not point back to its group"),
    api.HEADER_ZERO: (codes.BLOCK_OVERRUN, "a byte that is always 0, behind a block in use or in its header, was overwritten"),
    api.HEADER_SLACK: (codes.HEADER_BROKEN, "the header of a block in use leaves more of its slot unused than the slot has"),
    api.HEADER_USED: (codes.HEADER_BROKEN, "a free slot has the header of a block in use"),
    api.HEADER_HALF: (codes.HEADER_BROKEN, "the header of a block in use does not point to its group, or is half written"),
    api.HEADER_STALE: (codes.SLOT_CHANGING, "a thread is handing a block out, or freeing it, or making a group"),
}
CUT = (codes.GROUPS_CUT, None, "not all groups and slots were read", "allow more time: --max-seconds, --max-stop")
HINT = "something wrote where it should not: `%s` names the block before" % ask("check")


def has_stopped(target: Target, module: Module) -> bool:
    """A core of a process that ended in this object by an instruction that is there for that: a_crash(), which the checks of malloc call,
    and those of stack guards."""
    thread, halt = next(iter(target.threads()), None), target.arch.halt
    if thread is None or thread.signal != SIGSEGV or thread.pc is None or not halt:
        return False
    is_ours = any(start <= thread.pc < end for start, end in target.code_ranges(module))
    return is_ours and target.read_prefix(thread.pc, len(halt)) == halt


class Told(NamedTuple):
    """One thing that is wrong."""

    code: Code
    address: int
    what: str


def of_groups(context: int, counted: "Counted") -> List[Told]:
    """What is wrong with areas, metas and groups, as far as it is listed. `context`: its address."""
    found = [Told(OF_GROUPS[row.code][0], row.address, OF_GROUPS[row.code][1]) for row in counted.groups.problems]
    what = "musl counts %d slots of class %d, and its groups have %d"
    return found + [Told(codes.USAGE_WRONG, context, what % (number, size_class, own)) for size_class, number, own in counted.usage]


def of_slots(tallies: SlotTallies, at_work: int) -> List[Told]:
    """The same of what lies in slots. `at_work`: threads that may be filling in a header each: so many half-written ones are no damage."""
    halves = sum(row.code == api.HEADER_HALF for row in tallies.problems)
    words = {**OF_SLOTS, api.HEADER_HALF: OF_SLOTS[api.HEADER_STALE]} if halves <= at_work else OF_SLOTS
    return [Told(words[row.code][0], row.address, words[row.code][1]) for row in tallies.problems]


def at_work(target: Target, module: Module, tallies: SlotTallies) -> int:
    """Threads that stand in the code of malloc's object, and neither wait in a system call nor were stopped by a check; 0 where no header
    is half written."""
    if all(row.code != api.HEADER_HALF for row in tallies.problems):
        return 0
    ranges, call, halt = target.code_ranges(module), target.arch.in_system_call, target.arch.halt
    pcs = [thread.pc for thread in target.threads() if thread.pc is not None and any(start <= thread.pc < end for start, end in ranges)]
    waiting = [pc for pc in pcs if call is not None and call.shows(pc, target.read_prefix)]
    stopped = [pc for pc in pcs if halt and target.read_prefix(pc, len(halt)) == halt]
    return len(pcs) - len(waiting) - len(stopped)


def report(target: Target, rows: List[Told], count: int, report: Report) -> None:
    """Each of the first ones, and how many of `count` there are besides. A process that lives may be in the middle of a change: it is
    looked at again."""
    is_live = target.kind == "live"
    for row in rows[:MOST_TOLD]:
        hint = HINT if row.code.nature == Severity.DAMAGE else None
        report(row.code, row.address, row.what, hint, is_passing=is_live and row.code.nature != Severity.UNREAD)
    more = count - min(len(rows), MOST_TOLD)
    if more > 0:
        what = "%s more groups or slots are damaged, or cannot be read" % number(more)
        report(codes.MORE_BROKEN, None, what, "`%s` lists them" % ask("check"))
