"""Local variables of running threads: frames are objects up to 3.10, then they lie in memory of the thread's own (_PyInterpreterFrame)."""

from typing import Iterator, List, NamedTuple, Optional, Sequence, Set

from gdbheapx.addons.runtimes.cpython.types import DICT, WORD
from gdbheapx.addons.runtimes.cpython.values import Values

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


class Local(NamedTuple):
    """A variable of a frame."""

    name: str
    place: int
    """Address of its word."""
    value: int
    """Of the object; 0: it has none."""


class Frames:
    """Reads frames of one process."""

    def __init__(self, values: Values) -> None:
        self._values, self._frame = values, values.layout.frame
        self._is_old = values.layout.release < 11

    def of_thread(self, state: int) -> Iterator[int]:
        """The innermost first: addresses of frames."""
        seen: Set[int] = set()
        at = self._first(state)
        while at and at not in seen and len(seen) < MOST_FRAMES:
            seen.add(at)
            if self._is_function(at):
                yield at
            at = self._values.word(at + (FRAME_BACK if self._is_old else self._frame.previous))

    def chunks(self, state: int) -> Iterator[int]:
        """Memory of the thread's own for frames (struct _PyStackChunk: previous, size, top): behind the innermost one stands what ended
        frames have left."""
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
        """Frames that are objects, with what ended expressions have left behind the end of their stack: their variables have names."""
        yield from self.of_thread(state) if self._is_old else ()

    def _first(self, state: int) -> int:
        words = self._values.world.words(state, STATE_WORDS) or ()
        for word in words[3:]:
            if not word or word % WORD:
                continue
            ways = (word,) if self._is_old else (word, self._values.word(word), self._values.word(word + WORD))
            for at in ways:
                if self._leads_on(at):
                    return at
        return 0

    def _leads_on(self, at: int) -> bool:
        """It is a frame, or one of C's with a frame before it."""
        before = 0 if self._is_old or not at or at % WORD else self._values.word(at + self._frame.previous)
        return self._is_function(at) or (bool(before) and self._is_of_c(at) and self._is_function(before))

    def _is_of_c(self, at: int) -> bool:
        return self._values.number(at + self._frame.owner, 1) >= OWNED_BY_C

    def _is_function(self, at: int) -> bool:
        """A function runs in it: globals and builtins are dicts, and its code has a name."""
        if not at or at % WORD:
            return False
        if self._is_old:
            return self._values.has(self._values.word(at + FRAME_GLOBALS), DICT) and self.function(at) is not None
        globals_, builtins = (self._values.word(at + self._frame.globals + place) for place in (0, WORD))
        return all(self._values.has(one, DICT) for one in (globals_, builtins)) and not self._is_of_c(at) and self.function(at) is not None

    def code(self, frame: int) -> int:
        """Address of the code object."""
        return self._values.word(frame + (FRAME_CODE if self._is_old else self._frame.code)) & ~TAGS

    def function(self, frame: int) -> Optional[str]:
        """Its name, as the code has it."""
        code = self.code(frame)
        text = None if self._is_old else self._values.text(self._values.word(code + CODE_QUALIFIED_NAME), 256)
        return text or self._values.text(self._values.word(code + CODE_NAME[8 if self._is_old else 11]), 256)

    def names(self, code: int) -> List[Optional[str]]:
        """Of the variables in a frame's places, in their order: locals, then cells."""
        if not self._is_old:
            return self._values.tuple_texts(self._values.word(code + LOCALS_NAMES), MOST_LOCALS)
        names: List[Optional[str]] = []
        for at in (72, 88, 80):  # co_varnames, co_cellvars, co_freevars
            names += self._values.tuple_texts(self._values.word(code + at), MOST_LOCALS)
        return names

    def first_local(self, frame: int, count: int) -> int:
        """Address of the first variable's word; up to 3.10 they end where the frame's stack begins."""
        return self._values.word(frame + FRAME_STACK) - count * WORD if self._is_old else frame + self._frame.locals

    def locals(self, frame: int) -> Sequence[Local]:
        """Variables that are set."""
        names = self.names(self.code(frame))
        first = self.first_local(frame, len(names))
        words = self._values.world.words(first, len(names)) or ()
        return [
            Local(name, first + place * WORD, word & ~TAGS) for place, (name, word) in enumerate(zip(names, words)) if name and word & ~TAGS
        ]

    def stack_end(self, frame: int) -> int:
        """Where what a frame that is at rest holds ends; of one that runs only its variables are known."""
        if self._is_old:
            return self._old_stack_end(frame)
        first = frame + self._frame.locals
        if self._values.layout.release >= 14:
            end = self._values.word(frame + STACK_TOP)
        else:
            end = first + self._values.number(frame + STACK_TOP, 4) * WORD
        return end if first <= end <= first + MOST_STACK * WORD else first + len(self.names(self.code(frame))) * WORD

    def _old_stack_end(self, frame: int) -> int:
        """By f_stacktop (3.8, 3.9; NULL while it runs), or f_stackdepth (3.10; negative)."""
        stack = self._values.word(frame + FRAME_STACK)
        if self._values.layout.release < 10:
            end = self._values.word(frame + FRAME_STACK_TOP)
        else:
            end = stack + self._values.number(frame + FRAME_STACK_DEPTH, 4) * WORD
        return end if stack <= end <= stack + MOST_STACK * WORD else stack

    def free_names(self, code: int) -> List[Optional[str]]:
        """Of the cells that a function brings along: the last ones of all."""
        if self._is_old:
            return self._values.tuple_texts(self._values.word(code + 80), MOST_LOCALS)
        names = self.names(code)
        count = self._values.number(code + (FREE_COUNT_3_11 if self._values.layout.release == 11 else FREE_COUNT), 4)
        return names[-count:] if 0 < count <= len(names) else []
