"""What settings would save, as text."""

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
    shown = [(row, {"allocator": row.allocator or "all", "is_in_force": "yes" if row.is_in_force else ""}) for row in found.settings]
    rows = [{**row._asdict(), **words} for row, words in shown]
    yield Table(columns_of(Outcome), rows, empty="no setting is known for what is here")
