"""Text: pages and tables, by tabulate where it can be imported. ASCII only."""

import re
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence

from gdbheapx.allocators.records import Page
from gdbheapx.columns import TEXT, Column, Table, cell, value
from gdbheapx.command import Style
from gdbheapx.hints import whole
from gdbheapx.report import fitting
from gdbheapx.units import DAMAGE, HEADING, WARNING, mark, meaning_of, plain_form

DIRECTION = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Characters that turn the reading direction: a name with one looks like another, and moves what stands beside it."""
CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029%s]" % DIRECTION)
"""Control characters but the tab, Unicode's own line ends, and what turns the direction."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula."""
UNNAMED_CLASS = re.compile("CLASS@([0-9a-f]{16,})[+]")
COLORS = {HEADING: "1", DAMAGE: "31", WARNING: "33"}
"""Bold, red, yellow, as terminals number them: the user's own colours, not ours."""
_tabulate: Optional[Callable[..., str]] = None
_looked_for_tabulate = False


def preload() -> None:
    """Import tabulate now, 10 ms that a stopped process should not have to wait for; else it is imported for the first table."""
    global _tabulate, _looked_for_tabulate
    if not _looked_for_tabulate:
        _looked_for_tabulate = True
        try:
            import tabulate

            tabulate.PRESERVE_WHITESPACE = True  # what an owner owns stands below it, indented
            _tabulate = tabulate.tabulate
        except Exception:  # absent, or made for another Python
            _tabulate = None


def table(headers: Sequence[str], rows: Sequence[Sequence[Any]], align: str) -> List[str]:
    """The lines of a table; `align` has one letter a column: l or r."""
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    preload()
    if _tabulate is None or not cells:
        return plain_table(headers, cells, align)
    sides = ["left" if letter == "l" else "right" for letter in align]
    text = _tabulate(cells, headers=list(headers), tablefmt="simple", colalign=sides, disable_numparse=True)
    return [line.rstrip() for line in text.split("\n")]


def plain_table(headers: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> List[str]:
    """The same look without tabulate."""
    columns = list(zip(*([list(headers)] + [list(row) for row in rows])))
    widths = [max(len(cell) for cell in column) for column in columns]
    widths = [max(width, len(header) + 2) for width, header in zip(widths, headers)]  # as tabulate pads its headers

    def line(cells: Sequence[str]) -> str:
        shown = [cell.ljust(width) if side == "l" else cell.rjust(width) for cell, width, side in zip(cells, widths, align)]
        return "  ".join(shown).rstrip()

    return [line(headers), "  ".join("-" * width for width in widths)] + [line(row) for row in rows]


def csv_line(cells: Iterable[Any]) -> str:
    """One line of CSV; what is unknown is an empty cell."""
    import csv
    import io

    made = io.StringIO()
    csv.writer(made, lineterminator="").writerow(["" if cell is None else cell for cell in cells])
    return made.getvalue()


def safe_cell(cell: str) -> str:
    """A text that no spreadsheet takes for a formula, and that drives no terminal."""
    return "'" + printable(cell) if cell.startswith(FORMULA) else printable(cell)


def printable(text: str) -> str:
    """Text from the target with its control and non-ASCII characters escaped, so that it cannot drive the terminal."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        letter if " " <= letter <= "~" else letter.encode("unicode_escape", "backslashreplace").decode("ascii") for letter in text
    )


def escaped(line: str, document: bool = False) -> str:
    """A line that is shown: what names of files, modules and threads may hold that drives a terminal, or pretends to be a line of its own,
    is escaped.

    Every line of every answer and error goes through here; tabs stay. A document for other programs keeps letters beyond ASCII, which paths
    in it may need, and gets the rest as /proc/PID/maps has it (`\\012`).
    """
    if line.isascii() and line.isprintable():
        return line
    if document:
        return CONTROL.sub(lambda match: "\\%03o" % ord(match.group()), line)
    return "\t".join(printable(part) for part in line.split("\t"))


def show(style: Style, page: Page) -> Iterator[str]:
    """The lines of a page."""
    for part in page:
        if isinstance(part, Table):
            yield from described(style, part)
        else:
            yield said(style, part)


def described(style: Style, described_table: Table) -> List[str]:
    """The lines of a table that describes itself."""
    columns = described_table.shown()
    rows = [[cell(column, value(row, column.field), style.plain_bytes) for column in columns] for row in described_table.rows]
    if described_table.total is not None:
        total = described_table.total
        rows.append([cell(column, total[column.field], style.plain_bytes) if column.field in total else "" for column in columns])
    return fitted(style, columns, rows)


def fitted(style: Style, columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> List[str]:
    """The lines of a table, as wide as the style allows; where it does not show all of it, a last line says so."""
    cells = [[printable(whole(with_modules(style, str(content)), style.command_line)) for content in row] for row in rows]
    fits = fitting.fit(columns, cells, style.width)
    shown, longest = [columns[place] for place in fits.places], fits.longest if style.shortens else None
    texts = [
        [fitting.shortened(row[place], longest) if columns[place].unit == TEXT else row[place] for place in fits.places] for row in cells
    ]
    lines = table([column.heading for column in shown], texts, "".join("l" if column.unit == TEXT else "r" for column in shown))
    hidden = [column.heading or column.field for place, column in enumerate(columns) if place not in fits.places]
    lines[:1] = [mark(line, HEADING) for line in lines[:1]]
    has_shortened = any(kept != [row[place] for place in fits.places] for kept, row in zip(texts, cells))
    return [*lines, *fitting.note(hidden, has_shortened, style.width)]


def said(style: Style, sentence: str) -> str:
    """A sentence with its sizes as the style wants them."""
    text, meaning = str(plain_form(sentence)) if style.plain_bytes else str(sentence), meaning_of(sentence)
    return text if meaning is None else mark(text, meaning)


def on_screen(style: Style, line: str, document: bool = False) -> str:
    """What is written for a line of an answer: escaped, on a terminal in as many lines as it needs, each in the colour of its meaning."""
    shown, meaning = escaped(whole(with_modules(style, line), style.command_line), document), meaning_of(line) if style.color else None
    lines = fitting.wrapped(shown, style.width) if style.wraps and style.width is not None else [shown]
    return "".join("%s\n" % painted(part, meaning) for part in lines)


def with_modules(style: Style, text: str) -> str:
    """`class app+0x6c98` for `CLASS@build-id+0x6c98`; of a module that is not at hand the build-id's first eight digits."""
    if "CLASS@" not in text:
        return text
    names = style.module_names()
    return UNNAMED_CLASS.sub(lambda found: "class %s+" % names.get(found[1], found[1][:8]), text)


def painted(line: str, meaning: Optional[str]) -> str:
    """The line, which is escaped already, in the colour of its meaning."""
    return "\x1b[%sm%s\x1b[0m" % (COLORS[meaning], line) if meaning is not None and line else line
