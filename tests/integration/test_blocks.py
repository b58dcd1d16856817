"""Against a program that records its own blocks: every live block is used, no freed one is."""

import struct
from typing import Any, Dict, List, Set, Tuple

import pytest

from tests.support.glibc import check_identity
from tests.support.processes import Lasting, Process, Stage
from tests.support.tool import told

pytestmark = [pytest.mark.image, pytest.mark.first]  # where its libc puts blocks

CASES = {
    "one-thread": ("1", "20000", "5"),
    "nine-threads": ("9", "2000", "5"),
    "sixty-five-threads": ("65", "400", "4"),
    "subheaps": ("3", "1500", "3", "subheaps"),
}


ASKED = ("arenas", "chunks", "chunks --histogram", "bins", "tcache")
"""What the tests ask of each process, at once."""


def asked(lasting: Lasting, kind: str, case: str, *commands: str) -> List[Any]:
    """What these commands say of a case, whole answers."""
    process = lasting.of(kind, Stage.start, "recorder", *CASES[case])
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


@pytest.mark.parametrize("case", CASES)
def test_every_live_block_is_used_and_no_freed_one(lasting: Lasting, kind: str, case: str) -> None:
    """Each recorded live block is listed as used or mmapped, large enough for its request; each freed one is not."""
    live, freed = recorded(lasting.of(kind, Stage.start, "recorder", *CASES[case]))
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


@pytest.mark.parametrize("case", CASES)
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
    assert lasting.of(kind, Stage.start, "recorder", *CASES["nine-threads"]).pid in {thread["lwp"] for thread in threads}
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
    "chunks --arena 1",
    "chunks --status free --status fast",
    "chunks --min-size 200 --max-size 1000",
    "chunks --limit 7",
    "chunks --sort size --limit 20",
)
"""Asked at once; what is asked otherwise is asked alone."""


def test_filters_choose_from_the_full_list(lasting: Lasting, kind: str) -> None:
    """--arena, --status, --min-size, --max-size, --limit and --sort give exactly the chunks that a reader would pick."""
    process = lasting.of(kind, Stage.start, "recorder", *CASES["nine-threads"])
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
