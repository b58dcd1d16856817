"""Commands inside texts: a model names the command, and the one who shows the text writes it for the place where it is read (place.py).

In a text a command is its words between two marks. They go through every formatting, and stay in what a snapshot keeps. The first mark has
what no one can guess, for names and command lines of a process, which may hold anything, are in the same texts.
"""

import os
import shlex
from typing import Any, Callable, Optional, Sequence

SECRET_BYTES = 12


def new_secret() -> str:
    """Return a prefix for marks that only this process, or one file, uses."""
    return os.urandom(SECRET_BYTES).hex()


SECRET = new_secret()
BEGIN, END = "\x02" + SECRET, "\x03"
ALONE = "="
"""In front of the words of a command that names all it is about."""
AGAIN = "+"
"""In front of options that are added to the command that is answered."""
OTHER_TARGET = "--pid N or --core FILE"
TARGETS = {"snapshot": "--snapshot", "core": "--core", "process": "-p"}
"""By what is named, the option that names it."""
Write = Callable[[str], str]
"""Gives the whole line for the words of a command."""


def hint_command(words: str, *values: Any) -> str:
    """A command about the same target, such as `whatis 0x%x` with its values."""
    return BEGIN + _fill_values(words, values) + END


def hint_run(words: str, *values: Any) -> str:
    """A command that needs no target, or names it itself, such as `diff OLD NEW`."""
    return BEGIN + ALONE + _fill_values(words, values) + END


def hint_again(options: str = "", *values: Any) -> str:
    """The command that is answered once more, with these options."""
    return BEGIN + AGAIN + _fill_values(options, values) + END


def hint_about(form: str, name: str, words: str) -> str:
    """A command about what someone has named: a snapshot, a core or a process; else about what gdb has."""
    return hint_command(words) if form not in TARGETS else hint_run("%s %%s %s" % (TARGETS[form], words), name)


def _fill_values(words: str, values: Sequence[Any]) -> str:
    return words % tuple(quote_word(value) if isinstance(value, str) else value for value in values) if values else words


def write_alone(words: str) -> str:
    """A command where nothing is known of the target."""
    return words[1:] or OTHER_TARGET if words.startswith(AGAIN) else "gdbheapx " + words.lstrip(ALONE)


def write_commands(text: str, write: Write = write_alone) -> str:
    """The text with its commands as they are typed where it is read."""
    if BEGIN not in text:
        return str(text)
    first, *parts = text.split(BEGIN)
    made = [first]
    for part in parts:
        words, end, rest = part.partition(END)
        made.append(write(words) + rest if end else BEGIN + part)
    return "".join(made)


def words_of(text: Optional[str]) -> Optional[str]:
    """The words of a text that is a command of this tool and nothing else; None: it is not."""
    if text is None or not text.startswith(BEGIN) or text.find(END) != len(text) - 1:
        return None
    return text[len(BEGIN) : -1].lstrip(ALONE)


def strip_targets(text: str) -> str:
    """The text with its commands as a model names them, without target."""
    return write_commands(text, lambda words: words.lstrip(ALONE + AGAIN))


def in_records(value: Any, write: Write) -> Any:
    """Records and lists with their texts whole; the same object where there is nothing to write."""
    if isinstance(value, str):
        return write_commands(value, write) if BEGIN in value else value
    if isinstance(value, dict):
        made = {name: in_records(member, write) for name, member in value.items()}
        return made if any(made[name] is not value[name] for name in made) else value
    if not isinstance(value, (list, tuple)):
        return value
    parts = [in_records(member, write) for member in value]
    if all(new is old for new, old in zip(parts, value)):
        return value
    return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)


def quote_word(text: str) -> str:
    """A word for a shell. What does not show is written so that bash reads it as it is: a line that is copied must not end early."""
    if text.isprintable():
        return shlex.quote(text)
    parts = []
    for byte in text.encode("utf-8", "surrogateescape" if _has_bytes(text) else "backslashreplace"):
        parts.append(chr(byte) if 32 <= byte < 127 and byte not in b"'\\" else "\\x%02x" % byte)
    return "$'%s'" % "".join(parts)


def _has_bytes(text: str) -> bool:
    """Return True if every surrogate of the text is a byte that was not UTF-8."""
    return all(0xDC80 <= ord(letter) <= 0xDCFF for letter in text if 0xD800 <= ord(letter) <= 0xDFFF)
