"""The page `tunables` of one copy of glibc's malloc."""

from gdbheapx.allocators.records import Page
from gdbheapx.columns import COUNT, TEXT, Column, Table
from gdbheapx.glibc.tunables import Tunables
from gdbheapx.units import UNKNOWN, Size, cells

_COLUMNS = (Column("name", TEXT, field="name"), Column("value", COUNT, field="value"), Column("meaning", TEXT, field="meaning"))


def page(found: Tunables) -> Page:
    """One line per setting."""
    told = [(row, cells("%s", Size(row.value)) if row.unit else row.value) for row in found.tunables]
    yield Table(_COLUMNS, [{**row._asdict(), "name": row.name or UNKNOWN, "value": value} for row, value in told])
