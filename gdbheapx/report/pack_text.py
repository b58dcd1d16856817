"""The text of `symbols list`."""

from typing import Iterator, List, Sequence

from gdbheapx.analysis.packs import PackRow
from gdbheapx.report.text import table


def listed(rows: Sequence[PackRow]) -> Iterator[str]:
    """One line per pack, then the files that are none."""
    good: List[List[str]] = []
    for row in rows:
        if row.problem is None:
            used = {True: "in use", False: "", None: ""}[row.in_use]
            name = "%s %s" % (row.allocator, (row.version or "?").split("-")[0]) if row.allocator else ""
            good.append([row.build_id or "", name, used, "%d" % row.vtables if row.vtables else "", row.file])
    if good and any(row[3] for row in good):
        yield from table(["build-id", "allocator", "", "vtables", "file"], good, "lllrl")
    elif good:
        yield from table(["build-id", "allocator", "", "file"], [row[:3] + row[4:] for row in good], "llll")
    else:
        yield "No packs."
    for row in rows:
        if row.problem is not None:
            yield row.problem
