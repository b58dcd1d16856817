"""Savings of settings, as text."""

from typing import Optional

from gdbheapx.addons.labs.what_if.predict import Outcome, WhatIf
from gdbheapx.allocators.answers import EXACT
from gdbheapx.allocators.records import Page
from gdbheapx.columns import ColumnsTable, columns_of
from gdbheapx.units import SentenceSize, make_cells

NO_SETTING = "page-size"
"""A kernel with other pages: not set for one process; --json has it."""


def format_what_if(found: WhatIf) -> Page:
    """The memory now, and with each setting."""
    if found.rss_bytes is not None:
        yield make_cells("RSS now: %s, peak: %s", SentenceSize(found.rss_bytes), SentenceSize(found.peak_bytes))
    if found.ignores_environment:
        yield make_cells("The process runs with other rights than its caller (AT_SECURE) and ignores environment variables: none is shown.")
    settings = [row for row in found.settings if row.code != NO_SETTING]
    shown = [row for row in settings if not row.is_in_force and _is_worth(row, found.rss_bytes)]
    shown.sort(key=lambda row: row.kind != EXACT)
    rows = [{**row._asdict(), "allocator": row.allocator or "all", "why": row.why + _format_measured(row)} for row in shown]
    yield ColumnsTable(columns_of(Outcome), rows) if rows else "No setting was measured to help against this kind of memory."
    in_force = [row.setting for row in settings if row.is_in_force]
    if in_force:
        yield "In force, or without effect: %s" % "; ".join(in_force)
    others = [row.setting for row in settings if row not in shown and not row.is_in_force]
    if others:
        yield "Not shown, as they save less than 1 %% or were not measured to help here (--json has them): %s" % "; ".join(
            others
        )


def _is_worth(row: Outcome, rss_bytes: Optional[int]) -> bool:
    """Advised, or computed for this process; and it may save 1 % of RSS."""
    is_known = row.is_advised or row.kind == EXACT
    return is_known and (rss_bytes is None or row.saves_most_bytes is None or 100 * row.saves_most_bytes >= rss_bytes)


def _format_measured(row: Outcome) -> str:
    return "" if row.measured_percent is None else "; measured in such a program: up to %d %% less" % row.measured_percent
