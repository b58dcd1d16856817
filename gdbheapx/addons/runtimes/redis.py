"""Redis and those that come from it: objects, entries of its dicts, and what these own.

Tried with 7.0 (server.h: robj; dict.h: dictEntry, dict; sds.h). A string of its own (sds) is pointed to behind its header of 1, 3, 5, 9 or
17 bytes: such pointers are odd, which nothing else is.
"""

from typing import Iterable, List, Mapping, Optional, Sequence, Tuple

from gdbheapx.analysis.census.containers import MOST_COUNT, Containers, ContainerWords, spare_bytes_beyond
from gdbheapx.analysis.census.world import EXACT, SHAPE, Ask, Length, Recogniser, Signature, World
from gdbheapx.kernel.blocks.signatures import ADDRESS, AT_LEAST, AT_MOST, EQUAL, IN_RANGES, IN_SET, Condition, NumberSet, SignatureRow

ENTRY, DICT, RAW = "dict entry", "dict", "string object"
EMBEDDED = "string object with its bytes"
NUMBER = 0x10
OBJECTS = {
    NUMBER: "string object (number)",
    0x91: "list object (quicklist)",
    0xB1: "list object (listpack)",
    0x22: "set object (dict)",
    0x62: "set object (intset)",
    0xB2: "set object (listpack)",
    0x73: "sorted set object (skiplist)",
    0x53: "sorted set object (ziplist)",
    0xB3: "sorted set object (listpack)",
    0x24: "hash object (dict)",
    0x54: "hash object (ziplist)",
    0xB4: "hash object (listpack)",
    0xA6: "stream object",
}
"""By type and encoding (server.h: OBJ_LIST and so on, OBJ_ENCODING_INT and so on)."""
MOST_ADDRESS = 1 << 47
HEADS = NumberSet((1, 3, 5, 9))
"""Of strings, in bytes: where pointers to them lead, modulo 16."""
LEAST_BLOCKS = 64
"""Of one sort: the dict of its commands alone has hundreds of entries; a few of another program's blocks fit as well."""
LEAST_DICTS = 8
"""Each database has two, and so has each of its tables of commands and scripts."""
BODIES = ("quicklist", "listpack", "intset", "ziplist")
HEAP, HEADS_SET, COUNTS_SET, LAST_SET = range(4)
"""Sets of each row: what can be written to, HEADS, COUNTS, and one of its own."""
COUNTS = NumberSet((1, 0x7FFFFFFF))
"""References to an object: to all but shared ones there is one."""


def pointer(at: int) -> Condition:
    """To something that can be written to."""
    return Condition(at, 8, IN_RANGES, HEAP)


def string(at: int) -> List[Condition]:
    """A pointer to one."""
    return [pointer(at), Condition(at, 1, IN_SET, HEADS_SET, mask=0xF)]


class Redis(Recogniser):
    """Objects, dicts and their entries."""

    module, objects = "redis", ("redis", "valkey", "keydb")

    def asks(self, world: World) -> Iterable[Ask]:
        """An embedded string begins 19 bytes into its object's block; the others are 16 bytes large."""
        writable = [(mapping.start, mapping.end) for mapping in world.target.mappings() if mapping.writable]
        sets = [NumberSet(ranges=writable), HEADS, COUNTS]
        counted = Condition(4, 4, IN_SET, COUNTS_SET)
        embedded = [Condition(0, 1, EQUAL, 0x80), counted, Condition(8, 8, EQUAL, 19, ADDRESS), Condition(18, 1, EQUAL, 1)]
        yield self._ask(embedded, (20, 128), EMBEDDED, sets, 1, EXACT)
        yield self._ask([Condition(0, 1, EQUAL, 0), counted, *string(8)], (16, 24), RAW, sets)
        yield self._ask([Condition(0, 1, EQUAL, NUMBER), counted, Condition(0, 4, AT_LEAST, 1 << 8)], (16, 24), OBJECTS[NUMBER], sets)
        for kind in sorted(OBJECTS):
            if kind != NUMBER:
                yield self._ask([Condition(0, 1, EQUAL, kind), counted, pointer(8)], (16, 24), OBJECTS[kind], sets, 1)
        entry = [*string(0), Condition(16, 8, EQUAL, 0, mask=7), Condition(16, 8, AT_MOST, MOST_ADDRESS)]
        yield self._ask(entry, (24, 32), ENTRY, sets)
        data = [(start, start + len(content)) for module in world.modules()[:1] for start, content in world.data(module)]
        types = [Condition(0, 8, IN_RANGES, LAST_SET), pointer(8), Condition(24, 8, AT_MOST, MOST_ADDRESS)]
        yield self._ask(types, (56, 64), DICT, [*sets, NumberSet(ranges=sorted(data))], LEAST_DICTS)

    def lengths(self, world: World) -> Iterable[Length]:
        """Of strings in their object's block (sdshdr8: the length, behind the object)."""
        return (Length(EMBEDDED, 16, 20, length_bytes=1),)

    def read_container(self, containers: Containers, at: int, these: Sequence[int]) -> Optional[ContainerWords]:
        """Read a dict: type, two tables, how many in each, where rehashing is, and the tables' sizes as powers of two; up to 6.2 type,
        private data, and twice table, size, mask, how many."""
        if len(these) < 7:
            return None
        if these[1] and 0 < these[3] < MOST_COUNT and these[2] == these[4] == 0 and these[5] == (1 << 64) - 1:
            power = these[6] >> 16 & 0xFF
            if power < 40 and containers.fits(these[1], 8 << power):
                return ContainerWords("dict", 7, these[3], None, spare_bytes_beyond(8 << power, 8 * these[3]))
        is_old = these[3] and these[4] == these[3] - 1 and not these[3] & these[4] and 0 < these[5] < MOST_COUNT
        if not is_old or not containers.fits(these[2], 8 * these[3]):
            return None
        return ContainerWords("dict", 11, these[5], None, spare_bytes_beyond(8 * these[3], 8 * these[5]))

    def _ask(
        self,
        conditions: Sequence[Condition],
        usable: Tuple[int, int],
        name: str,
        sets: Sequence[NumberSet],
        least: int = LEAST_BLOCKS,
        sure: str = SHAPE,
    ) -> Ask:
        row = SignatureRow(conditions, least_usable=usable[0], most_usable=usable[1])
        return Ask(row, lambda key: Signature(name, self.module, sure), sets, 35, least_blocks=least)

    def fields(self, world: World) -> Mapping[Tuple[str, int], str]:
        """Strings of keys and values, tables of dicts, and what objects consist of."""
        names = {
            (ENTRY, 0): "key (sds)",
            (ENTRY, 8): "value",
            (RAW, 8): "value (sds)",
            (DICT, 8): "table of a dict",
            (DICT, 16): "table of a dict",
        }
        for name in OBJECTS.values():
            kind = name.partition("(")[2].rstrip(")")
            if kind in BODIES:
                names[name, 8] = kind
        return names


RECOGNISERS: List[Recogniser] = [Redis()]
