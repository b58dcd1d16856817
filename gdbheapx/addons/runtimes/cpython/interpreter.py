"""The interpreters, their threads and sys.modules, found by what they are: no symbol is read.

A thread's state names its interpreter in its third word (struct _ts: prev, next, interp; 3.8 to 3.14), and the interpreter has the newest
thread's state. Up to 3.10 both are blocks of malloc's; since 3.11 the first of each lies in _PyRuntime. sys.modules is the dict in
the interpreter (PyInterpreterState.modules, since 3.12 .imports.modules) whose module `sys` has it as `modules`.
"""

from array import array
from itertools import chain, islice
from typing import Collection, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.addons.runtimes.cpython.objects import DICT, GC_HEAD, LOW_HALF, TYPE, WORD, PySegment, PyValues
from gdbheapx.analysis.addon_answers import Collector, CollectorState
from gdbheapx.analysis.reachability.heap_graph import find_module_at
from gdbheapx.inferior.base import Target

INTERPRETER = 16
"""Of a thread's state."""
MOST_INTERPRETER_BYTES = 1 << 19
MOST_LOOKED_AT_BYTES = 1 << 15
"""Of what may be an interpreter, for the state of its newest thread."""
MOST_LOOKED_AT = 64
"""Words that may lead to one more interpreter."""
MOST_THREADS = 1 << 14
THREAD_WORDS = 48
"""Of a thread's state: pthread_self() is among them (struct _ts.thread_id)."""
MOST_FROZEN = 1 << 17
MOST_MODULES = 1 << 16
FIRST_KEYS = 16
"""`sys` is among the first in sys.modules."""
LOWEST, HIGHEST = 0x10000, 1 << 56


class Interpreter(NamedTuple):
    """PyInterpreterState that runs code."""

    address: int
    threads: Sequence[int]
    """Addresses of their states."""
    modules: int
    """Of sys.modules."""


def list_python_modules(values: PyValues, interpreter: Interpreter) -> Iterator[Tuple[str, int]]:
    """Yield (name, object) of sys.modules, each object once, `__main__` last, so that imported objects are named by their own module."""
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


class _Data:
    """Writable memory of the object that has `type`, which has _PyRuntime, too."""

    def __init__(self, values: PyValues, memory: Sequence[PySegment]) -> None:
        self._values = values
        home = find_module_at(values.world.target, values.types.root.type)
        self.segments = [part for part in memory if home is None or find_module_at(values.world.target, part[0]) == home] or list(memory)

    def words(self, address: int, count: int) -> Optional[Tuple[int, ...]]:
        """Return so many words, from data that were already read if the address lies there; None if they cannot be read."""
        for start, words in self.segments:
            place = (address - start) // WORD
            if place >= 0 and place + count <= len(words) and not (address - start) % WORD:
                return tuple(words[place : place + count])
        return self._values.world.words(address, count)

    def up_to(self, address: int, size_bytes: int) -> "array[int]":
        """Return words from the address on, as many as can be read. Pages of a process that were never touched are zeros."""
        found: array[int] = array("Q")
        for start, words in sorted(self.segments, key=lambda part: part[0]):
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

    def in_front_of(self, pointers: Collection[int]) -> Iterator[int]:
        """Yield each word that is in front of one of these."""
        for _, words in self.segments:
            yield from (before for before, word in zip(words, words[1:]) if word in pointers)

    def pointers(self) -> Iterator[int]:
        """Yield words that may be addresses, each once; none of them leads into private data of files."""
        seen = {word for _, words in self.segments for word in words if LOWEST <= word < HIGHEST and not word % WORD}
        images = self._values.world.target.image_ranges()
        own = [(start, start + len(words) * WORD) for start, words in self.segments]
        for word in sorted(seen):
            if any(low <= word < high for low, high in own) or not any(low <= word < high for low, high, _ in images):
                yield word


def find_interpreters(values: PyValues, memory: Sequence[PySegment]) -> List[Interpreter]:
    """Return the interpreters that have sys.modules, first the oldest that has a thread of the C library: of possible thread states only
    one that names such a thread is believed, unless there is none.
    """
    data = _Data(values, memory)
    pointers = {thread.thread_pointer for thread in values.world.target.threads()} - {None, 0}
    modules: Dict[int, int] = {}
    readable: Dict[int, Interpreter] = {}
    sure: Dict[int, Interpreter] = {}
    for state, interpreter in chain(_find_thread_states(data), _find_further(data, readable)):
        if interpreter not in modules:
            modules[interpreter] = _find_sys_modules(values, data, interpreter)
        if not modules[interpreter] or interpreter in sure:
            continue
        threads = _list_threads(data, state, interpreter)
        readable[interpreter] = Interpreter(interpreter, threads, modules[interpreter])
        if any(not pointers.isdisjoint(data.words(thread, THREAD_WORDS) or ()) for thread in threads):
            sure[interpreter] = readable[interpreter]
    believed = list(sure.values()) or list(readable.values())[:1]
    return sorted(believed, key=lambda each: len(_list_older(data, each.address, readable)))


def _list_older(data: _Data, interpreter: int, others: Collection[int]) -> List[int]:
    """Return those of the known interpreters that `next` of this one leads to."""
    words = data.up_to(interpreter, MOST_LOOKED_AT_BYTES)
    return [other for other in others if other != interpreter and other in words]


def _find_further(data: _Data, others: Collection[int]) -> Iterator[Tuple[int, int]]:
    """Yield such pairs of interpreters of which no thread runs code: of the newest, which _PyRuntime has in front of the main one (struct
    pyinterpreters: head, main), and up to 3.12 of those that the first word of each leads to (`next`).
    """
    left, passed = list(islice(data.in_front_of(others), MOST_LOOKED_AT)), {0}
    while left and len(passed) < MOST_LOOKED_AT:
        interpreter = left.pop()
        if interpreter in passed:
            continue
        passed.add(interpreter)
        words = data.up_to(interpreter, MOST_LOOKED_AT_BYTES)
        state = next((word for word in words if _is_pair(data, word, interpreter)), None)
        if state is not None:
            left += words[:1]
            yield state, interpreter


def read_collector(values: PyValues, memory: Sequence[PySegment], found: Interpreter) -> Tuple[Collector, int]:
    """Return the state of the interpreter's collector, and the place of the list of objects that it leaves out."""
    state = find_collector_in_words(_Data(values, memory).up_to(found.address, MOST_INTERPRETER_BYTES), found.address)
    return (state.collector, state.permanent) if state is not None else (Collector(None), 0)


def list_frozen(values: PyValues, permanent: int) -> Iterator[int]:
    """Yield objects of the permanent generation (gc.freeze()), MOST_FROZEN at most."""
    at = values.word(permanent) if permanent else permanent
    for _ in range(MOST_FROZEN):
        if at in (0, permanent):
            break
        yield at + GC_HEAD
        at = values.word(at)


def _find_thread_states(data: _Data) -> Iterator[Tuple[int, int]]:
    """Yield pairs (state of a thread, its interpreter)."""
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


def _list_threads(data: _Data, state: int, interpreter: int) -> List[int]:
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


def _find_sys_modules(values: PyValues, data: _Data, interpreter: int) -> int:
    """Return the address of sys.modules; 0 if none of the interpreter's words leads there."""
    seen = set()
    for word in data.up_to(interpreter, MOST_INTERPRETER_BYTES):
        if LOWEST <= word < HIGHEST and not word % WORD and word not in seen:
            seen.add(word)
            first = islice(values.entries(word), FIRST_KEYS) if values.has(word, DICT) else ()
            sys_module = next((value for key, value in first if values.text(key) == "sys"), 0)
            if sys_module and values.get(values.word(sys_module + TYPE + WORD), "modules") == word:
                return word
    return 0


HALF = 4
GENERATIONS, GENERATION_BYTES = 3, 24
FORMS = {72: (80, -12, 15), 76: (84, -8, 15), 232: (72, -12, 18)}
"""By the offset from the first generation of the pointer to it, 3.9 to 3.13, 3.13.5, 3.14.10: where the permanent one is and where it says
whether it is on, in bytes from the first generation; and where long_lived_total is, in words from the permanent one."""
FULL_WORDS = 9
"""From the permanent generation to the number of collections of all."""
MOST_RUNTIME_BYTES = 1 << 20
MOST_POINTERS, MOST_STATE_BYTES = 64, 1 << 14
"""Words of _PyRuntime up to 3.10 that may lead to an interpreter, and of that what has the collector's state."""


def find_collector_in_words(words: Sequence[int], address: int) -> Optional[CollectorState]:
    """Find the collector's state in an interpreter's words.

    It is three generations {list, threshold, count}, a pointer to the first, the permanent one, for each {collections, collected,
    uncollectable}, and long_lived_total; before them whether it is on (struct _gc_runtime_state, pycore_gc.h).
    """

    def read_half(place: int) -> int:
        return words[place // WORD] >> 8 * (place % WORD) & LOW_HALF

    for place, word in enumerate(words):
        form = FORMS.get(address + WORD * place - word)
        if form is None:
            continue
        first, (to_permanent, to_enabled, to_survivors) = word - address, form
        permanent = first + to_permanent
        if first + to_enabled < HALF or permanent // WORD + to_survivors >= len(words):
            continue
        nested, enabled = read_half(first + to_enabled - HALF), read_half(first + to_enabled)
        if nested or enabled > 1:  # nested calls: none here
            continue
        limits = [first + GENERATION_BYTES * number + 2 * WORD for number in range(GENERATIONS)]
        state = Collector(bool(enabled), [read_half(at) for at in limits], [read_half(at + HALF) for at in limits])
        return CollectorState(state, address + permanent, address + permanent + WORD * FULL_WORDS, words[permanent // WORD + to_survivors])
    return None


def read_collector_state(target: Target) -> Optional[CollectorState]:
    """Return the state of the first interpreter, which lies in _PyRuntime or, up to 3.10, where one of its words leads; None if it is not
    found."""
    runtime = target.dynamic_symbol("_PyRuntime")
    size = target.symbol_bytes(runtime) if runtime is not None else None
    if runtime is None or size is None or size > MOST_RUNTIME_BYTES or target.word_bytes != WORD:
        return None
    words = list(target.words_in(target.read_prefix(runtime.address, size & -WORD)))
    state = find_collector_in_words(words, runtime.address)
    pointers = dict.fromkeys(word for word in words if LOWEST <= word < HIGHEST and not word % WORD)
    for pointer in list(pointers)[:MOST_POINTERS] if state is None else ():
        state = find_collector_in_words(list(target.words_in(target.read_prefix(pointer, MOST_STATE_BYTES))), pointer)
        if state is not None:
            break
    return state


MOST_FRAMES = 2000
"""Of one thread."""
MOST_LOCALS = 1024
OWNED_BY_C = 3
"""FRAME_CSTACK, FRAME_OWNED_BY_INTERPRETER and beyond: no function runs in it."""
STATE_WORDS = 24
"""Of a thread's state, in which the way to its frame begins (struct _ts.frame, .cframe, .current_frame)."""
CHUNK_WORDS = 64
"""Of a thread's state: datastack_chunk is among them."""
CHUNK_BYTES, MOST_CHUNK_BYTES = 4096, 1 << 30
FRAMES_HAVE_TAGS, TAGS = 14, 3
"""Since 3.14 the lowest bits of a reference in a frame say how it is counted."""
CODE_NAME = {8: 112, 11: 120}
CODE_QUALIFIED_NAME = 128
LOCALS_NAMES, FREE_COUNT_3_11, FREE_COUNT = 96, 92, 88
"""co_localsplusnames, co_nfreevars."""
STACK_TOP = 64
"""Of a _PyInterpreterFrame: up to 3.13 how many of its places are in use, then where they end."""
MOST_STACK = 1 << 16
FRAME_BACK, FRAME_CODE, FRAME_GLOBALS, FRAME_STACK = 24, 32, 48, 64
FRAME_STACK_TOP, FRAME_STACK_DEPTH = 72, 80
"""Of a PyFrameObject up to 3.10."""


class PyFrames:
    """Reads frames of one process."""

    def __init__(self, values: PyValues) -> None:
        self._values, self._frame = values, values.layout.frame
        self._is_old = values.layout.release < 11

    def of_thread(self, state: int) -> Iterator[int]:
        """Yield the addresses of a thread's frames, the innermost first."""
        seen: Set[int] = set()
        at = self._find_first_frame(state)
        while at and at not in seen and len(seen) < MOST_FRAMES:
            seen.add(at)
            if self._is_function(at):
                yield at
            at = self._values.word(at + (FRAME_BACK if self._is_old else self._frame.previous))

    def chunks(self, state: int) -> Iterator[int]:
        """Yield memory that the thread has for frames alone (struct _PyStackChunk: previous, size, top). Above the innermost frame lie
        leftovers of ended frames.
        """
        words = () if self._is_old else self._values.world.words(state, CHUNK_WORDS) or ()
        seen: Set[int] = set()
        for at in words:
            while at and not at % CHUNK_BYTES and at not in seen and len(seen) < MOST_FRAMES:
                seen.add(at)
                previous, size, top = (self._values.word(at + place) for place in (0, WORD, 2 * WORD))
                if not size or size % CHUNK_BYTES or size > MOST_CHUNK_BYTES or top > size // WORD:
                    break
                yield at
                at = previous

    def objects(self, state: int) -> Iterator[int]:
        """Yield frames that are objects, which keep leftovers of ended expressions above their stack: their variables have names."""
        yield from self.of_thread(state) if self._is_old else ()

    def _find_first_frame(self, state: int) -> int:
        words = self._values.world.words(state, STATE_WORDS) or ()
        for word in words[3:]:
            if not word or word % WORD:
                continue
            ways = (word,) if self._is_old else (word, self._values.word(word), self._values.word(word + WORD))
            for at in ways:
                before = 0 if self._is_old or not at or at % WORD else self._values.word(at + self._frame.previous)
                if self._is_function(at) or (before and self._is_of_c(at) and self._is_function(before)):
                    return at
        return 0

    def _is_of_c(self, at: int) -> bool:
        return self._values.number(at + self._frame.owner, 1) >= OWNED_BY_C

    def _is_function(self, at: int) -> bool:
        """Return True if a function runs in the frame: globals and builtins are dicts, and its code has a name."""
        if not at or at % WORD:
            return False
        if self._is_old:
            return self._values.has(self._values.word(at + FRAME_GLOBALS), DICT) and self.function(at) is not None
        globals_, builtins = (self._values.word(at + self._frame.globals + place) for place in (0, WORD))
        return all(self._values.has(one, DICT) for one in (globals_, builtins)) and not self._is_of_c(at) and self.function(at) is not None

    def code(self, frame: int) -> int:
        """Return the address of the code object."""
        return self._values.word(frame + (FRAME_CODE if self._is_old else self._frame.code)) & ~TAGS

    def function(self, frame: int) -> Optional[str]:
        """Return the function's name from its code."""
        code = self.code(frame)
        text = None if self._is_old else self._values.text(self._values.word(code + CODE_QUALIFIED_NAME), 256)
        return text or self._values.text(self._values.word(code + CODE_NAME[8 if self._is_old else 11]), 256)

    def names(self, code: int) -> List[Optional[str]]:
        if not self._is_old:
            return self._values.tuple_texts(self._values.word(code + LOCALS_NAMES), MOST_LOCALS)
        names: List[Optional[str]] = []
        for at in (72, 88, 80):  # co_varnames, co_cellvars, co_freevars
            names += self._values.tuple_texts(self._values.word(code + at), MOST_LOCALS)
        return names

    def first_local(self, frame: int, count: int) -> int:
        """Return the address of the first variable's word; up to 3.10 variables end at the begin of the frame's stack."""
        return self._values.word(frame + FRAME_STACK) - count * WORD if self._is_old else frame + self._frame.locals

    def locals(self, frame: int) -> Sequence[Tuple[str, int, int]]:
        """Return (name, address of its word, object) of the variables that are set."""
        names = self.names(self.code(frame))
        first = self.first_local(frame, len(names))
        words = self._values.world.words(first, len(names)) or ()
        return [(name, first + place * WORD, word & ~TAGS) for place, (name, word) in enumerate(zip(names, words)) if name and word & ~TAGS]

    def stack_end(self, frame: int) -> int:
        """Return the end of the words that a frame holds; of one that runs only the variables are known."""
        release, values = self._values.layout.release, self._values
        first = values.word(frame + FRAME_STACK) if self._is_old else frame + self._frame.locals
        if release < 10:  # f_stacktop: NULL while it runs
            end = values.word(frame + FRAME_STACK_TOP)
        elif release >= 14:
            end = values.word(frame + STACK_TOP)
        else:  # f_stackdepth in 3.10: negative while it runs
            end = first + values.number(frame + (FRAME_STACK_DEPTH if self._is_old else STACK_TOP), 4) * WORD
        if first <= end <= first + MOST_STACK * WORD:
            return end
        return first if self._is_old else first + len(self.names(self.code(frame))) * WORD

    def free_names(self, code: int) -> List[Optional[str]]:
        if self._is_old:
            return self._values.tuple_texts(self._values.word(code + 80), MOST_LOCALS)
        names = self.names(code)
        count = self._values.number(code + (FREE_COUNT_3_11 if self._values.layout.release == 11 else FREE_COUNT), 4)
        return names[-count:] if 0 < count <= len(names) else []
