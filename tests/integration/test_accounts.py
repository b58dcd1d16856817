"""malloc-info and malloc-stats equal what the allocator says about itself, in every state it can be in.

Against a program that records its own blocks: every live block is used, no freed one is.

Files: glibc/text.py.
"""

import re
import struct
from pathlib import Path
from typing import Any, Dict, List, Set, Tuple

import pytest

from tests.support.glibc import FIELDS, check_identity, check_kept, found_fields
from tests.support.hidden import hidden
from tests.support.processes import Lasting, Process, Stage
from tests.support.tool import answers, heapx, told

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

RECORDERS = {
    "one-thread": ("1", "20000", "5"),
    "nine-threads": ("9", "2000", "5"),
    "sixty-five-threads": ("65", "400", "4"),
    "subheaps": ("3", "1500", "3", "subheaps"),
}

ASKED = ("arenas", "chunks", "chunks --histogram", "bins", "tcache")
"""What the tests ask of each process, at once."""


def asked(lasting: Lasting, kind: str, case: str, *commands: str) -> List[Any]:
    """What these commands say of a case, whole answers."""
    process = lasting.of(kind, Stage.start, "recorder", *RECORDERS[case])
    for envelope in told(process, kind, *ASKED):
        assert envelope["partial"] is False, envelope["problems"]
    return [process.told[command]["data"] for command in commands]


def recorded(process: Process) -> Tuple[Dict[int, int], Set[int]]:
    """The live blocks (address -> requested size), and the freed addresses that no live block has."""
    data = process.record()
    threads, slots, capacity = struct.unpack_from("<3Q", data)
    counts = struct.unpack_from("<128Q", data, 24)
    words = struct.unpack_from("<%dQ" % (2 * threads * slots), data, 24 + 1024)
    live = {words[place]: words[place + 1] for place in range(0, len(words), 2) if words[place]}
    start = 24 + 1024 + 16 * threads * slots
    freed = set()  # type: Set[int]
    for thread in range(threads):
        freed.update(struct.unpack_from("<%dQ" % min(counts[thread], capacity), data, start + 8 * capacity * thread))
    freed.discard(0)
    return live, freed - set(live)


@pytest.mark.parametrize("case", RECORDERS)
def test_every_live_block_is_used_and_no_freed_one(lasting: Lasting, kind: str, case: str) -> None:
    """Each recorded live block is listed as used or mmapped, large enough for its request; each freed one is not."""
    live, freed = recorded(lasting.of(kind, Stage.start, "recorder", *RECORDERS[case]))
    assert len(live) > 1000 and len(freed) > 1000
    (listed,) = asked(lasting, kind, case, "chunks")
    chunks = listed["chunks"]
    by_address = {int(chunk["address"], 16): chunk for chunk in chunks}
    assert len(by_address) == len(chunks), "an address is listed twice"
    lost = [hex(address) for address in live if by_address.get(address, {}).get("status") not in ("used", "mmapped")]
    assert not lost, "%d of %d live blocks are not used: %s" % (len(lost), len(live), [(a, by_address.get(int(a, 16))) for a in lost[:5]])
    small = [hex(address) for address, size in live.items() if by_address[address]["usable_bytes"] < size]
    assert not small, small[:5]
    wrong = [by_address[address] for address in freed if by_address.get(address, {}).get("status") in ("used", "mmapped")]
    assert not wrong, "%d of %d freed blocks count as used: %s" % (len(wrong), len(freed), wrong[:5])


@pytest.mark.parametrize("case", RECORDERS)
def test_identity_and_sums(lasting: Lasting, kind: str, case: str) -> None:
    """The arenas' columns add up, and equal the sums over the listed chunks, per arena and status."""
    arenas, listed = asked(lasting, kind, case, "arenas", "chunks")
    check_identity(arenas)
    assert listed["count"] == len(listed["chunks"])
    for arena in arenas["arenas"]:
        for status in ("used", "tcache", "fast", "free"):
            own = [chunk["size_bytes"] for chunk in listed["chunks"] if chunk["arena"] == arena["index"] and chunk["status"] == status]
            assert (len(own), sum(own)) == (arena[status + "_chunks"], arena[status + "_bytes"]), (arena["index"], status)
        top = [chunk["size_bytes"] for chunk in listed["chunks"] if chunk["arena"] == arena["index"] and chunk["status"] == "top"]
        assert sum(top) == arena["top_bytes"]
    mmapped = [chunk for chunk in listed["chunks"] if chunk["status"] == "mmapped"]
    assert len(mmapped) == arenas["mmapped"]["chunks"] == arenas["totals"]["glibc"].get("mmapped_chunks", len(mmapped))


def test_threads_and_their_caches(lasting: Lasting, kind: str) -> None:
    """Every thread is listed with its arena; the caches' sums are the arenas' tcache columns."""
    caches, every = asked(lasting, kind, "nine-threads", "tcache", "arenas")
    threads, arenas = caches["threads"], every["arenas"]
    assert len(threads) == 9 and all(thread["tcache"] for thread in threads)
    assert lasting.of(kind, Stage.start, "recorder", *RECORDERS["nine-threads"]).pid in {thread["lwp"] for thread in threads}
    assert sum(thread["chunks"] for thread in threads) == sum(arena["tcache_chunks"] for arena in arenas)
    assert sum(thread["bytes"] for thread in threads) == sum(arena["tcache_bytes"] for arena in arenas)
    for thread in threads:
        assert sum(row["chunks"] for row in thread["bins"]) == thread["chunks"]
    for arena in arenas:
        assert arena["threads"] == sum(thread["arena"] == arena["index"] for thread in threads)
        assert arena["locked"] is False
    assert sum(arena["tcache_struct_chunks"] for arena in arenas) == 9


def test_bins_add_up_to_the_free_columns(lasting: Lasting, kind: str) -> None:
    """The rows of `bins` add up to fast and free of each arena, and each row lies in its size range."""
    rows_of_bins, arenas = asked(lasting, kind, "nine-threads", "bins", "arenas")
    bins = rows_of_bins["bins"]
    for arena in arenas["arenas"]:
        for kinds, column in ((("fast",), "fast"), (("unsorted", "small", "large"), "free")):
            rows = [row for row in bins if row["arena"] == arena["index"] and row["kind"] in kinds]
            assert sum(row["chunks"] for row in rows) == arena[column + "_chunks"]
            assert sum(row["bytes"] for row in rows) == arena[column + "_bytes"]
    for row in bins:
        if row["min_size_bytes"] is not None and row["max_size_bytes"] is not None:
            assert row["chunks"] * row["min_size_bytes"] <= row["bytes"] <= row["chunks"] * row["max_size_bytes"]


def test_histogram_adds_up(lasting: Lasting, kind: str) -> None:
    """The histogram's columns add up to the arenas'; mmapped counts as used, and size classes do not overlap."""
    histogram, arenas = asked(lasting, kind, "nine-threads", "chunks --histogram", "arenas")
    rows = histogram["histogram"]
    totals = arenas["totals"]["glibc"]
    assert sum(row["used_chunks"] for row in rows) == totals["used_chunks"] + arenas["mmapped"]["chunks"]
    assert sum(row["used_bytes"] for row in rows) == totals["used_bytes"] + arenas["mmapped"]["bytes"]
    assert sum(row["free_chunks"] for row in rows) == totals["free_chunks"] + totals["fast_chunks"]
    assert sum(row["free_bytes"] for row in rows) == totals["free_bytes"] + totals["fast_bytes"]
    assert sum(row["tcache_chunks"] for row in rows) == totals["tcache_chunks"]
    ordered = sorted(rows, key=lambda row: row["size_bytes"])
    for row, after in zip(ordered, ordered[1:]):
        assert row["size_bytes"] <= row["max_size_bytes"] < after["size_bytes"]
        assert row["max_size_bytes"] == row["size_bytes"] or row["size_bytes"] >= 1024

FILTERED = (
    "chunks --arena 1", "chunks --status free --status fast", "chunks --min-size 200 --max-size 1000", "chunks --limit 7",
    "chunks --sort size --limit 20",
)
"""Asked at once; what is asked otherwise is asked alone."""


def test_filters_choose_from_the_full_list(lasting: Lasting, kind: str) -> None:
    """--arena, --status, --min-size, --max-size, --limit and --sort give exactly the chunks that a reader would pick."""
    process = lasting.of(kind, Stage.start, "recorder", *RECORDERS["nine-threads"])
    full = asked(lasting, kind, "nine-threads", "chunks")[0]["chunks"]

    def pick(*options: str) -> list:
        (envelope,) = told(process, kind, " ".join(("chunks", *options)))
        assert envelope["partial"] is False, envelope["problems"]
        return list(envelope["data"]["chunks"])

    told(process, kind, *FILTERED)

    assert pick("--arena", "1") == [chunk for chunk in full if chunk["arena"] == 1]
    assert pick("--status", "free", "--status", "fast") == [chunk for chunk in full if chunk["status"] in ("free", "fast")]
    assert pick("--min-size", "200", "--max-size", "1000") == [chunk for chunk in full if 200 <= chunk["size_bytes"] <= 1000]
    assert pick("--limit", "7") == full[:7]
    largest = pick("--sort", "size", "--limit", "20")
    assert [chunk["size_bytes"] for chunk in largest] == sorted((chunk["size_bytes"] for chunk in full), reverse=True)[:20]
