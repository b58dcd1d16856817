"""Stacks as a profile for pprof: profile.proto, compressed (https://github.com/google/pprof, proto/profile.proto).

Field numbers: Profile sample_type 1, sample 2, mapping 3, location 4, function 5, string_table 6, period_type 11, period 12,
default_sample_type 14; ValueType type 1, unit 2; Sample location_id 1, value 2; Mapping id 1, memory_start 2, memory_limit 3,
file_offset 4, filename 5, build_id 6, has_functions 7; Location id 1, mapping_id 2, address 3, line 4; Line function_id 1;
Function id 1, name 2, system_name 3, filename 4.

Protocol buffers, as much as is needed to write a message (https://protobuf.dev/programming-guides/encoding).
"""

import gzip
from bisect import bisect_right
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

from gdbheapx.analysis.census.owned import CodeImage, OwnerFrame, OwnerStack
from gdbheapx.report.encodings import clean_name

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
