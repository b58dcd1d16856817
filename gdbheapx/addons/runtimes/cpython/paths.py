"""Paths of names for CPython's objects: `shop._cache["u:1234"].items[3]`.

What has a name by itself: modules of sys.modules by that name (`__main__` too), and local variables of running threads.
`.<+0x20>` is a word of an object that no declaration names, `.<key "a">` a key, `{"a"}` an element of a set, `["a"...]` is cut,
`f.__closure__["rows"]` what the function f has kept of a variable `rows` around it.

numpy's arrays: PyArrayObject_fields (numpy/core/include/numpy/ndarraytypes.h, 1.x and 2.x): data, nd, dimensions, strides, base,
descr; PyArray_Descr: typeobj, kind, type_num.
"""

from itertools import islice
from typing import Callable, Dict, Iterable, Iterator, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.runtimes.cpython import interpreter, objects
from gdbheapx.addons.runtimes.cpython.interpreter import FRAMES_HAVE_TAGS, TAGS, PyFrames
from gdbheapx.analysis.addon_answers import Collector
from gdbheapx.analysis.reachability import paths as steps
from gdbheapx.analysis.reachability.heap_graph import find_module_at
from gdbheapx.analysis.reachability.paths import TEXT_BYTES, TEXT_WORDS, Hop, PathMove, PathStep, Start, decode_text
from gdbheapx.common.model import TargetAddress

NDARRAY = "numpy.ndarray"
ARRAY_DATA, DIMENSION_COUNT, DIMENSIONS, STRIDES, ARRAY_BASE, DESCRIPTION = 16, 24, 32, 40, 48, 56
KIND, TYPE_NUMBER = 24, 28
MOST_DIMENSIONS = 8
OBJECTS = ord("O")
TYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "longlong", "ulonglong", "float32", "float64"),
    *("longdouble", "complex64", "complex128", "clongdouble", "object", "bytes", "str", "void", "datetime64", "timedelta64", "float16"),
)
"""By type_num (enum NPY_TYPES)."""


class NumpyArray(NamedTuple):
    """PyArrayObject as it describes itself."""

    data: int
    dimensions: Sequence[int]
    strides: Sequence[int]
    """In bytes."""
    has_objects: bool
    type_name: str
    """`float64`; empty where it is not known."""


def read_ndarray(values: objects.PyValues, address: int) -> Optional[NumpyArray]:
    """Read an ndarray; None if it has too many dimensions, or is damaged."""
    count = values.number(address + DIMENSION_COUNT, 4)
    if not 1 <= count <= MOST_DIMENSIONS:
        return None
    dimensions, strides = (values.world.words(values.word(address + at), count) for at in (DIMENSIONS, STRIDES))
    description = values.word(address + DESCRIPTION)
    if dimensions is None or strides is None or not description:
        return None
    number = values.number(description + TYPE_NUMBER, 4)
    name = TYPES[number] if number < len(TYPES) else ""
    return NumpyArray(values.word(address + ARRAY_DATA), dimensions, strides, values.number(description + KIND, 1) == OBJECTS, name)


def format_index(array: NumpyArray, address: int) -> Optional[str]:
    """Return the index of an element as text, `[3]` or `[0, 7]`; None if no element begins there, or elements are no objects."""
    rest, places = address - array.data, [0] * len(array.dimensions)
    if not array.has_objects or rest < 0 or any(not stride or stride >> 63 for stride in array.strides):
        return None
    for axis in sorted(range(len(places)), key=lambda axis: -array.strides[axis]):
        places[axis], rest = divmod(rest, array.strides[axis])
    if rest or any(place >= size for place, size in zip(places, array.dimensions)):
        return None
    return "[%s]" % ", ".join(map(str, places))


def describe_ndarray(array: NumpyArray) -> str:
    """Return type and shape as text, `ndarray float64 (1000, 50)`."""
    sizes = ", ".join(map(str, array.dimensions)) + "," * (len(array.dimensions) == 1)
    return "ndarray %s(%s)" % (array.type_name + " " * bool(array.type_name), sizes)


MOST_STARTS = 1 << 17
SET_USED = 24
OF_STATE = ".<state>"
OF_CLASS = ".__dict__"
"""Last step of what begins at a class's dict."""
MOST_NAME = 256


class PyPosition(NamedTuple):
    """Object, or body of one, that a path has come to."""

    kind: str
    address: int
    owner: int = 0
    """Of a body: the object it belongs to, or the keys of values."""
    view: str = ""
    text: str = ""
    """Of a cell: what its content is called."""
    opening: str = ""
    """Of a coroutine's frame, or a cell in one: `coroutine handler(): `, where a path to its variables begins again."""
    number: int = 0
    """Of a deque's block, from the end where the path began; of something of which no more is known its size."""


class PyNamer(objects.PyMasks):
    """Namer of CPython's objects."""

    def __init__(self, values: objects.PyValues, memory: Sequence[objects.PySegment]) -> None:
        self._memory = memory
        self._interpreters = interpreter.find_interpreters(values, memory)
        self._interpreter = next(iter(self._interpreters), None)
        """The main one."""
        self._modules = [module for each in self._interpreters for module in interpreter.list_python_modules(values, each)]
        super().__init__(values, [values.word(module + MODULE_DICT) for _, module in self._modules])
        self._shared_keys: Dict[int, Sequence[Optional[str]]] = {}
        """What instances of a class call their values, by where its keys are."""
        self._steps, self._frames = PyPointers(values), PyFrames(values)

    def starts(self) -> Iterator[Start]:
        """Yield modules, then variables of frames."""
        for name, module in self._modules:
            yield Start(module, (_module_step(name, module),))
        yield from self._static_classes()
        for name, module in self._modules:  # last of all: offsets are names only for what has no other
            state = self._values.word(module + self._values.layout.module_state) if self._values.is_named(module, "module") else 0
            if state:
                yield Start(state, (_module_step(name, module), PathStep(steps.FIELD, OF_STATE, TargetAddress(state))))
        threads = [state for each in self._interpreters for state in each.threads]
        yield from islice((start for state in threads for start in self._list_locals(state, self._format_thread(state))), MOST_STARTS)

    def owns_nothing(self) -> Iterator[int]:
        """Yield the runtime's own variables, its interpreter and its threads: they cache methods and names without counting references
        (type_cache in Include/internal/pycore_typeobject.h).
        """
        home = find_module_at(self._values.world.target, self._values.types.root.type)
        yield from (start for start, _ in self._memory if find_module_at(self._values.world.target, start) == home)
        for each in self._interpreters:
            yield from (each.address, *each.threads)
            for state in each.threads:
                yield from self._frames.chunks(state)
                yield from self._frames.objects(state)

    def _static_classes(self) -> Iterator[Start]:
        """Yield dicts of static types, which are in no block themselves: `datetime.date.__dict__`."""
        for name, module in self._modules:
            for key, value in self._values.entries(self._values.word(module + MODULE_DICT)):
                py_type = self._values.types.all.get(value)
                at = self._values.word(value + CLASS_DICT) if py_type is not None and not py_type.flags & objects.HEAP_TYPE else 0
                text = self._values.text(key, MOST_NAME) if at and self._values.has(at, objects.DICT) else None
                if text is not None and text.isidentifier():
                    named = PathStep(steps.ATTRIBUTE, "." + text, TargetAddress(value))
                    yield Start(at, (_module_step(name, module), named, PathStep(steps.ATTRIBUTE, OF_CLASS, TargetAddress(at))))

    def _format_thread(self, state: int) -> str:
        """Return `thread 12 (gunicorn) `, found by the C library's address of the thread; `thread ` if no thread has it."""
        words = self._values.world.words(state, interpreter.THREAD_WORDS) or ()
        for thread in self._values.world.target.threads():
            if thread.thread_pointer and thread.thread_pointer in words:
                name = " (%s)" % thread.name if thread.name and thread.name.isprintable() else ""
                return "thread %d%s " % (thread.lwp, name)
        return "thread "

    def _list_locals(self, state: int, thread: str) -> Iterator[Start]:
        for frame in self._frames.of_thread(state):
            first = PathStep(steps.FRAME, "%sframe %s(): " % (thread, self._frames.function(frame)), None)
            for name, _, value in self._frames.locals(frame):
                if self._values.is_named(value, "cell"):
                    value = self._values.word(value + 16)
                if self._values.is_object(value):
                    yield Start(value, (first, PathStep(steps.LOCAL, name, TargetAddress(value))))

    def collector(self) -> Collector:
        """See Namer."""
        found = self._interpreter
        return Collector(None) if found is None else interpreter.read_collector(self._values, self._memory, found)[0]

    def frozen(self) -> Iterator[int]:
        """See Namer."""
        if self._interpreter is not None:
            yield from interpreter.list_frozen(self._values, interpreter.read_collector(self._values, self._memory, self._interpreter)[1])

    def live_end(self, signature: Optional[str]) -> Optional[Callable[[int], Optional[int]]]:
        """See Namer: of what has a frame in it."""
        types, layout = self._values.types, self._values.layout
        kin = (kin.name for py_type in self._named.get(signature or "", ()) for kin in types.family(py_type))
        if not any(name in objects.WITH_FRAME for name in kin):
            return None
        if layout.release < 11 or signature not in objects.GENERATORS:
            return self._steps.end_in
        frame = self.object_offset(signature) + layout.generator_frame
        return lambda block: self._frames.stack_end(block + frame)

    def begin_path(self, start: Start) -> PathMove:
        """See Namer. The dict of a class is named only where the path ends at it."""
        if start.steps[-1].name == OF_STATE and start.steps[0].address is not None:
            return PathMove(self._steps.state(start.steps[0].address), start.steps)
        is_class = len(start.steps) > 1 and start.steps[-1].name == OF_CLASS
        place = PyPosition(OBJECT if self._values.is_object(start.address) else RAW, start.address, view=CLASS if is_class else "")
        return PathMove(place, start.steps, is_open=is_class)

    def follow_pointer(self, position: Optional[PyPosition], hop: Hop, below: Hop) -> Optional[PathMove]:
        """See Namer. The path ends at a block whose pointer is not known."""
        offset = hop.find_offset() if position is not None else None
        if position is None or offset is None:
            return PathMove(None)
        is_inside = hop.address <= position.address < hop.address + hop.size_bytes
        return self._steps.follow(position if is_inside else PyPosition(RAW, hop.address), hop.address + offset)

    def contents(self, address: int, size_bytes: int, signature: Optional[str]) -> Optional[str]:
        found = self._values.object_in(address)
        if found is None or found[1].flags & objects.IS_TYPE:
            return None
        at, py_type = found
        name = py_type.short_name
        if py_type.flags & objects.STR:
            return "%s, %s characters" % (name, format(self._values.word(at + objects.LENGTH), ","))
        if py_type.flags & objects.BYTES:
            return "%s, %s bytes" % (name, format(self._values.word(at + objects.SIZE), ","))
        if py_type.flags & objects.DICT:
            return "%s of %s entries" % (name, format(self._values.word(at + objects.SIZE), ","))
        if py_type.flags & (objects.LIST | objects.TUPLE) or self._values.is_named(at, "collections.deque"):
            return "%s of %s" % (name, format(self._values.word(at + objects.SIZE), ","))
        array = read_ndarray(self._values, at) if self._values.is_named(at, NDARRAY) else None
        if array is not None:
            return describe_ndarray(array)
        is_set = self._values.is_named(at, "set", "frozenset")
        return "%s of %s" % (name, format(self._values.word(at + SET_USED), ",")) if is_set else None

    def texts(self, address: int, size_bytes: int, signature: Optional[str]) -> Iterable[str]:
        """Return the texts of an object and of its bodies: its dict of attributes, its values, its items. See Namer."""
        at, py_type = self._values.object_in(address) or (address, None)
        own = self._read_text(at)
        if own is not None:
            return [own]
        if py_type is not None and py_type.flags & objects.DICT:
            return self._read_keys(at)
        return self._led_to(address, min(size_bytes, TEXT_WORDS * objects.WORD), at, py_type)

    def _led_to(self, address: int, size_bytes: int, at: int, py_type: Optional[objects.PyType]) -> Iterator[str]:
        words = self._values.world.words(address, size_bytes // objects.WORD) or ()
        for place, pointer in enumerate(words):
            text = self._read_text(pointer)
            if text is not None:
                yield text
            elif py_type is not None and pointer:
                move = self._steps.follow(object_position(at), address + place * objects.WORD)
                yield from self._read_body_texts(move.position) if move is not None else ()

    def _read_body_texts(self, place: PyPosition) -> Iterator[str]:
        values, at, count = self._values, place.address, 0
        if place.kind == ITEMS:
            count = values.word(place.owner + objects.SIZE)
        elif place.kind == SET:
            count = (values.word(place.owner + SET_MASK) + 1) * SET_ENTRY // objects.WORD
        elif place.kind == SPLIT:
            keys, at = values.keys(place.owner), values.split_value(at, 0)
            count = keys.entry_count if keys is not None else 0
        elif place.kind == OBJECT and place.view == ATTRIBUTES:
            yield from filter(None, (self._read_text(value) for _, value in islice(values.entries(at), TEXT_WORDS)))
        yield from filter(None, (self._read_text(values.word(at + number * objects.WORD)) for number in range(min(count, TEXT_WORDS))))

    def named_texts(self, address: int, size_bytes: int, signature: Optional[str]) -> Iterator[Tuple[str, str]]:
        """Yield (name, text) of slots, of values without a dict, and of a dict of attributes. See Namer."""
        found, values = self._values.object_in(address), self._values
        words = values.world.words(address, min(size_bytes, TEXT_WORDS * objects.WORD) // objects.WORD) if found is not None else None
        for number, pointer in enumerate(words or ()):
            at, py_type = address + number * objects.WORD, values.type_of(pointer) if pointer else None
            if (
                not pointer
                or found is None
                or not (py_type.flags & (objects.STR | objects.BYTES | objects.DICT) if py_type is not None else at < found[0])
            ):
                continue
            text = self._read_text(pointer) if py_type is not None else None
            move = self._steps.follow(object_position(found[0]), at)
            step = move.steps[0] if move is not None and move.steps else None
            if text is not None and step is not None and step.kind == steps.ATTRIBUTE:
                yield step.name[1:], text
            elif move is not None and move.position.kind == SPLIT:
                yield from self._of_split(move.position)
            elif move is not None and move.position.view == ATTRIBUTES:
                entries = islice(values.entries(move.position.address), TEXT_WORDS)
                named = ((values.text(key), self._read_text(value)) for key, value in entries)
                yield from ((key, value) for key, value in named if key is not None and value is not None)

    def _of_split(self, place: PyPosition) -> Iterator[Tuple[str, str]]:
        names = self._shared_keys.get(place.owner)
        if names is None:
            keys = self._values.keys(place.owner)
            count = min(keys.entry_count, TEXT_WORDS) if keys is not None else 0
            names = [self._values.text(self._values.key_of(place.owner, number)) for number in range(count)]
            self._shared_keys[place.owner] = names
        words = self._values.world.words(self._values.split_value(place.address, 0), len(names)) if names else None
        for name, pointer in zip(names, words or ()):
            text = self._read_text(pointer) if name is not None else None
            if name is not None and text is not None:
                yield name, text

    def _read_keys(self, at: int) -> Iterator[str]:
        for key, _ in islice(self._values.entries(at), TEXT_WORDS):
            text = self._read_text(key)
            yield (self._values.literal(key) or "") if text is None else text

    def _read_text(self, address: int) -> Optional[str]:
        if self._values.has(address, objects.BYTES):
            return decode_text(self._values.world.read(address + 32, min(self._values.word(address + objects.SIZE), TEXT_BYTES)))
        return self._values.text(address, TEXT_BYTES)


def _module_step(name: str, module: int) -> PathStep:
    return PathStep(steps.MODULE, name if name.isprintable() else ascii(name), TargetAddress(module))


OBJECT, TABLE, SPLIT, ITEMS, SET, DEQUE_LEFT, DEQUE_RIGHT, LINK, ARRAY, PLAIN_BYTES, RAW = (
    *("object", "keys", "values", "items", "set", "deque", "deque end", "link", "array", "bytes", "raw"),
)
"""What a pointer leads to: an object, or a body that one owns. RAW: nothing is known of it."""
BODIES = (TABLE, SPLIT, ITEMS, SET, DEQUE_LEFT, DEQUE_RIGHT, LINK, ARRAY, PLAIN_BYTES)
"""Of these it is known what each of their words is."""
ATTRIBUTES, CLASS, CELLS, CELL, CACHE = "attributes", "class", "cells", "cell", "cache"
"""How the last object was reached, where that changes what its parts are called: as `__dict__` of an instance or module, of a class, as a
function's cells, as one of them, or as what an lru_cache looks its keys up in."""


def move_to(kind: str, text: str, place: PyPosition, is_open: bool = False, opening: str = "") -> PathMove:
    """Return the move to a place, with one step, or with none where the text is empty."""
    return PathMove(place, [PathStep(kind, text, TargetAddress(place.address))] if text else (), is_open, opening)


def object_position(address: int, view: str = "", text: str = "") -> PyPosition:
    """Return the position of an object."""
    return PyPosition(OBJECT, address, view=view, text=text)


MEMBERS = 240
"""tp_members, in a type: {name, kind, offset, flags, doc} of 40 bytes each (PyMemberDef)."""
MEMBER_BYTES = 40
OBJECT_KINDS = (6, 16)
"""T_OBJECT, T_OBJECT_EX."""
MOST_MEMBERS = 1024
BASE_EXCEPTION = 1 << 30
EXCEPTION_3_8 = {24: ".args", 32: ".__traceback__", 40: ".__context__", 48: ".__cause__"}
EXCEPTION_3_11 = {24: ".args", 32: ".__notes__", 40: ".__traceback__", 48: ".__context__", 56: ".__cause__"}
BY_NAME: Dict[str, Dict[int, str]] = {
    "cell": {16: ".cell_contents"},
    "method": {16: ".__func__", 24: ".__self__"},
    "builtin_function_or_method": {24: ".__self__", 32: ".__module__"},
    "property": {16: ".fget", 24: ".fset", 32: ".fdel", 40: ".__doc__"},
    "classmethod": {16: ".__func__"},
    "staticmethod": {16: ".__func__"},
    "collections.defaultdict": {48: ".default_factory"},
    "functools._lru_cache_wrapper": {88: ".__wrapped__"},
    NDARRAY: {ARRAY_BASE: ".base", DESCRIPTION: ".dtype"},
    "traceback": {16: ".tb_next", 24: ".tb_frame"},
    "frame": {24: ".f_back", 32: ".f_code", 40: ".f_builtins", 48: ".f_globals"},
}
"""(offset, name) for a type and all derived from it."""
FRAME_3_11 = {16: ".f_back"}
NAME, QUALIFIED_NAME, CACHED_KEYS = -24, -8, 0
"""In a class, from where it has the keys that its instances share (PyHeapTypeObject.ht_cached_keys)."""
CACHED_KEYS_AT = {9: 864, 10: 872, 12: 880, 15: 888}
CACHED_KEYS_3_8 = 872


class PyFields:
    """Names of the fields of a process's types."""

    def __init__(self, values: objects.PyValues) -> None:
        self._values = values
        self._made: Dict[int, Dict[int, str]] = {}
        self.cached_keys_at = self._cached_keys()

    def name(self, py_type: objects.PyType, offset: int) -> Optional[str]:
        """Return the name of the word at this offset in an object, such as `.items`; None if it is not known."""
        if py_type.address not in self._made:
            self._made[py_type.address] = self._make_names(py_type)
        return self._made[py_type.address].get(offset)

    def _make_names(self, py_type: objects.PyType) -> Dict[int, str]:
        made: Dict[int, str] = {}
        release = self._values.layout.release
        for kin in reversed(list(self._values.types.family(py_type))):
            if kin.flags & BASE_EXCEPTION and not made:
                made.update(EXCEPTION_3_11 if release >= 11 else EXCEPTION_3_8)
            made.update(self._read_members(kin))
            if not kin.flags & objects.HEAP_TYPE or kin.name.startswith(("functools.", "collections.")):
                made.update(FRAME_3_11 if kin.name == "frame" and release >= 11 else BY_NAME.get(kin.name, {}))
            if kin.name == "function" and not kin.flags & objects.HEAP_TYPE:
                made.update(self._values.layout.function)
        if py_type.flags & objects.IS_TYPE:
            made.update({self.cached_keys_at + NAME: ".__name__", self.cached_keys_at + QUALIFIED_NAME: ".__qualname__"})
        return made

    def _read_members(self, py_type: objects.PyType) -> Dict[int, str]:
        values, made = self._values, {}
        at = values.word(py_type.address + MEMBERS)
        for _ in range(MOST_MEMBERS):
            words = values.world.words(at, MEMBER_BYTES // objects.WORD) if at else None
            if words is None or not words[0]:
                break
            text = values.world.read(words[0], 256).split(b"\0")[0].decode("utf-8", "replace")
            if words[1] & 0xFFFFFFFF in OBJECT_KINDS and text.isidentifier():
                made[words[2]] = "." + text
            at += MEMBER_BYTES
        return made

    def _cached_keys(self) -> int:
        # ht_cached_keys moved in 3.9, 3.10, 3.12 and 3.15
        release = self._values.layout.release
        if release > 8:
            return CACHED_KEYS_AT[max(key for key in CACHED_KEYS_AT if key <= release)]
        classes = [py_type.address for py_type in self._values.types.all.values() if py_type.flags & objects.HEAP_TYPE]
        place = CACHED_KEYS_AT[9] + QUALIFIED_NAME  # of 3.8 no class has its qualified name there
        return (
            CACHED_KEYS_AT[9]
            if any(self._values.has(self._values.word(at + place), objects.STR) for at in classes[:8])
            else CACHED_KEYS_3_8
        )

    def shared_keys(self, py_type: objects.PyType) -> int:
        """Return the address of the keys that instances share; 0 if a type has none."""
        return self._values.word(py_type.address + self.cached_keys_at) if py_type.flags & objects.HEAP_TYPE else 0


DESCRIPTOR = 272
"""tp_descr_get, in a type."""
SET_ENTRY, SET_MASK = 16, 32
DEQUE_ITEMS, DEQUE_LEFT_INDEX, DEQUE_RIGHT_INDEX = 64, 40, 48
"""BLOCKLEN; leftindex, rightindex in a deque. In a block: leftlink, items, rightlink."""
LRU_RESULT = 48
LAZY = "lazy_import"
"""Type of what 3.15 imports when it is asked for."""


DICT_OFFSET, CLASS_DICT = 288, 264
"""tp_dictoffset and tp_dict, in a type."""
LRU_CACHE = 72
MAPPING, MODULE_DICT = 16, 16
TYPE_DOC = 176
OF_BYTES = {
    "bytearray": (32, 40),
    "array.array": (24,),
    "_io.StringIO": (16,),
    "StgDict": (168, 184),
    **dict.fromkeys(("_io.BufferedReader", "_io.BufferedWriter", "_io.BufferedRandom"), (56,)),
}
"""Pointers to what has no pointers."""
SET_TABLE, SET_SMALL, SET_SMALL_ENTRIES = 40, 64, 8
DEQUE_FIRST, DEQUE_LAST = 24, 32
"""leftblock, rightblock in a deque."""
MODULE_DEFINITION, DEFINED_SIZE = 24, 56


class PyPointers:
    """Follower of pointers in objects, their bodies, frames, generators and coroutines."""

    def __init__(self, values: objects.PyValues) -> None:
        self._values, self._fields, self.frames = values, PyFields(values), PyFrames(values)

    def follow(self, place: PyPosition, word_at: int) -> Optional[PathMove]:
        """Follow the pointer at an address in the block of `place`."""
        pointer = self._values.word(word_at)
        move = self._of_object(place, word_at, pointer) if place.kind == OBJECT else self._of_body(place, word_at, pointer)
        if move is not None:
            return move
        return self._move_to_unnamed_field(place, word_at, pointer, place.kind in BODIES or self._is_behind(place, word_at))

    def end_in(self, block: int) -> Optional[int]:
        """Return the end of the stack of the frame in a block's object; None if it has none."""
        found = self._values.object_in(block)
        return None if found is None else self.end_of_frame(object_position(found[0]), found[1])

    def _is_behind(self, place: PyPosition, word_at: int) -> bool:
        """Return True for words after the end of the object, in a frame's unused stack, or before the object."""
        values, offset = self._values, word_at - place.address
        py_type = values.type_of(place.address) if place.kind == OBJECT else None
        if py_type is None:
            return place.kind == RAW and 0 < place.number <= offset
        end_of_frame = self.end_of_frame(place, py_type)
        if end_of_frame is not None:
            return word_at >= end_of_frame
        item = values.word(py_type.address + objects.ITEM)
        count = values.word(place.address + objects.SIZE) if item else 0
        if py_type.flags & objects.INT and values.layout.has_digit_tags:
            count >>= 3
        end = py_type.basic_bytes + (
            item * min(count, (1 << 64) - count) if not py_type.flags & (objects.IS_TYPE | objects.INLINE_VALUES) else 0
        )
        if py_type.flags & objects.INLINE_VALUES:
            end += objects.WORD * (1 + values.number(place.address + py_type.basic_bytes, 1))
        return offset >= end or -objects.GC_HEAD <= offset < 0 or offset < -py_type.head_bytes

    def _move_to_unnamed_field(self, place: PyPosition, word_at: int, pointer: int, is_stale: bool) -> Optional[PathMove]:
        """Follow a word without a known name. An unaligned value is no pointer: a text, or a number."""
        offset = word_at - place.address
        if place.kind == OBJECT and self._values.layout.release >= FRAMES_HAVE_TAGS:
            pointer &= ~TAGS
        text = ".<%s0x%x>" % ("-" if offset < 0 else "+", abs(offset))
        next_place = object_position(pointer) if self._values.is_object(pointer) else PyPosition(RAW, pointer)
        return None if is_stale or pointer % objects.WORD else move_to(steps.FIELD, text, next_place)

    def _of_object(self, place: PyPosition, word_at: int, pointer: int) -> Optional[PathMove]:
        values, offset = self._values, word_at - place.address
        py_type = values.type_of(place.address)
        if py_type is None:
            return None
        body = self._move_to_body(place, py_type, offset, pointer)
        if body is not None:
            return body
        if not values.is_object(pointer & ~TAGS if values.is_named(place.address, *objects.GENERATORS) else pointer):
            return None
        if place.view == CELL and offset == 16:
            return move_to(steps.CLOSURE, place.text, object_position(pointer), opening=place.opening)
        if offset == objects.TYPE:
            return move_to(steps.ATTRIBUTE, ".__class__", object_position(pointer))
        if py_type.flags & objects.TUPLE and offset >= values.layout.items:
            return self._of_tuple(place, (offset - values.layout.items) // objects.WORD, pointer)
        own = self._follow_special_field(place, py_type, offset, pointer)
        if own is not None:
            return own
        name = self._fields.name(py_type, offset)
        if name == ".__annotations__" and not values.has(pointer, objects.DICT):  # made when asked for
            return move_to(steps.FIELD, ".<annotations>", object_position(pointer))
        return move_to(steps.ATTRIBUTE, name, object_position(pointer)) if name is not None else None

    def _move_to_body(self, place: PyPosition, py_type: objects.PyType, offset: int, pointer: int) -> Optional[PathMove]:
        """Follow a pointer to a dict of attributes, a table or values, which have no name by themselves."""
        values, flags = self._values, py_type.flags
        if offset < 0:
            return self._follow_before_object(place, py_type, offset, pointer)
        if flags & objects.IS_TYPE and offset == CLASS_DICT:
            return self._move_to_dict(pointer, CLASS)
        if offset == self._dict_offset(place, py_type):
            return self._move_to_dict(pointer, ATTRIBUTES)
        if flags & objects.DICT and offset == objects.KEYS:
            return move_to("", "", PyPosition(TABLE, pointer, place.address, place.view))
        if flags & objects.DICT and offset == objects.VALUES:
            return move_to("", "", PyPosition(SPLIT, pointer, values.word(place.address + objects.KEYS), place.view))
        if flags & objects.LIST and offset == 24:
            return move_to("", "", PyPosition(ITEMS, pointer, place.address))
        table = self._table_of(py_type, offset)
        if table:
            return move_to("", "", PyPosition(table, pointer, place.address))
        if flags & objects.IS_TYPE and offset == self._fields.cached_keys_at:
            return move_to("", "", PyPosition(TABLE, pointer))
        if flags & objects.INLINE_VALUES and offset >= py_type.basic_bytes + objects.WORD:
            number = (offset - py_type.basic_bytes) // objects.WORD - 1
            return self.attribute(self._fields.shared_keys(py_type), number, ATTRIBUTES, pointer)
        return None

    def state(self, module: int) -> PyPosition:
        """Return the state of a C module; up to 3.14 the definition says its size (PyModuleDef.m_size)."""
        at = self._values.word(module + self._values.layout.module_state)
        if self._values.layout.release >= 15:
            return PyPosition(RAW, at)
        definition = self._values.word(module + MODULE_DEFINITION)
        size = self._values.word(definition + DEFINED_SIZE) if definition else 0
        return PyPosition(RAW, at, number=size or 1)

    def _table_of(self, py_type: objects.PyType, offset: int) -> str:
        """Return the kind of body of a set, a deque or an array that the word leads to."""
        names = {kin.name for kin in self._values.types.family(py_type)}
        if names & {"set", "frozenset"} and offset == SET_TABLE:
            return SET
        if (py_type.flags & objects.IS_TYPE and offset == TYPE_DOC) or any(offset in OF_BYTES.get(name, ()) for name in names):
            return PLAIN_BYTES
        if NDARRAY in names and offset == ARRAY_DATA:
            return ARRAY
        return {DEQUE_FIRST: DEQUE_LEFT, DEQUE_LAST: DEQUE_RIGHT}.get(offset, "") if "collections.deque" in names else ""

    def _move_to_dict(self, pointer: int, view: str) -> Optional[PathMove]:
        if not self._values.has(pointer, objects.DICT):
            return None
        return move_to(steps.ATTRIBUTE, ".__dict__", object_position(pointer, view), is_open=True)

    def _follow_before_object(self, place: PyPosition, py_type: objects.PyType, offset: int, pointer: int) -> Optional[PathMove]:
        """Follow a managed dict, or values without one, before the object: one word for each in 3.11, one word for both later
        (pycore_object.h).
        """
        if py_type.head_bytes <= objects.GC_HEAD:
            return None
        keys, is_11 = self._fields.shared_keys(py_type), not self._values.types.has_tagged_dicts
        if is_11 and offset == -4 * objects.WORD:
            return move_to("", "", PyPosition(SPLIT, pointer, keys, ATTRIBUTES))
        if not is_11 and offset == -3 * objects.WORD and pointer & 1:
            return move_to("", "", PyPosition(SPLIT, pointer + 1, keys, ATTRIBUTES))
        return self._move_to_dict(pointer, ATTRIBUTES) if offset == -3 * objects.WORD else None

    def _dict_offset(self, place: PyPosition, py_type: objects.PyType) -> int:
        offset = self._values.word(py_type.address + DICT_OFFSET)
        if not offset >> 63:
            return offset
        item, count = self._values.word(py_type.address + 40), self._values.word(place.address + objects.SIZE)
        count = (1 << 64) - count if count >> 63 else count
        size = py_type.basic_bytes + item * count
        return -(-size // objects.WORD) * objects.WORD - ((1 << 64) - offset) if offset < (1 << 64) - 1 and count < 1 << 32 else 0

    def _of_tuple(self, place: PyPosition, index: int, pointer: int) -> Optional[PathMove]:
        values = self._values
        if index >= values.word(place.address + objects.SIZE):
            return None
        if place.view == CELLS and values.is_named(pointer, "cell"):
            names = self.frames.free_names(place.owner)
            if index < len(names) and names[index]:
                content = ".__closure__[%s]" % objects.quote_python_text(names[index] or "")
                return move_to(steps.CLOSURE, ".__closure__[%d]" % index, object_position(pointer, CELL, content), is_open=True)
        is_open = place.view == CELLS
        return move_to(steps.INDEX, "%s[%d]" % (".__closure__" * is_open, index), object_position(pointer))

    def _follow_special_field(self, place: PyPosition, py_type: objects.PyType, offset: int, pointer: int) -> Optional[PathMove]:
        values = self._values
        names = {kin.name for kin in values.types.family(py_type)}
        if "function" in names and offset == values.layout.closure and values.has(pointer, objects.TUPLE):
            code = next(at for at, name in values.layout.function.items() if name == ".__code__")
            cells = PyPosition(OBJECT, pointer, owner=values.word(place.address + code), view=CELLS)
            return move_to(steps.CLOSURE, ".__closure__", cells, is_open=True)
        if names & {"set", "frozenset"} and SET_SMALL <= offset < SET_SMALL + SET_SMALL_ENTRIES * SET_ENTRY:
            return self.element(place.address + SET_SMALL, place.address + offset, SET_SMALL_ENTRIES - 1, pointer)
        if "mappingproxy" in names and offset == MAPPING:
            return move_to(steps.ATTRIBUTE, ".<mapping>", object_position(pointer), is_open=True)
        if (
            "module" in names
            and offset == values.layout.module_state + 2 * objects.WORD
            and values.get(values.word(place.address + MODULE_DICT), "__name__") == pointer
        ):
            return move_to(steps.ATTRIBUTE, ".__name__", object_position(pointer))
        if "functools._lru_cache_wrapper" in names and offset == LRU_CACHE:
            return move_to(steps.FIELD, ".<cache>", object_position(pointer, CACHE))
        if "functools._lru_list_elem" in names and offset == LRU_RESULT:
            return move_to("", "", object_position(pointer))
        if "_asyncio.Task" in names and self._values.is_named(pointer, *objects.GENERATORS):
            return move_to(steps.ATTRIBUTE, ".get_coro()", object_position(pointer))
        if names & set(objects.GENERATORS):
            return self.of_generator(place, offset, pointer & ~TAGS)
        return self.of_frame(place, py_type, offset, pointer) if "frame" in names else None

    def of_frame(self, place: PyPosition, py_type: objects.PyType, offset: int, pointer: int) -> Optional[PathMove]:
        """Follow a frame object to its variables; since 3.11 only after its function has ended and left them to it."""
        frame = self._own_frame(place.address, py_type)
        return self.local(frame, place.address + offset, place.opening, pointer) if frame else None

    def _own_frame(self, address: int, py_type: objects.PyType) -> int:
        if self._values.layout.release < 11:
            return address
        own = address + py_type.basic_bytes - self._values.layout.frame.locals
        return own if self._values.word(address + objects.FRAME_DATA) == own else 0

    def end_of_frame(self, place: PyPosition, py_type: objects.PyType) -> Optional[int]:
        """Return the end of the frame that a frame object or a generator has in itself; None for other objects."""
        release = self._values.layout.release
        if self._values.is_named(place.address, "frame"):
            own = self._own_frame(place.address, py_type)
            return self.frames.stack_end(own) if own else place.address + py_type.basic_bytes - self._values.layout.frame.locals
        if release >= 11 and self._values.is_named(place.address, *objects.GENERATORS):
            return self.frames.stack_end(place.address + self._values.layout.generator_frame)
        return None

    def of_generator(self, place: PyPosition, offset: int, pointer: int) -> Optional[PathMove]:
        """Follow a generator to its frame up to 3.10, then to the variables in the frame, and last to the awaitable of a coroutine."""
        values, frames = self._values, self.frames
        kind = next((name for name in objects.GENERATORS if values.is_named(place.address, name)), "generator")
        at = place.address + values.layout.generator_frame
        frame = values.word(at) if values.layout.release < 11 else at
        opening = "" if kind == "generator" else "%s %s(): " % (kind.replace("_", " "), frames.function(frame))
        if values.layout.release < 11:
            text = {"generator": ".gi_frame", "coroutine": ".cr_frame"}.get(kind, ".ag_frame")
            return move_to(steps.ATTRIBUTE, text, PyPosition(OBJECT, pointer, opening=opening)) if place.address + offset == at else None
        local = self.local(frame, place.address + offset, opening, pointer, ".gi_frame")
        is_last = place.address + offset == frames.stack_end(frame) - objects.WORD
        return (
            move_to(steps.ATTRIBUTE, ".cr_await", object_position(pointer)) if local is None and is_last and kind == "coroutine" else local
        )

    def local(self, frame: int, word_at: int, opening: str, pointer: int, before: str = "") -> Optional[PathMove]:
        """Follow a variable of a frame; the content of a cell has the variable's name, the cell is `.<cell rows>`."""
        name = next((name for name, place, _ in self.frames.locals(frame) if place == word_at), None)
        if name is None:
            return None
        text = name if opening else "%s.f_locals[%s]" % (before, objects.quote_python_text(name))
        if self._values.is_named(pointer, "cell"):
            return move_to(
                steps.LOCAL, ".<cell %s>" % name, PyPosition(OBJECT, pointer, view=CELL, text=text, opening=opening), is_open=True
            )
        return move_to(steps.LOCAL, text, object_position(pointer), opening=opening)

    def attribute(self, keys: int, index: int, view: str, pointer: int) -> Optional[PathMove]:
        """Follow the value with this number in values whose keys are elsewhere."""
        key = self._values.key_of(keys, index) if index >= 0 else 0
        return self._move_to_value(key, view, pointer) if key else None

    def _move_to_value(self, key: int, view: str, pointer: int) -> Optional[PathMove]:
        values = self._values
        if not values.is_object(pointer) and view != CACHE:
            return None
        text = values.text(key) if view in (ATTRIBUTES, CLASS) else None
        place = object_position(pointer) if values.is_object(pointer) else PyPosition(LINK, pointer)
        if text is not None and text.isidentifier() and not self._is_hidden(pointer, view):
            return move_to(steps.ATTRIBUTE, "." + text, place)
        literal = values.literal(key)
        key_type = values.type_of(key)
        if literal is None:
            literal = "<%s object>" % (key_type.short_name if key_type else "unknown")
        return move_to(steps.KEY, "%s[%s]" % (".__dict__" * (view in (ATTRIBUTES, CLASS)), literal), place)

    def _is_hidden(self, address: int, view: str) -> bool:
        """Return True if a class returns something else for the name, such as the function of a static method; for a lazy import, so does
        a module.
        """
        py_type = self._values.type_of(address)
        if py_type is None or py_type.name == LAZY:
            return py_type is not None
        return view == CLASS and bool(self._values.word(py_type.address + DESCRIPTOR)) and py_type.name != "function"

    def _of_body(self, place: PyPosition, word_at: int, pointer: int) -> Optional[PathMove]:
        """Follow a word of a body that an object owns."""
        values, kind = self._values, place.kind
        if kind == TABLE:
            return self._of_table(place, word_at, pointer)
        if kind in (DEQUE_LEFT, DEQUE_RIGHT):
            return self._of_deque(place, word_at, pointer)
        if kind == SPLIT:
            return self.attribute(place.owner, (word_at - values.split_value(place.address, 0)) // objects.WORD, place.view, pointer)
        if kind == SET:
            return self.element(place.address, word_at, values.word(place.owner + SET_MASK), pointer)
        if not values.is_object(pointer):
            return None
        if kind == LINK and word_at == place.address + LRU_RESULT:  # the census does not know its type up to 3.9
            return move_to("", "", object_position(pointer))
        index = (word_at - place.address) // objects.WORD
        text = "[%d]" % index if kind == ITEMS and 0 <= index < values.word(place.owner + objects.SIZE) else None
        array = read_ndarray(values, place.owner) if kind == ARRAY else None
        text = format_index(array, word_at) if array is not None else text
        return move_to(steps.INDEX, text, object_position(pointer)) if text is not None else None

    def _of_table(self, place: PyPosition, word_at: int, pointer: int) -> Optional[PathMove]:
        keys = self._values.keys(place.address)
        number, offset = divmod(word_at - keys.entries, keys.entry_bytes) if keys else (-1, 0)
        if (
            keys is None
            or not 0 <= number < keys.entry_count
            or (place.owner and self._values.word(place.owner + objects.KEYS) != place.address)
        ):
            return None
        key = self._values.word(keys.entries + number * keys.entry_bytes + keys.key)
        if offset == keys.value and key and place.owner and not self._values.word(place.owner + objects.VALUES):
            return self._move_to_value(key, place.view, pointer)
        if offset == keys.key and self._values.is_object(pointer):
            literal = self._values.literal(pointer)
            name = self._values.type_of(pointer)
            text = ".<key %s>" % (literal or "%s object" % (name.short_name if name else ""))
            return move_to(steps.KEY, ".__dict__" * (place.view in (ATTRIBUTES, CLASS)) + text, object_position(pointer))
        return None

    def element(self, table: int, word_at: int, mask: int, pointer: int) -> Optional[PathMove]:
        """Follow an element of a set."""
        number, offset = divmod(word_at - table, SET_ENTRY)
        py_type = self._values.type_of(pointer)
        if offset or not 0 <= number <= mask or py_type is None:
            return None
        text = self._values.literal(pointer) or "<%s object>" % py_type.short_name
        return move_to(steps.KEY, "{%s}" % text, object_position(pointer))

    def _of_deque(self, place: PyPosition, word_at: int, pointer: int) -> Optional[PathMove]:
        """Follow a word of a deque's block: a link to the next block, or an item (Modules/_collectionsmodule.c)."""
        word = (word_at - place.address) // objects.WORD
        is_left = place.kind == DEQUE_LEFT
        if word == (DEQUE_ITEMS + 1 if is_left else 0):
            return move_to("", "", place._replace(address=pointer, number=place.number + 1))
        if not 1 <= word <= DEQUE_ITEMS or not self._values.is_object(pointer):
            return None
        size = self._values.word(place.owner + objects.SIZE)
        if is_left:
            index = place.number * DEQUE_ITEMS + word - 1 - self._values.word(place.owner + DEQUE_LEFT_INDEX)
        else:
            index = size - 1 - (self._values.word(place.owner + DEQUE_RIGHT_INDEX) - (word - 1)) - place.number * DEQUE_ITEMS
        return move_to(steps.INDEX, "[%d]" % index, object_position(pointer)) if 0 <= index < size else None
