"""malloc-info and malloc-stats equal what the allocator says about itself, in every state it can be in.

Files: glibc/text.py.
"""

import re
from pathlib import Path
from typing import Dict, Tuple

import pytest

from tests.support.glibc import FIELDS, check_identity, check_kept, found_fields
from tests.support.hidden import hidden
from tests.support.processes import Process, Stage
from tests.support.tool import answers, heapx

pytestmark = [pytest.mark.image, pytest.mark.first]  # what its libc says of itself

STATES = ("fresh", "one", "seven", "subheaps", "sbrk", "sbrk-last", "nobrk", "fast", "mmapped", "exit", "big-top")
TUNED = ("arena_max=2", "tcache_count=0", "hugetlb=1", "hugetlb=2", "tcache_max=400000")

CASES = (
    [(state, state, "", "") for state in STATES]
    + [("%s-%s" % (state, tunable), state, "glibc.malloc." + tunable, "") for tunable in TUNED for state in ("one", "seven", "sbrk")]
    + [("static-" + state, state, "", "-static") for state in ("fresh", "one", "seven", "sbrk", "mmapped")]
)  # type: list[tuple[str, str, str, str]]
KINDS = [(kind, *case) for number, case in enumerate(CASES) for kind in ("live", "core") if number < len(STATES) or (kind == "core") == bool(number % 2)]
"""Each state live and on a core; with each tunable and in static programs one of them, in turn."""


def start(stage: Stage, state: str, tunables: str, flags: str) -> Process:
    """The program `accounts` in that state."""
    env = {"GLIBC_TUNABLES": tunables} if tunables else {}
    return stage.start("accounts", state, env=env, flags=[flags] if flags else [])


def own_account(process: Process) -> Tuple[str, Dict[str, int]]:
    """The process's own malloc_info XML and mallinfo2 fields."""
    xml = process.record_path.with_name("record.xml").read_text()
    return xml, dict(zip(FIELDS, process.words()))


@pytest.mark.parametrize(
    "kind, state, tunables, flags", [(kind, *case) for kind, _, *case in KINDS], ids=["%s-%s" % case[:2] for case in KINDS], indirect=["kind"]
)
def test_own_accounts(stage: Stage, kind: str, state: str, tunables: str, flags: str) -> None:
    """malloc_info's XML byte for byte, mallinfo2's ten fields, the identity in every arena, and what is kept of its free memory."""
    process = start(stage, state, tunables, flags)
    xml, info = own_account(process)
    target = process.target(kind)
    malloc_info, malloc_stats, arenas, pins = answers(target, process.folder, "malloc-info", "malloc-stats", "arenas", "pins --no-owners")
    assert malloc_info["data"]["xml"] == xml
    assert found_fields(malloc_stats["data"]) == info
    check_identity(arenas["data"])
    check_kept(arenas["data"], pins["data"])
    for envelope in (malloc_info, malloc_stats, arenas, pins):
        assert envelope["partial"] is False, envelope["problems"]
    rows = arenas["data"]["arenas"]
    assert [row["system_bytes"] for row in rows] == [
        int(size)
        for size in re.findall(
            r'<system type="current" size="(\d+)"/>\n(?=<system type="max" size="\d+"/>\n<aspace[^\n]*\n<aspace[^\n]*\n(?:<aspace[^\n]*\n)?</heap>)',
            xml,
        )
    ]
    assert arenas["data"]["mmapped"] == {"chunks": info["hblks"], "bytes": info["hblkhd"]}
    if state.startswith("sbrk"):
        assert rows[0]["foreign_bytes"] > 0 or "hugetlb=2" in tunables
    if state == "subheaps":
        assert max(row["heaps"] for row in rows) == 3


def test_text_is_the_xml_itself(stage: Stage, kind: str) -> None:
    """Without --json `malloc-info` prints the XML and nothing else on standard output."""
    process = start(stage, "seven", "", "")
    xml, _ = own_account(process)
    outcome = heapx(process.target(kind), "malloc-info")
    assert outcome.code == 0
    assert outcome.stdout.decode() == xml


def test_malloc_stats_text(stage: Stage, kind: str) -> None:
    """malloc-stats prints malloc_stats(3)'s own lines."""
    process = start(stage, "seven", "", "")
    own = process.stderr_path.read_text()
    outcome = heapx(process.target(kind), "malloc-stats")
    assert outcome.code == 0
    assert outcome.stdout.decode() == own


@pytest.mark.parametrize("state", ["one", "seven"])
def test_preloaded_debug_malloc_owns_malloc(stage: Stage, kind: str, state: str) -> None:
    """With libc_malloc_debug.so preloaded its own main_arena is the one that is counted, and both copies are named.

    Before glibc 2.34 there is no such library: libc itself checks, in its own arena.
    """
    process = stage.start("accounts", state, env={"LD_PRELOAD": "libc_malloc_debug.so.0", "GLIBC_TUNABLES": "glibc.malloc.check=3"})
    xml, info = own_account(process)
    is_there = "libc_malloc_debug" in Path("/proc/%d/maps" % process.pid).read_text()
    arenas, malloc_info, malloc_stats = answers(process.target(kind), process.folder, "arenas", "malloc-info", "malloc-stats")
    copies = [allocator for allocator in arenas["allocators"] if allocator["name"] == "glibc"]
    owners = [one for one in copies if one["owns_malloc"]]
    if kind == "core" and hidden("libraries", "which library owns malloc is told by files"):
        owners = [one for one in copies if one["owns_malloc"] is None]
    assert len(owners) == 1 and ("libc_malloc_debug" in owners[0]["object"]) == is_there
    if hidden("symbols", "a second copy of malloc that was never used has nothing to be found by"):
        assert copies == owners
    else:
        assert len(copies) == 1 + is_there
    check_identity(arenas["data"])
    assert malloc_info["data"]["xml"] == xml
    assert found_fields(malloc_stats["data"]) == info


def test_a_program_that_never_allocated(stage: Stage, kind: str) -> None:
    """A process that never called malloc has an empty main arena: a whole answer, all zero."""
    process = stage.start("untouched")
    outcome = heapx(process.target(kind), "arenas", "--json")
    check_identity(outcome.data)
    assert outcome.data["arenas"][0]["system_bytes"] == outcome.data["arenas"][0]["used_bytes"] == 0
    assert heapx(process.target(kind), "report").code == 0


def test_foreign_bytes_are_counted_apart(stage: Stage, kind: str) -> None:
    """Bytes taken by the program's own sbrk are foreign_bytes: at least what it took inside the arena."""
    process = start(stage, "sbrk", "", "")
    arena = heapx(process.target(kind), "arenas", "--json").data["arenas"][0]
    taken = 24 + 4096 + 10007 + 100003 + 8 + 65536
    assert taken <= arena["foreign_bytes"] <= taken + 7 * 64


def test_tunables_in_force(stage: Stage, kind: str) -> None:
    """`tunables` shows the values that are in force, here those given at the start."""
    process = start(stage, "one", "glibc.malloc.arena_max=3:glibc.malloc.tcache_count=5:glibc.malloc.mmap_threshold=262144", "")
    outcome = heapx(process.target(kind), "tunables", "--json")
    text = outcome.stdout.decode()
    assert outcome.data and outcome.code == 0
    for name, value in (("arena_max", 3), ("tcache_count", 5), ("mmap_threshold", 262144)):
        assert re.search(r'"%s"[^}]*\b%d\b' % (name, value), text), name
