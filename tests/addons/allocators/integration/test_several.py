"""Several allocators in one process (several.c): each block is one allocator's, each byte is counted once, and pointers lead from heap to heap."""

from typing import Dict, Sequence

import pytest

from tests.support import jemallocs, mimallocs, tcmallocs
from tests.support.processes import Lasting, Process, Stage, by_turns
from tests.support.tool import heapx

pytestmark = pytest.mark.image  # libraries of the release

MALLOCS = {"jemalloc": jemallocs.library, "mimalloc": mimallocs.library, "tcmalloc": tcmallocs.library}
ROOM = {"GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=20000"}
"""These libraries have thread-local storage of the initial-exec model, of which dlopen finds little."""
ALL = (1 << 64) - 1
STACKS = 4
"""Blocks that a register or what is left on a stack may still hold."""


EACH = by_turns("names", [("glibc", *MALLOCS), *(("glibc", name) for name in MALLOCS)])
"""The names of a process's allocators in the order of the record."""


def loaded(stage: Stage, *names: str) -> Process:
    """A process with these beside glibc's."""
    return stage.start("several", *(str(MALLOCS[name]()) for name in names[1:]), env=ROOM, flags=("-Wl,--no-as-needed", "-ldl"))


def recorded(process: Process, names: Sequence[str]) -> Dict[str, Dict[int, bool]]:
    """By allocator: each block that was not freed, and whether it is held."""
    words = process.words()
    rows = list(zip(words[1::2], words[2::2]))
    each = 4000
    return {name: {block ^ ALL: held == 1 for block, held in rows[each * at : each * (at + 1)] if block} for at, name in enumerate(names)}


@EACH
def test_each_block_is_one_allocators(lasting: Lasting, kind: str, names: Sequence[str]) -> None:
    """A block is in use in the heap that gave it, and in no other; what was freed is not; each heap adds up."""
    process = lasting.of(kind, loaded, *names)
    target, blocks = process.target(kind), recorded(process, names)
    used = {}
    for name in names:
        found = heapx(target, "chunks", "--json", "--status", "used", "--status", "mmapped", "--allocator", name, "--limit", "1000000")
        assert found.code == 0, (found.stderr, found.envelope["problems"])
        used[name] = {int(row["address"], 16) for row in found.envelope["data"]["chunks"]}
    for name in names:
        assert set(blocks[name]) <= used[name], name
        for other in names:
            assert other == name or not set(blocks[name]) & used[other], (name, other)


@EACH
def test_each_byte_is_counted_once(lasting: Lasting, kind: str, names: Sequence[str]) -> None:
    """The parts of its memory are all of it, once; each allocator has one, no larger than what its arenas hold. The program's own is glibc's."""
    process = lasting.of(kind, loaded, *names)
    found = heapx(process.target(kind), "report", "--json")
    assert found.code == 0, found.envelope["problems"]
    assert {one["name"] for one in found.envelope["allocators"]} == set(names)
    assert [one["name"] for one in found.envelope["allocators"] if one["owns_malloc"]] == ["glibc"]
    memory = found.envelope["data"]["memory"]
    parts = ("allocator", "stack", "file", "anonymous", "shared_memory", "device")
    assert memory["total_bytes"] == sum(memory["%s_bytes" % part] for part in parts)
    assert memory["allocator_bytes"] == sum(memory["allocators"].values())
    assert set(memory["allocators"]) == set(names) and all(memory["allocators"].values())
    held = sum(len(blocks) for blocks in recorded(process, names).values())
    assert sum(row["used_chunks"] for row in found.envelope["data"]["sizes"] if row["allocator"] is None) == 0 < held


@EACH
def test_pointers_lead_from_heap_to_heap(lasting: Lasting, kind: str, names: Sequence[str]) -> None:
    """A block that another heap's holds is reached, and what nothing holds is leaked, in every heap."""
    process = lasting.of(kind, loaded, *names)
    target, blocks = process.target(kind), recorded(process, names)
    found = heapx(target, "leaks", "--list", "--json")
    assert found.code == 0, found.envelope["problems"]
    rows = found.envelope["data"]["blocks"]
    leaked = {int(row["address"], 16) for row in rows if row["class"] == "leaked"}
    for name in names:
        held = {block for block, is_held in blocks[name].items() if is_held}
        dropped = set(blocks[name]) - held
        assert len(held) == 2000 and not held & leaked, name
        assert len(dropped - leaked) <= STACKS, (name, len(dropped - leaked))
