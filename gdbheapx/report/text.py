"""Format text: tables of a terminal's width, sentences, escapes and colours.

Names of a target may hold anything: what goes to a terminal is escaped here.
"""

import re
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence, Tuple

from gdbheapx.allocators.records import Page
from gdbheapx.command import TextStyle
from gdbheapx.common.columns import TEXT, Column, ColumnsTable, field_value, format_cell
from gdbheapx.common.hints import hint_again, write_commands
from gdbheapx.common.units import DAMAGE, HEADING, WARNING, count_noun, mark_sentence, meaning_of, plain_form

DIRECTION = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Characters that turn the reading direction: a name with one looks like another, and moves what is next to it."""
CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029%s]" % DIRECTION)
"""Control characters but the tab, Unicode's own line ends, and what turns the direction."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula."""
UNNAMED_CLASS = re.compile("CLASS@([0-9a-f]{16,})[+]")
COLORS = {HEADING: "1", DAMAGE: "31", WARNING: "33"}
"""Bold, red, yellow, as terminals number them: the user's own colours, not ours."""
_tabulate: Optional[Callable[..., str]] = None
_looked_for_tabulate = False


def preload_tabulate() -> None:
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


def format_table(headers: Sequence[str], rows: Sequence[Sequence[Any]], align: str) -> List[str]:
    """The lines of a table; `align` has one letter a column: l or r."""
    cells = [[make_printable(str(cell)) for cell in row] for row in rows]
    preload_tabulate()
    if _tabulate is None or not cells:
        return format_plain_table(headers, cells, align)
    sides = ["left" if letter == "l" else "right" for letter in align]
    text = _tabulate(cells, headers=list(headers), tablefmt="simple", colalign=sides, disable_numparse=True)
    return [line.rstrip() for line in text.split("\n")]


def format_plain_table(headers: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> List[str]:
    """Format a table as tabulate does, without it."""
    columns = list(zip(*([list(headers)] + [list(row) for row in rows])))
    widths = [max(len(cell) for cell in column) for column in columns]
    widths = [max(width, len(header) + 2) for width, header in zip(widths, headers)]  # as tabulate pads its headers

    def format_table_line(cells: Sequence[str]) -> str:
        shown = [cell.ljust(width) if side == "l" else cell.rjust(width) for cell, width, side in zip(cells, widths, align)]
        return "  ".join(shown).rstrip()

    return [format_table_line(headers), "  ".join("-" * width for width in widths)] + [format_table_line(row) for row in rows]


def format_csv_line(cells: Iterable[Any]) -> str:
    """Format a line of CSV; an unknown value is an empty cell."""
    import csv
    import io

    made = io.StringIO()
    csv.writer(made, lineterminator="").writerow(["" if cell is None else cell for cell in cells])
    return made.getvalue()


def safe_cell(cell: str) -> str:
    """A text that no spreadsheet takes for a formula, and that drives no terminal."""
    return "'" + make_printable(cell) if cell.startswith(FORMULA) else make_printable(cell)


def make_printable(text: str) -> str:
    """Text from the target with its control and non-ASCII characters escaped, so that it cannot drive the terminal."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        letter if " " <= letter <= "~" else letter.encode("unicode_escape", "backslashreplace").decode("ascii") for letter in text
    )


def escape_line(line: str, document: bool = False) -> str:
    """A line that is shown: what names of files, modules and threads may hold that drives a terminal, or pretends to be a line of its own,
    is escaped.

    Every line of every answer and error goes through here; tabs stay. A document for other programs keeps letters beyond ASCII, which paths
    in it may need, and gets the rest as /proc/PID/maps has it (`\\012`).
    """
    if line.isascii() and line.isprintable():
        return line
    if document:
        return CONTROL.sub(lambda match: "\\%03o" % ord(match.group()), line)
    return "\t".join(make_printable(part) for part in line.split("\t"))


def format_page(style: TextStyle, page: Page) -> Iterator[str]:
    """The lines of a page."""
    for part in page:
        yield from format_described(style, part) if isinstance(part, ColumnsTable) else (format_sentence(style, part),)


def format_described(style: TextStyle, described_table: ColumnsTable) -> List[str]:
    """The lines of a table that describes itself."""
    columns = described_table.shown()
    rows = [[format_cell(column, field_value(row, column.field), style.plain_bytes) for column in columns] for row in described_table.rows]
    if described_table.total is not None:
        total = described_table.total
        rows.append([format_cell(column, total[column.field], style.plain_bytes) if column.field in total else "" for column in columns])
    return format_fitted(style, columns, rows)


def format_fitted(style: TextStyle, columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> List[str]:
    """The lines of a table, as wide as the style allows; where it does not show all of it, a last line says so."""
    cells = [[make_printable(write_commands(replace_modules(style, str(content)), style.command_line)) for content in row] for row in rows]
    places, fitting = fit_table(columns, cells, style.width)
    shown, longest = [columns[place] for place in places], fitting if style.shortens else None
    texts = [[shorten_text(row[place], longest) if columns[place].unit == TEXT else row[place] for place in places] for row in cells]
    lines = format_table([column.heading for column in shown], texts, "".join("l" if column.unit == TEXT else "r" for column in shown))
    hidden = [column.heading or column.field for place, column in enumerate(columns) if place not in places]
    lines[:1] = [mark_sentence(line, HEADING) for line in lines[:1]]
    has_shortened = any(kept != [row[place] for place in places] for kept, row in zip(texts, cells))
    return [*lines, *note_hidden(hidden, has_shortened, style.width)]


def format_sentence(style: TextStyle, sentence: str) -> str:
    """A sentence with its sizes as the style wants them."""
    text, meaning = str(plain_form(sentence)) if style.plain_bytes else str(sentence), meaning_of(sentence)
    return text if meaning is None else mark_sentence(text, meaning)


def format_on_screen(style: TextStyle, line: str, document: bool = False) -> str:
    """Escape a line of an answer; on a terminal wrap it and colour it by its meaning."""
    shown = escape_line(write_commands(replace_modules(style, line), style.command_line), document)
    meaning = meaning_of(line) if style.color else None
    lines = wrap_sentence(shown, style.width) if style.wraps and style.width is not None else [shown]
    return "".join("%s\n" % paint_line(part, meaning) for part in lines)


def note_more(noun: str, rows: Sequence[Any], shown: int) -> Iterator[str]:
    """The line below a table that shows so many of its rows; none where it shows all."""
    if len(rows) > shown:
        yield "%s: %s" % (count_noun(len(rows) - shown, "more %s" % noun), hint_again("--limit %d", len(rows)))


def replace_modules(style: TextStyle, text: str) -> str:
    """`class app+0x6c98` for `CLASS@build-id+0x6c98`; of a module that is not at hand the build-id's first eight digits."""
    if "CLASS@" not in text:
        return text
    names = style.module_names()
    return UNNAMED_CLASS.sub(lambda found: "class %s+" % names.get(found[1], found[1][:8]), text)


def paint_line(line: str, meaning: Optional[str]) -> str:
    """The line, which is escaped already, in the colour of its meaning."""
    return "\x1b[%sm%s\x1b[0m" % (COLORS[meaning], line) if meaning is not None and line else line


GAP = 2
"""Between two columns."""
LONG, SHORT = 40, 20
"""Longer texts drive no column away: they are shortened where the others, too, are as short. An address has 18 characters at most."""
EARLY = 12
"""Characters that a line of a paragraph may lack where its end means nothing."""
ELLIPSIS = "..."
GAPS = re.compile("  +(?=[^ ])")
TEXT_WORDS = re.compile(r"""( *)(`[^`]*`[^ ]*|(?:[^ '"]*[=(])?(?:'[^']*'|"[^"]*")[^ ]*|[^ ]+)""")
"""What is between quotes is one word."""
UNIT = re.compile("(%|[KMGTP]iB|bytes?|blocks?|ms|s|min|h|d)[,;:.)]*")
OPTION = re.compile("[(`]?-[^ -]|--[^ -]")
OF_SHELL = re.compile(r"[|<>&]+|[^a-z]+|.*[^ ][/.=:$<>'\"\[][^ ].*|.*[0-9].*|/.*")
"""Names, numbers, paths, placeholders and what is between two commands: no words of a sentence."""
PROGRAMS = frozenset(
    ("gdbheapx", "heapx", "apt-get", "cat", "docker", "echo", "gdb", "go", "grep", "install", "ipcs", "jcmd", "jhsdb", "kill", "kubectl")
    + ("ls", "mount", "pip", "python3", "redis-cli", "sudo", "sysctl", "ulimit", "valkey-cli")
)
"""A command begins with one of these: it stays in one line, so that it can be copied."""
ENDS = (",", ";", ":", ")", ".")


def fit_table(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: Optional[int]) -> Tuple[List[int], Optional[int]]:
    """Return the places of the columns that fit into lines of `width` characters, and how many a text may have; None: all that it has."""
    places = list(range(len(columns)))
    if width is None or not columns:
        return places, None
    heads = [len(column.heading) + GAP for column in columns]
    widths = [max([head, *(len(row[place]) for row in cells)]) for place, head in enumerate(heads)]

    def compute_needed(longest: int) -> int:
        shown = [min(widths[place], max(longest, heads[place])) if columns[place].unit == TEXT else widths[place] for place in places]
        return sum(shown) + GAP * (len(shown) - 1)

    if compute_needed(max(widths)) <= width:
        return places, None
    _leave_out(columns, places, lambda: compute_needed(LONG) > width, declared=True)
    _leave_out(columns, places, lambda: compute_needed(SHORT) > width, declared=False)
    longest = max(widths)
    while longest > 1 and compute_needed(longest) > width:
        longest -= 1
    return places, longest if longest < max(widths) else None


def choose_staying(columns: Sequence[Column], widths: Sequence[int], width: Optional[int], gap: int = GAP) -> List[int]:
    """The places of the columns that stay in rows that are shown as they come: how wide each may be is known beforehand."""
    places = list(range(len(columns)))
    if width is not None:
        most = width
        _leave_out(columns, places, lambda: sum(widths[place] + gap for place in places) - gap > most, declared=False)
    return places


def _leave_out(columns: Sequence[Column], places: List[int], is_too_wide: Callable[[], bool], declared: bool) -> None:
    """Columns go, those with the highest number first, of equal ones the last; the first column stays. `declared`: only those with a
    number."""
    order = sorted(places[1:], key=lambda place: (-columns[place].goes, -place))
    for place in order:
        if not is_too_wide() or (declared and not columns[place].goes):
            return
        places.remove(place)


def shorten_text(text: str, longest: Optional[int]) -> str:
    """A text of at most so many characters: what is in parentheses after a name goes first, so that an address stays whole; else its
    middle is left out, as a path differs at its end and a type by its beginning."""
    if longest is None or len(text) <= longest:
        return text
    name, _, aside = text.rpartition(" (")
    if aside.endswith(")") and longest <= 2 * len(name) and len(name) + 1 + len(ELLIPSIS) <= longest and name.count("(") == name.count(")"):
        return "%s %s" % (name, ELLIPSIS)
    if longest <= len(ELLIPSIS):
        return text[:longest]
    tail = (longest - len(ELLIPSIS)) // 2
    return text[: longest - len(ELLIPSIS) - tail] + ELLIPSIS + (text[-tail:] if tail else "")


def note_hidden(hidden: Sequence[str], has_shortened: bool, width: Optional[int]) -> List[str]:
    """The line that says what is not shown, in several where it is long; none where all is shown."""
    parts = ["Hidden: %s" % ", ".join(hidden)] if hidden else []
    parts += ["texts with %s are shortened" % ELLIPSIS] if has_shortened else []
    if not parts:
        return []
    return wrap_sentence("; ".join([*parts, "--wide shows %s" % ("all" if has_shortened else "them")]), width)


def wrap_sentence(line: str, width: Optional[int], further: int = GAP) -> List[str]:
    """A sentence in lines of at most `width` characters, except what cannot be broken: a word, a command, a number and its unit.

    It goes on below where it began: after what comes before it in columns, else `further` in.
    """
    if width is None or len(line) <= width or "\t" in line:
        return [line]
    if not line.strip(" -"):  # what stands below headings
        return [line[:width].rstrip()]
    lines: List[str] = []
    shown, starts = "", _find_starts(line, width, further)
    for gap, word in _split_wholes(line):
        start = next((start for start in starts if start + len(word) <= width), starts[-1])
        if len(shown) + len(gap) <= start or len(shown) + len(gap) + len(word) <= width:
            shown += gap + word
        else:
            lines.append(shown)
            shown = " " * start + word
    return [*lines, shown]


def reflow_help(text: str, width: Optional[int]) -> str:
    """A help text: its paragraphs filled again, its lists broken line by line. A line that ends early is followed by one of its own."""
    if width is None:
        return text
    shown: List[str] = []
    for paragraph in text.split("\n\n"):
        lines = paragraph.split("\n")
        is_list = any(line.startswith(" ") for line in lines)
        parts = [wrap_sentence(line, width, GAP if is_list else 0) for line in (lines if is_list else _join_paragraph(lines))]
        shown.append("\n".join(line for part in parts for line in part))
    return "\n\n".join(shown)


def _join_paragraph(lines: Sequence[str]) -> List[str]:
    longest = max(map(len, lines))
    joined = list(lines[:1])
    for last, line in zip(lines, lines[1:]):
        if len(last) + 1 + len(line.split(" ", 1)[0]) + EARLY > longest:
            joined[-1] += " " + line
        else:
            joined.append(line)
    return joined


def _find_starts(line: str, width: int, further: int) -> List[int]:
    """Return the indents of a sentence's continuation lines, for ordinary words and for those that are too long."""
    columns = [gap.end() for gap in GAPS.finditer(line, 0, width // 2) if gap.start()]
    return [*columns[-1:], len(line) - len(line.lstrip()) + further]


def _split_wholes(line: str) -> Iterator[Tuple[str, str]]:
    """Yield unbreakable parts with the spaces before them."""
    before, whole, last, is_command = "", "", "", False
    for gap, word in TEXT_WORDS.findall(line):
        is_command = is_command and not last.endswith(ENDS)
        is_joined = whole and len(gap) == 1 and not last.endswith(ENDS)
        if is_joined and (_belongs_together(last, word) or (is_command and _is_of_command(last, word))):
            whole += gap + word
        else:
            if whole:
                yield before, whole
            before, whole, is_command = gap, word, False
        is_command, last = is_command or word.lstrip("(") in PROGRAMS, word
    if whole:
        yield before, whole


def _belongs_together(last: str, word: str) -> bool:
    """Return True between an option and its neighbours, or a number and its unit."""
    return bool(OPTION.match(word) or OPTION.match(last) or (last[-1:].isdigit() and UNIT.fullmatch(word)))


def _is_of_command(last: str, word: str) -> bool:
    return last.lstrip("(") in PROGRAMS or last in ("|", ">", "&&") or OF_SHELL.fullmatch(word) is not None


class UncutText(str):
    """A text that is no use if it is cut, such as a line to copy."""


class DrawnPath(str):
    """A path of a picture, made here from numbers."""


def format_coordinate(value: float) -> str:
    """Return a coordinate of a picture, short."""
    return ("%.2f" % value).rstrip("0").rstrip(".")
