"""Paths of Lua's values, as Lua writes them: `_G.cache["u:1"].items[3]`, `frame app.lua:12: rows`; `.<upvalue rows>`, `.<metatable>`."""

import re
from typing import Iterable, Optional, Sequence, Tuple

from gdbheapx.addons.runtimes.lua.values import (
    ARRAY_AT,
    C_FUNCTION,
    CAPTURED_AT,
    LONG,
    LUA_FUNCTION,
    METATABLE_AT,
    MOST_COROUTINES,
    NODE_AT,
    PROTO_AT,
    SHORT,
    STRINGS,
    TABLE,
    USERDATA,
    VALUE_BYTES,
    LuaState,
    LuaValue,
    LuaValues,
)
from gdbheapx.analysis.reachability import paths as steps
from gdbheapx.analysis.reachability.paths import ALL_WORDS, PathStep, Start, ValueNamer, ValuePosition, quote_text
from gdbheapx.model import TargetAddress

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
