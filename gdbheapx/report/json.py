"""JSON: records as objects, addresses as hex strings, unknown as null."""

from json import dumps
from typing import Any, Callable, List, Optional

from gdbheapx import hints
from gdbheapx.command import JsonLines
from gdbheapx.model import Address

Write = Callable[[str], Any]


def jsonable(value: Any, line: Optional[hints.Write] = None) -> Any:
    """The value in the types that json knows. `line` writes the commands that its texts name; None: they stay as they are."""
    kind = type(value)
    if kind is str:
        return hints.whole(value, line) if line is not None and hints.BEGIN in value else value
    if kind is int or kind is float or kind is bool or value is None:
        return value
    if isinstance(value, (Address, str)):
        return jsonable(str(value), line)
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        if names is not None:
            return {name: jsonable(member, line) for name, member in zip(names, value)}
        return [jsonable(member, line) for member in value]
    if isinstance(value, dict):
        return {str(name): jsonable(member, line) for name, member in value.items()}
    if isinstance(value, (list, set, frozenset)) or hasattr(value, "__iter__"):
        return [jsonable(member, line) for member in value]
    if isinstance(value, int):
        return int(value)
    return str(value)


def encode(value: Any, line: Optional[hints.Write] = None) -> str:
    """One JSON value as text; what is not UTF-8 in a file name stays readable as an escape."""
    return dumps(jsonable(value, line), allow_nan=False)


def text(value: Any) -> str:
    """A command's data as one text."""
    pieces: List[str] = []

    def through(step: Callable[[], None]) -> bool:
        step()
        return True

    write(value, pieces.append, through)
    return "".join(pieces)


def write(value: Any, out: Write, guard: Callable[[Callable[[], None]], bool], line: Optional[hints.Write] = None) -> None:
    """Write a command's data. Streams are written while they are made, callables are called when their turn comes.

    `guard` runs a step that reads the target; it gives False if that was cut short, and what follows is closed properly.
    """
    if isinstance(value, JsonLines):
        _stream(value, out, guard)
    elif isinstance(value, dict) and any(callable(member) or isinstance(member, JsonLines) for member in value.values()):
        out("{")
        for place, (name, member) in enumerate(value.items()):
            out("%s%s: " % (", " if place else "", dumps(name)))
            write(_called(member, guard) if callable(member) else member, out, guard, line)
        out("}")
    else:
        out(encode(value, line))


def _called(make: Callable[[], Any], guard: Callable[[Callable[[], None]], bool]) -> Any:
    results = []
    return results[0] if guard(lambda: results.append(make())) else None


def _stream(lines: JsonLines, out: Write, guard: Callable[[Callable[[], None]], bool]) -> None:
    out("[")

    def pump() -> None:
        first = True
        for entry in lines.entries:
            out("\n" + entry if first else ",\n" + entry)
            first = False

    guard(pump)
    out("\n]")
