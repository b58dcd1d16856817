"""A table as wide as what shows it: which columns go, and how long texts may be."""

from typing import Callable, List, NamedTuple, Optional, Sequence

from gdbheapx.columns import TEXT, Column

GAP = 2
"""Between two columns."""
LONG, SHORT = 40, 20
"""Longer texts drive no column away: they are shortened where the others, too, are as short. An address has 18 characters at most."""
DOTS = "..."


class Fitted(NamedTuple):
    """What of a table is shown."""

    places: Sequence[int]
    """Of the columns that stay."""
    longest: Optional[int]
    """Characters that a text may have; None: as many as it has."""


def fit(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: Optional[int]) -> Fitted:
    """What fits into lines of `width` characters; None: everything."""
    places = list(range(len(columns)))
    if width is None or not columns:
        return Fitted(places, None)
    heads = [len(column.heading) + GAP for column in columns]
    widths = [max([head, *(len(row[place]) for row in cells)]) for place, head in enumerate(heads)]

    def needed(longest: int) -> int:
        shown = [min(widths[place], max(longest, heads[place])) if columns[place].unit == TEXT else widths[place] for place in places]
        return sum(shown) + GAP * (len(shown) - 1)

    if needed(max(widths)) <= width:
        return Fitted(places, None)
    _leave_out(columns, places, lambda: needed(LONG) > width, declared=True)
    _leave_out(columns, places, lambda: needed(SHORT) > width, declared=False)
    longest = max(widths)
    while longest > 1 and needed(longest) > width:
        longest -= 1
    return Fitted(places, longest if longest < max(widths) else None)


def _leave_out(columns: Sequence[Column], places: List[int], is_too_wide: Callable[[], bool], declared: bool) -> None:
    """Columns go, those with the highest number first, of equal ones the last; the first column stays. `declared`: only those with a
    number."""
    order = sorted(places[1:], key=lambda place: (-columns[place].goes, -place))
    for place in order:
        if not is_too_wide() or (declared and not columns[place].goes):
            return
        places.remove(place)


def shortened(text: str, longest: Optional[int]) -> str:
    """A text of at most so many characters: its middle is left out, as a path tells by its end and a type by its beginning."""
    if longest is None or len(text) <= longest:
        return text
    if longest <= len(DOTS):
        return text[:longest]
    tail = (longest - len(DOTS)) // 2
    return text[: longest - len(DOTS) - tail] + DOTS + (text[-tail:] if tail else "")


def note(hidden: Sequence[str], has_shortened: bool, width: Optional[int]) -> List[str]:
    """The line that says what is not shown, in several where it is long; none where all is shown."""
    parts = ["Hidden: %s" % ", ".join(hidden)] if hidden else []
    parts += ["texts with %s are shortened" % DOTS] if has_shortened else []
    if not parts:
        return []
    import textwrap

    line = "; ".join([*parts, "--wide shows %s" % ("all" if has_shortened else "them")])
    return textwrap.wrap(line, width or len(line), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
