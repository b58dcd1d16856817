"""Stacks as a profile for pprof: profile.proto, compressed (https://github.com/google/pprof, proto/profile.proto); and the graph of blocks
as a trace with a heap graph, in packets of bounded size (heap_graph.proto of https://perfetto.dev). An object of that is each block by
itself, or, where these are too many, all with the same owners.

Field numbers: Profile sample_type 1, sample 2, mapping 3, location 4, function 5, string_table 6, period_type 11, period 12,
default_sample_type 14; ValueType type 1, unit 2; Sample location_id 1, value 2; Mapping id 1, memory_start 2, memory_limit 3,
file_offset 4, filename 5, build_id 6, has_functions 7; Location id 1, mapping_id 2, address 3, line 4; Line function_id 1;
Function id 1, name 2, system_name 3, filename 4.

Trace packet 1; TracePacket process_tree 2, timestamp 8, trusted_packet_sequence_id 10, heap_graph 56; ProcessTree processes 1; Process
pid 1, cmdline 3; HeapGraph pid 1, objects 2, field_names 4, continued 5, index 6, roots 7, location_names 8, types 9; HeapGraphObject
id 1, type_id 2, self_size 3, reference_field_id 4, reference_object_id 5, id_delta 7; HeapGraphType id 1, location_id 2, class_name 3,
kind 7; HeapGraphRoot object_ids 1, root_type 2; InternedString iid 1, str 2.

Protocol buffers, as much as is needed to write a message (https://protobuf.dev/programming-guides/encoding).
"""

import gzip
from array import array
from bisect import bisect_right
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.views.query.csv_rows import clean_name
from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census import find, owned
from gdbheapx.analysis.census.owned import CodeImage, OwnerFrame, OwnerStack
from gdbheapx.analysis.reachability import dominance, heap_graph
from gdbheapx.common import problems
from gdbheapx.common.hints import hint_command
from gdbheapx.common.units import count_noun, format_number
from gdbheapx.kernel.blocks.graph import EXACT_SLOT, NO_SLOT

KINDS = (
    ("objects", "count", "blocks"),
    ("space", "bytes", "bytes"),
    ("resident_space", "bytes", "resident_bytes"),
    ("swapped_space", "bytes", "swapped_bytes"),
    ("fragmentation", "bytes", "kept_bytes"),
)
"""Types of values, their units, and the fields of a Stack; the names are those of other heap profiles."""
VARINT, LENGTH = 0, 2
"""Wire types."""
MASK = (1 << 64) - 1
NOWHERE = "[unknown]"
"""The mapping of code that is in no mapped file, and of what is no module's: each location has one."""


def encode_varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; a negative one as 64 bits."""
    number &= MASK
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class Message:
    """Fields in the order in which they are written; a number that is 0 is left out, as proto3 has it."""

    def __init__(self) -> None:
        self._out = bytearray()

    def number(self, field: int, value: int) -> "Message":
        """int64, uint64, bool."""
        if value:
            self._out += encode_varint(field << 3 | VARINT) + encode_varint(value)
        return self

    def numbers(self, field: int, values: Iterable[int]) -> "Message":
        """A repeated one, packed."""
        return self.data(field, b"".join(map(encode_varint, values)))

    def data(self, field: int, value: bytes) -> "Message":
        """bytes, or a string in UTF-8; also an empty one."""
        self._out += encode_varint(field << 3 | LENGTH) + encode_varint(len(value)) + value
        return self

    def message(self, field: int, value: "Message") -> "Message":
        """A message within this one."""
        return self.data(field, value.encoded())

    def encoded(self) -> bytes:
        """Return the encoded message."""
        return bytes(self._out)


ProfileMapping = Tuple[str, int, int, int, str, bool]
"""A mapping in the profile: name, start, end, offset, build id, and whether its functions have names; pprof finds those of an image."""


class PprofWriter:
    """A profile as it comes together."""

    def __init__(self, images: Sequence[CodeImage], stacks: Sequence[OwnerStack] = ()) -> None:
        self._kinds = [kind for kind in KINDS if kind in KINDS[:2] or any(getattr(stack, kind[2]) is not None for stack in stacks)]
        """What is unknown has no column."""
        self._images = sorted(images, key=lambda image: image.start)
        self._starts = [image.start for image in self._images]
        self._build_ids = {image.name.rsplit("/", 1)[-1]: image.build_id or "" for image in reversed(self._images)}
        self._strings: Dict[str, int] = {"": 0}
        self._mappings: Dict[ProfileMapping, int] = {}
        self._functions: Dict[OwnerFrame, int] = {}
        self._locations: Dict[OwnerFrame, int] = {}
        self._parts: Dict[int, List[Message]] = {}
        """Messages by the profile's field."""

    def text(self, text: str) -> int:
        """Its place in the table of strings."""
        return self._strings.setdefault(clean_name(text), len(self._strings))

    def _add_message(self, field: int, made: Message) -> None:
        self._parts.setdefault(field, []).append(made)

    def mapping(self, place: ProfileMapping) -> int:
        """Its number."""
        number = self._mappings.get(place)
        if number is None:
            number = self._mappings[place] = len(self._mappings) + 1
            name, start, end, offset, build_id, has_functions = place
            made = Message().number(1, number).number(2, start).number(3, end).number(4, offset)
            made.number(5, self.text(name)).number(6, self.text(build_id)).number(7, int(has_functions))
            self._add_message(3, made)
        return number

    def map_image(self, image: CodeImage) -> int:
        """Return the number of the mapping of an image with code."""
        return self.mapping((image.name, image.start, image.end, image.offset, image.build_id or "", False))

    def location(self, frame: OwnerFrame) -> int:
        """Its number."""
        number = self._locations.get(frame)
        if number is None:
            number = self._locations[frame] = len(self._locations) + 1
            place = bisect_right(self._starts, frame.address or 0) - 1
            if frame.address is None:
                mapping = self.mapping((frame.module or NOWHERE, 0, 0, 0, self._build_ids.get(frame.module, ""), True))
            elif place < 0 or frame.address >= self._images[place].end:
                mapping = self.mapping((NOWHERE, 0, 0, 0, "", False))
            else:
                mapping = self.map_image(self._images[place])
            made = Message().number(1, number).number(2, mapping).number(3, frame.address or 0)
            if frame.name:
                function = self._functions[frame] = len(self._functions) + 1
                name = self.text(frame.name)
                self._add_message(5, Message().number(1, function).number(2, name).number(3, name).number(4, self.text(frame.module)))
                made.message(4, Message().number(1, function))
            self._add_message(4, made)
        return number

    def sample(self, stack: OwnerStack) -> None:
        """Add one stack: pprof has the innermost frame first."""
        values = [getattr(stack, field) or 0 for _, _, field in self._kinds]
        self._add_message(2, Message().numbers(1, map(self.location, reversed(stack.frames))).numbers(2, values))

    def encoded(self, period: int) -> bytes:
        """The profile."""
        whole = Message()
        types = [Message().number(1, self.text(kind)).number(2, self.text(unit)) for kind, unit, _ in self._kinds]
        default = self.text("space")
        for type_ in types:
            whole.message(1, type_)
        for field in (2, 3, 4, 5):
            for part in self._parts.get(field, ()):
                whole.message(field, part)
        for text in self._strings:
            whole.data(6, text.encode("utf-8"))
        whole.message(11, types[1]).number(12, period).number(14, default)
        return whole.encoded()


def encode_stacks(stacks: Sequence[OwnerStack], images: Sequence[CodeImage], period: Optional[int] = None) -> bytes:
    """The file. `images`: what is mapped; `period`: bytes between two samples, None where every block was counted."""
    writer = PprofWriter(images, stacks)
    if images and any(frame.address is not None for stack in stacks for frame in stack.frames):
        writer.map_image(images[0])  # the first one is the program to pprof
    for stack in stacks:
        if stack.blocks or stack.bytes or stack.kept_bytes:
            writer.sample(stack)
    return gzip.compress(writer.encoded(period or 1), mtime=0)


MOST_OBJECTS = 2_000_000
"""A viewer keeps all of them in memory, and in tables."""
CHECK_EVERY = 1 << 14
UNNAMED = 1 << 62
"""Numbers of objects that have no address begin here."""
MAPPING, VARIABLE = "mapping", "variable"
PACKET_BYTES = 256 << 10
"""About so many: one more object goes into a packet that is smaller."""
SEQUENCE, MOMENT = 1, 1
KIND_NORMAL = 1
UNKNOWN, NATIVE_STACK, STICKY_CLASS, THREAD_BLOCK = 0, 4, 5, 6
ROOTS = {
    heap_graph.DATA: STICKY_CLASS,
    heap_graph.THREAD_LOCAL: THREAD_BLOCK,
    heap_graph.MANAGED: STICKY_CLASS,
    heap_graph.STACK: NATIVE_STACK,
    heap_graph.REGISTERS: NATIVE_STACK,
    VARIABLE: UNKNOWN,
}
"""HeapGraphRoot.Type by holder: global variables count as statics of classes."""
FOURTEEN = [bytes((number & 0x7F | 0x80, number >> 7 | 0x80)) for number in range(1 << 14)]
"""Two bytes of a varint that goes on."""


Type = Tuple[str, str]
"""(name, module)."""


class PerfettoObject(NamedTuple):
    """A node of the graph."""

    id: int
    """Its address, where it has one."""
    type: Type
    size_bytes: int
    references: Sequence[Tuple[str, int]]
    """(field, id of the object that it points to)."""
    root: Optional[str] = None
    """Of a root: DATA, THREAD_LOCAL, STACK or REGISTERS of reach/regions.py, or VARIABLE for what is gathered below one."""


def find_objects(session: Session, is_gathered: bool) -> Iterator[PerfettoObject]:
    """Yield all objects, one by one. The process runs on once this has begun. `is_gathered`: group blocks by owners, whatever their
    number.
    """
    if not is_gathered:
        heap_graph.check_owners_fit(session)
        session.without_keys = True
        told = find.label_blocks(session, lambda graph: None, is_cut=True, contents=True)
        tallied = dominance.tally_owners(session, told.reach, told.called, told.paths)
        count = tallied.graph.nodes
        if count <= MOST_OBJECTS:
            return each_block_object(session, told, tallied)
        what = "%s objects are more than a viewer shows (%s): those with the same owners are one" % (
            format_number(count),
            format_number(MOST_OBJECTS),
        )
        session.problem(problems.OBJECTS_GATHERED, None, what, "a part of them: %s" % hint_command("owners --of ADDR"), partial=False)
        return each_gathered_object(owned.paths_of(session, told, tallied).stacks())
    return each_gathered_object(owned.find_paths(session).stacks())


def each_block_object(session: Session, told: find.LabelSet, tallied: dominance.OwnerTally) -> Iterator[PerfettoObject]:
    """Every node of the graph: blocks, mappings, and roots by variable."""
    reach, graph, word = told.reach, tallied.graph, told.reach.word_bytes
    blocks = reach.numbers.blocks
    addresses, sizes = graph.columns(array("I", range(blocks)))
    names = [None if name is None else (name.name, name.module) for name in told.names]
    ids: Sequence[int] = addresses
    others: List[int] = []
    taken = set()
    for node in range(blocks, graph.nodes):
        address = tallied.address(node)
        is_free = address is not None and int(address) not in taken
        others.append(int(address) if is_free and address is not None else UNNAMED + node)
        taken.add(others[-1])
    fields: Dict[int, str] = {}

    def name_field(slot: int) -> str:
        return fields.setdefault(slot, "+0x%x" % (slot * word) if slot != NO_SLOT else "?")

    session.budget.progress.stage = "writing objects"
    by_size: Dict[int, Type] = {}
    for node, edges in enumerate(graph.each_edges(0, blocks)):
        if not node % CHECK_EVERY:
            heap_graph.check_time(session)
        label = told.labels[node]
        type_ = names[label - 1] if label else None
        if type_ is None:
            size = sizes[node]
            type_ = by_size.get(size)
            if type_ is None:
                type_ = by_size[size] = ("%d bytes" % size, "")
        references = [
            (fields.get(slot) or name_field(slot), ids[target] if target < blocks else others[target - blocks]) for target, slot in edges
        ]
        yield PerfettoObject(addresses[node], type_, sizes[node], references)
    for node in range(blocks, graph.nodes):
        yield _make_outside_object(tallied, node, ids, others, blocks, word)


def _make_outside_object(
    tallied: dominance.OwnerTally, node: int, ids: Sequence[int], others: Sequence[int], blocks: int, word: int
) -> PerfettoObject:
    """A mapping, or a root."""
    reach = tallied.reach
    kind, module, first = None, "", 0
    if node >= reach.roots_from:
        part = tallied.parts[node - reach.roots_from]
        kind = part.kind
        if part.module is not None:
            module = part.module.shown_name
        if part.slot != NO_SLOT:
            variable = None
            if kind == heap_graph.DATA and part.module is not None:
                variable = tallied.names.variable(part.module, part.start + part.slot * word)
            first = variable.start - part.start if variable is not None else part.slot * word
    references = []
    for edge in tallied.graph.edges(node):
        is_known = edge.slot < EXACT_SLOT
        name = "+0x%x" % (edge.slot * word - first) if is_known else "stack pointer" if edge.slot < NO_SLOT else "?"
        references.append((name, ids[edge.node] if edge.node < blocks else others[edge.node - blocks]))
    return PerfettoObject(others[node - blocks], (tallied.name(node), module), 0, references, kind)


def each_gathered_object(stacks: Sequence[OwnerStack]) -> Iterator[PerfettoObject]:
    """An object for each frame below its own owners: what it has, and what it owns."""
    below: Dict[Tuple[OwnerFrame, ...], List[Tuple[OwnerFrame, ...]]] = {}
    own: Dict[Tuple[OwnerFrame, ...], OwnerStack] = {}
    for stack in stacks:
        own[stack.frames] = stack
        for depth in range(1, len(stack.frames) + 1):
            frames = stack.frames[:depth]
            if frames in below:
                continue
            below[frames] = []
            if depth > 1:
                below[frames[:-1]].append(frames)
    numbers = {frames: number for number, frames in enumerate(below, 1)}
    nothing: Any = OwnerStack((), 0, 0)
    for frames, children in below.items():
        mine = own.get(frames, nothing)
        name = frames[-1].name if mine.blocks < 2 else "%s (%s)" % (frames[-1].name, count_noun(mine.blocks, "block"))
        references = [("owns", numbers[child]) for child in children]
        yield PerfettoObject(numbers[frames], (name, frames[-1].module), mine.bytes, references, VARIABLE if len(frames) == 1 else None)


def long_varint(number: int) -> bytes:
    """Encode like encode_varint(), but faster for an address."""
    if number < 1 << 42:
        return encode_varint(number)
    return FOURTEEN[number & 0x3FFF] + FOURTEEN[number >> 14 & 0x3FFF] + FOURTEEN[number >> 28 & 0x3FFF] + encode_varint(number >> 42)


def _make_packet(content: Message) -> bytes:
    return Message().message(1, content.number(8, MOMENT).number(10, SEQUENCE)).encoded()


class PerfettoWriter:
    """Packets as they come together."""

    def __init__(self, pid: int) -> None:
        self._pid, self._index, self._last_id = pid, 0, 0
        self._field_bytes: Dict[str, bytes] = {}
        self._places: Dict[str, int] = {}
        self._types: Dict[Type, bytes] = {}
        self._roots: Dict[int, List[int]] = {}
        self._graph = Message()
        self._open = bytearray()

    def _make_string(self, number: int, text: str) -> Message:
        return Message().number(1, number).data(2, clean_name(text).encode("utf-8"))

    def _number_field(self, name: str) -> bytes:
        data = self._field_bytes.get(name)
        if data is None:
            number = len(self._field_bytes) + 1
            data = self._field_bytes[name] = encode_varint(number)
            self._graph.message(4, self._make_string(number, name))
        return data

    def _number_type(self, type_: Type) -> bytes:
        data = self._types.get(type_)
        if data is None:
            (name, module), number = type_, len(self._types) + 1
            data = self._types[type_] = encode_varint(number)
            made = Message().number(1, number)
            if module:
                place = self._places.get(module)
                if place is None:
                    place = self._places[module] = len(self._places) + 1
                    self._graph.message(8, self._make_string(place, module))
                made.number(2, place)
            self._graph.message(9, made.data(3, clean_name(name or "?").encode("utf-8")).number(7, KIND_NORMAL))
        return data

    def add(self, object_: PerfettoObject) -> Optional[bytes]:
        """Take in an object; a packet, where one is full."""
        away = object_.id - self._last_id & MASK
        known = b"\x08" + long_varint(object_.id) if object_.id < self._last_id or not self._last_id else b"\x38" + encode_varint(away)
        self._last_id = object_.id
        parts = [known, b"\x10", self._number_type(object_.type)]
        if object_.size_bytes:
            parts += (b"\x18", encode_varint(object_.size_bytes))
        if object_.references:
            fields = b"".join([self._number_field(name) for name, _ in object_.references])
            targets = b"".join([long_varint(target) for _, target in object_.references])
            parts += (b"\x22", encode_varint(len(fields)), fields, b"\x2a", encode_varint(len(targets)), targets)
        made = b"".join(parts)
        self._open += b"\x12" + encode_varint(len(made)) + made
        if object_.root is not None:
            self._roots.setdefault(ROOTS[object_.root], []).append(object_.id)
        return self._end_packet(True) if len(self._open) > PACKET_BYTES else None

    def end(self) -> bytes:
        """The last packet, with the roots."""
        for kind, ids in sorted(self._roots.items()):
            self._graph.message(7, Message().numbers(1, ids).number(2, kind))
        return self._end_packet(False)

    def _end_packet(self, goes_on: bool) -> bytes:
        graph = Message().number(1, self._pid).number(5, int(goes_on)).number(6, self._index).encoded()
        graph += self._graph.encoded() + bytes(self._open)
        self._index, self._last_id = self._index + 1, 0
        self._graph, self._open = Message(), bytearray()
        return _make_packet(Message().data(56, graph))


def trace_pieces(objects: Iterable[PerfettoObject], pid: int, command: str) -> Iterator[bytes]:
    """The trace: the process's name, then the graph."""
    process = Message().number(1, pid).data(3, clean_name(command).encode("utf-8"))
    yield _make_packet(Message().message(2, Message().message(1, process)))
    writer = PerfettoWriter(pid)
    for object_ in objects:
        full = writer.add(object_)
        if full is not None:
            yield full
    yield writer.end()
