"""Text as wide as what shows it: which columns of a table go, how long its texts may be, and where a sentence goes on in the next line."""

import re
from typing import Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.columns import TEXT, Column

GAP = 2
"""Between two columns."""
LONG, SHORT = 40, 20
"""Longer texts drive no column away: they are shortened where the others, too, are as short. An address has 18 characters at most."""
EARLY = 12
"""Characters that a line of a paragraph may lack where its end means nothing."""
DOTS = "..."
GAPS = re.compile("  +(?=[^ ])")
WORDS = re.compile(r"""( *)(`[^`]*`[^ ]*|(?:[^ '"]*[=(])?(?:'[^']*'|"[^"]*")[^ ]*|[^ ]+)""")
"""What stands between quotes is one word."""
UNIT = re.compile("(%|[KMGTP]iB|bytes?|blocks?|ms|s|min|h|d)[,;:.)]*")
OPTION = re.compile("[(`]?-[^ -]|--[^ -]")
OF_SHELL = re.compile(r"[|<>&]+|[^a-z]+|.*[^ ][/.=:$<>'\"\[][^ ].*|.*[0-9].*|/.*")
"""Names, numbers, paths, placeholders and what stands between two commands: no words of a sentence."""
PROGRAMS = frozenset(
    ("gdbheapx", "heapx", "apt-get", "cat", "docker", "echo", "gdb", "go", "grep", "install", "ipcs", "jcmd", "jhsdb", "kill", "kubectl")
    + ("ls", "mount", "pip", "python3", "redis-cli", "sudo", "sysctl", "ulimit", "valkey-cli")
)
"""A command begins with one of these: it stays in one line, so that it can be copied."""
ENDS = (",", ";", ":", ")", ".")


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


def staying(columns: Sequence[Column], widths: Sequence[int], width: Optional[int], gap: int = GAP) -> List[int]:
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


def shortened(text: str, longest: Optional[int]) -> str:
    """A text of at most so many characters: what stands in parentheses behind a name goes first, so that an address stays whole; else its
    middle is left out, as a path tells by its end and a type by its beginning."""
    if longest is None or len(text) <= longest:
        return text
    name, _, aside = text.rpartition(" (")
    if aside.endswith(")") and longest <= 2 * len(name) and len(name) + 1 + len(DOTS) <= longest and name.count("(") == name.count(")"):
        return "%s %s" % (name, DOTS)
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
    return wrapped("; ".join([*parts, "--wide shows %s" % ("all" if has_shortened else "them")]), width)


def wrapped(line: str, width: Optional[int], further: int = GAP) -> List[str]:
    """A sentence in lines of at most `width` characters, but for what cannot be broken: a word, a command, a number and its unit.

    It goes on below where it began: behind what stands before it in columns, else `further` in.
    """
    if width is None or len(line) <= width or "\t" in line:
        return [line]
    if not line.strip(" -"):  # what stands below headings
        return [line[:width].rstrip()]
    lines: List[str] = []
    shown, starts = "", _starts(line, width, further)
    for gap, whole in _wholes(line):
        start = next((start for start in starts if start + len(whole) <= width), starts[-1])
        if len(shown) + len(gap) <= start or len(shown) + len(gap) + len(whole) <= width:
            shown += gap + whole
        else:
            lines.append(shown)
            shown = " " * start + whole
    return [*lines, shown]


def reflowed(text: str, width: Optional[int]) -> str:
    """A help text: its paragraphs filled anew, its lists broken line by line. A line that ends early is followed by one of its own."""
    if width is None:
        return text
    shown: List[str] = []
    for paragraph in text.split("\n\n"):
        lines = paragraph.split("\n")
        is_list = any(line.startswith(" ") for line in lines)
        parts = [wrapped(line, width, GAP if is_list else 0) for line in (lines if is_list else _joined(lines))]
        shown.append("\n".join(line for part in parts for line in part))
    return "\n\n".join(shown)


def _joined(lines: Sequence[str]) -> List[str]:
    longest = max(map(len, lines))
    joined = list(lines[:1])
    for last, line in zip(lines, lines[1:]):
        if len(last) + 1 + len(line.split(" ", 1)[0]) + EARLY > longest:
            joined[-1] += " " + line
        else:
            joined.append(line)
    return joined


def _starts(line: str, width: int, further: int) -> List[int]:
    """Where the lines below a sentence begin, and where what is too long for that does."""
    columns = [gap.end() for gap in GAPS.finditer(line, 0, width // 2) if gap.start()]
    return [*columns[-1:], len(line) - len(line.lstrip()) + further]


def _wholes(line: str) -> Iterator[Tuple[str, str]]:
    """What stays in one line, each with the spaces before it."""
    before, whole, last, is_command = "", "", "", False
    for gap, word in WORDS.findall(line):
        is_command = is_command and not last.endswith(ENDS)
        if whole and len(gap) == 1 and not last.endswith(ENDS) and (_belongs(last, word) or (is_command and _is_of_command(last, word))):
            whole += gap + word
        else:
            if whole:
                yield before, whole
            before, whole, is_command = gap, word, False
        is_command, last = is_command or word.lstrip("(") in PROGRAMS, word
    if whole:
        yield before, whole


def _belongs(last: str, word: str) -> bool:
    """Nothing comes between an option and what stands on both sides of it, or a number and its unit."""
    return bool(OPTION.match(word) or OPTION.match(last) or (last[-1:].isdigit() and UNIT.fullmatch(word)))


def _is_of_command(last: str, word: str) -> bool:
    return last.lstrip("(") in PROGRAMS or last in ("|", ">", "&&") or OF_SHELL.fullmatch(word) is not None
