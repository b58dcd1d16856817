"""What `refs` and `owners` show."""

from typing import Any, Dict, Iterator, List, Optional, Sequence

from gdbheapx.allocators.records import Page
from gdbheapx.analysis.reachability import held
from gdbheapx.analysis.reachability.contained import without_module
from gdbheapx.analysis.reachability.held import Container
from gdbheapx.analysis.reachability.owners import SHARED, THREAD, Accumulation, Division, Linked, Owned, Owners, Suspect, User, each
from gdbheapx.analysis.reachability.refs import Chain, Refs, Step
from gdbheapx.columns import Table, columns_of
from gdbheapx.command import Style
from gdbheapx.hints import again, ask
from gdbheapx.kernel.blocks.graph import GUESS, LIKELY, MAYBE, WEAK, Others
from gdbheapx.model import Address
from gdbheapx.report import garbage_text, text
from gdbheapx.units import WARNING, Size, mark, plural, say

MOST_NAMED, MOST_USERS = 2, 3
"""Of those who hold a suspect, and of what else points into a container."""
MOST_PERCENT = 95
"""Of what a suspect keeps: a container with so much of it is told in its place."""
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


def data(refs: Refs, limit: int, depth: int) -> Dict[str, Any]:
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
        "chains": [shortened(chain.steps, depth) for chain in refs.chains[:limit]],
    }


def lines(style: Style, refs: Refs, limit: int, depth: int) -> Iterator[str]:
    """The text."""
    inside = "+%d" % refs.offset if refs.offset else ""
    head = say("Block %s%s of %s: %s", refs.address, inside, Size(refs.size_bytes), _verdict(refs))
    yield text.said(style, head)
    if refs.path is not None:
        yield "Path: %s" % refs.path.text
    if refs.element is not None:
        links = "; %s from its neighbours" % plural(refs.links, "link") if refs.links else ""
        yield "It is %s%s" % (refs.element, links)
    for number, chain in enumerate(refs.chains[:limit], 1):
        yield ""
        yield "%d. %s" % (number, _title(chain))
        for place, step in enumerate(shortened(chain.steps, depth)):
            if step.left_out:
                more = ": %s" % again("--depth %d", len(chain.steps)) if depth < len(chain.steps) else ""
                yield "      ... %s not shown%s" % (plural(step.left_out, "step"), more)
            container = ", %s" % step.container.words() if step.container is not None else ""
            element = ", %s" % step.element if step.element is not None else ""
            user = "user: " if chain.is_user and not place else ""
            yield "   <- %s%s%s%s%s" % (user, _where(step), element, container, WORDS.get(step.evidence, ""))
    if len(refs.chains) > limit:
        yield ""
        least = " at least" if refs.more else ""
        yield "%s%s: %s" % (plural(len(refs.chains) - limit, "more chain"), least, again("--limit %d", len(refs.chains)))


def shortened(steps: Sequence[Step], depth: int) -> List[Step]:
    """At most `depth` steps: those nearest to the block and those nearest to the root."""
    if len(steps) <= depth:
        return list(steps)
    below = depth // 2
    above = list(steps[len(steps) - max(1, depth - below) :])
    hidden = len(steps) - below - len(above) + sum(step.left_out for step in steps[below : len(steps) - len(above) + 1])
    hidden += sum(step.left_out for step in above[1:])
    return [*steps[:below], above[0]._replace(left_out=hidden), *(step._replace(left_out=0) for step in above[1:])]


def _verdict(refs: Refs) -> str:
    if not refs.chains:
        return "no references"
    count = "%s%s" % (plural(len(refs.chains) + refs.links, "pointer"), " or more" if refs.more else "")
    if refs.class_ == "maybe":
        return "%s; possibly leaked: reachable only through %s" % (count, MAYBE.get(refs.evidence, WEAK))
    return "%s; %s" % (count, "leaked: unreachable from any root" if refs.class_ == "leaked" else "reachable")


def _title(chain: Chain) -> str:
    return plural(chain.length, "step") + (" to a root" if chain.is_held else ", and no root")


def _where(step: Step) -> str:
    if step.root is not None:
        return step.root
    place = "+%d" % step.offset if step.offset else ""
    return "%s%s" % (step.signature, place) if step.signature else "block %s%s" % (step.address, place)


def owners_lines(style: Style, owners: Owners) -> Iterator[str]:
    """The text."""
    yield from text.show(style, owners_page(owners))


def rows_lines(style: Style, rows: Sequence[Owned]) -> Iterator[str]:
    """The text of --of and --by: rows alone."""
    yield from text.show(style, [Table(columns_of(Owned), flat(rows, 0))])
    for row in each(rows):
        if row.container is not None and row.container.used_elements:
            yield text.said(style, say("%s: %s", row.owner, used_elsewhere(row.container, row.users)))


def owners_page(owners: Owners) -> Page:
    """Suspects, then all owners."""
    parts = say("In use: unknown")
    if owners.used is not None:
        parts = say("In use: %s in %s", Size(owners.used.bytes), plural(owners.used.blocks, "block"))
    leaked = "unknown"
    if owners.leaked is not None:
        leaked = say("%s%s", "at most " if owners.leaked_is_upper_bound and owners.leaked.bytes else "", Size(owners.leaked.bytes))
    yield say("%s; leaked: %s; shared by several owners: %s", parts, leaked, Size(owners.shared_bytes))
    yield ""
    for suspect in owners.suspects:
        yield mark(suspicion(suspect), WARNING)
        if suspect.kind == SHARED and suspect.accumulation.address is not None:
            yield "To see its references: %s" % ask("whatis %s" % suspect.accumulation.address)
    if owners.garbage is not None:
        yield from garbage_text.lines(owners.garbage)
    elif not owners.suspects:
        yield NOBODY
    yield from (together(row) for row in owners.together)
    yield ""
    yield _table(owners)


def _table(owners: Owners) -> Table:
    """All owners, then the leaked blocks. `reachable` is left out where most owners reach nearly everything."""
    reached = [row.reached_bytes for row in owners.owners if row.reached_bytes is not None]
    is_noise = len([size for size in reached if 10 * size >= 9 * max(reached)]) * 2 > max(4, len(reached))
    columns = [column for column in columns_of(Owned) if column.field != "reached_bytes" or not is_noise]
    rows: List[Any] = flat(owners.owners, 0)
    if owners.leaked is not None and owners.leaked.bytes and owners.used is not None:
        blocks, size_bytes = owners.leaked
        percent = 100 * size_bytes / owners.used.bytes
        rows.append(Owned("[leaked]", "", None, size_bytes, percent, blocks, None, None)._asdict() | {"reached_bytes": ""})
    return Table(columns, rows)


NOBODY = "No owner retains 20 % or more."
"""There is no suspect."""


def together(row: Owned) -> str:
    """One of several that hold the same."""
    return say(
        "%s reaches %s that other owners hold as well", _called(row.owner, row.signature, row.containers), Size(row.reached_bytes or 0)
    )


def suspicion(suspect: Suspect) -> str:
    """Who keeps much, and where it piles up."""
    point, figures = suspect.accumulation, (Size(suspect.retained_bytes), suspect.share_percent)
    linked, is_it = point.container, is_all(suspect)
    if linked is not None and is_it and point.holders and suspect.kind == SHARED:
        same = say("Suspect: %s hold the same %s", suspect.owner, words(linked, None)), *figures
        said = say("%s: %s (%.0f %%), %s alone", *same, "none" if point.holders[2:] else "neither")
    elif linked is not None and is_it:
        who = called(suspect)
        if suspect.kind == SHARED and suspect.holders:
            who = say("%s, which %s hold", who, _several([_holder(suspect, name) for name in suspect.holders]))
        said = say("Suspect: %s, keeps %s (%.0f %%)%s", who, *figures, _average(point))
    else:
        who = _called(suspect.owner, suspect.signature, suspect.containers)
        if suspect.kind == SHARED:
            who = say("%s, which %s hold,", who, _several([_holder(suspect, name) for name in suspect.holders]))
        said = say("Suspect: %s keeps %s (%.0f %%)", who, *figures)
        if linked is not None:
            what = ", ".join(part for part in (_called(point.name, point.signature, ()), words(linked, point.confidence)) if part)
            said = say("%s; most of it is %s, keeping %s%s", said, what, Size(point.retained_bytes), _average(point))
        elif point.steps and point.name not in (suspect.owner, without_module(suspect.owner)):
            where = say("hangs off") if point.children else say("is %s at", Size(point.size_bytes))
            said = say("%s; most of it %s %s", said, where, _called(point.name, point.signature, point.containers))
    if linked is not None and linked.used_elements:
        said = say("%s; %s", said, used_elsewhere(linked, point.users))
    else:
        said = say("%s%s", said, _against(suspect.others))
    if not point.parts:
        return said
    parts = ", ".join("%s (%.0f %%)" % (_part(part), part.share_percent) for part in point.parts)
    return say("%s; largest parts: %s", said, parts)


def is_all(suspect: Suspect) -> bool:
    """Nearly all that the suspect keeps is one container."""
    return 100 * suspect.accumulation.retained_bytes >= MOST_PERCENT * suspect.retained_bytes


def _average(point: Accumulation) -> str:
    """Of an element, where none has far more."""
    if point.parts or point.container is None:
        return ""
    return say(", ~%s each", Size(point.retained_bytes // max(1, point.container.elements)))


def words(linked: Linked, confidence: Optional[str]) -> str:
    """`list of 1,787 elements of 168 bytes (owner likely)`."""
    return linked.words() + OWNER_IS.get(confidence or "", "")


def used_elsewhere(linked: Linked, users: Sequence[User]) -> str:
    """`12 elements (2.6 KiB) are in use elsewhere: 3 stacks, 40 words of g_in_work`."""
    stacks = [user.owner for user in users if user.kind == THREAD]
    who = [plural(len(set(stacks)), "stack")] if stacks else []
    others = [user for user in users if user.kind != THREAD]
    who += ["%s of %s" % (plural(user.pointers, "word"), without_module(user.owner)) for user in others]
    used, left_out = linked.used_elements or 0, len(who[MOST_USERS:]) + (linked.other_users or 0)
    who = [*who[:MOST_USERS], *([plural(left_out, "other")] if left_out else [])]
    said = say("%s (%s) %s in use elsewhere", plural(used, "element"), Size(linked.used_bytes or 0), "is" if used == 1 else "are")
    return say("%s: %s", said, ", ".join(who)) if who else said


def called(suspect: Suspect) -> str:
    """Who it is, in a few words."""
    who, point = _called(suspect.owner, suspect.signature, suspect.containers), suspect.accumulation
    if point.container is not None and is_all(suspect):
        is_part = point.is_below and point.retained_bytes != suspect.retained_bytes
        name = point.name if is_part and point.confidence != SHARED else suspect.owner
        return who if suspect.containers else "%s, %s" % (name, words(point.container, point.confidence))
    return "%s, held by %s" % (who, _several([_holder(suspect, name) for name in suspect.holders])) if suspect.kind == SHARED else who


def _several(holders: Sequence[str]) -> str:
    """`server in redis-server and block 0x55e226c732a0 (48 bytes)`; how many others there are is not known."""
    told = [*holders[:MOST_NAMED], *(["others"] if len(holders) > MOST_NAMED else [])]
    return "%s and %s" % (", ".join(told[:-1]), told[-1]) if told[1:] else "several owners"


def _holder(suspect: Suspect, name: str) -> str:
    """`lxml.etree._ParserDictionaryContext of etree.so+0x4f4298`: the type of the block with the pointer, and who holds that."""
    rows = [row for row in suspect.holding if row.owner == name]
    held_in = next((row.signature for row in rows if row.signature and not row.is_owner), None)
    owner = next((_typed(name, row.address, row.signature) for row in rows if row.is_owner), name)
    return "%s of %s" % (held_in, owner) if held_in else owner


def _typed(name: str, address: Optional[Address], signature: Optional[str]) -> str:
    """`cx.Session 0x7f30a5b1`, as `whatis` tells it; by its place where no type is known."""
    return "%s %s" % (signature, address) if signature else name


def _part(part: Division) -> str:
    """`the hash table g_app -> +0x18 of 20,000 elements`, `element 0x55d0c0ffee10 (32 bytes)`."""
    if part.container is not None:
        return say("the %s", part.container.words(without_module(part.name)))
    return _typed(part.name, part.address, part.signature)


def _against(others: Optional[Others]) -> str:
    """What makes a suspect less sure."""
    if others is None:
        return ""
    further = others.stacks + others.unowning + others.weak
    if not further:
        return "; no other reference"
    return "; %s not keep it alive" % (plural(further, "further reference") + (" does" if further == 1 else " do"))


def _called(name: str, signature: Optional[str], containers: Sequence[Container]) -> str:
    return ", ".join(part for part in (name, signature, held.words(containers)) if part)


def flat(rows: Sequence[Owned], depth: int) -> List[Owned]:
    """Rows with those below them indented."""
    owned_rows: List[Owned] = []
    for row in rows:
        container = row.container if not row.containers else None
        linked = words(container._replace(element_bytes=None), row.confidence) if container is not None else ""
        what = ": ".join(part for part in (row.signature, held.words(row.containers), linked) if part)
        owned_rows.append(row._replace(owner="  " * depth + row.owner, signature=what))
        owned_rows += flat(row.children, depth + 1)
    return owned_rows
