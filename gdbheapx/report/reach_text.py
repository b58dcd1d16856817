"""Format answers about the graph of blocks: refs, owners, leaks, pins."""

from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from gdbheapx.allocators import answers
from gdbheapx.allocators.records import Page
from gdbheapx.analysis import pins
from gdbheapx.analysis.census.world import EXACT
from gdbheapx.analysis.memory_verdict import MANY, Coverage, count_sum, name_libraries
from gdbheapx.analysis.pins import CACHED, OWN, USED, PinRow, PinsAnswer, PinsSum
from gdbheapx.analysis.reachability import owners
from gdbheapx.analysis.reachability.dominance import strip_module
from gdbheapx.analysis.reachability.heap_graph import HeldByField, ManagedClass
from gdbheapx.analysis.reachability.leaks import LeakedBlock, LeakGroup, Leaks, LostMapping
from gdbheapx.analysis.reachability.owners import SHARED, THREAD, HeldContainer, LeakSuspect, LinkedContainer, OwnedMemory, Owners
from gdbheapx.analysis.reachability.refs import Refs, RefsStep
from gdbheapx.command import TextStyle
from gdbheapx.common import units
from gdbheapx.common.columns import ColumnsTable, columns_of
from gdbheapx.common.hints import hint_again, hint_command
from gdbheapx.common.model import TargetAddress
from gdbheapx.common.units import DAMAGE, HEADING, WARNING, Sentence, SentenceSize, count_noun, format_share, make_sentence, mark_sentence
from gdbheapx.kernel.blocks.graph import GUESS, LIKELY, MAYBE, WEAK, Others
from gdbheapx.kernel.blocks.graph import MOST_OFFSETS as COUNTED_OFFSETS
from gdbheapx.report import analysis_text, text

MOST_NAMED, MOST_USERS = 2, 3
"""Of those who hold a suspect, and of what else points into a container."""
MOST_PERCENT = 95
"""Of what a suspect keeps: a container with so much of it is shown in its place."""
OWNER_IS = {LIKELY: " (owner likely)", GUESS: " (owner guessed)"}
WORDS = {
    "start": "",
    "tag": " (with tag bits)",
    "habit": " (inside, as this program does)",
    "inside": " (to its inside: weak)",
    "base": "",
    "masked": " (with other bits set: weak)",
    "unaligned": " (at an odd address: weak)",
    "mangled": " (mangled by the C library: weak)",
    "not-owning": " (does not keep it alive: a link of the runtime, or a stale word)",
    "mapping": "",
    "end": " (perhaps the end of the block before: weak)",
}


def make_refs_data(refs: Refs, limit: int, depth: int) -> Dict[str, Any]:
    """The `data` member."""
    return {
        "address": refs.address,
        "offset": refs.offset,
        "size_bytes": refs.size_bytes,
        "class": refs.class_,
        "evidence": refs.evidence,
        "referrers": len(refs.chains) + refs.links,
        "more_referrers": refs.more,
        "path": refs.path.text if refs.path is not None else None,
        "path_steps": refs.path.steps if refs.path is not None else None,
        "element": refs.element,
        "chains": [shorten_chain(chain.steps, depth) for chain in refs.chains[:limit]],
    }


def format_refs(style: TextStyle, refs: Refs, limit: int, depth: int) -> Iterator[str]:
    """The text."""
    inside = "+%d" % refs.offset if refs.offset else ""
    head = make_sentence("Block %s%s of %s: %s", refs.address, inside, SentenceSize(refs.size_bytes), _describe_refs(refs))
    yield text.format_sentence(style, head)
    if refs.path is not None:
        yield "Path: %s" % refs.path.text
    if refs.element is not None:
        links = "; %s from its neighbours" % count_noun(refs.links, "link") if refs.links else ""
        yield "It is %s%s" % (refs.element, links)
    for place, chain in enumerate(refs.chains[:limit], 1):
        yield ""
        yield "%d. %s" % (place, count_noun(chain.length, "step") + (" to a root" if chain.is_held else ", and no root"))
        for place, step in enumerate(shorten_chain(chain.steps, depth)):
            if step.left_out:
                more = ": %s" % hint_again("--depth %d", len(chain.steps)) if depth < len(chain.steps) else ""
                yield "      ... %s not shown%s" % (count_noun(step.left_out, "step"), more)
            container = ", %s" % step.container.words() if step.container is not None else ""
            element = ", %s" % step.element if step.element is not None else ""
            user = "user: " if chain.is_user and not place else ""
            yield "   <- %s%s%s%s%s" % (user, _describe_step_place(step), element, container, WORDS.get(step.evidence, ""))
    if len(refs.chains) > limit:
        yield ""
        least = " at least" if refs.more else ""
        yield "%s%s: %s" % (count_noun(len(refs.chains) - limit, "more chain"), least, hint_again("--limit %d", len(refs.chains)))


def shorten_chain(steps: Sequence[RefsStep], depth: int) -> List[RefsStep]:
    """Keep at most `depth` steps: those nearest to the block and to the root."""
    if len(steps) <= depth:
        return list(steps)
    below = depth // 2
    above = list(steps[len(steps) - max(1, depth - below) :])
    hidden = len(steps) - below - len(above) + sum(step.left_out for step in steps[below : len(steps) - len(above) + 1])
    hidden += sum(step.left_out for step in above[1:])
    return [*steps[:below], above[0]._replace(left_out=hidden), *(step._replace(left_out=0) for step in above[1:])]


def _describe_refs(refs: Refs) -> str:
    if not refs.chains:
        return "no references"
    count = "%s%s" % (count_noun(len(refs.chains) + refs.links, "pointer"), " or more" if refs.more else "")
    if refs.class_ == "maybe":
        return "%s; possibly leaked: reachable only through %s" % (count, MAYBE.get(refs.evidence, WEAK))
    return "%s; %s" % (count, "leaked: unreachable from any root" if refs.class_ == "leaked" else "reachable")


def _describe_step_place(step: RefsStep) -> str:
    if step.root is not None:
        return step.root
    place = "+%d" % step.offset if step.offset else ""
    return "%s%s" % (step.signature, place) if step.signature else "block %s%s" % (step.address, place)


def format_owner_rows(style: TextStyle, rows: Sequence[OwnedMemory]) -> Iterator[str]:
    """The text of --of and --by: rows alone."""
    yield from text.format_page(style, [ColumnsTable(columns_of(OwnedMemory), flatten_owners(rows, 0))])
    for row in owners.walk_owned(rows):
        if row.container is not None and row.container.used_elements:
            yield text.format_sentence(style, make_sentence("%s: %s", row.owner, describe_users(row.container, row.users)))


def make_owners_page(owners: Owners) -> Page:
    """Suspects, then all owners."""
    parts = make_sentence("In use: unknown")
    if owners.used is not None:
        parts = make_sentence("In use: %s in %s", SentenceSize(owners.used.bytes), count_noun(owners.used.blocks, "block"))
    leaked: str = "unknown"
    if owners.leaked is not None:
        bound = "at most " if owners.leaked_is_upper_bound and owners.leaked.bytes else ""
        leaked = make_sentence("%s%s", bound, SentenceSize(owners.leaked.bytes))
    yield make_sentence("%s; leaked: %s; shared by several owners: %s", parts, leaked, SentenceSize(owners.shared_bytes))
    yield ""
    for suspect in owners.suspects:
        yield mark_sentence(describe_suspicion(suspect), WARNING)
        if suspect.kind == SHARED and suspect.accumulation.address is not None:
            yield "To see its references: %s" % hint_command("whatis %s" % suspect.accumulation.address)
    if owners.garbage is not None:
        yield from analysis_text.format_garbage(owners.garbage)
    elif not owners.suspects:
        yield NOBODY
    yield from describe_fields(owners.fields)
    yield from (describe_joint(row) for row in owners.together)
    yield ""
    yield _make_owners_table(owners)
    yield from make_fields_page(owners.fields, MOST_FIELDS)


def _make_owners_table(owners: Owners) -> ColumnsTable:
    """Make the table of owners, then leaked blocks; `reachable` is left out if most owners reach nearly everything."""
    reached = [row.reached_bytes for row in owners.owners if row.reached_bytes is not None]
    is_noise = len([size for size in reached if 10 * size >= 9 * max(reached)]) * 2 > max(4, len(reached))
    columns = [column for column in columns_of(OwnedMemory) if column.field != "reached_bytes" or not is_noise]
    rows: List[Any] = flatten_owners(owners.owners, 0)
    if owners.leaked is not None and owners.leaked.bytes and owners.used is not None:
        blocks, size_bytes = owners.leaked
        percent = 100 * size_bytes / owners.used.bytes
        rows.append(OwnedMemory("[leaked]", "", None, size_bytes, percent, blocks, None, None)._asdict() | {"reached_bytes": ""})
    return ColumnsTable(columns, rows)


NOBODY = "No owner retains 20 % or more."
"""There is no suspect."""


def describe_joint(row: OwnedMemory) -> str:
    """Name a member of a group that holds the same."""
    who = _name_owner(row.owner, row.signature, row.containers)
    return make_sentence("%s reaches %s that other owners hold as well", who, SentenceSize(row.reached_bytes or 0))


def describe_suspicion(suspect: LeakSuspect) -> str:
    """Say how much the suspect keeps, and in which container it accumulates."""
    point, figures = suspect.accumulation, (SentenceSize(suspect.retained_bytes), suspect.share_percent)
    linked, is_it, is_shared = point.container, is_all(suspect), suspect.kind == SHARED
    if linked is not None and is_it and point.holders and is_shared:
        same = make_sentence("Suspect: %s hold the same %s", suspect.owner, describe_container(linked, None)), *figures
        said = make_sentence("%s: %s (%.0f %%), %s alone", *same, "none" if point.holders[2:] else "neither")
    elif linked is not None and is_it:
        who = name_suspect(suspect)
        if is_shared and suspect.holders:
            who = make_sentence("%s, which %s hold", who, _describe_holders(suspect))
        said = make_sentence("Suspect: %s, keeps %s (%.0f %%)%s", who, *figures, _describe_average(point))
    else:
        who = _name_owner(suspect.owner, suspect.signature, suspect.containers)
        if is_shared:
            who = make_sentence("%s, which %s hold,", who, _describe_holders(suspect))
        said = make_sentence("Suspect: %s keeps %s (%.0f %%)", who, *figures)
        if linked is not None:
            parts = (_name_owner(point.name, point.signature, ()), describe_container(linked, point.confidence))
            most = ", ".join(filter(None, parts)), SentenceSize(point.retained_bytes), _describe_average(point)
            said = make_sentence("%s; most of it is %s, keeping %s%s", said, *most)
        elif point.steps and point.name not in (suspect.owner, strip_module(suspect.owner)):
            where = make_sentence("hangs off") if point.children else make_sentence("is %s at", SentenceSize(point.size_bytes))
            said = make_sentence("%s; most of it %s %s", said, where, _name_owner(point.name, point.signature, point.containers))
    if linked is not None and linked.used_elements:
        said = make_sentence("%s; %s", said, describe_users(linked, point.users))
    else:
        said = make_sentence("%s%s", said, _describe_against(suspect.others))
    if not point.parts:
        return said
    largest = ", ".join("%s (%.0f %%)" % (_describe_part(part), part.share_percent) for part in point.parts)
    return make_sentence("%s; largest parts: %s", said, largest)


def is_all(suspect: LeakSuspect) -> bool:
    """Nearly all that the suspect keeps is one container."""
    return 100 * suspect.accumulation.retained_bytes >= MOST_PERCENT * suspect.retained_bytes


def _describe_average(point: owners.Accumulation) -> str:
    """Give the average size of an element unless one is far larger."""
    if point.parts or point.container is None:
        return ""
    return make_sentence(", ~%s each", SentenceSize(point.retained_bytes // max(1, point.container.elements)))


def describe_container(linked: LinkedContainer, confidence: Optional[str]) -> str:
    """`list of 1,787 elements of 168 bytes (owner likely)`."""
    return linked.words() + OWNER_IS.get(confidence or "", "")


def describe_users(linked: LinkedContainer, users: Sequence[owners.ContainerUser]) -> str:
    """`12 elements (2.6 KiB) are in use elsewhere: 3 stacks, 40 words of g_in_work`."""
    stacks = [user.owner for user in users if user.kind == THREAD]
    who = [count_noun(len(set(stacks)), "stack")] if stacks else []
    others = [user for user in users if user.kind != THREAD]
    who += ["%s of %s" % (count_noun(user.pointers, "word"), strip_module(user.owner)) for user in others]
    used, left_out = linked.used_elements or 0, len(who[MOST_USERS:]) + (linked.other_users or 0)
    who = [*who[:MOST_USERS], *([count_noun(left_out, "other")] if left_out else [])]
    verb = "is" if used == 1 else "are"
    said = make_sentence("%s (%s) %s in use elsewhere", count_noun(used, "element"), SentenceSize(linked.used_bytes or 0), verb)
    return make_sentence("%s: %s", said, ", ".join(who)) if who else said


def name_suspect(suspect: LeakSuspect) -> str:
    """Name the suspect in a few words."""
    who, point = _name_owner(suspect.owner, suspect.signature, suspect.containers), suspect.accumulation
    if point.container is not None and is_all(suspect):
        is_part = point.is_below and point.retained_bytes != suspect.retained_bytes
        name = point.name if is_part and point.confidence != SHARED else suspect.owner
        return who if has_counted(suspect.containers) else "%s, %s" % (name, describe_container(point.container, point.confidence))
    return "%s, held by %s" % (who, _describe_holders(suspect)) if suspect.kind == SHARED else who


def has_counted(containers: Sequence[HeldContainer]) -> bool:
    """Their words give numbers of elements, which a string's do not."""
    return any(container.elements is not None for container in containers)


def _describe_holders(suspect: LeakSuspect) -> str:
    """`server in redis-server and block 0x55e226c732a0 (48 bytes)`; how many others there are is not known."""
    told = [_describe_holder(suspect, name) for name in suspect.holders[:MOST_NAMED]]
    told += ["others"] if len(suspect.holders) > MOST_NAMED else []
    return "%s and %s" % (", ".join(told[:-1]), told[-1]) if told[1:] else "several owners"


def _describe_holder(suspect: LeakSuspect, name: str) -> str:
    """`lxml.etree._ParserDictionaryContext of etree.so+0x4f4298`: the type of the block with the pointer, and who holds that."""
    rows = [row for row in suspect.holding if row.owner == name]
    held_in = next((row.signature for row in rows if row.signature and not row.is_owner), None)
    owner = next((_describe_typed(name, row.address, row.signature) for row in rows if row.is_owner), name)
    return "%s of %s" % (held_in, owner) if held_in else owner


def _describe_typed(name: str, address: Optional[TargetAddress], signature: Optional[str]) -> str:
    """`cx.Session 0x7f30a5b1`, as `whatis` shows it; by its place where no type is known."""
    return "%s %s" % (signature, address) if signature else name


def _describe_part(part: owners.Division) -> str:
    """`the hash table g_app -> +0x18 of 20,000 elements`, `element 0x55d0c0ffee10 (32 bytes)`."""
    if part.container is not None:
        return make_sentence("the %s", part.container.words(strip_module(part.name)))
    return _describe_typed(part.name, part.address, part.signature)


def _describe_against(others: Optional[Others]) -> str:
    """Say what lowers the confidence in a suspect."""
    further = others.stacks + others.unowning + others.weak if others is not None else 0
    if not further:
        return "" if others is None else "; no other reference"
    return "; %s not keep it alive" % (count_noun(further, "further reference") + (" does" if further == 1 else " do"))


def _name_owner(name: str, signature: Optional[str], containers: Sequence[HeldContainer]) -> str:
    return ", ".join(part for part in (name, signature, owners.describe_containers(containers)) if part)


def flatten_owners(rows: Sequence[OwnedMemory], depth: int) -> List[OwnedMemory]:
    """Rows with those below them indented."""
    owned_rows: List[OwnedMemory] = []
    for row in rows:
        container = row.container if not has_counted(row.containers) else None
        linked = describe_container(container._replace(element_bytes=None), row.confidence) if container is not None else ""
        what = ": ".join(part for part in (row.signature, owners.describe_containers(row.containers), linked) if part)
        owned_rows.append(row._replace(owner="  " * depth + row.owner, signature=what))
        owned_rows += flatten_owners(row.children, depth + 1)
    return owned_rows


MOST_GROUPS, MOST_BLOCKS, MOST_MAPPINGS, MOST_OFFSETS, MOST_SIZES = 20, 100, 10, 8, 3


def make_leaks_data(
    leaks: Leaks, rows: Optional[Sequence[LeakedBlock]], limit: Optional[int], coverage: Optional[Coverage] = None
) -> Dict[str, Any]:
    """The `data` member."""
    roots = leaks.roots if leaks.leaked is not None else None
    made: Dict[str, Any] = {
        "classes": {
            "held": count_sum(leaks.held, coverage),
            "maybe": {**count_sum(leaks.maybe, coverage), "by_evidence": {word: count_sum(one) for word, one in leaks.maybe_by.items()}},
            "leaked": {**count_sum(leaks.leaked), "roots": roots, "is_upper_bound": leaks.is_upper_bound},
        },
        "groups": list(leaks.groups[:limit]),
        "habits": list(leaks.habits),
        "offsets": [{"offset": offset, "references": count} for offset, count in leaks.offsets[:MOST_BLOCKS]],
        "mappings": list(leaks.mappings),
        "unloaded_libraries": leaks.unloaded_libraries,
        "garbage": leaks.garbage,
        "fields": list(leaks.fields[:limit]),
    }
    if rows is not None:
        names = "address", "size_bytes", "class", "evidence", "kind"
        made["blocks"] = [dict(zip(names, row)) for row in rows[:limit]]
    return made


def format_leaks(
    style: TextStyle,
    leaks: Leaks,
    rows: Optional[Sequence[LeakedBlock]],
    limit: Optional[int],
    has_blocks: bool = True,
    can_look_again: bool = False,
    coverage: Optional[Coverage] = None,
) -> Iterator[str]:
    """The text. `has_blocks`: the single blocks can be looked at, which those of a snapshot without their graph cannot. `can_look_again`:
    there was no second look for weak pointers, and there can be one."""
    yield from text.format_page(style, make_leaks_page(leaks, limit, has_blocks, can_look_again, coverage))
    if rows is not None:
        yield ""
        most = limit if limit is not None else MOST_BLOCKS
        page: Page = [ColumnsTable(columns_of(LeakedBlock), rows[:most]), *text.note_more("block", rows, most)]
        yield from text.format_page(style, page)


def make_leaks_page(
    leaks: Leaks, limit: Optional[int], has_blocks: bool = True, can_look_again: bool = False, coverage: Optional[Coverage] = None
) -> Page:
    """Verdict, groups, mappings."""
    others = [part.bytes for part in (leaks.leaked, leaks.garbage) if part is not None]
    whole = leaks.held.bytes + leaks.maybe.bytes + sum(others)
    yield from _make_leaks_verdict(leaks, whole, coverage if coverage is not None and coverage.is_low else None)
    if can_look_again and leaks.leaked is not None and leaks.leaked.bytes and leaks.leaked.bytes * 2 >= whole:
        yield "So much may be held by tagged, unaligned or mangled pointers: %s looks for those" % hint_command("leaks --weak")
    shown = leaks.groups[: limit if limit is not None else MOST_GROUPS]
    if shown:
        yield ""
        cells = [{**_join_container(row)._asdict(), "signature": _describe_sort(row), "sample": str(row.sample[0])} for row in shown]
        yield ColumnsTable(columns_of(LeakGroup), cells)
        yield from text.note_more("group", leaks.groups, len(shown))
        yield from _make_unloaded_page(leaks)
        yield from name_alike(leaks.groups, leaks.fields)
        if has_blocks:
            yield "To inspect one: %s" % hint_command("whatis %s" % shown[0].sample[0])
    if leaks.mappings:
        yield ""
        total = SentenceSize(sum(mapping.bytes for mapping in leaks.mappings))
        yield make_sentence("Mappings outside the heaps without a reference: %s (%s)", units.format_number(len(leaks.mappings)), total)
        yield ColumnsTable(columns_of(LostMapping), leaks.mappings[:MOST_MAPPINGS])
    yield from _make_remarks_page(leaks)


def _join_container(row: LeakGroup) -> LeakGroup:
    """Replace a container's head by all its elements."""
    if row.container is None or row.is_holder:
        return row
    behind = row.behind_blocks + row.blocks - row.container.elements, row.behind_bytes + row.bytes - row.container.own_bytes
    return row._replace(blocks=row.container.elements, bytes=row.container.own_bytes, behind_blocks=behind[0], behind_bytes=behind[1])


def _describe_sort(row: LeakGroup) -> Optional[str]:
    """`list of 3,000 elements`, `holds a list of 3,000 elements`, `12 containers: list of 400 elements`."""
    if row.container is None:
        return row.signature
    words = row.container._replace(element_bytes=None).words()
    if row.is_holder:
        words = "holds %s" % units.add_article(words)
    elif row.blocks > 1:
        words = "%s: %s" % (count_noun(row.blocks, "container"), words)
    return words if row.signature is None else "%s: %s" % (row.signature, words)


def _make_leaks_verdict(leaks: Leaks, whole: int, low: Optional[Coverage]) -> Page:
    leaked, maybe = leaks.leaked, leaks.maybe
    if leaked is None:
        unread = "Leaked: unknown, because memory that may point to blocks was not read"
        yield unread if low is None else make_sentence("Leaked: unknown (%s)", low.words())
    elif leaked.blocks:
        sentence = "Leaked: %s%s in %s (%s of memory in use)%s"
        roots = "" if leaks.roots in (None, leaked.blocks) else ", reachable from %s" % count_noun(leaks.roots or 0, "leak root")
        bound = ("" if leaks.is_upper_bound else "at least ") if low else "at most " if leaks.is_upper_bound else ""
        figures = SentenceSize(leaked.bytes), count_noun(leaked.blocks, "block"), format_share(leaked.bytes, whole)
        yield mark_sentence(make_sentence(sentence, bound, *figures, roots), DAMAGE)
        if leaks.is_upper_bound:
            yield "Memory that may point to these blocks could not be read: fewer may be leaked."
    else:
        yield "Leaked: nothing"
    if maybe.blocks:
        ways = [MAYBE.get(word, WEAK) for word, amount in leaks.maybe_by.items() if amount.blocks]
        sum_of = SentenceSize(maybe.bytes), count_noun(maybe.blocks, "block")
        yield make_sentence("Possibly leaked: %s in %s, reachable only through %s", *sum_of, " or ".join(ways))
    if leaks.garbage is not None:
        yield from analysis_text.format_garbage(leaks.garbage)
    yield from describe_fields(leaks.fields)
    yield make_sentence("Reachable: %s in %s", SentenceSize(leaks.held.bytes), count_noun(leaks.held.blocks, "block"))
    if leaked is not None and leaked.blocks < leaks.held.blocks and leaked.bytes * 10 < whole and whole:
        yield "To see what holds the memory: %s" % hint_command("owners")


def _make_unloaded_page(leaks: Leaks) -> Page:
    """Point out sizes of which as many blocks are leaked as libraries were unloaded, or a multiple."""
    gone = leaks.unloaded_libraries
    sizes = [row.size_bytes for row in leaks.groups if gone is not None and gone >= MANY and row.blocks % gone == 0][:MOST_SIZES]
    if gone is not None and sizes:
        words = units.join_sentences(", ", [make_sentence("%s", SentenceSize(size)) for size in sizes])
        what = "%s were unloaded, and a multiple of that number of blocks of %s is leaked: most likely only their variables held those"
        yield make_sentence(what, name_libraries(gone), words)


def _make_remarks_page(leaks: Leaks) -> Page:
    if leaks.habits:
        offsets = ", ".join("%d bytes (%s)" % (habit.offset, count_noun(habit.blocks, "block")) for habit in leaks.habits[:MOST_OFFSETS])
        yield ""
        yield "This program often points into blocks at an offset of %s; such blocks count as reachable." % offsets
    if leaks.offsets:
        shown = leaks.offsets[:MOST_OFFSETS]
        offsets = ", ".join("%s (%s)" % (_format_offset(offset), units.format_number(count)) for offset, count in shown)
        yield ""
        yield "Blocks reachable only through a pointer into their middle, by its offset: %s" % offsets
    if leaks.runtime is not None:
        yield ""
        yield "%s's arenas point to all of its objects: those that the program has lost in cycles count as reachable." % leaks.runtime
    if leaks.low_addresses:
        yield ""
        yield "The heap lies below 4 GiB, where small numbers look like pointers: a few leaked blocks may count as reachable."


def _format_offset(offset: int) -> str:
    """The native library counts larger ones as the largest."""
    return "%s%s" % (units.format_number(offset), " or more" if offset == COUNTED_OFFSETS - 1 else "")


MOST_PINS_ROWS = 20
WHERE = {
    answers.PAGE: "page: on pages that are shared with blocks in use, at the ends of free memory that is otherwise returned",
    answers.SMALL: "hole: between blocks, too small to hold a page that could be returned",
    answers.FAST_LIST: "fastbin: the same, on malloc's lists of freed small chunks, which are not merged with their neighbours",
    answers.THREAD_TOP: "thread-top: the end of a thread's arena above the last block; only free() returns it, malloc_trim never does",
    answers.MAIN_TOP: "main-top: the end of the main arena; malloc keeps a little of it",
    answers.FOREIGN_BREAK: "foreign-break: the end of the main arena; it is not at the program break, so no trim returns it",
    answers.ENDED_ARENA: "ended-arena: in arenas of threads that have ended; a new thread may take one over",
    answers.SPAN: "span: free objects of spans; a span can be returned when its last object is back in it",
    answers.GROUP: "group: free slots of groups; a group is returned when the last block in it is freed",
    answers.SLAB: "slab: free regions of slabs; a slab is returned when all of it is free",
}
NOT_IN_USE = {CACHED: "(in thread caches)", OWN: "(the allocator's own)", None: "(nothing in use)"}


def make_pins_data(kept: PinsAnswer, limit: Optional[int]) -> Dict[str, Any]:
    """The `data` member."""
    return {
        "kept_bytes": kept.kept_bytes,
        "groups": list(kept.groups[:limit]),
        "groups_in_all": len(kept.groups),
        "sums": [{**amount._asdict(), "terms": _list_terms(amount)} for amount in kept.sums],
        "has_owners": kept.has_owners,
        "may_be_stale": kept.may_be_stale,
    }


def _list_terms(amount: PinsSum) -> List[Dict[str, Any]]:
    """Negative where it is taken off."""
    return [{"name": term.name, "bytes": -term.bytes if term.is_taken_off else term.bytes} for term in amount.terms]


def make_pins_page(kept: PinsAnswer, limit: Optional[int]) -> Page:
    """The sentence, the rows, how it closes with `arenas`."""
    if kept.kept_bytes is None:
        yield "Unknown: how much free memory the blocks in use pin"
    elif not kept.kept_bytes:
        yield "No free memory is pinned by blocks in use."
    else:
        size, share = SentenceSize(kept.kept_bytes), format_share(kept.kept_bytes, kept.held_bytes)
        least = "at least " if kept.is_cut else ""
        yield make_sentence("Free memory that cannot be returned: %s%s (%s of all arenas)", least, size, share)
        first = pins.largest_group(kept)
        if first is not None:
            yield make_sentence("%s", pins.group_sentence(first))
    for amount in kept.sums:
        if amount.kept_bytes or amount.arenas_bytes or (amount.arenas_bytes == 0 and len(kept.sums) == 1):
            yield _describe_closing(amount)
        if amount.returnable_bytes and amount.returnable_bytes >= (kept.kept_bytes or 0) // 8:
            way = ": %s" % hint_command(amount.command + " --dry-run") if amount.command is not None else ""
            yield make_sentence("%s more is free and could be returned%s", SentenceSize(amount.returnable_bytes), way)
    shown = kept.groups[: limit if limit is not None else MOST_PINS_ROWS]
    if shown:
        yield ""
        yield ColumnsTable(columns_of(PinRow), [_make_pins_row(row) for row in shown])
        if len(shown) < len(kept.groups):
            left, more = kept.groups[len(shown) :], hint_again("--limit %d", len(kept.groups))
            left_bytes = SentenceSize(sum(row.kept_bytes for row in left))
            yield make_sentence("%s (%s): %s", count_noun(len(left), "more row"), left_bytes, more)
        yield ""
        yield from [words for where, words in WHERE.items() if any(row.where == where for row in shown)]
    if kept.may_be_stale and any(row.sure == EXACT for row in shown):
        yield "Some blocks may show the class of an earlier use: this allocator does not clear freed memory."
    if not kept.has_owners and any(row.status == USED for row in shown):
        yield "Owners of the blocks were not searched: %s shows them" % hint_command("pins")


def _describe_closing(amount: PinsSum) -> Any:
    """Show how the sum follows from the figures of `arenas`."""
    if amount.arenas_bytes is None:
        return make_sentence("%s: %s; `arenas` has no figure to compare with", amount.allocator, SentenceSize(amount.kept_bytes))
    template, parts = "%s: ", []
    for place, term in enumerate(amount.terms):
        sign = "" if not place else " - " if term.is_taken_off else " + "
        template += sign + "%s %s"
        parts += [term.name, SentenceSize(term.bytes)]
    told = make_sentence(template + " = %s", amount.allocator, *parts, SentenceSize(amount.arenas_bytes))
    if not amount.difference_bytes:
        return make_sentence("%s, as `arenas` has it", told)
    return make_sentence("%s by `arenas`; found here: %s", told, SentenceSize(amount.kept_bytes))


def _make_pins_row(row: PinRow) -> Dict[str, Any]:
    made: Dict[str, Any] = {**row._asdict(), "sample": "" if row.sample is None else str(row.sample)}
    made["kept_for_each"] = "-" if row.kept_for_each is None else "%.1f" % row.kept_for_each
    made["signature"] = row.signature or (NOT_IN_USE.get(row.status) if row.status != USED else "-")
    made["owner"] = row.owner or "-"
    made["size_bytes"] = row.size_bytes if row.size_bytes is not None else "-"
    return made


MOST_FIELDS, MOST_ALIKE, MOST_CLASSES = 8, 10, 10
LEAST_FIELD_SHARE = 100
"""Of the largest field: what holds less than one part of so many needs no sentence."""
LEAST_GARBAGE_SHARE = 4
"""One object of so many."""


def describe_fields(fields: Sequence[HeldByField]) -> Iterator[Sentence]:
    """Say which objects hold memory that nothing frees, or that a collection would free."""
    largest = max((held.bytes for held in fields), default=0)
    for held in fields:
        if held.garbage_objects and held.garbage_bytes * LEAST_FIELD_SHARE >= largest:
            sentence = "Garbage: %s of %s with %s, unreachable, holding %s that no Cleaner or finalizer frees"
            yield make_sentence(sentence, *_count_objects(held.garbage_objects, held), SentenceSize(held.garbage_bytes))
        elif held.garbage_objects and not held.garbage_bytes and held.garbage_objects * LEAST_GARBAGE_SHARE >= held.objects:
            sentence = "Unreachable: %s of %s with %s; others keep the memory: a pool, if they are its buffers and were not released"
            yield make_sentence(sentence, *_count_objects(held.garbage_objects, held))
        if held.collectable_objects and held.bytes * LEAST_FIELD_SHARE >= largest:
            sentence = "Collectable: %s of %s with %s, unreachable: the next collection frees the memory that they hold"
            yield make_sentence(sentence, *_count_objects(held.collectable_objects, held))


def _count_objects(count: int, held: HeldByField) -> Tuple[str, str, str]:
    return "{:,}".format(count), count_noun(held.objects, "object"), held.field


def make_fields_page(fields: Sequence[HeldByField], most: int) -> Page:
    """Make the table of what objects hold, by class and field."""
    if fields:
        yield ""
        yield mark_sentence("Malloc memory that %s objects hold, by class and field" % fields[0].runtime, HEADING)
        yield ColumnsTable(columns_of(HeldByField), list(fields[:most]))
        if len(fields) > most:
            yield "%s: %s" % (count_noun(len(fields) - most, "smaller row"), hint_command("owners --json"))


def make_classes_page(classes: Sequence[ManagedClass], most: int) -> Page:
    """Make the table of a collector's objects by class."""
    if classes:
        yield ""
        yield mark_sentence("Objects of %s by class, in its own heap" % classes[0].runtime, HEADING)
        yield ColumnsTable(columns_of(ManagedClass), list(classes[:most]))


def name_alike(groups: Sequence[LeakGroup], fields: Sequence[HeldByField]) -> Iterator[Sentence]:
    """Say of leaked blocks by which field objects hold blocks of the same size, where only one does."""
    for group in groups[:MOST_ALIKE]:
        alike = [held for held in fields if held.block_bytes == group.size_bytes and held.blocks > 1]
        if len(alike) == 1 and group.blocks > 1 and not alike[0].garbage_objects:
            sentence = "%s leaked blocks of %s are of objects that were collected, most likely: %s holds %s of that size"
            count = "{:,}".format(group.blocks), SentenceSize(group.size_bytes)
            yield make_sentence(sentence, *count, alike[0].field, count_noun(alike[0].blocks, "block"))
