"""All that `report` says of one jemalloc."""

from typing import Container, List, Mapping, Optional, Sequence

from gdbheapx.allocators import huge_pages
from gdbheapx.allocators.heap import plain_parts
from gdbheapx.allocators.records import Judged, Page, Part, Surroundings
from gdbheapx.jemalloc.messages import findings, verdict
from gdbheapx.jemalloc.records import JemallocFacts
from gdbheapx.units import Size, say


def judge(facts: Sequence[JemallocFacts], around: Surroundings) -> List[Judged]:
    """Each by itself: they are different builds with different tasks. A variable that one of them does not read may be another's."""
    read = {one.conditions.names.conf_variable for one in facts}
    return [_judge(_without_variables(one, read), around) for one in facts]


def _without_variables(facts: JemallocFacts, read: Container[Optional[str]]) -> JemallocFacts:
    unread = [name for name in facts.conditions.unread_variables if name not in read]
    return facts._replace(conditions=facts.conditions._replace(unread_variables=unread))


def _judge(facts: JemallocFacts, around: Surroundings) -> Judged:
    state = facts.conditions
    figures = verdict.figures(facts, around)
    cure = verdict.huge_pages_cure(state.names, state.thp)
    retained = figures.retained_bytes, figures.returned_resident_bytes, figures.returned_huge_bytes
    returned = huge_pages.judge(huge_pages.Returned("jemalloc", *retained, "retained", cure), around.huge_pages)
    judged = verdict.judge(figures, facts.bins, state.names, returned)
    steps = findings.next_steps(judged.code, figures, facts.tickers, state, around.modules)
    lines = findings.findings(facts.info.version, figures, facts.arenas, state, facts.tickers, facts.bins)
    parts, name = verdict.parts(figures), facts.info.id
    steps = [*huge_pages.against(judged, returned), *steps]
    held = figures.in_memory.held_bytes
    held = held if figures.taken_bytes is None or figures.present else min(held, figures.taken_bytes)
    return Judged(name, (name,), held, judged, lines, steps, parts)


def parts_page(name: str, parts: Sequence[Part], totals: Mapping[str, Optional[int]]) -> Page:
    """The parts of what one holds, and what it retains beside them."""
    yield from plain_parts(name, parts)
    retained, resident = totals.get("retained_bytes"), totals.get("retained_resident_bytes")
    if retained and resident is None:
        yield say("plus %s retained: address space returned to the OS; it is unknown whether some of it is still in RAM", Size(retained))
    elif retained and retained > (resident or 0):
        yield say("plus %s retained (address space only, not resident)", Size(retained - (resident or 0)))
