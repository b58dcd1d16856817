"""Objects as a trace with a heap graph, in packets of bounded size (heap_graph.proto of https://perfetto.dev).

Field numbers: Trace packet 1; TracePacket process_tree 2, timestamp 8, trusted_packet_sequence_id 10, heap_graph 56; ProcessTree
processes 1; Process pid 1, cmdline 3; HeapGraph pid 1, objects 2, field_names 4, continued 5, index 6, roots 7, location_names 8, types 9;
HeapGraphObject id 1, type_id 2, self_size 3, reference_field_id 4, reference_object_id 5, id_delta 7; HeapGraphType id 1,
location_id 2, class_name 3, kind 7; HeapGraphRoot object_ids 1, root_type 2; InternedString iid 1, str 2.
"""

from typing import Dict, Iterable, Iterator, List, Optional

from gdbheapx.analysis.reachability import regions
from gdbheapx.extras.export import objects
from gdbheapx.extras.export.csv_rows import clean
from gdbheapx.extras.export.objects import Object, Type
from gdbheapx.extras.export.pprof import MASK, Message, varint

PACKET_BYTES = 256 << 10
"""About so many: one more object goes into a packet that is smaller."""
SEQUENCE, MOMENT = 1, 1
KIND_NORMAL = 1
UNKNOWN, NATIVE_STACK, STICKY_CLASS, THREAD_BLOCK = 0, 4, 5, 6
ROOTS = {
    regions.DATA: STICKY_CLASS,
    regions.THREAD_LOCAL: THREAD_BLOCK,
    regions.STACK: NATIVE_STACK,
    regions.REGISTERS: NATIVE_STACK,
    objects.VARIABLE: UNKNOWN,
}
"""HeapGraphRoot.Type by what holds: global variables stand for statics of classes."""
FOURTEEN = [bytes((number & 0x7F | 0x80, number >> 7 | 0x80)) for number in range(1 << 14)]
"""Two bytes of a varint that goes on."""


def long_varint(number: int) -> bytes:
    """The same as varint(), faster for an address."""
    if number < 1 << 42:
        return varint(number)
    return FOURTEEN[number & 0x3FFF] + FOURTEEN[number >> 14 & 0x3FFF] + FOURTEEN[number >> 28 & 0x3FFF] + varint(number >> 42)


class Writer:
    """Packets as they come together."""

    def __init__(self, pid: int) -> None:
        self._pid, self._index, self._last_id = pid, 0, 0
        self._field_bytes: Dict[str, bytes] = {}
        self._places: Dict[str, int] = {}
        self._types: Dict[Type, bytes] = {}
        self._roots: Dict[int, List[int]] = {}
        self._graph = Message()
        self._open = bytearray()

    def _string(self, number: int, text: str) -> Message:
        return Message().number(1, number).data(2, clean(text).encode("utf-8"))

    def _field(self, name: str) -> bytes:
        found = self._field_bytes.get(name)
        if found is None:
            number = len(self._field_bytes) + 1
            found = self._field_bytes[name] = varint(number)
            self._graph.message(4, self._string(number, name))
        return found

    def _type(self, type_: Type) -> bytes:
        found = self._types.get(type_)
        if found is None:
            number = len(self._types) + 1
            found = self._types[type_] = varint(number)
            made = Message().number(1, number)
            if type_.module:
                place = self._places.get(type_.module)
                if place is None:
                    place = self._places[type_.module] = len(self._places) + 1
                    self._graph.message(8, self._string(place, type_.module))
                made.number(2, place)
            self._graph.message(9, made.data(3, clean(type_.name or "?").encode("utf-8")).number(7, KIND_NORMAL))
        return found

    def add(self, one: Object) -> Optional[bytes]:
        """Take in an object; a packet, where one is full."""
        away = one.id - self._last_id & MASK
        known = b"\x08" + long_varint(one.id) if one.id < self._last_id or not self._last_id else b"\x38" + varint(away)
        self._last_id = one.id
        parts = [known, b"\x10", self._type(one.type)]
        if one.size_bytes:
            parts += (b"\x18", varint(one.size_bytes))
        if one.references:
            fields = b"".join([self._field(name) for name, _ in one.references])
            targets = b"".join([long_varint(target) for _, target in one.references])
            parts += (b"\x22", varint(len(fields)), fields, b"\x2a", varint(len(targets)), targets)
        made = b"".join(parts)
        self._open += b"\x12" + varint(len(made)) + made
        if one.root is not None:
            self._roots.setdefault(ROOTS[one.root], []).append(one.id)
        return self._packet(True) if len(self._open) > PACKET_BYTES else None

    def end(self) -> bytes:
        """The last packet, with the roots."""
        for kind, ids in sorted(self._roots.items()):
            self._graph.message(7, Message().numbers(1, ids).number(2, kind))
        return self._packet(False)

    def _packet(self, goes_on: bool) -> bytes:
        graph = Message().number(1, self._pid).number(5, int(goes_on)).number(6, self._index).encoded()
        graph += self._graph.encoded() + bytes(self._open)
        self._index, self._last_id = self._index + 1, 0
        self._graph, self._open = Message(), bytearray()
        return packet(Message().data(56, graph))


def packet(content: Message) -> bytes:
    """As it stands in a trace."""
    return Message().message(1, content.number(8, MOMENT).number(10, SEQUENCE)).encoded()


def pieces(found: Iterable[Object], pid: int, command: str) -> Iterator[bytes]:
    """The trace: the process's name, then the graph."""
    process = Message().number(1, pid).data(3, clean(command).encode("utf-8"))
    yield packet(Message().message(2, Message().message(1, process)))
    writer = Writer(pid)
    for one in found:
        full = writer.add(one)
        if full is not None:
            yield full
    yield writer.end()
