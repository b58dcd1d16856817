"""The table of `make bench`: a figure, its limit, what was measured."""

import sys
from typing import NamedTuple, Optional, Sequence


class Row(NamedTuple):
    """One line of the table."""

    figure: str
    limit: Optional[float]
    measured: float
    unit: str
    note: str = ""
    wrong: str = ""
    """What else is not as it must be, in one word: CHANGED, PARTIAL, FAILED."""

    @property
    def verdict(self) -> str:
        """`ok`, or what is wrong; empty where nothing is demanded."""
        over = "OVER" if self.limit is not None and self.measured > self.limit else ""
        return " ".join(word for word in (over, self.wrong) if word) or ("" if self.limit is None else "ok")

    def line(self) -> str:
        """The line as it is printed."""
        limit = "-" if self.limit is None else "%.3g" % self.limit
        return "%-64s %8s %10.3f %-5s %-12s %s" % (self.figure, limit, self.measured, self.unit, self.verdict, self.note)


def progress(text: str) -> None:
    """A line beside the table, on standard error."""
    print(text, file=sys.stderr, flush=True)


def head() -> None:
    """The table begins."""
    print("%-64s %8s %10s" % ("figure", "limit", "measured"), flush=True)


def show(rows: Sequence[Row]) -> None:
    """More of the table."""
    for row in rows:
        print(row.line(), flush=True)


def total(rows: Sequence[Row]) -> bool:
    """The table ends; whether every figure is as it must be."""
    bad = [row for row in rows if row.verdict not in ("", "ok")]
    print("%d of %d rows with a limit are over it, or something else is wrong there" % (len(bad), sum(bool(row.verdict) for row in rows)))
    return not bad
