"""Paths of Ruby's objects, as Ruby writes them: `App::CACHE["u:1"].@items[3]`, `$sessions.values[2].name`.

Of the releases in objects.py. `.@items` is an instance variable and `.@@all` a class variable: the language has no word for them from
outside.

Ruby's object heap: pages of slots that it takes from the kernel itself (gc.c: heap_page_header, heap_page).
"""

from array import array
from functools import partial
from itertools import chain, compress, islice
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.addons.runtimes.ruby.objects import (
    ARRAY,
    BLOCK_BYTES,
    CLASS,
    DATA,
    HASH,
    HEAD,
    IMEMO,
    IMEMO_KINDS,
    MODULE,
    OBJECT,
    RELEASES,
    SEQUENCE,
    STRING,
    STRUCT,
    TYPE_MASK,
    USER,
    RubyHeapPage,
    RubyObjects,
    RubyTable,
    TransientHeap,
    by_flags,
    find_ruby_layout,
    find_transient_heap,
    global_variables,
    mask_ruby_class,
    mask_ruby_flags,
    object_class,
    owning_words,
    read_ruby_release,
)
from gdbheapx.analysis.census.world import (
    ALL,
    CONTENT,
    EXACT,
    SHAPE,
    WEAK_ORDER,
    Ask,
    CensusTarget,
    Inner,
    Length,
    Recogniser,
    RuntimeLabels,
    Signature,
    used_blocks,
)
from gdbheapx.analysis.reachability import paths as steps
from gdbheapx.common import problems
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import TargetAddress
from gdbheapx.common.ranges import unite_ranges
from gdbheapx.kernel.blocks.signatures import AT_LEAST, AT_MOST, EQUAL, IN_RANGES, IN_SET, NOT_EQUAL, Condition, NumberSet, SignatureRow
from gdbheapx.kernel.blocks.stream import NativeBlocks

TYPES = dict(enumerate(("Object", "Class", "Module", "Float", "String", "Regexp", "Array", "Hash", "Struct", "Integer (large)"), 1))
TYPES.update(enumerate(("File", "Data", "MatchData", "Complex", "Rational"), 11))
TYPES.update({0x14: "Symbol", 0x1A: "internal (imemo)", 0x1B: "node of syntax", 0x1C: "internal class"})
"""By ruby_value_type (include/ruby/internal/value_type.h)."""
TEXT = "text"
NUMBERS = {name: number for number, name in TYPES.items()}
BINDINGS = {"Proc": ".binding", "Binding": ""}
BESIDE = {ARRAY: 32, STRUCT: 24, STRING: 24}
"""Of a slot: offset of the pointer to what it owns outside."""
TABLE_POINTERS = (24, 48)
"""Of an st_table: its bins and its entries."""
SHAREABLE = 1 << 8
"""RUBY_FL_SHAREABLE: of Data, such as an Encoding, it never changes."""
MOST_CLASSES = 1 << 17
ESCAPES = {"\\": "\\\\", '"': '\\"', "#": "\\#", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
VM_WORDS = 512
"""Of rb_vm_t: among them are top_self and frozen_strings."""
COLLECTOR_WORDS, CHUNK_OBJECTS, MOST_CHUNKS = 256, 500, 1 << 16
"""Of rb_objspace_t, and of its mark stack (gc.c: STACK_CHUNK_SIZE)."""
REGEXP, MATCH, MOST_MATCHES = 6, 13, 100_000
THREAD_WORDS, THREAD_SELF, THREAD_VM = 5, 2, 4
"""Of rb_thread_t {node of a list (2 words), self, ractor, vm, ...}."""


class RubyContext(NamedTuple):
    """Execution context of one thread or fiber."""

    thread: int
    """The object."""
    address: int
    """In what C code keeps of a fiber: a Thread's first one has no object."""
    stack: int
    end: int
    frame: int
    """The innermost."""


class RubyNamer(steps.Namer):
    """Constants are starts, and what classes keep; then global variables, the variables of the object that scripts run in, and local
    ones."""

    is_collected = True

    def __init__(
        self, objects: RubyObjects, top: int, instances: Callable[[Sequence[int]], Sequence[int]], lists: Sequence[int] = ()
    ) -> None:
        """Take the class Object as `top`, a search for objects of some classes as `instances`, and as `lists` blocks that keep none of
        the objects in them.
        """
        self._lists = lists
        self._objects, self._top, self._instances = objects, top, instances
        self._classes: Dict[int, str] = {}
        self._known_contexts: Optional[Sequence[RubyContext]] = None
        self._of_threads: Set[int] = set()
        """What C code keeps of them."""
        self._known_threads: Optional[Sequence[int]] = None
        self._owning = owning_words(objects.layout)

    def starts(self) -> Iterable[steps.Start]:
        """Return constants, variables and frames, breadth first, so that a module gets its shortest name."""
        walk = [(self._top, "")]
        self._classes[self._top] = "Object"
        for class_, path in walk:
            yield from self._of_class(class_, path, walk)
        for name, value in global_variables(self._objects):
            if self._objects.is_slot(value):
                yield _make_start(value, steps.VARIABLE, name)
        main = self._find_main_object()
        if main is not None:
            yield _make_start(main, steps.VARIABLE, "main")
            for name, value in self._variables_of(main):
                if self._objects.is_slot(value):
                    yield _make_start(value, steps.VARIABLE, name)
        for context in self._find_contexts():
            for function, name, value in list_ruby_locals(self._objects, context):
                first = steps.PathStep(steps.FRAME, "frame %s: " % function, None)
                yield steps.Start(value, [first, steps.PathStep(steps.LOCAL, name, TargetAddress(value))])
        for address in self._find_threads():
            yield from self._of_thread(address, [address, self._objects.data(address, self._objects.slot(address))])
        for context in self._find_contexts():
            yield from self._of_thread(context.thread, [context.address])

    def _of_thread(self, address: int, places: Sequence[int]) -> Iterator[steps.Start]:
        """Yield the thread object and the memory that C code keeps for it: saved registers, too, so that frames come first."""
        slot = self._objects.slot(address)
        name = (self._objects.class_path(self._objects.real_class(slot)) if slot else None) or TYPES[DATA]
        for place in filter(None, places):
            self._of_threads.add(place)
            yield steps.Start(place, [steps.PathStep(steps.FRAME, "%s 0x%x" % (name, address), TargetAddress(address))])

    def _of_class(self, class_: int, path: str, walk: List[Tuple[int, str]]) -> Iterator[steps.Start]:
        """Yield a class's constants, and its own variables. Modules among them go to the end of the walk."""
        objects, prefix = self._objects, path + "::" if path else ""
        for name, value in objects.constants(class_):
            slot = objects.slot(value)
            kind = slot[0] & TYPE_MASK if slot else 0
            if not kind or (kind == DATA and slot[0] & SHAREABLE):
                continue
            yield _make_start(value, steps.TYPE if kind in (CLASS, MODULE) else steps.VARIABLE, prefix + name)
            if kind in (CLASS, MODULE) and value not in self._classes and len(walk) < MOST_CLASSES:
                self._classes[value] = prefix + name
                walk.append((value, prefix + name))
        for name, value in objects.class_variables(class_):
            if name.startswith("@") and objects.type_of(value):
                first = steps.PathStep(steps.TYPE, path or "Object", TargetAddress(class_))
                yield steps.Start(value, [first, steps.PathStep(steps.ATTRIBUTE, "." + name, TargetAddress(value))])

    def _find_main_object(self) -> Optional[int]:
        """Return the object of the top level: of class Object, with methods of its own, and known to the VM or a frame."""
        selves = (words[FRAME_SELF] for context in self._find_contexts() for words in frames_of(self._objects, context) if words)
        for word in chain(self._read_vm_words(), selves):
            slot = self._objects.slot(word)
            if not slot or slot[0] & TYPE_MASK != OBJECT:
                continue
            own = self._objects.slot(slot[1])
            if own and own[0] & self._objects.layout.singleton and own[2] == self._top:
                return word
        return None

    def _variables_of(self, address: int) -> Iterator[Tuple[str, int]]:
        slot = self._objects.slot(address)
        if not slot:
            return
        values, names = self._objects.words(*self._objects.variables(address, slot)), self._objects.variable_names(slot)
        yield from ((names[number], value) for number, value in enumerate(values) if number in names)
        for number, value in self._objects.entries(self._objects.variable_table(slot)):
            name = self._objects.id_name(number)
            if name is not None:
                yield name, value

    def owning_words(self, signature: Optional[str]) -> int:
        return steps.ALL_WORDS if signature is None else self._owning.get(signature, steps.ALL_WORDS & ~HEAD)

    def owns_nothing(self) -> Iterable[int]:
        """Return stacks of threads and fibers and of the collector, which keep leftovers of ended frames; the names of a class's
        variables, to which each of its objects points; the table of all equal strings; memory of a MatchData and a Regexp that was never
        cleared; and the owner of a locked Mutex.
        """
        yield from self._list_frozen_strings()
        yield from self._mark_stack()
        yield from self._lists
        yield from self._list_match_blocks()
        yield from self._list_mutexes()
        yield from self._objects.places_of_variables(self._classes)
        yield from (context.stack for context in self._find_contexts())

    def _find_contexts(self) -> Sequence[RubyContext]:
        if self._known_contexts is None:
            self._known_contexts = list(find_ruby_contexts(self._objects, self._find_threads()))
        return self._known_contexts

    def _find_threads(self) -> Sequence[int]:
        """Return the objects that are Threads or Fibers."""
        if self._known_threads is None:
            classes = dict(self._objects.constants(self._top))
            found = self._instances([classes[name] for name in ("Thread", "Fiber") if name in classes])
            self._known_threads = [address for address in found if self._objects.type_of(address) == DATA]
        return self._known_threads

    def _list_frozen_strings(self) -> Iterator[int]:
        """Yield rb_vm_t's frozen_strings: a table with each String as its own key. A String goes once nothing else has it."""
        for word in self._read_vm_words():
            table = self._objects.st_table(word)
            first = list(islice(self._objects.entries(table), 2)) if table is not None else []
            if table is not None and first and all(key == value and self._objects.type_of(key) == STRING for key, value in first):
                yield table.address

    def _list_match_blocks(self) -> Iterator[int]:
        """Yield struct rmatch {counts, begins, ends, offsets of characters, ...} of each MatchData, and re_pattern_buffer of each Regexp;
        half of the latter is a table of characters that need not be there.
        """
        classes = dict(self._objects.constants(self._top))
        found = self._instances([classes[name] for name in ("MatchData", "Regexp") if name in classes])
        for address in found[:MOST_MATCHES]:
            slot = self._objects.slot(address)
            kind = slot[0] & TYPE_MASK if slot else 0
            if kind == MATCH:
                yield from filter(None, self._objects.words(slot[3] + 8, 3))
            elif kind == REGEXP:
                yield slot[2]

    def _list_mutexes(self) -> Iterator[int]:
        """Yield rb_mutex_t {fiber, thread, ...} of each Mutex: the last owner stays there."""
        thread = dict(self._objects.constants(self._top)).get("Thread", 0)
        mutex = dict(self._objects.constants(thread)).get("Mutex")
        for address in self._instances([mutex])[:MOST_MATCHES] if mutex is not None else ():
            slot = self._objects.slot(address)
            if slot and slot[0] & TYPE_MASK == DATA:
                yield self._objects.data(address, slot)

    def _mark_stack(self) -> Iterator[int]:
        """Yield the collector's mark_stack_t {chunk, cache, index, limit, ...}, which the VM knows: each chunk is {objects, next}."""
        for word in self._read_vm_words():
            words = self._objects.words(word, COLLECTOR_WORDS) if word % 8 == 0 else ()
            for at in range(len(words) - 2):
                if words[at + 2] >> 32 == CHUNK_OBJECTS >= words[at + 2] & 0xFFFFFFFF:
                    yield from chain(*(self._list_stack_chunks(first) for first in words[at : at + 2]))

    def _list_stack_chunks(self, address: int) -> Iterator[int]:
        for _ in range(MOST_CHUNKS):
            following = self._objects.words(address + 8 * CHUNK_OBJECTS, 1)
            if not following:
                return
            yield address
            address = following[0]

    def _read_vm_words(self) -> Sequence[int]:
        """Return the first words of rb_vm_t, found by a Thread, which knows its object and the VM."""
        for address in self._find_threads():
            slot = self._objects.slot(address)
            words = self._objects.words(self._objects.data(address, slot), THREAD_WORDS) if slot else ()
            if words and words[THREAD_SELF] == address and self._objects.words(words[0], 1):  # a Fiber is in no list
                return self._objects.words(words[THREAD_VM], VM_WORDS)
        return ()

    def begin_path(self, start: steps.Start) -> steps.PathMove:
        """Begin a path at an object. Its memory is its slot and all blocks up to the next object. See Namer."""
        return steps.PathMove(start.address, start.steps)

    def follow_pointer(self, position: int, hop: steps.Hop, below: steps.Hop) -> Optional[steps.PathMove]:
        """Follow a pointer; None after the end of an array, in the rest of a block of malloc's, and in a free place of a table. See
        Namer.
        """
        owner, offset = hop.address if self._objects.is_slot(hop.address) else position, hop.find_offset()
        if offset is None:
            return steps.PathMove(owner)
        if not self._objects.is_slot(below.address):
            return steps.PathMove(owner) if self._leads_on(owner, hop.address + offset, hop.address) else None
        step = self._find_step(owner, hop.address + offset)
        return steps.PathMove(owner, [steps.PathStep(*step, TargetAddress(below.address))]) if step is not None else None

    def _leads_on(self, owner: int, place: int, block: int) -> bool:
        """Return True if the pointer at a place leads to memory that the object has outside its slot, not to another object."""
        slot, offset = self._objects.slot(owner), place - owner
        kind = slot[0] & TYPE_MASK if slot else 0
        layout, has_table = self._objects.layout, kind == HASH and bool(slot[0] & USER[3])
        if kind == HASH and layout.table is None and offset == 16:
            return True
        if kind == HASH or (kind == OBJECT and self._objects.variable_table(slot) is not None and block != owner):
            table = slot[layout.variables] if kind == OBJECT else self._objects.table_address(owner, slot) if has_table else 0
            return bool(table) and place - table in TABLE_POINTERS
        if kind == OBJECT:
            return offset == 8 * layout.variables
        return offset == BESIDE[kind] if kind in BESIDE else True

    def _find_step(self, owner: int, place: int) -> Optional[Tuple[str, str]]:
        """Return kind and text of the step by the pointer at a place in an object's memory."""
        slot = self._objects.slot(owner)
        kind = slot[0] & TYPE_MASK if slot else DATA if owner in self._of_threads else 0
        if kind == OBJECT:
            return self._name_variable(owner, place, slot)
        if kind == ARRAY:
            number = _find_index(place, *self._objects.array(owner, slot))
            return (steps.INDEX, "[%d]" % number) if number is not None else None
        if kind == STRUCT:
            number = _find_index(place, *self._objects.members(owner, slot))
            names = self._objects.members_of(self._objects.real_class(slot)) if number is not None else ()
            if number is None:
                return None
            return (steps.ATTRIBUTE, "." + names[number]) if number < len(names) and names[number] else (steps.INDEX, "[%d]" % number)
        if kind == HASH:
            return self._name_entry(owner, place, slot)
        if kind not in (DATA, IMEMO):
            return None
        path = self._objects.class_path(self._objects.real_class(slot)) if kind == DATA and slot else None
        if path in BINDINGS:  # a local variable that a Proc or a Binding keeps
            name = name_captured(self._objects, self._objects.data(owner, slot), place)
            if name is not None:
                return steps.CLOSURE, "%s.local_variable_get(:%s)" % (BINDINGS[path or ""], name)
        return steps.FIELD, ".<%s>" % TYPES[kind]  # written in C: how far in what it has beside its slot is not worth a word

    def _name_variable(self, owner: int, place: int, slot: Sequence[int]) -> Optional[Tuple[str, str]]:
        table = self._objects.variable_table(slot)
        if table is not None:
            entry = _entry_of(table, place)
            is_value = entry is not None and not entry[1] and not self._objects.is_deleted(table, entry[0])
            key = self._objects.words(place - 8, 1) if is_value else ()
            name = self._objects.id_name(key[0]) if key else None
        else:
            number = _find_index(place, *self._objects.variables(owner, slot))
            name = self._objects.variable_names(slot).get(number) if number is not None else None
        return (steps.ATTRIBUTE, "." + name) if name is not None else None

    def _name_entry(self, owner: int, place: int, slot: Sequence[int]) -> Optional[Tuple[str, str]]:
        if place == owner + 24:
            return (steps.ATTRIBUTE, ".default_proc" if slot[0] & USER[2] else ".default")
        table = self._objects.table(owner, slot)
        entry = _entry_of(table, place) if table is not None else None
        if table is None or entry is None or self._objects.is_deleted(table, entry[0]):
            return None
        number, is_key = entry
        identity = self._objects.identity_type  # such a table does not compare contents; one of up to eight entries has no type
        compares_contents = not table.type or (bool(identity) and table.type != identity)
        key = self._objects.words(place - 8, 1) if not is_key and compares_contents else ()
        text = self._format_key(key[0]) if key else None
        if text is not None:
            return steps.KEY, "[%s]" % text
        position = self._objects.position(table, number)
        return (steps.KEY, ".%s[%d]" % ("keys" if is_key else "values", position)) if position is not None else None

    def _format_key(self, key: int) -> Optional[str]:
        if key & 1:
            return "%d" % ((key >> 1) - (key >> 63 << 63))
        name = self._objects.symbol(key)
        if name is not None:
            return ":" + name if name.isidentifier() else ":" + steps.quote_text(name, ESCAPES)
        text = self._objects.text(key)
        return steps.quote_text(text, ESCAPES) if text is not None else None

    def contents(self, address: int, size_bytes: int, signature: Optional[str]) -> Optional[str]:
        slot = self._objects.slot(address)
        kind = slot[0] & TYPE_MASK if slot else 0
        if kind == STRING:
            return "String, {:,} bytes".format(self._objects.bytes_of(slot, address)[1])
        if kind == ARRAY:
            return "Array of {:,}".format(self._objects.array(address, slot)[1])
        if kind == STRUCT:
            return "Struct of {:,}".format(self._objects.members(address, slot)[1])
        table = self._objects.table(address, slot) if kind == HASH else None
        empty = kind == HASH and not slot[0] & USER[3]
        return "Hash of {:,} entries".format(table.length) if table is not None else "Hash of 0 entries" if empty else None

    def texts(self, address: int, size_bytes: int, signature: Optional[str]) -> Iterable[str]:
        """Return the texts of an object with its variables, of an Array with its elements. See Namer."""
        own = self._read_text_start(address)
        if own is not None:
            return [own]
        slot = self._objects.slot(address)
        kind = slot[0] & TYPE_MASK if slot else 0
        values: Iterable[int]
        if kind == HASH:
            table = self._objects.table(address, slot)
            entries = self._objects.entries(table._replace(bound=min(table.bound, steps.TEXT_WORDS)) if table is not None else None)
            values = [key for key, _ in entries]
        else:
            within = {ARRAY: self._objects.array, STRUCT: self._objects.members, OBJECT: self._objects.variables}.get(kind)
            first, count = within(address, slot) if within is not None else (address, size_bytes // 8)
            values = self._objects.words(first, min(count, steps.TEXT_WORDS))
        return (text for text in map(self._read_text_start, values) if text is not None)

    def named_texts(self, address: int, size_bytes: int, signature: Optional[str]) -> Iterable[Tuple[str, str]]:
        """Return (name, text) of instance variables, and of a Struct's members. See Namer."""
        slot = self._objects.slot(address)
        kind = slot[0] & TYPE_MASK if slot else 0
        if kind == OBJECT:
            told: Iterable[Tuple[str, int]] = self._variables_of(address)
        elif kind == STRUCT:
            first, count = self._objects.members(address, slot)
            told = zip(self._objects.members_of(self._objects.real_class(slot)), self._objects.words(first, min(count, steps.TEXT_WORDS)))
        else:
            return ()
        texts = ((name, self._read_text_start(value)) for name, value in told)
        return [(name, text) for name, text in texts if text is not None]

    def _read_text_start(self, value: int) -> Optional[str]:
        """Return the first characters of a String, or a Symbol's name; None for other values."""
        slot = self._objects.slot(value)
        if not slot or slot[0] & TYPE_MASK != STRING:
            return self._objects.symbol(value)
        place, size = self._objects.bytes_of(slot, value)
        return steps.decode_text(self._objects.world.read(place, min(size, steps.TEXT_BYTES)))


def _find_index(address: int, first: int, count: int) -> Optional[int]:
    number, rest = divmod(address - first, 8)
    return number if not rest and 0 <= number < count else None


def _entry_of(table: RubyTable, address: int) -> Optional[Tuple[int, bool]]:
    number, rest = divmod(address - table.address, table.entry_bytes)
    return (number, rest == table.key_offset) if 0 <= number < table.bound and 0 <= rest - table.key_offset <= 8 else None


def _make_start(value: int, kind: str, name: str) -> steps.Start:
    return steps.Start(value, [steps.PathStep(kind, name, TargetAddress(value))])


CONTEXT_WORDS, MOST_STACK_WORDS = 48, 1 << 24
FRAME_ISEQ, FRAME_SELF, FRAME_EP = 2, 3, 4
"""Of rb_control_frame_t {pc, sp, iseq, self, ep, ...}."""
MOST_FRAMES, MOST_LOCALS, MOST_SCOPES = 10_000, 1000, 64
BODY = 2
"""Of an instruction sequence {flags, wrapper, body}; body {..., location at 64 with its label, ...}."""
LABEL = 80
ENVIRONMENT_WORDS = 2
"""Between the last local variable and where ep points (VM_ENV_DATA_SIZE - 1)."""


def find_ruby_contexts(objects: RubyObjects, threads: Iterable[int]) -> Iterator[RubyContext]:
    """Return the contexts of Threads and Fibers, each once."""
    seen = set()
    for address in threads:
        slot = objects.slot(address)
        for context in _read_contexts(objects, address, objects.data(address, slot)) if slot and slot[0] & TYPE_MASK == DATA else ():
            if context.stack not in seen:
                seen.add(context.stack)
                yield context


def _read_contexts(objects: RubyObjects, thread: int, address: int) -> Iterator[RubyContext]:
    # rb_execution_context_t begins {vm_stack, vm_stack_size, cfp}. A fiber's is in it, a
    # thread points to its own
    words = objects.words(address, CONTEXT_WORDS)
    for at in range(len(words) - 2):
        places = ((address + 8 * at, words[at : at + 3]), (words[at], objects.words(words[at], 3) or (0, 0, 0)))
        for place, (stack, size, frame) in places:
            if stack and 0 < size <= MOST_STACK_WORDS and stack < frame <= stack + 8 * size and not (stack | frame) % 8:
                yield RubyContext(thread, place, stack, stack + 8 * size, frame)


def frames_of(objects: RubyObjects, context: RubyContext) -> Iterator[Sequence[int]]:
    """Return the frames, the innermost first; they grow down from the end of the stack."""
    size = objects.layout.frame_words
    frames = range(context.frame, context.end, 8 * size)
    yield from (objects.words(frame, size) for frame in frames[:MOST_FRAMES])


def list_ruby_locals(objects: RubyObjects, context: RubyContext) -> Iterator[Tuple[str, str, int]]:
    """Yield (function, name, object) of the variables of a context, innermost frame first, and the receiver of each method."""
    for words in frames_of(objects, context):
        sequence = objects.slot(words[FRAME_ISEQ]) if words else ()
        if sequence and sequence[0] & TYPE_MASK == IMEMO:
            yield from _of_frame(objects, sequence[BODY], words[FRAME_SELF], words[FRAME_EP])


def _of_frame(objects: RubyObjects, body: int, self: int, environment: int) -> Iterator[Tuple[str, str, int]]:
    label, (table, size) = objects.words(body + LABEL, 1), _find_local_table(objects, body)
    name = objects.text(label[0]) if label else None
    values = objects.words(environment - 8 * (size + ENVIRONMENT_WORDS), size) if name is not None else ()
    for number, value in zip(objects.words(table, size) if values else (), values):
        local = objects.id_name(number)
        if name is not None and local is not None and objects.type_of(value):
            yield name, local, value
    if name is not None and objects.type_of(self):
        yield name, "self", self


def name_captured(objects: RubyObjects, block: int, place: int) -> Optional[str]:
    """Return the local variable at `place`, among those that a Proc or a Binding has kept: `block` is its rb_block {self, ep, ...}. Each
    environment is an object {flags, iseq, ep, variables, size}; the word after ep points to it, and the word before ep leads to the
    enclosing environment.
    """
    words = objects.words(block, 2)
    at = words[1] if words else 0
    for _ in range(MOST_SCOPES):
        around = objects.words(at - 8, 3)
        environment = objects.slot(around[2]) if around else ()
        if not environment or environment[0] & TYPE_MASK != IMEMO or environment[2] != at:
            return None
        number, rest = divmod(place - environment[3], 8)
        if not rest and 0 <= number < environment[4] & 0xFFFFFFFF:
            return _read_local_name(objects, environment[1], number)
        at = around[0] & -4
    return None


def _read_local_name(objects: RubyObjects, sequence: int, number: int) -> Optional[str]:
    slot = objects.slot(sequence)
    table, size = _find_local_table(objects, slot[BODY]) if slot and slot[0] & TYPE_MASK == IMEMO else (0, 0)
    words = objects.words(table + 8 * number, 1) if number < size else ()
    return objects.id_name(words[0]) if words else None


def _find_local_table(objects: RubyObjects, body: int) -> Tuple[int, int]:
    """Return (address, length) of the names of local variables."""
    table, size = objects.words(body + objects.layout.local_table, 1), objects.words(body + objects.layout.local_table_size, 1)
    length = size[0] & 0xFFFFFFFF if size else 0
    return (table[0], length) if table and length <= MOST_LOCALS else (0, 0)


SLOT_BYTES = (40, 80, 160, 320, 640)
UNIT_BYTES = 8
ANONYMOUS = "[anon:"
"""Memory without a file that has a name: 3.4 names its pages."""
MOST_PAGES = 1 << 20
AT_ONCE = 256
"""Pages whose slots are looked at together."""


BY_CLASS = (OBJECT, STRUCT, DATA)
"""Types whose objects are named by their class."""
TEXT_ROW = SignatureRow(
    [Condition(0, 8, EQUAL, 0, mask=0x8080808080808080), *(Condition(at, 1, NOT_EQUAL, 0, mask=0x60) for at in range(8))],
    least_usable=8,
    weak=True,
)
"""Eight characters: most likely those of a String, from which no path leads on."""


class Ruby(Recogniser):
    """A page begins with a pointer to its description, a block that says where in that page the slots begin, how large and how many they
    are."""

    module, objects = "ruby", ("ruby", "libruby")
    table = RuntimeLabels(
        "Ruby",
        "object heap",
        "malloc: what objects alone point to",
        "malloc: other blocks in use (the interpreter, extensions)",
        "malloc: blocks in use",
    )

    def asks(self, world: CensusTarget) -> Iterable[Ask]:
        """Return the rows of slots: a slot in use has a type, and its class is a slot, too; a block of malloc's with five numbers and
        pointers to objects is no slot.
        """
        heap_pages, known = world.once(find_ruby_pages), world.once(make_ruby_reader)
        release = read_ruby_release(world) if known is None else None
        if release is not None:
            what = "Ruby %d.%d: its objects have no types here; gdbheapx knows those of Ruby %s" % (*release, RELEASES)
            hint = "all of Ruby's memory as one: %s" % hint_command("report")
            world.session.problem(problems.RUNTIME_UNREAD, None, what, hint, partial=False)
        if not heap_pages or known is None:
            return
        ranges = NumberSet(ranges=unite_ranges((page.address, page.address + ruby_page_bytes(world)) for page in heap_pages))
        classes = NumberSet(world.once(read_ruby_slots)[1])
        # a block with two pointers to classes begins like a slot, but for the number of a shape
        is_flags = Condition(0, 8, AT_MOST, known.most_flags())
        # from IMEMO on the second word need not be a class
        is_object = [is_flags, Condition(0, 8, NOT_EQUAL, 0, mask=TYPE_MASK), Condition(0, 8, AT_MOST, IMEMO - 1, mask=TYPE_MASK)]
        others = [is_flags, Condition(0, 8, AT_LEAST, IMEMO, mask=TYPE_MASK), Condition(8, 8, IN_RANGES, 0)]
        for size in sorted({page.slot_bytes for page in heap_pages}):
            key = (0, 8, TYPE_MASK)
            for kind in BY_CLASS:
                row = SignatureRow(
                    [is_flags, Condition(0, 8, EQUAL, kind, mask=TYPE_MASK), Condition(8, 8, IN_SET, 0)], size, size, key=(8, 8, ALL)
                )
                yield Ask(row, partial(self._of_class, known, kind), [classes], order=29, owning=partial(mask_ruby_class, known, kind))
            for kind, mask, number in by_flags(known.layout):
                flags = [is_flags, Condition(0, 8, EQUAL, kind, mask=mask), Condition(8, 8, IN_SET, 0)]
                row = SignatureRow(flags, size, size, key=(0, 8, TYPE_MASK | number))
                yield Ask(row, self._name_object, [classes], order=29, owning=partial(mask_ruby_flags, known.layout))
            row = SignatureRow([*is_object, Condition(8, 8, IN_SET, 0)], size, size, key=key)
            yield Ask(row, self._name_object, [classes], order=30)
            row = SignatureRow(others, size, size, key=(0, 8, TYPE_MASK | IMEMO_KINDS))
            yield Ask(row, self._name_object, [ranges], order=30, owning=partial(mask_ruby_flags, known.layout))
            code = Condition(0, 8, EQUAL, IMEMO | SEQUENCE << 12, mask=TYPE_MASK | IMEMO_KINDS)
            row = SignatureRow([is_flags, code, Condition(8, 8, EQUAL, 0)], size, size, key=(0, 8, TYPE_MASK | IMEMO_KINDS))
            yield Ask(row, self._name_object, order=30, owning=partial(mask_ruby_flags, known.layout))
        yield Ask(TEXT_ROW, lambda key: Signature(TEXT, self.module, CONTENT), order=WEAK_ORDER)

    def _of_class(self, found: RubyObjects, kind: int, class_: int) -> Signature:
        return Signature(found.class_path(found.real_class((0, class_))) or TYPES[kind], self.module, EXACT)

    def _name_object(self, key: int) -> Optional[Signature]:
        key &= TYPE_MASK
        return Signature(TYPES[key], self.module, SHAPE) if key in TYPES else None

    def fields(self, world: CensusTarget) -> Mapping[Tuple[str, int], str]:
        # memory outside of slots: (struct RString, RArray, RHash, RObject)
        known = find_ruby_layout(world)
        if known is None:
            return {}
        tables = (16,) if known.table is None else (8 * (known.table + 3), 8 * (known.table + 6))
        own = {("String", 24): "characters", ("Array", 32): "elements", ("Object", 8 * known.variables): "variables"}
        return {**own, **{("Hash", offset): "table of a Hash" for offset in tables}}

    def lengths(self, world: CensusTarget) -> Iterable[Length]:
        own = (0, USER[2], 0)
        return (Length("String", 16, 1, 1, 24, test=own), Length("Array", 16, 0, 8, 32, test=own))

    def inner(self, world: CensusTarget) -> Sequence[Inner]:
        """Return the slots in use, by their flags, and the transient memory of young objects."""
        heap_pages = world.once(find_ruby_pages)
        if not heap_pages:
            return ()
        total = sum(page.slots * page.slot_bytes for page in heap_pages)
        used, _ = world.once(read_ruby_slots)
        free = total - sum(sum(part.usable_bytes) for part in used)
        taken = [(page.address, page.address + ruby_page_bytes(world)) for page in heap_pages]
        overhead = len(heap_pages) * ruby_page_bytes(world) - total
        memory = [Inner(iter(used), self.module, "object in a slot", taken, free, overhead, UNIT_BYTES, is_collected=True)]
        young = world.once(read_transient_heap)
        if young is not None:
            addresses, sizes = (array("Q", (piece[column] for piece in young.pieces)) for column in (0, 1))
            taken = [(block, block + BLOCK_BYTES) for block in young.blocks]
            free, overhead = young.free_bytes, len(taken) * BLOCK_BYTES - sum(sizes) - young.free_bytes
            blocks, name = iter([used_blocks(addresses, sizes)]), "transient memory of objects"
            memory.append(Inner(blocks, self.module, name, taken, free, overhead, UNIT_BYTES, is_collected=True))
        return memory

    def namer(self, world: CensusTarget) -> Optional[steps.Namer]:
        found, young = world.once(make_ruby_reader), world.once(read_transient_heap)
        top = object_class(found) if found is not None and found.symbols else None
        if found is None or top is None:
            return None
        return RubyNamer(found, top, partial(find_instances, world), [young.promoted] if young is not None else [])


def make_ruby_reader(world: CensusTarget) -> Optional[RubyObjects]:
    """Return the reader of objects; None for a layout that is not known."""
    known = find_ruby_layout(world)
    return RubyObjects(world, known, world.once(find_ruby_pages)) if known is not None else None


def read_transient_heap(world: CensusTarget) -> Optional[TransientHeap]:
    """Return the transient memory of young objects, or None."""
    found = world.once(make_ruby_reader)
    return find_transient_heap(found) if found is not None and found.layout.has_transient_heap else None


def ruby_page_bytes(world: CensusTarget) -> int:
    """Return the bytes of a heap page that was found."""
    known = world.once(find_ruby_layout)
    return known.page_bytes if known is not None else 0


def find_ruby_pages(world: CensusTarget) -> List[RubyHeapPage]:
    """Return all heap pages by address; none if their layout is not known."""
    heap_pages: List[RubyHeapPage] = []
    known = find_ruby_layout(world)
    page_size, start_word = (known.page_bytes, known.start_word) if known is not None else (0, 0)
    for mapping in world.target.mappings() if page_size else ():
        if not mapping.writable or (mapping.name and not mapping.name.startswith(ANONYMOUS)):
            continue
        for address in range(-(-mapping.start // page_size) * page_size, mapping.end - page_size + 1, page_size):
            head = world.words(address, 1)
            if head is None or not head[0] or head[0] % 8 or len(heap_pages) == MOST_PAGES:
                continue
            page = world.words(head[0], start_word + 1)
            if page is None or not address < page[start_word] < address + page_size:
                continue
            size, count = page[0] & 0xFFFF, page[0] >> 16 & 0xFFFF
            if size in SLOT_BYTES and count and page[start_word] + size * count <= address + page_size:
                heap_pages.append(RubyHeapPage(address, page[start_word], size, count))
    return heap_pages


def find_instances(world: CensusTarget, classes: Sequence[int]) -> List[int]:
    """Find objects of these classes in one pass over all slots in use."""
    found: List[int] = []
    for blocks in world.once(read_ruby_slots)[0]:
        signer = world.signer([SignatureRow([Condition(8, 8, IN_SET, 0)])], [NumberSet(classes)])
        signer.stream(iter([blocks]))
        known = [False, *(match.row == 0 for match in signer.found())]
        found.extend(compress(blocks.addresses, map(known.__getitem__, signer.labels())))
    return found


def read_ruby_slots(world: CensusTarget) -> Tuple[Sequence[NativeBlocks], Sequence[int]]:
    """Read all slots in one pass; return those that hold an object, and classes among them."""
    used: List[NativeBlocks] = []
    classes: List[int] = []
    heap_pages = world.once(find_ruby_pages)
    for place in range(0, len(heap_pages), AT_ONCE):
        runs = [(page.first_slot, page.slot_bytes, page.slots) for page in heap_pages[place : place + AT_ONCE]]
        blocks = world.cells(runs)
        is_used = Condition(0, 8, NOT_EQUAL, 0, mask=TYPE_MASK)
        signer = world.signer([SignatureRow([is_used], least_usable=SLOT_BYTES[0], key=(0, 8, TYPE_MASK))])
        signer.stream(iter([blocks]))
        labels = signer.labels()
        class_label = next((number for number, found in enumerate(signer.found(), 1) if found.row == 0 and found.key == CLASS), 0)
        if class_label:
            classes.extend(address for address, label in zip(blocks.addresses, labels) if label == class_label)
        used.append(world.cells(runs, labels))
    return used, classes


RECOGNISERS: List[Recogniser] = [Ruby()]
