"""gdbheapx/jemalloc/arenas.py"""

from types import SimpleNamespace
from typing import Any, List

import pytest

from gdbheapx.inferior.base import Mapping, Thread
from gdbheapx.jemalloc import arenas

JEMALLOC, LIBC, PROGRAM, STACK = 0x10000, 0x20000, 0x30000, 0x80000
NAMES = {JEMALLOC: "/lib/libjemalloc.so.2", LIBC: "/lib/libc.so.6", PROGRAM: "/bin/program"}


@pytest.mark.parametrize(
    "pc, words, told",
    [
        (JEMALLOC + 8, [], "surely"),
        (LIBC + 8, [JEMALLOC + 8], "surely"),
        (LIBC + 8, [1, LIBC + 16, JEMALLOC + 8, LIBC + 24], "maybe"),
        (LIBC + 8, [1, LIBC + 16, 2, JEMALLOC + 8, PROGRAM + 8], "surely"),
        (LIBC + 8, [1, LIBC + 16, PROGRAM + 8, JEMALLOC + 8], "maybe"),
        (PROGRAM + 8, [1, JEMALLOC + 8], "maybe"),
        (LIBC + 8, [1, PROGRAM + 8], ""),
        (None, [1, JEMALLOC + 8], "maybe"),
    ],
    ids=["in it", "returns there", "a background thread", "waits in libc", "waits in libc for the program", "in the program", "elsewhere", "nowhere"],
)
def test_who_is_inside(pc: Any, words: List[int], told: str) -> None:
    """In its code; in libc, which it has called; or perhaps, where its address only stands on the stack."""
    data = b"".join(word.to_bytes(8, "little") for word in words)
    target = SimpleNamespace(
        mappings=lambda: [Mapping(start, start + 0x1000, True, False, True, False, name, None) for start, name in NAMES.items()],
        threads=lambda: [Thread(7, None, None, STACK, pc)],
        read_prefix=lambda address, size: data,
        words_in=lambda read: list(memoryview(read).cast("Q")),
    )
    module = SimpleNamespace(base=JEMALLOC, name=NAMES[JEMALLOC])
    geometry = SimpleNamespace(word_bytes=8, little_endian=True)
    context: Any = SimpleNamespace(target=target, jemalloc=SimpleNamespace(module=module), geometry=geometry)
    found = arenas.find_threads_inside(context)
    assert found == ([7] if told == "surely" else [], [7] if told == "maybe" else [])
