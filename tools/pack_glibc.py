"""The variables of glibc that a pack holds, and a check of its types."""

from typing import Dict, Iterable, Tuple

from gdbheapx.common.errors import HeapxError
from gdbheapx.common.problems import MISSING_SYMBOLS
from gdbheapx.glibc.detect import NEEDED
from gdbheapx.inferior.base import TypeSet

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
    for needed, members in NEEDED:
        struct = types.structs.get(needed.name)
        missing = [name for name in members if struct is None or name not in struct.members]
        if missing:
            raise HeapxError(
                "%s has no debug information of malloc: struct %s lacks %s" % (what, needed.name, ", ".join(missing)),
                code=MISSING_SYMBOLS,
            )
