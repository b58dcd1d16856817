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
            good.append([row.build_id or "", "%s %s" % (row.allocator, (row.version or "?").split("-")[0]), used, row.file])
    if good:
        yield from table(["build-id", "allocator", "", "file"], good, "llll")
    else:
        yield "No packs."
    for row in rows:
        if row.problem is not None:
            yield row.problem
