"""What a runtime must tell so that its objects get paths, such as `shop._cache["u:1234"].items[3]`."""

import functools
from codecs import utf_8_decode
from typing import Callable, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.reachability.garbage import Collector
from gdbheapx.analysis.reachability.names import MODULE, PathStep
from gdbheapx.kernel.blocks.cycles import Counting
from gdbheapx.kernel.blocks.graph import LAST_OWNING_BIT, OWNS_ALL
from gdbheapx.model import Address

__all__ = ["ALL_WORDS", "LAST_BIT", "MODULE", "Hop", "Namer", "PathStep", "Start", "decoded", "text_of"]

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
MOST_KNOWN = 1 << 14
"""Moves that are kept: ways to neighbours begin alike, and each is gone twice."""
TEXT_BYTES, TEXT_WORDS = 240, 64
"""Of a text, and of a block, that are looked at for Namer.texts."""


class Start(NamedTuple):
    """An object that has a name by itself."""

    address: int
    """Of it, or of any place in its block."""
    steps: Sequence[PathStep]
    """`shop`, or `thread 12 (gunicorn) frame handle(): ` and `rows`."""


class Hop(NamedTuple):
    """A block on the way, and the pointer in it that leads on."""

    address: int
    """Of the block, with whatever the runtime writes before its object."""
    size_bytes: int
    signature: Optional[str]
    """What the block is, as a row of the runtime's recogniser calls it; None: no row knows it."""
    offset: Optional[int]
    """Of the pointer to the next block; None in the last hop."""


class Namer:
    """Of one runtime in one target. Memory is read: the target must stand still, or be a core or a copy."""

    is_collected = False
    """Its objects are freed some time after the last pointer to them: what nothing points to may be garbage, and no leak."""

    def starts(self) -> Iterable[Start]:
        """What has a name by itself. Those told first win: modules, then frames."""
        return ()

    def owning_words(self, signature: Optional[str]) -> int:
        """Which words of a block that the runtime's rows call so lead to what belongs to it, as a mask of bits: bit n is word n, LAST_BIT
        word 63 and all behind it. None of them: links of the collector's lists, of weak references. None as signature: a block that no
        row knows, such as what objects own beside themselves."""
        return ALL_WORDS

    def object_offset(self, signature: Optional[str]) -> int:
        """Where in such a block its object begins, in bytes: what a pointer to the object leads to."""
        return 0

    def owns_nothing(self) -> Iterable[int]:
        """Addresses in blocks that own nothing of what they point to, whatever their rows say, such as a table of interned strings; and in
        data of objects: a runtime's own variables keep what has no better owner."""
        return ()

    def counting(self, signature: Optional[str]) -> Optional[Counting]:
        """How such objects count references; None: this runtime's do not."""
        return None

    def is_of_program(self, signature: Optional[str]) -> bool:
        """A class of the program's or of a library, and none of the runtime's own."""
        return False

    def collector(self) -> Collector:
        """How what frees cycles of such objects is set."""
        return Collector(None)

    def frozen(self) -> Iterable[int]:
        """Addresses of objects that it leaves out."""
        return ()

    def items(self, signature: Optional[str]) -> Tuple[int, int]:
        """Where in a block that is called so the items begin of an object that counts them as CPython does, and how long each is: behind
        the last one it holds nothing. (0, 0): it has none."""
        return 0, 0

    def live_end(self, signature: Optional[str]) -> Optional[Callable[[int], Optional[int]]]:
        """Who says of a block that is called so, by its address, where its words end that hold something, such as a generator's stack;
        it says None where all hold. None: such blocks have no end of their own."""
        return None

    def steps(self, start: Start, hops: Sequence[Hop]) -> List[PathStep]:
        """The path from the start's object, which lies in the first hop, to the last one: its own steps, and one for each pointer that the
        language has a word for. A dict's pointer to its keys has none. Empty: one of the pointers means nothing, such as one behind the
        end of an array, and so does the path."""
        return list(start.steps)

    def first_stale(self, start: Start, hops: Sequence[Hop]) -> Optional[int]:
        """Which hop leads on by a word that holds nothing any more, such as one behind a list's length: the way is none. None: all hold."""
        return None

    def contents(self, address: int, size_bytes: int, signature: Optional[str]) -> Optional[str]:
        """`dict of 230,000 entries`: what a block holds, and how many; None where it is no container."""
        return None

    def texts(self, address: int, size_bytes: int, signature: Optional[str]) -> Iterable[str]:
        """Texts of the program, for who asked for its data: of a string its characters, of a table its keys, of other blocks the strings
        that they lead to. Cut where they are long; of any block, also one that is none of the runtime's."""
        return ()

    def named_texts(self, address: int, size_bytes: int, signature: Optional[str]) -> Iterable[Tuple[str, str]]:
        """(name, text) of the object's attributes that are strings, for who asked for them."""
        return ()


class Here(NamedTuple):
    """What a way has come to."""

    kind: int
    """Of the object, as its runtime numbers them."""
    address: int
    is_beside: bool = False
    """What an object has beside itself: the entries of the table of that address, the table of an object's properties."""


Step = Optional[Tuple[str, str]]
"""Kind and name of one; None: the pointer has none."""
Moved = Optional[Tuple[Here, Step]]
"""What a pointer leads to; None: it means nothing."""


class WalkingNamer(Namer):
    """One that goes from object to object by the pointer that leads on."""

    def __init__(self) -> None:
        self._moved = functools.lru_cache(MOST_KNOWN)(self._move)

    def _kind(self, address: int) -> int:
        """Of the object there, from which a way begins."""
        raise NotImplementedError

    def _move(self, here: Here, place: int, below: int) -> Moved:
        """By the pointer at `place`, which leads into the block `below`."""
        raise NotImplementedError

    def steps(self, start: Start, hops: Sequence[Hop]) -> List[PathStep]:
        """From object to object; what an object has beside itself has no step."""
        path, stale = self._walk(start, hops)
        return path if stale is None else []

    def first_stale(self, start: Start, hops: Sequence[Hop]) -> Optional[int]:
        """Behind the end of an array, a key, or a place that is not in use."""
        return self._walk(start, hops)[1]

    def _walk(self, start: Start, hops: Sequence[Hop]) -> Tuple[List[PathStep], Optional[int]]:
        path, here = list(start.steps), Here(self._kind(start.address), start.address)
        for number, (hop, below) in enumerate(zip(hops, hops[1:])):
            moved = self._moved(here, hop.address + hop.offset, below.address) if hop.offset is not None else None
            if moved is None:
                return path, number
            here, step = moved
            path += [PathStep(*step, Address(here.address))] if step is not None else []
        return path, None


def quoted(text: str, escapes: Mapping[str, str]) -> str:
    """As a literal of the language that has these escapes and `\\u{e9}`, cut where it is long."""
    written = "".join(escapes.get(letter, letter if letter.isprintable() else "\\u{%x}" % ord(letter)) for letter in text[:MOST_KEY])
    return '"%s"' % written + ("..." if len(text) > MOST_KEY else "")


def decoded(data: bytes) -> str:
    """The first bytes of a text: UTF-8 that may be cut, or one character a byte."""
    try:
        return utf_8_decode(data, "strict", False)[0]
    except UnicodeDecodeError:
        return data.decode("latin-1")


def text_of(steps: Sequence[PathStep]) -> str:
    """As the language writes it; down a long list, each of whose nodes leads to the next, `.next x 480`. A long one lacks its middle."""
    text = _turned([step.name for step in steps])
    return text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - MOST_TAIL - 3] + "..." + text[-MOST_TAIL:]


def _turned(names: Sequence[str]) -> str:
    """With turns counted."""
    parts: List[str] = []
    at = 0
    if len(names) < LEAST_FOLDED:
        return "".join(names)
    while at < len(names):
        length, turns = max(((length, _turns(names, at, length)) for length in range(1, MOST_TURN + 1)), key=lambda one: one[0] * one[1])
        is_folded = turns >= LEAST_FOLDED
        parts.append("".join(names[at : at + length]) + " x %d" % turns if is_folded else names[at])
        at += length * turns if is_folded else 1
    return "".join(parts)


def _turns(names: Sequence[str], at: int, length: int) -> int:
    """How often these steps follow each other from there on."""
    end = at + length
    while end < len(names) and names[end] == names[end - length]:
        end += 1
    return (end - at) // length
