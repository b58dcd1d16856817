"""Some scalars of a struct at once: for structs of which a process has thousands, where a look-up for each member would cost more than the
read."""

import struct
from typing import List, Optional, Sequence, Tuple

from gdbheapx.inferior.types import Member, TypeSet

LETTERS = {1: "B", 2: "H", 4: "I", 8: "Q"}


class Picker:
    """Unpacks chosen members from the bytes of one kind of struct."""

    def __init__(self, types: TypeSet, name: str, wanted: Sequence[Tuple[str, ...]], little_endian: bool) -> None:
        """`wanted`: for each number the paths it may have, newest first. What this build has not is None in every answer."""
        places = [_place(types, name, paths) for paths in wanted]
        offsets = [place.offset if place is not None else -1 for place in places]
        order = sorted(range(len(places)), key=lambda number: offsets[number])
        shape, at = "<" if little_endian else ">", 0
        self._from: List[Optional[int]] = [None] * len(wanted)
        count = 0
        for number in order:
            place = places[number]
            if place is None:
                continue
            letter = LETTERS[place.size_bytes]
            shape += "%dx%s" % (place.offset - at, letter.lower() if place.signed else letter)
            at = place.offset + place.size_bytes
            self._from[number] = count
            count += 1
        self._struct = struct.Struct(shape)
        self.addresses = [None if place is None else place.offset for place in places]
        """Offset of each member that was wanted."""

    def columns(self, data: bytes, stride_bytes: int) -> List[Optional[Sequence[int]]]:
        """Each of the wanted numbers of every struct in an array; empty where there is no struct."""
        padded = struct.Struct("%s%dx" % (self._struct.format, stride_bytes - self._struct.size))
        found: List[Sequence[int]] = list(zip(*padded.iter_unpack(data[: len(data) // stride_bytes * stride_bytes])))
        return [None if place is None else found[place] if found else () for place in self._from]

    def pick(self, data: bytes) -> List[Optional[int]]:
        """The numbers in the order in which they were wanted."""
        found = self._struct.unpack_from(data)
        return [None if place is None else found[place] for place in self._from]


def _place(types: TypeSet, name: str, paths: Sequence[str]) -> Optional[Member]:
    path = types.first(name, *paths)
    return None if path is None else types.place(name, path)
