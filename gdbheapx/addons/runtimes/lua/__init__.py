"""PUC Lua 5.3 and 5.4, also inside of a stripped program: objects by their heads, where an interpreter's registry was found."""

from typing import Iterable, List, Mapping, Optional, Tuple

from gdbheapx.addons.runtimes.lua.paths import (
    C_NAME,
    COROUTINE_NAME,
    LUA_NAME,
    PROTO_NAME,
    STATE_NAME,
    STRING_NAME,
    TABLE_NAME,
    UPVALUE_NAME,
    USERDATA_NAME,
    LuaNamer,
)
from gdbheapx.addons.runtimes.lua.values import (
    ARRAY_AT,
    C_FUNCTION,
    EXTRA_BYTES,
    GLOBAL_AT,
    LONG,
    LUA_FUNCTION,
    METATABLE_AT,
    NODE_AT,
    PROTO_AT,
    SHORT,
    TABLE,
    TEXT,
    THREAD,
    UPVALUE_OBJECT,
    USERDATA,
    VALUE_BYTES,
    LuaValues,
    find_lua_states,
)
from gdbheapx.analysis.census.world import SHAPE, Ask, Recogniser, Signature, World
from gdbheapx.analysis.reachability.paths import Namer
from gdbheapx.kernel.blocks.signatures import ADDRESS, AT_LEAST, AT_MOST, EQUAL, IN_RANGES, USABLE, Condition, NumberSet, SignatureRow
from gdbheapx.ranges import unite_ranges

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

    def is_here(self, world: World) -> bool:
        return world.word_bytes == 8 and world.little_endian and world.constant(has_lua)

    def asks(self, world: World) -> Iterable[Ask]:
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

    def fields(self, world: World) -> Mapping[Tuple[str, int], str]:
        found = {(TABLE_NAME, ARRAY_AT): "array of a table", (TABLE_NAME, NODE_AT): "entries of a table"}
        for state in world.once(find_lua_states)[:1]:
            parts = range(8 * state.layout.owning[0], state.layout.source, 8)
            found.update({(PROTO_NAME, at): "constants and names of a function" for at in parts})
            found[PROTO_NAME, state.layout.code] = "instructions of a function"
        return found

    def namer(self, world: World) -> Optional[Namer]:
        found = world.once(find_lua_states)
        return LuaNamer(LuaValues(world, found[0].layout), [state for state in found if state.layout == found[0].layout]) if found else None


def _match_object(kind: int) -> List[Condition]:
    """Return the conditions of an object: it begins with the object made before it, and its type. The first object of all is the
    registry.
    """
    return [Condition(0, 8, EQUAL, 0, mask=7), Condition(0, 8, IN_RANGES, WRITABLE), Condition(8, 1, EQUAL, kind)]


def _match_pointer(at: int) -> List[Condition]:
    return [Condition(at, 8, EQUAL, 0, mask=7), Condition(at, 8, AT_MOST, MOST_ADDRESS)]


def has_lua(world: World) -> bool:
    """Return whether the program, or a library of that name, has an interpreter inside."""
    modules = [module for number, module in enumerate(world.modules()) if not number or "lua" in module.file_name]
    return any(IDENTITY in data for module in modules for data in world.target.constant_data(module))


RECOGNISERS: List[Recogniser] = [Lua()]
