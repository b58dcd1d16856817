"""What settings would save, as text."""

from gdbheapx.allocators.effects import EXACT
from gdbheapx.allocators.records import Page
from gdbheapx.analysis.what_if import Outcome, WhatIf
from gdbheapx.columns import Table, columns_of
from gdbheapx.units import Size, cells


def lines(found: WhatIf) -> Page:
    """The memory now, and with each setting."""
    if found.rss_bytes is not None:
        yield cells("RSS now: %s; the most it was: %s", Size(found.rss_bytes), Size(found.peak_bytes))
    if found.ignores_environment:
        yield cells("started with other rights than its caller's (AT_SECURE): variables are not heeded, so none is shown")
    shown = [row for row in found.settings if row.is_advised or (row.kind == EXACT and not row.is_in_force)]
    rows = [{**row._asdict(), "allocator": row.allocator or "all", "why": row.why + _measured(row)} for row in shown]
    yield Table(columns_of(Outcome), rows, empty="no setting was measured to help against what keeps memory here")
    in_force = [row.setting for row in found.settings if row.is_in_force]
    if in_force:
        yield "in force, or without effect: %s" % "; ".join(in_force)
    others = [row.setting for row in found.settings if row not in shown and not row.is_in_force]
    if others:
        yield "not shown, for none was measured to help against what keeps memory here (--json has their ends): %s" % "; ".join(others)


def _measured(row: Outcome) -> str:
    return "" if row.measured_percent is None else "; measured in such a program: up to %d %% less" % row.measured_percent
