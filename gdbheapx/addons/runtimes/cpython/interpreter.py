"""The main interpreter, its threads and sys.modules, found by what they are: no symbol is read.

A thread's state names its interpreter in its third word (struct _ts: prev, next, interp; 3.8 to 3.14), and the interpreter has the newest
thread's state. Up to 3.10 both are blocks of malloc's; since 3.11 the first of each lies in _PyRuntime. sys.modules is the dict in
the interpreter (PyInterpreterState.modules, since 3.12 .imports.modules) whose module `sys` has it as `modules`.
"""

from array import array
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.runtimes.cpython.collector import in_words
from gdbheapx.addons.runtimes.cpython.types import DICT, GC_HEAD, TYPE, WORD, Segment
from gdbheapx.addons.runtimes.cpython.values import Values
from gdbheapx.analysis.reachability.garbage import Collector
from gdbheapx.analysis.reachability.symbols import module_at

INTERPRETER = 16
"""Of a thread's state."""
MOST_INTERPRETER_BYTES = 1 << 19
MOST_LOOKED_AT_BYTES = 1 << 15
"""Of what may be an interpreter, for the state of its newest thread."""
MOST_THREADS = 1 << 14
THREAD_WORDS = 48
"""Of a thread's state: pthread_self() is among them (struct _ts.thread_id)."""
MOST_FROZEN = 1 << 17
MOST_MODULES = 1 << 16
FIRST_KEYS = 16
"""`sys` is among the first in sys.modules."""
LOWEST, HIGHEST = 0x10000, 1 << 56


class Interpreter(NamedTuple):
    """One that runs code."""

    address: int
    threads: Sequence[int]
    """Addresses of their states."""
    modules: int
    """Of sys.modules."""


class _Data:
    """Writable memory of the object that has `type`, which has _PyRuntime, too."""

    def __init__(self, values: Values, memory: Sequence[Segment]) -> None:
        self._values = values
        home = module_at(values.world.target, values.types.root.type)
        self.segments = [part for part in memory if home is None or module_at(values.world.target, part.start) == home] or list(memory)

    def words(self, address: int, count: int) -> Optional[Tuple[int, ...]]:
        """So many words: of what was read already, where they lie there."""
        for start, words in self.segments:
            place = (address - start) // WORD
            if place >= 0 and place + count <= len(words) and not (address - start) % WORD:
                return tuple(words[place : place + count])
        return self._values.world.words(address, count)

    def up_to(self, address: int, size_bytes: int) -> "array[int]":
        """Words from there on, as many as can be read. Pages of a process that were never touched are zeros."""
        found: array[int] = array("Q")
        for start, words in sorted(self.segments, key=lambda part: part.start):
            end, place = start + len(words) * WORD, (address - start) // WORD
            if not found and not 0 <= place < len(words):
                continue
            here = address + len(found) * WORD
            if here < start:
                found.extend([0] * min((start - here) // WORD, size_bytes // WORD - len(found)))
            found.extend(words[max(place, 0) : place + size_bytes // WORD])
            if end >= address + size_bytes:
                break
        if found:
            return found
        data = self._values.world.read(address, size_bytes)
        return array("Q", self._values.world.target.words_in(data))

    def pointers(self) -> Iterator[int]:
        """Words that may be addresses, each once, none of them into what files have for themselves alone."""
        seen = {word for _, words in self.segments for word in words if LOWEST <= word < HIGHEST and not word % WORD}
        images = self._values.world.target.image_ranges()
        own = [(start, start + len(words) * WORD) for start, words in self.segments]
        for word in sorted(seen):
            if any(low <= word < high for low, high in own) or not any(low <= word < high for low, high, _ in images):
                yield word


def find(values: Values, memory: Sequence[Segment]) -> Optional[Interpreter]:
    """The one that has sys.modules; None where there is none that can be read. Of what looks like its threads' states one is believed that
    names a thread of the C library."""
    data = _Data(values, memory)
    pointers = {thread.thread_pointer for thread in values.world.target.threads()} - {None, 0}
    modules: Dict[int, int] = {}
    likely: Optional[Interpreter] = None
    for state, interpreter in _states(data):
        if interpreter not in modules:
            modules[interpreter] = _modules(values, data, interpreter)
        if not modules[interpreter]:
            continue
        if not pointers.isdisjoint(data.words(state, THREAD_WORDS) or ()):
            return Interpreter(interpreter, _threads(data, state, interpreter), modules[interpreter])
        likely = likely or Interpreter(interpreter, _threads(data, state, interpreter), modules[interpreter])
    return likely


def collector(values: Values, memory: Sequence[Segment], found: Interpreter) -> Tuple[Collector, int]:
    """Its collector's state, and where the list of what it leaves out is."""
    state = in_words(_Data(values, memory).up_to(found.address, MOST_INTERPRETER_BYTES), found.address)
    return (state.collector, state.permanent) if state is not None else (Collector(None), 0)


def frozen(values: Values, permanent: int) -> Iterator[int]:
    """Objects of the permanent generation (gc.freeze()), MOST_FROZEN at most."""
    at = values.word(permanent) if permanent else permanent
    for _ in range(MOST_FROZEN):
        if at in (0, permanent):
            break
        yield at + GC_HEAD
        at = values.word(at)


def _states(data: _Data) -> Iterator[Tuple[int, int]]:
    """(a thread's state, its interpreter)."""
    for word in data.pointers():
        head = data.words(word, 3)
        if head is None:
            continue
        if _is_pair(data, head[1], word):  # up to 3.10: `next` and `tstate_head` of an interpreter
            yield head[1], word
        elif _is_pair(data, word, head[2]) and word in data.up_to(head[2], MOST_LOOKED_AT_BYTES):
            yield word, head[2]


def _is_pair(data: _Data, state: int, interpreter: int) -> bool:
    if not all(LOWEST <= word < HIGHEST and not word % WORD for word in (state, interpreter)) or state == interpreter:
        return False
    head = data.words(state, 3)
    if head is None or head[2] != interpreter:
        return False
    for link, neighbour in enumerate(head[:2]):  # each leads back: pools of small blocks have such words, too
        back = data.words(neighbour, 3) if LOWEST <= neighbour < HIGHEST and not neighbour % WORD else None
        if neighbour and (back is None or back[1 - link] != state or back[2] != interpreter):
            return False
    return True


def _threads(data: _Data, state: int, interpreter: int) -> List[int]:
    """All states of the interpreter's, by their links both ways."""
    found = [state]
    for link in (1, 0):
        at = state
        while len(found) < MOST_THREADS:
            head = data.words(at, 3)
            at = head[link] if head else 0
            if not _is_pair(data, at, interpreter) or at in found:
                break
            found.append(at)
    return found


def _modules(values: Values, data: _Data, interpreter: int) -> int:
    """sys.modules; 0 where none of its words leads there."""
    seen = set()
    for word in data.up_to(interpreter, MOST_INTERPRETER_BYTES):
        if LOWEST <= word < HIGHEST and not word % WORD and word not in seen:
            seen.add(word)
            if values.has(word, DICT) and _has_sys(values, word):
                return word
    return 0


def _has_sys(values: Values, at: int) -> bool:
    """Its `sys` is a module whose `modules` it is."""
    for number, (key, value) in enumerate(values.entries(at)):
        if number >= FIRST_KEYS:
            return False
        if values.text(key) == "sys":
            return values.get(values.word(value + TYPE + WORD), "modules") == at
    return False


def modules(values: Values, interpreter: Interpreter) -> Iterator[Tuple[str, int]]:
    """(name, object) of sys.modules, each object once, `__main__` last: what it has imported is named by where it comes from."""
    seen, last = set(), []
    for number, (key, value) in enumerate(values.entries(interpreter.modules)):
        name = values.text(key, 256)
        if number >= MOST_MODULES:
            break
        if name is None or value in seen or not values.is_object(value):
            continue
        seen.add(value)
        if name == "__main__":
            last.append((name, value))
        else:
            yield name, value
    yield from last
