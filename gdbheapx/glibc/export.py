"""The pack of a glibc that is in the target: its four structs, where main_arena and mp_ lie, and its thread-local variables."""

from typing import Dict, Iterable, Optional, Tuple

from gdbheapx.allocators.records import Instances
from gdbheapx.errors import HeapxError
from gdbheapx.glibc.arenas import Glibc
from gdbheapx.glibc.detect import NEEDED, STRUCTS, debug_hint
from gdbheapx.inferior.base import Target, TypeSet
from gdbheapx.layout.pack import Pack, no_types
from gdbheapx.problems import MISSING_SYMBOLS

VARIABLES = ("main_arena", "mp_", "__curbrk")
THREAD_LOCALS = ("tcache", "thread_arena")


def places(variables: Iterable[Tuple[str, int, int, bool]]) -> Tuple[Dict[str, Tuple[int, int]], Dict[str, Tuple[int, int]]]:
    """(symbols, thread_locals) of a pack, from (name, address in the file or offset in the block, size_bytes, is thread-local)."""
    symbols: Dict[str, Tuple[int, int]] = {}
    thread_locals: Dict[str, Tuple[int, int]] = {}
    for name, address, size_bytes, is_thread_local in variables:
        if name in (THREAD_LOCALS if is_thread_local else VARIABLES):
            (thread_locals if is_thread_local else symbols).setdefault(name, (address, size_bytes))
    return symbols, thread_locals


def check(types: TypeSet, what: str) -> None:
    """HeapxError unless the types suffice to read this glibc."""
    for needed in NEEDED:
        struct = types.structs.get(needed.struct.name)
        missing = [name for name in needed.members if struct is None or name not in struct.members]
        if missing:
            raise HeapxError(
                "%s has no debug information of malloc: struct %s lacks %s" % (what, needed.struct.name, ", ".join(missing)),
                code=MISSING_SYMBOLS,
            )


def of_target(target: Target, instances: Instances, allocator_id: Optional[str]) -> Pack:
    """The pack of the glibc with this id, else of the one that owns malloc, else of the first. HeapxError where debug information is
    missing."""
    chosen = instances.chosen(allocator_id)
    if chosen is None:
        raise instances.none_chosen("glibc malloc", allocator_id)
    return pack_of(target, chosen)


def pack_of(target: Target, glibc: Glibc) -> Pack:
    """The pack of this copy. HeapxError if its layout does not come from debug information, or it has no build-id."""
    module = glibc.module
    if not module.build_id:
        raise HeapxError(
            "%s has no build-id, and packs are found by build-id" % module.name, "link it with -Wl,--build-id", code=MISSING_SYMBOLS
        )
    types: Optional[TypeSet] = glibc.types
    if glibc.layout_source != "debug-info":  # without gdb tables serve all other commands
        types = target.types(glibc.main_arena, STRUCTS, (), (), "")
    if types is None:
        raise no_types(target, module, debug_hint(target, module).line())
    check(types, module.name)
    symbols, thread_locals = places(target.variables(module))
    for name, symbol in (("main_arena", glibc.main_arena), ("mp_", glibc.mp)):
        symbols[name] = (symbol.address - module.base, target.symbol_bytes(symbol) or 0)
    missing = [name for name in THREAD_LOCALS if name not in thread_locals and (name != "tcache" or glibc.tcache is not None)]
    if missing:
        raise HeapxError(
            "the symbol table of %s lacks %s" % (module.name, " and ".join(missing)),
            debug_hint(target, module).line(),
            code=MISSING_SYMBOLS,
        )
    return Pack(
        allocator="glibc",
        version_text=glibc.version_text,
        build_id=module.build_id,
        machine=target.machine,
        word_bytes=target.word_bytes,
        prefix="",
        public_prefix="",
        symbols=symbols,
        thread_locals=thread_locals,
        types=types,
        constants={},
        made_from=types.origin,
        exactness="",
    )
