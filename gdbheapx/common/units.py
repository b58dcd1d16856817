"""Format sizes, shares and numbers for tables and sentences: nothing else turns a figure into text."""

from typing import Any, Optional, Sequence, Type, TypeVar

UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")
HUMAN_FROM = 10000
"""Below this a table shows a size to the byte."""
UNKNOWN = "?"


def table_size(size_bytes: int) -> str:
    """A size in a table: 1,234 B, then 12.3 KiB, 4.5 GiB."""
    return "{:,} B".format(size_bytes) if abs(size_bytes) < HUMAN_FROM else _scale_size(size_bytes)


def sentence_size(size_bytes: int) -> str:
    """A size in a sentence: 0 B, 512 bytes, then 1.2 KiB, 4.5 GiB."""
    return "0 B" if not size_bytes else "%d bytes" % size_bytes if abs(size_bytes) < 1024 else _scale_size(size_bytes)


def _scale_size(size_bytes: int) -> str:
    value = float(size_bytes)
    for unit in UNITS:
        value /= 1024
        if abs(value) < 1023.95 or unit == UNITS[-1]:
            return "%.1f %s" % (value, unit)
    raise AssertionError


def format_size(value: Optional[int], plain: bool = False) -> str:
    """A size in a cell; `plain`: as an integer (--bytes). Unknown is `?`."""
    return UNKNOWN if value is None else str(value) if plain else table_size(value)


def format_duration(seconds: float) -> str:
    """`12 s`, `5 min`, `2 h 10 min`, `3 d 4 h`."""
    whole = round(seconds)
    if whole < 1:
        return "%d ms" % round(seconds * 1000)
    if whole < 120:
        return "%d s" % whole
    minutes = round(seconds / 60)
    if minutes < 120:
        return "%d min" % minutes
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return "%d h %d min" % (hours, minutes) if minutes else "%d h" % hours
    days, hours = divmod(hours, 24)
    return "%d d %d h" % (days, hours) if hours else "%d d" % days


def format_number(value: Optional[int], plain: bool = False) -> str:
    """A number of things: 16,033; `plain`: as an integer (--bytes). Unknown is `?`."""
    return UNKNOWN if value is None else str(value) if plain else "{:,}".format(value)


def format_identifier(value: object) -> str:
    """A number that names something, as a thread's; unknown is `?`."""
    return UNKNOWN if value is None else str(value)


def format_figure(field: str, value: Optional[int]) -> str:
    """A field that has no declared column: one with a plural name counts things, any other number names something."""
    return format_number(value) if field.endswith("s") else format_identifier(value)


def format_share(part: Optional[int], whole: int) -> str:
    """A share in a sentence: whole percents, with their sign."""
    return UNKNOWN if part is None else "%.0f %%" % (100.0 * part / whole) if whole else "0 %"


def exact_share(part: Optional[int], whole: int) -> str:
    """A share in a column whose heading is `%`: one decimal."""
    return UNKNOWN if part is None else "%.1f" % (100.0 * part / (whole or 1))


def count_noun(count: int, noun: str) -> str:
    """`1 thread`, `2,000 threads`."""
    return "{:,} {}{}".format(count, noun, "" if count == 1 else "s")


def add_article(noun: str) -> str:
    """`a list`, `an array`, `an LRU list`."""
    return "%s %s" % ("an" if noun.startswith(("a", "e", "i", "o", "u", "LRU ")) else "a", noun)


def list_names(noun: str, names: Sequence[object], most: int = 8) -> str:
    """`thread 7`, `threads 7, 8 and 3 more`: the first of them by name."""
    more = " and %s more" % format_number(len(names) - most) if len(names) > most else ""
    return "%s%s %s%s" % (noun, "" if len(names) == 1 else "s", ", ".join(map(str, names[:most])), more)


def format_milliseconds(value: Optional[int]) -> str:
    """A decay time as its option has it: -1 never, 0 at once."""
    return UNKNOWN if value is None else {-1: "never", 0: "at once"}.get(value, "%d ms" % value)


class SentenceSize:
    """A number of bytes inside a sentence, see say()."""

    def __init__(self, size_bytes: Optional[int]) -> None:
        self.size_bytes = size_bytes

    def text(self, plain: bool) -> str:
        """Return the size as it reads in a sentence, for people or with --bytes."""
        if self.size_bytes is None:
            return "an unknown amount"
        return "%d bytes" % self.size_bytes if plain else sentence_size(self.size_bytes)


SomeSaid = TypeVar("SomeSaid", bound="Sentence")


class Sentence(str):
    """A sentence with sizes in it: as text they are human, `plain` has them as integers (--bytes)."""

    plain: str

    def __new__(cls: Type[SomeSaid], text: str, plain: str) -> SomeSaid:
        """Both forms of one sentence."""
        made = super().__new__(cls, text)
        made.plain = plain
        return made


HEADING, DAMAGE, WARNING = "heading", "damage", "warning"
"""What a line means, where that is more than its words: a terminal has a colour for it."""


class MarkedSentence(Sentence):
    """A line that means one of these."""

    meaning: str


def mark_sentence(sentence: str, meaning: str) -> MarkedSentence:
    """The sentence with its meaning."""
    made = MarkedSentence(str(sentence), plain_form(sentence))
    made.meaning = meaning
    return made


def meaning_of(sentence: str) -> Optional[str]:
    """Return the meaning of a marked line, or None if it has no more than its words."""
    return sentence.meaning if isinstance(sentence, MarkedSentence) else None


def make_sentence(template: str, *parts: Any) -> Sentence:
    """A sentence: `template` with %s and the like for its parts, of which a Size or a Said has two forms."""
    return Sentence(
        template % tuple(_format_part(part, False) for part in parts), template % tuple(_format_part(part, True) for part in parts)
    )


def make_cells(template: str, *parts: Any) -> Sentence:
    """Return a sentence with sizes as in tables: `1,234-12.3 KiB`; unknown is `?`."""
    forms = [
        [format_size(part.size_bytes, plain) if isinstance(part, SentenceSize) else _format_part(part, plain) for part in parts]
        for plain in (False, True)
    ]
    return Sentence(template % tuple(forms[0]), template % tuple(forms[1]))


def join_sentences(between: str, parts: Sequence[str]) -> Sentence:
    """Sentences side by side."""
    return Sentence(between.join(parts), between.join(plain_form(part) for part in parts))


def _format_part(part: Any, plain: bool) -> Any:
    if isinstance(part, SentenceSize):
        return part.text(plain)
    return plain_form(part) if plain else part


def plain_form(text: Any) -> Any:
    """The form with integers, if the text has one."""
    return text.plain if isinstance(text, Sentence) else text
