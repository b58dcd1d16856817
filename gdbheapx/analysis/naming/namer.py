"""Interface of a runtime's namer, by which its objects get paths such as `shop._cache["u:1234"].items[3]`."""

from codecs import utf_8_decode
from typing import Any, Callable, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.reachability.garbage import Collector
from gdbheapx.analysis.reachability.names import MODULE, PathStep
from gdbheapx.kernel.blocks.cycles import Counting
from gdbheapx.kernel.blocks.graph import LAST_OWNING_BIT, OWNS_ALL
from gdbheapx.model import TargetAddress

__all__ = ["ALL_WORDS", "LAST_BIT", "MODULE", "Hop", "Namer", "PathStep", "Start", "decode_text", "format_path"]

ALL_WORDS = OWNS_ALL
"""Every word of a block owns what it points to."""
LEAST_FOLDED, MOST_TURN = 5, 3
"""Turns of a path, each the same steps as the one before, that are counted rather than repeated, and how many steps a turn may have."""
MOST_LETTERS, MOST_TAIL = 100, 40
"""Of a path as text, and of its end where its middle is left out: `path_steps` has it whole."""
LAST_BIT = LAST_OWNING_BIT
"""Of a mask of words: this one and all behind it."""
VARIABLE, ATTRIBUTE, KEY, INDEX, FRAME, LOCAL, CLOSURE, TYPE, FIELD = (
    *("variable", "attribute", "key", "index"),
    *("frame", "local", "closure", "type", "field"),
)
"""Kinds of steps. FIELD: a word at an offset, where nothing knows more."""

MOST_KEY = 60
"""Characters of a key in a path."""
TEXT_BYTES, TEXT_WORDS = 240, 64
"""Of a text, and of a block, that are looked at for Namer.texts."""


class Start(NamedTuple):
    """An object that has a name by itself."""

    address: int
    """Of it, or of any place in its block."""
    steps: Sequence[PathStep]
    """`shop`, or `thread 12 (gunicorn) frame handle(): ` and `rows`."""


class Hop(NamedTuple):
    """A block on a path, and the pointer in it that leads on."""

    address: int
    """Of the block, with whatever the runtime writes before its object."""
    size_bytes: int
    signature: Optional[str]
    """What the block is, as a row of the runtime's recogniser calls it; None: no row knows it."""
    find_offset: Callable[[], Optional[int]]
    """Searches the block for the pointer to the next one: in a large table that takes a while."""


class PathMove(NamedTuple):
    """Result of following one pointer on a path."""

    position: Any
    """State of the namer's own, from which the next pointer is followed."""
    steps: Sequence[PathStep] = ()
    """Added to the path; none where the language has no word for the pointer."""
    is_open: bool = False
    """The last of these steps counts only if the path ends here: what follows says the same better."""
    opening: str = ""
    """Text that the path begins with instead of all steps before: a coroutine is known by its function, not by the list it waits in."""
    end_address: Optional[int] = None
    """New address of the last step that the path has: an element that is a pointer is called like what it leads to."""


class PathState(NamedTuple):
    """A path as far as one block."""

    move: PathMove
    above: "Optional[PathState]"
    """The block before; None at the start."""

    def steps(self) -> List[PathStep]:
        """Return all steps from the start on."""
        moves, state = [], self  # type: List[PathMove], Optional[PathState]
        while state is not None:
            moves.append(state.move)
            state = state.above
        path: List[PathStep] = []
        pending: Optional[PathStep] = None
        for move in reversed(moves):
            if move.opening:
                path = [PathStep(FRAME, move.opening, None)]
            if pending is not None and move.steps and (move.steps[0].kind == FIELD or move.steps[0].name == pending.name):
                path.append(pending)  # of a dict itself, not what it has
            if move.steps:
                path += move.steps
                pending = path.pop() if move.is_open else None
            if move.end_address is not None:
                path[-1] = path[-1]._replace(address=TargetAddress(move.end_address))
        return path if pending is None else [*path, pending]


class Namer:
    """Namer of one runtime's objects in a stopped process, a core or a copy."""

    is_collected = False
    """Its objects are freed some time after the last pointer to them: what nothing points to may be garbage, and no leak."""

    def starts(self) -> Iterable[Start]:
        """Return what has a name by itself. Earlier ones win: modules, then frames."""
        return ()

    def owning_words(self, signature: Optional[str]) -> int:
        """Return a mask of the words of such blocks that own their targets: bit n is word n, LAST_BIT word 63 and all after it. Links of
        a collector's lists and weak references own nothing. None as signature: a block that no row knows, such as bodies that objects
        own.
        """
        return ALL_WORDS

    def object_offset(self, signature: Optional[str]) -> int:
        """Return the offset in such a block at which its object begins: what a pointer to the object leads to."""
        return 0

    def owns_nothing(self) -> Iterable[int]:
        """Return addresses in blocks that own none of their targets, whatever their rows say, such as a table of interned strings; and in
        data of objects: a runtime's own variables keep only blocks without a better owner.
        """
        return ()

    def counting(self, signature: Optional[str]) -> Optional[Counting]:
        """Return how such objects count references, or None if this runtime's do not."""
        return None

    def is_of_program(self, signature: Optional[str]) -> bool:
        """Return True for a class of the program or a library, False for the runtime's own."""
        return False

    def collector(self) -> Collector:
        """Return the settings of the collector of cycles."""
        return Collector(None)

    def frozen(self) -> Iterable[int]:
        """Return addresses of objects that the collector leaves out."""
        return ()

    def items(self, signature: Optional[str]) -> Tuple[int, int]:
        """Return the offset of counted items in such a block and their size; (0, 0) if it has none. After the last item the block holds
        nothing.
        """
        return 0, 0

    def live_end(self, signature: Optional[str]) -> Optional[Callable[[int], Optional[int]]]:
        """Return a function from the address of such a block to the end of the words that hold something, or None if all do."""
        return None

    def begin_path(self, start: Start) -> PathMove:
        """Return where a path begins, with the start's own steps."""
        return PathMove(None, start.steps)

    def follow_pointer(self, position: Any, hop: Hop, below: Hop) -> Optional[PathMove]:
        """Follow the pointer of `hop` that leads into the block `below`. None: the word holds nothing any more, such as one after a
        list's length, and no path leads over it.
        """
        raise NotImplementedError

    def find_begin(self, place: int, start: int) -> Optional[int]:
        """Return the begin of the container that has the word at `place` and begins at `start` or after it; None if there is none."""
        return None

    def finish_path(self, position: Any, steps: List[PathStep], block: int) -> List[PathStep]:
        """Return the path to the block that begins at `block`, with these steps; empty if it gives no name."""
        return steps

    def contents(self, address: int, size_bytes: int, signature: Optional[str]) -> Optional[str]:
        """Return type and number of a container's elements, `dict of 230,000 entries`; None if it is no container."""
        return None

    def texts(self, address: int, size_bytes: int, signature: Optional[str]) -> Iterable[str]:
        """Return texts of the program, for commands that show its data: the characters of a string, the keys of a table, for other blocks
        the strings that they lead to. Long ones are cut; any block may be given, also one that is not the runtime's.
        """
        return ()

    def named_texts(self, address: int, size_bytes: int, signature: Optional[str]) -> Iterable[Tuple[str, str]]:
        """Return (name, text) of the object's attributes that are strings, for commands that show data."""
        return ()


class ValuePosition(NamedTuple):
    """Object that a path has reached, or a body of it: the entries of a table, the table of an object's properties."""

    kind: int
    """Of the object, as its runtime numbers them."""
    address: int
    is_beside: bool = False


class ValueNamer(Namer):
    """Namer of objects by the pointers between them, where the bodies of an object add no step."""

    def read_kind(self, address: int) -> int:
        """Return the kind of the object there, from which a path begins."""
        raise NotImplementedError

    def follow_word(self, position: ValuePosition, place: int, below: int) -> "Optional[Tuple[ValuePosition, Optional[Tuple[str, str]]]]":
        """Follow the pointer at `place`, which leads into the block `below`.

        Return the new position, and kind and name of a step or None; None if the pointer means nothing.
        """
        raise NotImplementedError

    def begin_path(self, start: Start) -> PathMove:
        """See Namer."""
        return PathMove(ValuePosition(self.read_kind(start.address), start.address), start.steps)

    def follow_pointer(self, position: ValuePosition, hop: Hop, below: Hop) -> Optional[PathMove]:
        """See Namer."""
        offset = hop.find_offset()
        moved = self.follow_word(position, hop.address + offset, below.address) if offset is not None else None
        if moved is None:
            return None
        reached, step = moved
        return PathMove(reached, [PathStep(*step, TargetAddress(reached.address))] if step is not None else ())


def quote_text(text: str, escapes: Mapping[str, str]) -> str:
    """Return a literal of the language that has these escapes and `\\u{e9}`, cut if it is long."""
    written = "".join(escapes.get(letter, letter if letter.isprintable() else "\\u{%x}" % ord(letter)) for letter in text[:MOST_KEY])
    return '"%s"' % written + ("..." if len(text) > MOST_KEY else "")


def decode_text(data: bytes) -> str:
    """Decode the first bytes of a text: UTF-8 that may be cut, or one character a byte."""
    try:
        return utf_8_decode(data, "strict", False)[0]
    except UnicodeDecodeError:
        return data.decode("latin-1")


def format_path(steps: Sequence[PathStep]) -> str:
    """Return a path as its language writes it: turns along a long list are counted (`.next x 480`), and a long path lacks its middle."""
    text = _join_turns([step.name for step in steps])
    return text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - MOST_TAIL - 3] + "..." + text[-MOST_TAIL:]


def _join_turns(names: Sequence[str]) -> str:
    parts: List[str] = []
    at = 0
    if len(names) < LEAST_FOLDED:
        return "".join(names)
    while at < len(names):
        length, turns = max(
            ((length, _count_turns(names, at, length)) for length in range(1, MOST_TURN + 1)), key=lambda one: one[0] * one[1]
        )
        is_folded = turns >= LEAST_FOLDED
        parts.append("".join(names[at : at + length]) + " x %d" % turns if is_folded else names[at])
        at += length * turns if is_folded else 1
    return "".join(parts)


def _count_turns(names: Sequence[str], at: int, length: int) -> int:
    end = at + length
    while end < len(names) and names[end] == names[end - length]:
        end += 1
    return (end - at) // length
