"""Which blocks keep free memory from being returned: programs whose culprits are known, held against their record and `arenas`.

Files: glibc/plan.py, jemalloc/extents.py.
"""

import socket
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest

from gdbheapx.analysis.census.world import EXACT
from tests.support import jemallocs
from tests.support.hidden import hidden
from tests.support.processes import Lasting, Process, Stage, by_turns
from tests.support.servers import Redis, reply, request
from tests.support.tool import answers, heapx, told

pytestmark = pytest.mark.image  # its libc, its jemalloc and its compiler lay out what is looked at

TOP = {"MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
NO_CACHE = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
OBJECTS = 2000
PAGE = 4096


def started(stage: Stage, state: str, env: Optional[Dict[str, str]] = None, flags: Sequence[str] = ()) -> Process:
    """The program at rest."""
    return stage.start("pinned", state, env=env, flags=flags)


def waves(stage: Stage) -> Process:
    return started(stage, "waves")


def truth(process: Process) -> Tuple[int, int, List[int]]:
    """How many objects keep memory, their usable bytes, their addresses."""
    words = process.words()
    return words[0], words[1], [~word & (1 << 64) - 1 for word in words[3 : 3 + words[0]]]


def is_class(signature: str, name: str, kind: str) -> bool:
    """The name of the class; of a core without the program's file its place there."""
    if kind == "core" and hidden("libraries", "a class has its name in the program's file"):
        return signature.startswith("CLASS@")
    return signature == name


def is_owner(owner: str, program: str = "pinned") -> bool:
    """The variable; without symbols its place in the program."""
    if hidden("symbols", "no variable has a name"):
        return owner.startswith("pinned")
    return owner == "g_index in " + program


def kept_by_arenas(rows: Sequence[Dict[str, Any]]) -> int:
    """By its columns: glibc's definition."""
    return sum(row["free_bytes"] + row["fast_bytes"] + row["top_bytes"] - row["reclaimable_bytes"] for row in rows)


def checked(found: Dict[str, Any]) -> Dict[str, Any]:
    """Each byte stands once, and the sum is that of `arenas`; the group that keeps most."""
    assert sum(one["kept_bytes"] for one in found["groups"]) == found["kept_bytes"] == sum(one["kept_bytes"] for one in found["sums"])
    for one in found["sums"]:
        assert one["difference_bytes"] == 0 and sum(term["bytes"] for term in one["terms"]) == one["arenas_bytes"]
    for one in found["groups"]:
        assert one["alone_bytes"] <= one["kept_bytes"] and (one["pins_blocks"] == 0) == (one["pins_bytes"] == 0) == (
            one["kept_for_each"] is None
        )
    return dict(max(found["groups"], key=lambda one: one["kept_bytes"]))


def asked(process: Process, kind: str, *more: str) -> Dict[str, Any]:
    """The group that keeps most, of an answer that closes with `arenas` of the same gdb."""
    arenas, pins = answers(process.target(kind), process.folder, "arenas", " ".join(("pins", *more)))
    assert pins["partial"] is False and kept_by_arenas(arenas["data"]["arenas"]) == pins["data"]["kept_bytes"]
    return checked(pins["data"])


def test_one_object_in_each_page(lasting: Lasting, kind: str) -> None:
    """All 2,000 are the pins, by class and on a core by owner; what they keep is what lies between them."""
    process = lasting.of(kind, waves)
    arenas, pins = told(process, kind, "arenas", "pins")
    assert kept_by_arenas(arenas["data"]["arenas"]) == pins["data"]["kept_bytes"]
    group, (blocks, size, addresses) = checked(pins["data"]), truth(process)
    assert (group["pins_blocks"], group["pins_bytes"]) == (blocks, size) == (OBJECTS, OBJECTS * 40)
    assert (group["where"], group["status"], group["arenas"], group["size_bytes"]) == ("hole", "used", [0], 40)
    assert int(group["sample"], 16) == addresses[0]
    assert group["kept_bytes"] >= 2 * 2016 * (OBJECTS - 1) and group["kept_for_each"] == round(group["kept_bytes"] / size, 1)
    assert group["alone_bytes"] >= group["kept_bytes"] - 2 * PAGE
    assert is_class(group["signature"], "Entry", kind) and group["sure"] == EXACT
    assert pins["data"]["has_owners"] and is_owner(group["owner"])


def test_without_owners(lasting: Lasting, kind: str) -> None:
    """The same blocks by what stands in them alone; the text says what was left out, and how it is told."""
    process = lasting.of(kind, waves)
    group = asked(process, kind, "--no-owners")
    assert (group["pins_blocks"], group["owner"]) == (OBJECTS, None) and is_class(group["signature"], "Entry", kind)
    text = heapx(process.target(kind), "pins", "--no-owners", "--limit", "1").stdout.decode().splitlines()
    assert text[1] == "2,000 blocks (78.1 KiB, %s) keep 7.7 MiB" % group["signature"] and text[-1].endswith(" pins shows them")
    assert any("more row" in line for line in text) and text[2].endswith("as `arenas` has it")


def test_the_end_of_a_threads_arena(stage: Stage, kind: str) -> None:
    """One object at the begin of the thread's second heap keeps all that was freed behind it."""
    process = started(stage, "top", TOP)
    blocks, size, addresses = truth(process)
    group = asked(process, kind)
    assert (blocks, group["pins_blocks"], group["pins_bytes"], group["where"]) == (1, 1, size, "thread-top")
    assert int(group["sample"], 16) == addresses[0] and is_class(group["signature"], "Keeper", kind)
    assert 200 * size <= group["kept_bytes"] == group["alone_bytes"] <= 201 * (size + PAGE)


def test_an_arena_whose_thread_has_ended(stage: Stage, kind: str) -> None:
    """What it keeps is told as such; each of the objects counts once."""
    process = started(stage, "ended")
    group = asked(process, kind)
    assert (group["where"], group["pins_blocks"], group["arenas"]) == ("ended-arena", OBJECTS, [1])


def test_members_of_fastbins_between(stage: Stage, kind: str) -> None:
    """They are free memory that is kept, and none of the pins."""
    process = started(stage, "fast", NO_CACHE)
    group = asked(process, kind)
    assert group["pins_blocks"] == OBJECTS and is_class(group["signature"], "Entry", kind)


def test_a_break_that_was_moved(stage: Stage, live: str) -> None:
    """Nothing of the main arena's end is returned: it is told why, and not called kept by the block below alone."""
    process = started(stage, "break")
    asked(process, live)
    found = heapx(process.target(live), "pins", "--json").data
    assert [one["pins_blocks"] for one in found["groups"] if one["where"] == "foreign-break"] == [0]


@by_turns("flags", [("-s",), ("-static",), ("-s", "-static-pie")])
def test_other_programs(stage: Stage, kind: str, flags: Sequence[str]) -> None:
    """Stripped ones and static ones: the same culprits; names as far as they are there."""
    process = started(stage, "waves", flags=flags)
    group = asked(process, kind)
    assert (group["pins_blocks"], group["where"]) == (OBJECTS, "hole") and is_class(group["signature"], "Entry", kind)
    assert group["owner"].startswith("pinned") if "-s" in flags else is_owner(group["owner"], "pinned-static")


def test_a_forked_child(stage: Stage, live: str) -> None:
    """It has the same heap."""
    process = started(stage, "forked")
    child = ["--pid", str(process.words()[2])]
    group = checked(heapx(child, "pins", "--json").data)
    assert (group["pins_blocks"], group["signature"]) == (OBJECTS, "Entry")


def regions(stage: Stage) -> Process:
    return started(stage, "regions", {"LD_PRELOAD": str(jemallocs.library())})


def test_slabs_with_an_object_each(lasting: Lasting, kind: str) -> None:
    """jemalloc: 1 of 64 objects is left, 4 in a slab of 256; the free regions are those that `bins` has."""
    process = lasting.of(kind, regions)
    bins, pins = told(process, kind, "bins", "pins")
    group = checked(pins["data"])
    free = {row["max_size_bytes"]: row["bytes"] for row in bins["data"]["bins"] if row["kind"] == "small"}
    assert pins["data"]["kept_bytes"] == sum(free.values())
    assert sum(one["kept_bytes"] for one in pins["data"]["groups"] if one["size_bytes"] == 48) == free[48]
    assert (group["where"], group["size_bytes"]) == ("slab", 48) and is_class(group["signature"], "Entry", kind)
    assert OBJECTS - 4 <= group["pins_blocks"] <= OBJECTS and group["kept_bytes"] > 0.9 * free[48]
    assert is_owner(group["owner"])


def test_redis_after_a_mass_delete(stage: Stage, live: str) -> None:
    """11 of 12 keys are gone: the values that are left keep their slabs; as much as jemalloc itself says, and `bins` has."""
    redis = Redis(stage)
    count = 24000
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(str(redis.socket))
        for words in (("SET", 1), ("DEL", 0)):
            for first in range(0, count, 600):
                chosen = [number for number in range(first, first + 600) if words[1] or number % 12]
                batch = [request(str(words[0]), "key:%07d" % number, *["x" * 300] * int(words[1])) for number in chosen]
                connection.sendall(b"".join(batch))
                for _ in batch:
                    reply(connection)
    memory = redis.memory()
    bins, pins = answers(redis.process.target(live), redis.process.folder, "bins --allocator jemalloc", "pins --allocator jemalloc")
    found = pins["data"]
    group = checked(found)
    assert abs(memory["allocator_active"] - memory["allocator_allocated"] - found["kept_bytes"]) <= 512 << 10, "large blocks are rounded up"
    assert abs(found["kept_bytes"] - sum(row["bytes"] for row in bins["data"]["bins"] if row["kind"] == "small")) <= 16 << 10, (
        "it has a clock"
    )
    assert (group["size_bytes"], group["where"]) == (320, "slab")
    assert 0.97 * count / 12 <= group["pins_blocks"] <= count / 12 + 8 and group["kept_bytes"] > 0.8 * count * 11 / 12 * 320
    assert group["owner"] not in (None, "several", "leaked")


def test_a_heap_whose_main_arena_is_not_in_the_core(lasting: Lasting, core: str, tmp_path: Path) -> None:
    """Nothing is known then, which is not nothing."""
    whole = lasting.of(core, waves).core().read_bytes()
    cut = tmp_path / "cut"
    cut.write_bytes(whole[: 4 << 20])
    outcome = heapx(["--core", str(cut)], "pins", "--json")
    assert outcome.code in (1, 4)
    assert outcome.code == 1 or outcome.envelope["data"]["kept_bytes"] is None


@by_turns("damage", ["size", "top-size"])
def test_a_damaged_heap(stage: Stage, kind: str, damage: str) -> None:
    """What is known is told, partially."""
    process = stage.start("damage", damage)
    outcome = heapx(process.target(kind), "pins", "--json")
    assert outcome.code == 4 and outcome.envelope["partial"]
    found = outcome.envelope["data"]
    assert sum(one["kept_bytes"] for one in found["groups"]) == found["kept_bytes"] > 0


def test_report_says_who_pins(stage: Stage, kind: str) -> None:
    """Where memory is fragmented `report` names the group that keeps most: of a core without being asked, of a process with --deep."""
    process = waves(stage)
    data = heapx(process.target(kind), "report", *(["--deep"] if kind == "live" else []), "--json").data
    assert data["verdict"]["kind_1_0"] in ("fragmented", "mixed"), data["verdict"]
    assert "pins" in [step["command"] for step in data["next"]]
    (finding,) = [one for one in data["findings"] if one["code"] == "pinned-by-blocks"]
    assert finding["what"].startswith("2,000 blocks") and "Entry" in finding["what"] and "g_index" in finding["what"]
