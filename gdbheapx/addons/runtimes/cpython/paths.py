"""Paths of names for CPython's objects: `shop._cache["u:1234"].items[3]`.

What has a name by itself: modules of sys.modules by that name (`__main__` too), and local variables of running threads.
`.<+0x20>` is a word of an object that no declaration names, `.<key "a">` a key, `{"a"}` an element of a set, `["a"...]` is cut,
`f.__closure__["rows"]` what the function f has kept of a variable `rows` around it.
"""

from itertools import islice
from typing import Callable, Dict, Iterable, Iterator, Optional, Sequence, Tuple

from gdbheapx.addons.runtimes.cpython import arrays, interpreter
from gdbheapx.addons.runtimes.cpython.bodies import SET_ENTRY, SET_MASK
from gdbheapx.addons.runtimes.cpython.frames import Frames
from gdbheapx.addons.runtimes.cpython.masks import Masks
from gdbheapx.addons.runtimes.cpython.place import ATTRIBUTES, CLASS, ITEMS, OBJECT, RAW, SET, SPLIT, Place, thing
from gdbheapx.addons.runtimes.cpython.steps import Steps
from gdbheapx.addons.runtimes.cpython.types import DICT, HEAP_TYPE, IS_TYPE, LIST, STR, WORD, PyType, Segment
from gdbheapx.addons.runtimes.cpython.values import BYTES, LENGTH, SIZE, TUPLE, Values
from gdbheapx.analysis.naming.namer import (
    ATTRIBUTE,
    FIELD,
    FRAME,
    LOCAL,
    MODULE,
    TEXT_BYTES,
    TEXT_WORDS,
    Hop,
    Namer,
    PathMove,
    PathStep,
    Start,
    decoded,
)
from gdbheapx.analysis.reachability.garbage import Collector
from gdbheapx.analysis.reachability.symbols import module_at
from gdbheapx.kernel.blocks.cycles import Counting
from gdbheapx.model import Address

MOST_STARTS = 1 << 17
SET_USED, MODULE_DICT, CLASS_DICT = 24, 16, 264
OF_STATE = ".<state>"
OF_CLASS = ".__dict__"
"""Last step of what begins at a class's dict."""
MOST_NAME = 256


class Paths(Namer):
    """Of one process."""

    def __init__(self, values: Values, memory: Sequence[Segment]) -> None:
        self._values, self._memory = values, memory
        self._interpreter = interpreter.find(values, memory)
        self._modules = list(interpreter.modules(values, self._interpreter)) if self._interpreter is not None else []
        dicts = [values.word(module + MODULE_DICT) for _, module in self._modules]
        self._shared_keys: Dict[int, Sequence[Optional[str]]] = {}
        """What instances of a class call their values, by where its keys are."""
        self._steps, self._masks, self._frames = Steps(values), Masks(values, dicts), Frames(values)

    def starts(self) -> Iterator[Start]:
        """Modules, then variables of frames."""
        found = self._interpreter
        if found is None:
            return
        for name, module in self._modules:
            yield Start(module, (_module_step(name, module),))
        yield from self._static_classes()
        for name, module in self._modules:  # last of all: offsets are names only for what has no other
            state = self._values.word(module + self._values.layout.module_state) if self._values.is_named(module, "module") else 0
            if state:
                yield Start(state, (_module_step(name, module), PathStep(FIELD, OF_STATE, Address(state))))
        count = 0
        for state in found.threads:
            thread = self._thread(state)
            for start in self._locals(state, thread):
                yield start
                count += 1
                if count >= MOST_STARTS:
                    return

    def owns_nothing(self) -> Iterator[int]:
        """The runtime's own variables, its interpreter and its threads: caches of methods and of names, which count nothing (type_cache in
        Include/internal/pycore_typeobject.h)."""
        home = module_at(self._values.world.target, self._values.types.root.type)
        yield from (part.start for part in self._memory if module_at(self._values.world.target, part.start) == home)
        if self._interpreter is not None:
            yield from (self._interpreter.address, *self._interpreter.threads)
            for state in self._interpreter.threads:
                yield from self._frames.chunks(state)
                yield from self._frames.objects(state)

    def _static_classes(self) -> Iterator[Start]:
        """Dicts of static types, which lie in no block themselves: `datetime.date.__dict__`."""
        for name, module in self._modules:
            for key, value in self._values.entries(self._values.word(module + MODULE_DICT)):
                py_type = self._values.types.all.get(value)
                at = self._values.word(value + CLASS_DICT) if py_type is not None and not py_type.flags & HEAP_TYPE else 0
                text = self._values.text(key, MOST_NAME) if at and self._values.has(at, DICT) else None
                if text is not None and text.isidentifier():
                    named = PathStep(ATTRIBUTE, "." + text, Address(value))
                    yield Start(at, (_module_step(name, module), named, PathStep(ATTRIBUTE, OF_CLASS, Address(at))))

    def _thread(self, state: int) -> str:
        """`thread 12 (gunicorn) `, by the C library's address of its thread; empty where no thread has it."""
        words = self._values.world.words(state, interpreter.THREAD_WORDS) or ()
        for thread in self._values.world.target.threads():
            if thread.thread_pointer and thread.thread_pointer in words:
                name = " (%s)" % thread.name if thread.name and thread.name.isprintable() else ""
                return "thread %d%s " % (thread.lwp, name)
        return "thread "

    def _locals(self, state: int, thread: str) -> Iterator[Start]:
        for frame in self._frames.of_thread(state):
            first = PathStep(FRAME, "%sframe %s(): " % (thread, self._frames.function(frame)), None)
            for local in self._frames.locals(frame):
                value = local.value
                if self._values.is_named(value, "cell"):
                    value = self._values.word(value + 16)
                if self._values.is_object(value):
                    yield Start(value, (first, PathStep(LOCAL, local.name, Address(value))))

    def counting(self, signature: Optional[str]) -> Optional[Counting]:
        """See Namer."""
        return self._masks.counting(signature)

    def is_of_program(self, signature: Optional[str]) -> bool:
        """See Namer."""
        return self._masks.is_of_program(signature)

    def collector(self) -> Collector:
        """See Namer."""
        found = self._interpreter
        return Collector(None) if found is None else interpreter.collector(self._values, self._memory, found)[0]

    def frozen(self) -> Iterator[int]:
        """See Namer."""
        if self._interpreter is not None:
            yield from interpreter.frozen(self._values, interpreter.collector(self._values, self._memory, self._interpreter)[1])

    def object_offset(self, signature: Optional[str]) -> int:
        """See Masks."""
        return self._masks.offset(signature)

    def owning_words(self, signature: Optional[str]) -> int:
        """See Masks."""
        return self._masks.of(signature)

    def items(self, signature: Optional[str]) -> Tuple[int, int]:
        """See Masks."""
        return self._masks.items(signature)

    def live_end(self, signature: Optional[str]) -> Optional[Callable[[int], Optional[int]]]:
        """See Namer: of what has a frame in it."""
        if not self._masks.has_frame(signature):
            return None
        frame = self._masks.frame_offset(signature)
        return self._steps.end_in if frame is None else lambda block: self._frames.stack_end(block + frame)

    def begin_path(self, start: Start) -> PathMove:
        """See Namer. The dict of a class is named only where the path ends at it."""
        if start.steps[-1].name == OF_STATE and start.steps[0].address is not None:
            return PathMove(self._steps.state(start.steps[0].address), start.steps)
        is_class = len(start.steps) > 1 and start.steps[-1].name == OF_CLASS
        place = Place(OBJECT if self._values.is_object(start.address) else RAW, start.address, view=CLASS if is_class else "")
        return PathMove(place, start.steps, is_open=is_class)

    def follow_pointer(self, position: Optional[Place], hop: Hop, below: Hop) -> Optional[PathMove]:
        """See Namer. The path ends at a block whose pointer is not known."""
        offset = hop.find_offset() if position is not None else None
        if position is None or offset is None:
            return PathMove(None)
        is_inside = hop.address <= position.address < hop.address + hop.size_bytes
        return self._steps.follow(position if is_inside else Place(RAW, hop.address), hop.address + offset)

    def contents(self, address: int, size_bytes: int, signature: Optional[str]) -> Optional[str]:
        """Of dicts, lists, tuples, sets, deques; of a long str or bytes its length."""
        found = self._values.object_in(address)
        if found is None or found[1].flags & IS_TYPE:
            return None
        at, py_type = found
        name = py_type.short_name
        if py_type.flags & STR:
            return "%s, %s characters" % (name, format(self._values.word(at + LENGTH), ","))
        if py_type.flags & BYTES:
            return "%s, %s bytes" % (name, format(self._values.word(at + SIZE), ","))
        if py_type.flags & DICT:
            return "%s of %s entries" % (name, format(self._values.word(at + SIZE), ","))
        if py_type.flags & (LIST | TUPLE) or self._values.is_named(at, "collections.deque"):
            return "%s of %s" % (name, format(self._values.word(at + SIZE), ","))
        array = arrays.read(self._values, at) if self._values.is_named(at, arrays.NDARRAY) else None
        if array is not None:
            return arrays.shape(array)
        is_set = self._values.is_named(at, "set", "frozenset")
        return "%s of %s" % (name, format(self._values.word(at + SET_USED), ",")) if is_set else None

    def texts(self, address: int, size_bytes: int, signature: Optional[str]) -> Iterable[str]:
        """See Namer. Of an object with what it has beside itself: its dict of attributes, its values, its items."""
        at, py_type = self._values.object_in(address) or (address, None)
        own = self._text(at)
        if own is not None:
            return [own]
        if py_type is not None and py_type.flags & DICT:
            return self._keys(at)
        return self._led_to(address, min(size_bytes, TEXT_WORDS * WORD), at, py_type)

    def _led_to(self, address: int, size_bytes: int, at: int, py_type: Optional[PyType]) -> Iterator[str]:
        words = self._values.world.words(address, size_bytes // WORD) or ()
        for place, pointer in enumerate(words):
            text = self._text(pointer)
            if text is not None:
                yield text
            elif py_type is not None and pointer:
                move = self._steps.follow(thing(at), address + place * WORD)
                yield from self._beside(move.position) if move is not None else ()

    def _beside(self, place: Place) -> Iterator[str]:
        """Of what belongs to an object and is none itself."""
        values, at, count = self._values, place.address, 0
        if place.kind == ITEMS:
            count = values.word(place.owner + SIZE)
        elif place.kind == SET:
            count = (values.word(place.owner + SET_MASK) + 1) * SET_ENTRY // WORD
        elif place.kind == SPLIT:
            keys, at = values.keys(place.owner), values.split_value(at, 0)
            count = keys.entry_count if keys is not None else 0
        elif place.kind == OBJECT and place.view == ATTRIBUTES:
            yield from filter(None, (self._text(value) for _, value in islice(values.entries(at), TEXT_WORDS)))
        yield from filter(None, (self._text(values.word(at + number * WORD)) for number in range(min(count, TEXT_WORDS))))

    def named_texts(self, address: int, size_bytes: int, signature: Optional[str]) -> Iterator[Tuple[str, str]]:
        """See Namer. Of slots, of values without a dict, and of a dict of attributes."""
        found, values = self._values.object_in(address), self._values
        words = values.world.words(address, min(size_bytes, TEXT_WORDS * WORD) // WORD) if found is not None else None
        for number, pointer in enumerate(words or ()):
            at, py_type = address + number * WORD, values.type_of(pointer) if pointer else None
            if not pointer or found is None or not (py_type.flags & (STR | BYTES | DICT) if py_type is not None else at < found[0]):
                continue
            text = self._text(pointer) if py_type is not None else None
            move = self._steps.follow(thing(found[0]), at)
            step = move.steps[0] if move is not None and move.steps else None
            if text is not None and step is not None and step.kind == ATTRIBUTE:
                yield step.name[1:], text
            elif move is not None and move.position.kind == SPLIT:
                yield from self._of_split(move.position)
            elif move is not None and move.position.view == ATTRIBUTES:
                entries = islice(values.entries(move.position.address), TEXT_WORDS)
                named = ((values.text(key), self._text(value)) for key, value in entries)
                yield from ((key, value) for key, value in named if key is not None and value is not None)

    def _of_split(self, place: Place) -> Iterator[Tuple[str, str]]:
        names = self._shared_keys.get(place.owner)
        if names is None:
            keys = self._values.keys(place.owner)
            count = min(keys.entry_count, TEXT_WORDS) if keys is not None else 0
            names = [self._values.text(self._values.key_of(place.owner, number)) for number in range(count)]
            self._shared_keys[place.owner] = names
        words = self._values.world.words(self._values.split_value(place.address, 0), len(names)) if names else None
        for name, pointer in zip(names, words or ()):
            text = self._text(pointer) if name is not None else None
            if name is not None and text is not None:
                yield name, text

    def _keys(self, at: int) -> Iterator[str]:
        for key, _ in islice(self._values.entries(at), TEXT_WORDS):
            text = self._text(key)
            yield (self._values.literal(key) or "") if text is None else text

    def _text(self, address: int) -> Optional[str]:
        """Of a str or bytes; None where it is none."""
        if self._values.has(address, BYTES):
            return decoded(self._values.world.read(address + 32, min(self._values.word(address + SIZE), TEXT_BYTES)))
        return self._values.text(address, TEXT_BYTES)


def _module_step(name: str, module: int) -> PathStep:
    return PathStep(MODULE, name if name.isprintable() else ascii(name), Address(module))
