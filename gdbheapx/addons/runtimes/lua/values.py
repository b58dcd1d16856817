"""Values of PUC Lua 5.3 and 5.4 as they lie in memory: tables, strings, functions with what they have captured, and frames that run.

Layouts: lobject.h, lstate.h, ltable.c, with 64-bit pointers and numbers as luaconf.h has them by default.
"""

from struct import pack, unpack
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.analysis.census.world import World
from gdbheapx.kernel.blocks.signatures import ADDRESS, AT_LEAST, AT_MOST, EQUAL, IN_RANGES, Condition, NumberSet, SignatureRow

SHORT, LONG, TABLE, LUA_FUNCTION, C_FUNCTION, USERDATA, THREAD, UPVALUE_OBJECT = 0x04, 0x14, 0x05, 0x06, 0x26, 0x07, 0x08, 0x09
"""Types with their variants (lobject.h), as in the object's head {next, tt, marked}."""
COLLECTED = 0x40
"""BIT_ISCOLLECTABLE, of the type in a value: the value is a pointer."""
STRINGS = (SHORT, LONG)
NUMBERS, BOOLEANS = (0x03, 0x13), (0x01, 0x11)
"""Of 5.4 an integer, a float; false, true. 5.3 has them the other way round, and one type for both."""
MOST_LOG = 30
"""Of lsizenode (ltable.c: MAXHBITS)."""
NILS = (0x00, 0x10, 0x20)
TEXT = 24
"""Of a TString {head, extra, shrlen, hash, lnglen or hnext, characters}: where these begin."""
ARRAY_AT, NODE_AT, METATABLE_AT = 16, 24, 40
"""Of a Table {head, flags, lsizenode, alimit, array, node, lastfree, metatable, gclist}."""
VALUE_BYTES = 16
PROTO_AT, CAPTURED_AT = 24, 32
"""Of an LClosure {head, nupvalues, gclist, p, upvals}, and of a CClosure {..., f, upvalue}."""
REGISTRY_AT = 64
"""Of global_State."""
EXTRA_BYTES = 8
"""LUA_EXTRASPACE: what a block has before its lua_State."""
GLOBAL_AT, CALL_AT = 24, 32
"""Of lua_State: l_G and ci."""
MOST_WORDS, MOST_TEXT, MOST_FRAMES, MOST_NAMES, MOST_STATES = 1 << 22, 4096, 10_000, 1 << 16, 64
STATE_ROW = SignatureRow(
    [
        Condition(EXTRA_BYTES + 8, 1, EQUAL, THREAD),
        Condition(EXTRA_BYTES + GLOBAL_AT, 8, AT_LEAST, 128, ADDRESS),
        Condition(EXTRA_BYTES + GLOBAL_AT, 8, AT_MOST, 512, ADDRESS),
    ],
    *(640, 4096),
    key=(EXTRA_BYTES + GLOBAL_AT, 8, (1 << 64) - 1),
)
"""The block of lua_newstate {extra space, lua_State of the main thread, global_State}."""

COROUTINE_ROW = SignatureRow(
    [Condition(EXTRA_BYTES + 8, 1, EQUAL, THREAD), *(Condition(EXTRA_BYTES + at, 8, IN_RANGES, 0) for at in (GLOBAL_AT, CALL_AT, 48))],
    *(192, 256),
    key=(EXTRA_BYTES + 48, 8, (1 << 64) - 1),
)
"""The block of lua_newthread {extra space, lua_State}; a pointer into its stack distinguishes them."""
MOST_COROUTINES = 1000
"""Whose variables have names."""


class LuaLayout(NamedTuple):
    """Offsets that differ between releases."""

    name: str
    """What the interpreter calls itself: `_VERSION`."""
    node_bytes: int
    key_tt: int
    """Of a node, in which the value comes first: type and value of the key."""
    key: int
    proto: int
    """Type of a Proto; then, in it, k, code, p, upvalues, locvars and source, and its size."""
    code: int
    upvalues: int
    locals: int
    locals_size: int
    source: int
    line: int
    owning: Tuple[int, ...]
    """Words of a Proto that lead to what belongs to it."""
    proto_bytes: int
    integer: int
    """Type of a number that is one."""
    captured: int
    """Of an UpVal: where the value is once its variable is gone; the pointer to the value lies 8 or 16 bytes before that."""
    captured_pointer: int
    stack: int
    """Of lua_State."""
    next_operation: int
    """Of CallInfo {func, top, previous, next, ...}: savedpc."""
    base: Optional[int]
    """Of CallInfo: where its variables begin; None: after the function."""
    user_metatable: int
    user_values: Optional[int]


LAYOUTS = (
    LuaLayout("Lua 5.4", 24, 9, 16, 10, 64, 80, 104, 36, 112, 44, (7, 9, 14), 128, 0x03, 24, 16, 48, 32, None, 24, 40),
    LuaLayout("Lua 5.3", 32, 24, 16, 9, 56, 88, 80, 36, 104, 40, (6, 8, 13), 120, 0x13, 16, 0, 56, 40, 32, 16, None),
)


class LuaValue(NamedTuple):
    """TValue."""

    type: int
    data: int

    @property
    def is_object(self) -> bool:
        """Return True for a pointer to a collected object."""
        return bool(self.type & COLLECTED)

    @property
    def kind(self) -> int:
        return self.type & 0x3F


class LuaTable(NamedTuple):
    """A Table."""

    address: int
    array: int
    length: int
    """Of the array."""
    nodes: int
    places: int
    """Of nodes, in use or not."""
    metatable: int


class LuaState(NamedTuple):
    """Interpreter with its registry and coroutines."""

    block: int
    globals_at: int
    """global_State."""
    state: int
    """lua_State of the main thread."""
    registry: LuaTable
    globals: LuaTable
    layout: LuaLayout
    stack: int
    coroutines: Sequence[int] = ()
    """lua_States of the others."""


class LuaValues:
    """Reads values of one interpreter."""

    def __init__(self, world: World, layout: LuaLayout) -> None:
        self._world, self.layout = world, layout
        self._weak: Dict[int, bool] = {}
        """By metatable."""

    def words(self, address: int, count: int) -> Sequence[int]:
        """Return so many words; empty if they cannot all be read."""
        if not 0 < address < 1 << 47 or address % 8 or not 0 < count <= MOST_WORDS:
            return ()
        data = self._world.read(address, 8 * count)
        return unpack("<%dQ" % count, data) if len(data) == 8 * count else ()

    def kind(self, address: int) -> int:
        words = self.words(address, 2)
        return words[1] & 0xFF if words else 0

    def value(self, address: int) -> LuaValue:
        """Return the TValue at the address."""
        words = self.words(address, 2)
        return LuaValue(words[1] & 0xFF, words[0]) if words else LuaValue(0, 0)

    def text(self, address: int, most: int = MOST_TEXT) -> Optional[bytes]:
        """Return a string that is not too long, or None."""
        words = self.words(address, 3)
        kind = words[1] & 0xFF if words else 0
        length = words[1] >> 24 & 0xFF if kind == SHORT else words[2] if kind == LONG else most + 1
        data = self._world.read(address + TEXT, length) if 0 < length <= most else b""
        return data if len(data) == length else None

    def table(self, address: int) -> Optional[LuaTable]:
        """Return the Table at the address, with an array of its real length (ltable.c: luaH_realasize), or None."""
        words = self.words(address, 6)
        if not words or words[1] & 0xFF != TABLE:
            return None
        flags, log, length = words[1] >> 16 & 0xFF, words[1] >> 24 & 0xFF, words[1] >> 32
        if self.layout.node_bytes == 24 and flags & 0x80 and length & (length - 1):
            length = 1 << length.bit_length()
        if log > MOST_LOG:
            return None
        return LuaTable(address, words[2], length if words[2] else 0, words[3], 1 << log, words[5])

    def key(self, node: int) -> LuaValue:
        words = self.words(node, self.layout.node_bytes // 8)
        if not words:
            return LuaValue(0, 0)
        at = self.layout.key_tt
        return LuaValue(words[at // 8] >> 8 * (at % 8) & 0xFF, words[self.layout.key // 8])

    def plain(self, value: LuaValue) -> Optional[str]:
        """Return a number, true or false as Lua source, or None for other values."""
        if value.type == self.layout.integer:
            return "%d" % (value.data - (value.data >> 63 << 64))
        if value.type in NUMBERS:
            return repr(unpack("<d", pack("<Q", value.data))[0]).replace("inf", "1e999")
        if value.type in BOOLEANS:
            return "true" if value.type != BOOLEANS[0] or (self.layout.integer != NUMBERS[0] and value.data & 0xFFFFFFFF) else "false"
        return None

    def nodes(self, table: LuaTable) -> Iterator[Tuple[LuaValue, LuaValue]]:
        """Yield (key, value) of the entries that are set."""
        step, at = self.layout.node_bytes // 8, self.layout.key_tt
        words = self.words(table.nodes, step * table.places)
        for first in range(0, len(words), step):
            value = LuaValue(words[first + 1] & 0xFF, words[first])
            if value.type & 0xF:
                yield LuaValue(words[first + at // 8] >> 8 * (at % 8) & 0xFF, words[first + self.layout.key // 8]), value

    def field(self, table: LuaTable, name: bytes) -> LuaValue:
        found = (value for key, value in self.nodes(table) if key.is_object and key.kind in STRINGS and self.text(key.data) == name)
        return next(found, LuaValue(0, 0))

    def has_weak_values(self, address: int) -> bool:
        words = self.words(address + METATABLE_AT, 1)
        if words and words[0] and words[0] not in self._weak:
            metatable = self.table(words[0])
            mode = self.field(metatable, b"__mode") if metatable is not None else LuaValue(0, 0)
            self._weak[words[0]] = b"v" in ((self.text(mode.data) or b"") if mode.is_object else b"")
        return bool(words) and self._weak.get(words[0], False)

    def length(self, table: LuaTable) -> Optional[int]:
        """Return the number of values in a table; None if they are too many to be counted."""
        if max(table.length, table.places) > MOST_WORDS:
            return None
        step = self.layout.node_bytes
        types = self._world.read(table.array, VALUE_BYTES * table.length)[8::VALUE_BYTES] if table.length else b""
        types += self._world.read(table.nodes, step * table.places)[8::step]
        return len(types) - sum(types.count(nil) for nil in NILS)

    def captured_name(self, function: int, number: int) -> Optional[bytes]:
        proto = self.words(function + PROTO_AT, 1)
        places = self.words(proto[0] + self.layout.upvalues, 1) if proto else ()
        name = self.words(places[0] + 16 * number, 1) if places else ()
        return self.text(name[0]) if name else None

    def locals(self, state: int) -> Iterator[Tuple[str, str, LuaValue]]:
        """Return variables of Lua functions that wait for a call; the innermost function has them only if it is a C function."""
        layout = self.layout
        seen: Set[int] = set()
        at = self.words(state + CALL_AT, 1)
        call = at[0] if at else 0
        while call and call not in seen and len(seen) < MOST_FRAMES:
            words = self.words(call, 8)
            if not words:
                return
            function = self.value(words[0])
            if seen and function.is_object and function.kind == LUA_FUNCTION:
                base = words[0] + VALUE_BYTES if layout.base is None else words[layout.base // 8]
                yield from self._of_frame(function.data, base, words[layout.next_operation // 8])
            seen.add(call)
            call = words[2]

    def _of_frame(self, function: int, base: int, following: int) -> Iterator[Tuple[str, str, LuaValue]]:
        layout = self.layout
        place = self.words(function + PROTO_AT, 1)
        proto = self.words(place[0], layout.proto_bytes // 8) if place else ()
        if not proto or proto[1] & 0xFF != layout.proto:
            return
        source = self.text(proto[layout.source // 8])
        count, line = (proto[at // 8] >> 8 * (at % 8) & 0x7FFFFFFF for at in (layout.locals_size, layout.line))
        names = self.words(proto[layout.locals // 8], 2 * count) if count <= MOST_NAMES else ()
        operation, slot = (following - proto[layout.code // 8]) // 4 - 1, base
        for name, lives in zip(names[::2], names[1::2]):
            if lives & 0x7FFFFFFF > operation:
                return
            if operation < lives >> 32:
                text, value = self.text(name), self.value(slot)
                slot += VALUE_BYTES
                if text is not None and not text.startswith(b"(") and source is not None and value.is_object:
                    where = source[1:].decode("utf-8", "replace") if source[:1] in b"@=" else "?"
                    yield "%s:%d" % (where, line) if line else where, text.decode("utf-8", "replace"), value


def find_lua_states(world: World) -> List[LuaState]:
    """Return the interpreters whose registry proves itself: it leads to the main thread and to the table of globals, which has itself as
    `_G`, and the release."""
    writable = NumberSet(ranges=[(mapping.start, mapping.end) for mapping in world.target.mappings() if mapping.writable])
    signed = world.find([STATE_ROW, COROUTINE_ROW], [writable])
    found: List[LuaState] = []
    for block in [one.key for one in signed if one.row == 0][:MOST_STATES]:
        made = (_read_state(LuaValues(world, layout), block) for layout in LAYOUTS)
        found += [state for state in made if state is not None][:1]
    threads = [one.sample + EXTRA_BYTES for one in signed if one.row == 1] if found else []
    belong = [(thread, world.words(thread + GLOBAL_AT, 1)) for thread in threads]
    return [state._replace(coroutines=[thread for thread, words in belong if words == (state.globals_at,)]) for state in found]


def _read_state(values: LuaValues, globals_at: int) -> Optional[LuaState]:
    registry = values.value(globals_at + REGISTRY_AT)
    table = values.table(registry.data) if registry.type == TABLE | COLLECTED else None
    if table is None or table.length < 2:
        return None
    main, first = values.value(table.array), values.value(table.array + VALUE_BYTES)
    state = values.words(main.data, 8) if main.type == THREAD | COLLECTED else ()
    all_ = values.table(first.data) if first.type == TABLE | COLLECTED else None
    if not state or state[GLOBAL_AT // 8] != globals_at or all_ is None or values.field(all_, b"_G") != first:
        return None
    says = values.field(all_, b"_VERSION")
    if not says.is_object or values.text(says.data) != values.layout.name.encode():
        return None
    return LuaState(main.data - EXTRA_BYTES, globals_at, main.data, table, all_, values.layout, state[values.layout.stack // 8])
