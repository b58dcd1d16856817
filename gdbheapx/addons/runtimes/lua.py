"""PUC Lua 5.3 and 5.4, also inside of a stripped program: objects by their heads, where an interpreter's registry was found.

Values of PUC Lua 5.3 and 5.4 as they lie in memory: tables, strings, functions with what they have captured, and frames that run.

Layouts: lobject.h, lstate.h, ltable.c, with 64-bit pointers and numbers as luaconf.h has them by default.

Paths of Lua's values, as Lua writes them: `_G.cache["u:1"].items[3]`, `frame app.lua:12: rows`; `.<upvalue rows>`, `.<metatable>`.
"""

import re
from struct import pack, unpack
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.analysis.census.world import SHAPE, Ask, CensusTarget, Recogniser, Signature
from gdbheapx.analysis.reachability import paths as steps
from gdbheapx.analysis.reachability.paths import ALL_WORDS, Namer, PathStep, Start, ValueNamer, ValuePosition, quote_text
from gdbheapx.common.model import TargetAddress
from gdbheapx.common.ranges import unite_ranges
from gdbheapx.kernel.blocks.signatures import ADDRESS, AT_LEAST, AT_MOST, EQUAL, IN_RANGES, USABLE, Condition, NumberSet, SignatureRow

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

    def __init__(self, world: CensusTarget, layout: LuaLayout) -> None:
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


def find_lua_states(world: CensusTarget) -> List[LuaState]:
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


TABLE_NAME, STRING_NAME, LUA_NAME, C_NAME, PROTO_NAME = "table", "string", "function", "C function", "code of a function"
UPVALUE_NAME, USERDATA_NAME, COROUTINE_NAME, STATE_NAME = "upvalue", "userdata", "coroutine", "Lua state"
UPVALUE, CODE, PART = -1, -2, -3
"""Of ValuePosition.kind, in addition to the types of values; PART: what a userdata leads to, where nothing has a name of its own."""
RESERVED = frozenset((
    *("and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if"),
    *("in", "local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while"),
))  # fmt: skip
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}

_Moved = Optional[Tuple[ValuePosition, Optional[Tuple[str, str]]]]


class LuaNamer(ValueNamer):
    """Globals first, then the registry, then variables of functions that have not returned."""

    is_collected = True

    def __init__(self, values: LuaValues, states: Sequence[LuaState]) -> None:
        super().__init__()
        self._values, self._states = values, states

    def starts(self) -> Iterable[Start]:
        """Return tables that have names by themselves, and variables."""
        for state in self._states:
            which = (
                [PathStep(steps.VARIABLE, "Lua state 0x%x: " % state.state, TargetAddress(state.state))] if len(self._states) > 1 else []
            )
            loaded = self._values.field(state.registry, b"_LOADED")
            tables = [(state.globals.address, "_G"), (state.registry.address, "debug.getregistry()")]
            for address, name in [*tables, *([(loaded.data, "package.loaded")] if loaded.is_object else [])]:
                yield Start(address, [*which, PathStep(steps.VARIABLE, name, TargetAddress(address))])
            for thread in (state.state, *state.coroutines[:MOST_COROUTINES]):
                where = "frame %s: " if thread == state.state else "coroutine 0x%x frame %%s: " % thread
                for function, name, value in self._values.locals(thread):
                    frame, end = PathStep(steps.FRAME, where % function, None), TargetAddress(value.data)
                    yield Start(value.data, [frame, *which, PathStep(steps.LOCAL, name, end)])

    def owning_words(self, signature: Optional[str]) -> int:
        """Return a mask without the collector's lists: of all objects, and of those still to be visited."""
        layout = self._values.layout
        if signature == USERDATA_NAME:
            return ALL_WORDS & ~(0b10011 if layout.user_values is not None else 0b11)
        known = {
            TABLE_NAME: 1 << ARRAY_AT // 8 | 1 << NODE_AT // 8 | 1 << METATABLE_AT // 8,
            LUA_NAME: ALL_WORDS & ~0b111,
            C_NAME: ALL_WORDS & ~0b1111,
            UPVALUE_NAME: 1 << layout.captured // 8,
            PROTO_NAME: sum(1 << word for word in layout.owning),
            **dict.fromkeys((STRING_NAME, COROUTINE_NAME, STATE_NAME), 0),
        }
        return known.get(signature, ALL_WORDS) if signature is not None else ALL_WORDS

    def owns_nothing(self) -> Iterable[int]:
        """Return the state, with its table of strings, and its stack."""
        return [address for state in self._states for address in (state.block, state.stack)]

    def read_kind(self, address: int) -> int:
        """See ValueNamer."""
        return self._values.kind(address)

    def follow_word(self, position: ValuePosition, place: int, below: int) -> _Moved:
        """See ValueNamer."""
        offset = place - position.address
        if position.kind == TABLE:
            return self._move_to_entry(position, place) if position.is_beside else self._of_table(position, offset)
        if position.kind in (LUA_FUNCTION, C_FUNCTION):
            return self._move_to_captured(position, offset)
        if position.kind == UPVALUE:
            layout, words = self._values.layout, self._values.words(position.address, 3)
            is_closed = words and words[layout.captured_pointer // 8] == position.address + layout.captured
            return self._move_to(place, None) if is_closed and offset == layout.captured else None
        if position.kind == CODE:
            return self._of_code(position, place)
        words = self._values.words(place, 1)
        if position.kind == USERDATA and words:
            if offset == self._values.layout.user_metatable:
                return ValuePosition(TABLE, words[0]), (steps.ATTRIBUTE, ".<metatable>")
            return ValuePosition(PART, words[0]), (steps.FIELD, ".<userdata>")
        return (ValuePosition(PART, words[0]), None) if position.kind == PART and words else None

    def _move_to(self, place: int, step: Optional[Tuple[str, str]]) -> _Moved:
        value = self._values.value(place)
        return (ValuePosition(value.kind, value.data), step) if value.is_object else None

    def _of_table(self, position: ValuePosition, offset: int) -> _Moved:
        if offset == METATABLE_AT:
            words = self._values.words(position.address + offset, 1)
            return (ValuePosition(TABLE, words[0]), (steps.ATTRIBUTE, ".<metatable>")) if words else None
        is_held = offset in (ARRAY_AT, NODE_AT) and not self._values.has_weak_values(position.address)
        return (position._replace(is_beside=True), None) if is_held else None

    def _move_to_entry(self, position: ValuePosition, place: int) -> _Moved:
        table, layout = self._values.table(position.address), self._values.layout
        if table is None:
            return None
        number, rest = divmod(place - table.array, VALUE_BYTES)
        if 0 <= number < table.length and not rest:
            return self._move_to(place, (steps.INDEX, "[%d]" % (number + 1)))
        number, rest = divmod(place - table.nodes, layout.node_bytes)
        return self._move_to(place, self._format_key(self._values.key(place))) if 0 <= number < table.places and not rest else None

    def _format_key(self, key: LuaValue) -> Tuple[str, str]:
        plain = self._values.plain(key)
        if plain is not None or not key.is_object or key.kind not in STRINGS:
            return (steps.INDEX, "[%s]" % plain) if plain is not None else (steps.FIELD, "[?]")
        text = self._values.text(key.data)
        try:
            name = text.decode("utf-8") if text is not None else None
        except UnicodeDecodeError:
            name = None
        if name is None:
            return steps.FIELD, "[?]"
        return (
            (steps.ATTRIBUTE, "." + name) if WORD.match(name) and name not in RESERVED else (steps.KEY, "[%s]" % quote_text(name, ESCAPES))
        )

    def _move_to_captured(self, position: ValuePosition, offset: int) -> _Moved:
        head, place = self._values.words(position.address, 2), position.address + offset
        number, rest = divmod(offset - CAPTURED_AT, VALUE_BYTES if position.kind == C_FUNCTION else 8)
        is_captured = bool(head) and 0 <= number < head[1] >> 16 & 0xFF and not rest
        if position.kind == C_FUNCTION:
            return self._move_to(place, (steps.CLOSURE, ".<upvalue %d>" % (number + 1))) if is_captured else None
        words = self._values.words(place, 1)
        if not words or not (is_captured or offset == PROTO_AT):
            return None
        if offset == PROTO_AT:
            return ValuePosition(CODE, words[0]), (steps.FIELD, ".<code>")
        name = self._values.captured_name(position.address, number)
        return ValuePosition(UPVALUE, words[0]), (
            steps.CLOSURE,
            ".<upvalue %s>" % (name.decode("utf-8", "replace") if name is not None else "?"),
        )

    def _of_code(self, position: ValuePosition, place: int) -> _Moved:
        """Follow a constant of a function's code, or a function made in it."""
        layout = self._values.layout
        proto = self._values.words(position.address, layout.proto_bytes // 8)
        if not proto:
            return None
        constants, inner = (proto[word] for word in layout.owning[:2])
        if not position.is_beside:
            is_known = (place - position.address) // 8 in layout.owning
            return (position._replace(is_beside=True), None) if is_known else None
        if 0 <= place - constants < VALUE_BYTES * (proto[2] >> 32):
            return self._move_to(place, None) if not (place - constants) % VALUE_BYTES else None
        words = self._values.words(place, 1) if 0 <= place - inner < 8 * (proto[4] & 0xFFFFFFFF) else ()
        return (ValuePosition(CODE, words[0]), None) if words else None

    def contents(self, address: int, size_bytes: int, signature: Optional[str]) -> Optional[str]:
        if signature == TABLE_NAME:
            table = self._values.table(address)
            count = self._values.length(table) if table is not None else None
            return "table of {:,}".format(count) if count is not None else None
        words = self._values.words(address, 3) if signature == STRING_NAME else ()
        length = {SHORT: words[1] >> 24 & 0xFF, LONG: words[2]}.get(words[1] & 0xFF) if words else None
        return "string, {:,} bytes".format(length) if length is not None else None


IDENTITY = b"$LuaVersion: Lua 5."
"""lua_ident (lapi.c): every program that contains an interpreter has it among its constants."""
MOST_ADDRESS = (1 << 47) - 1
LEAST_HASH, MOST_COUNT = 1 << 16, 1 << 20
"""Smaller numbers are a C structure's; one string of 65,000 is not counted."""
READABLE, WRITABLE, EXECUTABLE = range(3)
"""Sets of each row."""


class Lua(Recogniser):
    """An interpreter's registry proves it; an object's head says its type, and the rest of it must fit."""

    module = "lua"

    def is_here(self, world: CensusTarget) -> bool:
        return world.word_bytes == 8 and world.little_endian and world.constant(has_lua)

    def asks(self, world: CensusTarget) -> Iterable[Ask]:
        found = world.once(find_lua_states)
        if not found:
            return
        layout, target = found[0].layout, world.target
        readable = [(mapping.start, mapping.end) for mapping in target.mappings() if mapping.readable]
        sets = [
            NumberSet(ranges=unite_ranges([*readable, *target.file_ranges()])),
            NumberSet(ranges=[(mapping.start, mapping.end) for mapping in target.mappings() if mapping.writable]),
            NumberSet(ranges=[(mapping.start, mapping.end) for mapping in target.code_mappings()]),
        ]
        text = Condition(10, 1, AT_MOST, 40), Condition(11, 1, AT_MOST, 40), Condition(11, 1, AT_MOST, -TEXT - 1, USABLE)
        hashed = Condition(12, 4, AT_LEAST, LEAST_HASH), *_match_pointer(16)
        long = Condition(10, 1, AT_MOST, 1), Condition(16, 8, AT_LEAST, 41), Condition(16, 8, AT_MOST, -TEXT - 1, USABLE)
        table = Condition(8, 1, EQUAL, TABLE), Condition(11, 1, AT_MOST, 26), Condition(NODE_AT, 8, IN_RANGES, READABLE)
        code = [Condition(at, 8, IN_RANGES, WRITABLE) for at in (layout.code, layout.source)]
        closed = Condition(layout.captured_pointer, 8, EQUAL, layout.captured, ADDRESS)
        counted = [closed, Condition(8, 8, AT_LEAST, 1), Condition(8, 8, AT_MOST, MOST_COUNT)]
        upvalue = counted if layout.captured_pointer == 0 else [*_match_object(UPVALUE_OBJECT), closed]
        upvalue_bytes = layout.captured + VALUE_BYTES
        rows: List[Tuple[str, SignatureRow]] = [
            (STRING_NAME, SignatureRow([*_match_object(SHORT), *text, *hashed], 24, 96)),
            (STRING_NAME, SignatureRow([*_match_object(LONG), *long], 64)),
            (TABLE_NAME, SignatureRow([*_match_pointer(0), *table, *_match_pointer(ARRAY_AT), *_match_pointer(METATABLE_AT)], 56, 72)),
            (LUA_NAME, SignatureRow([*_match_object(LUA_FUNCTION), Condition(PROTO_AT, 8, IN_RANGES, WRITABLE)], 32, 2080)),
            (C_NAME, SignatureRow([*_match_object(C_FUNCTION), Condition(PROTO_AT, 8, IN_RANGES, EXECUTABLE)], 48, 4128)),
            (PROTO_NAME, SignatureRow([*_match_object(layout.proto), *code], layout.proto_bytes, layout.proto_bytes + 16)),
            (UPVALUE_NAME, SignatureRow(upvalue, upvalue_bytes, upvalue_bytes + 16)),
            (USERDATA_NAME, SignatureRow([*_match_object(USERDATA), Condition(layout.user_metatable, 8, IN_RANGES, WRITABLE)], 40)),
        ]
        for state in found:
            own = Condition(EXTRA_BYTES + GLOBAL_AT, 8, EQUAL, state.globals_at)
            rows.append((STATE_NAME, SignatureRow([own], 640, 4096)))
            rows.append((COROUTINE_NAME, SignatureRow([own, Condition(EXTRA_BYTES + 8, 1, EQUAL, THREAD)], 192, 639)))
        for name, row in rows:
            yield Ask(row, lambda key, name=name: Signature(name, self.module, SHAPE), sets, order=40)  # type: ignore[misc]

    def fields(self, world: CensusTarget) -> Mapping[Tuple[str, int], str]:
        found = {(TABLE_NAME, ARRAY_AT): "array of a table", (TABLE_NAME, NODE_AT): "entries of a table"}
        for state in world.once(find_lua_states)[:1]:
            parts = range(8 * state.layout.owning[0], state.layout.source, 8)
            found.update({(PROTO_NAME, at): "constants and names of a function" for at in parts})
            found[PROTO_NAME, state.layout.code] = "instructions of a function"
        return found

    def namer(self, world: CensusTarget) -> Optional[Namer]:
        found = world.once(find_lua_states)
        return LuaNamer(LuaValues(world, found[0].layout), [state for state in found if state.layout == found[0].layout]) if found else None


def _match_object(kind: int) -> List[Condition]:
    """Return the conditions of an object: it begins with the object made before it, and its type. The first object of all is the
    registry.
    """
    return [Condition(0, 8, EQUAL, 0, mask=7), Condition(0, 8, IN_RANGES, WRITABLE), Condition(8, 1, EQUAL, kind)]


def _match_pointer(at: int) -> List[Condition]:
    return [Condition(at, 8, EQUAL, 0, mask=7), Condition(at, 8, AT_MOST, MOST_ADDRESS)]


def has_lua(world: CensusTarget) -> bool:
    """Return whether the program, or a library of that name, has an interpreter inside."""
    modules = [module for number, module in enumerate(world.modules()) if not number or "lua" in module.file_name]
    return any(IDENTITY in data for module in modules for data in world.target.constant_data(module))


RECOGNISERS: List[Recogniser] = [Lua()]
