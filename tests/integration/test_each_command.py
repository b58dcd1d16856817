"""Every command once, live and on a core: two programs, one gdb for each look. `make test` runs this; the other modules go into each command.

Files: analysis/checkup.py, commands/arenas.py, commands/chunks.py, commands/doctor.py, commands/tunables.py.
"""

import json
import os
import xml.etree.ElementTree as ElementTree
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import pytest

from gdbheapx.common import catalogue
from tests.support import jemallocs, kernelcore, mimallocs
from tests.support.addons import require_addon
from tests.support.bare import doorless, timeless
from tests.support.glibc import check_identity
from tests.support.other_machines import i386_flags
from tests.support.paths import COMMANDS
from tests.support.processes import Builder, Process, Stage
from tests.support.sums import check_sums
from tests.support.tool import acted, alone, answers, check_envelope, heapx, steps_of

pytestmark = [pytest.mark.once, pytest.mark.first]  # each command's own module runs in the images

PAGE = 4096
MB = 1 << 20
CONF = "prof:true,lg_prof_sample:12,dirty_decay_ms:-1,muzzy_decay_ms:-1,narenas:4"
"""What is freed stays until it is purged, and a profile is kept."""

Data = Dict[str, Any]
"""The data of every answer by the words of its command."""


class Looked(NamedTuple):
    """What one program was asked."""

    live: Data
    done: Optional[Dict[str, Any]]
    """Of the trim or the purge that was really made, between the two looks."""
    core: Data
    alone: Dict[str, Data]
    """The same without gdb, live and on the core."""
    reasons: Dict[str, str]
    """Why there is no such look."""
    repeated: Dict[str, List[Data]]
    """The lines of commands that repeat."""


# ---------------------------------------------------------------------------------------------------- what must be in each answer


def arenas_of_glibc(data: Data) -> None:
    """Four arenas of a thread each, every byte in a part."""
    check_identity(data["arenas"])
    rows = data["arenas"]["arenas"]
    assert [row["kind"] for row in rows] == ["main"] + ["thread"] * 3 and all(row["used_chunks"] > 1000 and row["free_bytes"] > 5 * MB for row in rows)


def bins_of_glibc(data: Data) -> None:
    """What is in bins and fastbins is what the arenas say is free."""
    rows, totals = data["bins"]["bins"], data["arenas"]["totals"]["glibc"]
    assert sum(row["bytes"] for row in rows) == totals["free_bytes"] + totals["fast_bytes"]
    assert {"small", "large"} <= {row["kind"] for row in rows}


def chunks_of_glibc(data: Data) -> None:
    """The listing has as many used chunks as the arenas, and as many bytes of them."""
    used = [row["size_bytes"] for row in data["chunks"]["chunks"] if row["status"] == "used"]
    totals = data["arenas"]["totals"]["glibc"]
    assert (len(used), sum(used)) == (totals["used_chunks"] + totals["mmapped_chunks"], totals["used_bytes"] + totals["mmapped_bytes"])


def histogram(data: Data) -> None:
    """The histogram counts what the listing lists."""
    rows = data["chunks --histogram"]["histogram"]
    assert sum(row["used_chunks"] for row in rows) == sum(1 for row in data["chunks"]["chunks"] if row["status"] == "used")
    assert sum(row["tcache_chunks"] for row in rows) > 0


def doctor(data: Data) -> None:
    """Nothing is wrong, and the kernel and gdb are among what it looked at."""
    rows = data["doctor"]["checks"]
    assert "gdb" in [row["what"] for row in rows] and all(row["found"] for row in rows)
    assert [row for row in rows if row["ok"] is False and row["what"] in ("glibc", "jemalloc")] == []


def malloc_info(data: Data) -> None:
    """Four heaps whose sizes are those of the arenas."""
    root = ElementTree.fromstring(data["malloc-info"]["xml"])
    sizes = [int(one.get("size", "")) for heap in root.findall("heap") for one in heap.findall("system[@type='current']")]
    assert sizes == [row["system_bytes"] for row in data["arenas"]["arenas"]]


def malloc_stats_of_glibc(data: Data) -> None:
    """mallinfo2's fields follow from the arenas'."""
    found, totals = data["malloc-stats"], data["arenas"]["totals"]["glibc"]
    assert found["arena"] == totals["system_bytes"] == found["uordblks"] + found["fordblks"]
    assert found["fordblks"] == totals["free_bytes"] + totals["fast_bytes"] + totals["top_bytes"]


def report_of_glibc(data: Data) -> None:
    """The allocator holds what the program has freed, until it is made to give that back; the parts are all there is."""
    found = data["report"]
    is_trimmed = found["memory"]["measure"] == "dumped"
    assert (found["verdict"]["kind"], found["verdict"]["code"]) == (("in-use", "part-held") if is_trimmed else ("kept", "freed-and-held"))
    check_split(found)


def check_split(found: Dict[str, Any]) -> None:
    """Every byte of RSS, or of the core, is in one part."""
    check_sums(found)
    assert found["memory"]["total_bytes"] > 30 * MB
    assert found["memory"]["allocator_bytes"] * 2 > found["memory"]["total_bytes"]


def tcache_of_glibc(data: Data) -> None:
    """The caches of four threads hold what the arenas say is in caches."""
    rows = data["tcache"]["threads"]
    assert len(rows) == 4 and sum(row["bytes"] for row in rows) == data["arenas"]["totals"]["glibc"]["tcache_bytes"] > 0


def trim_dry_run(data: Data) -> None:
    """Of each arena what the arenas say; something of it is there."""
    found = data["trim --dry-run"]
    assert found["way"] == "none" and found["predicted_bytes"] == data["arenas"]["totals"]["glibc"]["reclaimable_bytes"] > 10 * MB
    assert [row["interior_bytes"] + row["top_bytes"] for row in found["arenas"]] == [row["reclaimable_bytes"] for row in data["arenas"]["arenas"]]


def tunables_of_glibc(data: Data) -> None:
    """Thresholds as they are by default."""
    found = {row["name"]: row["value"] for row in data["tunables"]["tunables"]["glibc"]}
    assert found["trim_threshold"] == 128 << 10 and found["tcache_count"] > 0


def own(data: Data, words: str, key: str) -> List[Dict[str, Any]]:
    """jemalloc's rows."""
    return [row for row in data[words][key] if row["allocator"] == "jemalloc"]


def arenas_of_jemalloc(data: Data) -> None:
    """The columns of each arena agree with each other."""
    rows = own(data, "arenas", "arenas")
    assert len(rows) > 1 and all(row["used_bytes"] + row["cached_bytes"] == row["allocated_bytes"] <= row["active_bytes"] for row in rows)
    assert data["arenas"]["totals"]["jemalloc"]["used_bytes"] == sum(row["used_bytes"] for row in rows) > 0


def bins_of_jemalloc(data: Data) -> None:
    """Small classes in slabs, and unused pages: as many as the arenas have."""
    rows, totals = own(data, "bins", "bins"), data["arenas"]["totals"]["jemalloc"]
    assert sum(row["bytes"] for row in rows if row["kind"] == "dirty") == totals["dirty_bytes"]
    assert sum(row["used_bytes"] for row in rows if row["kind"] in ("small", "large")) == totals["used_bytes"]


def chunks_of_jemalloc(data: Data) -> None:
    """As many used blocks as the arenas have."""
    used = [row["size_bytes"] for row in own(data, "chunks", "chunks") if row["status"] == "used"]
    totals = data["arenas"]["totals"]["jemalloc"]
    assert (len(used), sum(used)) == (totals["used_blocks"], totals["used_bytes"])


def decay(data: Data) -> None:
    """Two rows an arena; purging is switched off, and the dirty pages are those of the arenas."""
    rows = own(data, "decay", "arenas")
    assert {row["driven"] for row in rows} == {"never"} and {row["decay_ms"] for row in rows} == {-1}
    assert sum(row["bytes"] for row in rows if row["state"] == "dirty") == data["arenas"]["totals"]["jemalloc"]["dirty_bytes"]


def malloc_stats_of_jemalloc(data: Data) -> None:
    """malloc_stats_print's document: the options as they were given, the sums as the arenas have them."""
    found, totals = data["malloc-stats"]["jemalloc"], data["arenas"]["totals"]["jemalloc"]
    assert (found["opt"]["narenas"], found["opt"]["dirty_decay_ms"]) == (4, -1)
    assert (found["stats"]["active"], found["stats"]["mapped"]) == (totals["active_bytes"], totals["mapped_bytes"])


def profile(data: Data) -> None:
    """A profile as jeprof reads it: the sums, backtraces, the mappings."""
    found = data["profile"]
    lines = found["profile"].splitlines()
    assert (lines[0], found["sample_bytes"]) == ("heap_v2/4096", 4096) and "MAPPED_LIBRARIES:" in lines
    assert sum(line.startswith("@ ") for line in lines) == found["backtraces"] > 0


def purge_dry_run(data: Data) -> None:
    """Dirty and muzzy pages, as the arenas have them."""
    found, totals = data["purge --dry-run"], data["arenas"]["totals"]["jemalloc"]
    assert found["way"] == "none" and found["predicted_bytes"] == totals["dirty_bytes"] + totals["muzzy_bytes"] == totals["reclaimable_bytes"]


def report_of_jemalloc(data: Data) -> None:
    """Purging is off, which is said beside the verdict."""
    found = data["report"]
    assert found["verdict"]["code"] in ("unused-pages", "part-held", "in-use", "small-heap") and "jemalloc" in found["verdicts"]
    key = "resident_bytes" if found["memory"]["measure"] == "resident" else "dumped_bytes"
    assert sum(part[key] for part in found["split"]) == found["memory"]["total_bytes"]
    assert "purging-off" in [one["code"] for one in found["findings"]] + [one["code"] for one in found["verdict"]["lines"]]


def tcache_of_jemalloc(data: Data) -> None:
    """The caches hold what the arenas say is in caches."""
    rows = own(data, "tcache", "threads")
    assert sum(row["chunks"] for row in rows) == data["arenas"]["totals"]["jemalloc"]["cached_blocks"] > 0


def tickers(data: Data) -> None:
    """Nobody is blind; no arena is purged by itself."""
    found = data["tickers"]
    assert len(found["threads"]) >= 3 and found["counts"]["blind"] == 0
    assert "never" in {row["verdict"] for row in found["arenas"]}


def tunables_of_jemalloc(data: Data) -> None:
    """The options, and where they came from: the environment of a core lies on its stack."""
    found = {row["name"]: row["value"] for row in data["tunables"]["tunables"]["jemalloc"]}
    assert found["opt.narenas"] == 4 and found["opt.prof"] is True
    assert [one["text"] for one in data["tunables"]["sources"]["jemalloc"] if one["text"]] == [CONF]


def check(data: Data) -> None:
    """Nothing is broken in a program that does nothing wrong."""
    assert data["check"] == {"findings": []}


def whatis(data: Data) -> None:
    """An address in no mapping is an answer that says so."""
    found = data["whatis 4096"]
    assert (found["address"], found["places"], found["mapping"], found["held_by"]) == ("0x1000", [], None, None)


def leaks(data: Data) -> None:
    """Held, maybe and leaked are all used blocks; each that is not held is listed."""
    found = data["leaks --list"]
    classes, used = found["classes"], [row for row in data["chunks"]["chunks"] if row["status"] == "used"]
    assert classes["held"]["blocks"] > 100 and 0 <= len(used) - sum(one["blocks"] for one in classes.values()) < 100  # the allocator's own
    assert len(found["blocks"]) == classes["maybe"]["blocks"] + classes["leaked"]["blocks"]
    assert sum(one["blocks"] + one["behind_blocks"] for one in found["groups"]) == classes["leaked"]["blocks"]


def owners(data: Data) -> None:
    """Of the same blocks; nobody keeps more than he reaches, all together no more than is in use."""
    found, classes = data["owners --limit 1000"], data["leaks --list"]["classes"]
    assert found["used"]["blocks"] == sum(one["blocks"] for one in classes.values())
    assert sum(one["retained_bytes"] for one in found["owners"]) + found["leaked"]["bytes"] <= found["used"]["bytes"]
    assert all(one["reached_bytes"] is None or one["reached_bytes"] >= one["retained_bytes"] for one in found["owners"])


def refs(data: Data) -> None:
    """The block that was asked for; each chain that is not lost ends at a root."""
    found = data["refs BLOCK"]
    assert found["address"] in {row["address"] for row in data["chunks"]["chunks"]}
    assert len(found["chains"]) <= found["referrers"] and (found["evidence"] != "start" or found["chains"][0][-1]["root"])


def census(data: Data) -> None:
    """Every used block is in one row."""
    found, classes = data["census"], data["leaks --list"]["classes"]
    assert sum(row["blocks"] for row in found["rows"]) == found["used"]["blocks"] == sum(one["blocks"] for one in classes.values())
    assert sum(row["bytes"] for row in found["rows"]) == found["used"]["bytes"] == sum(one["bytes"] for one in classes.values())
    assert found["managed"] == []


def snapshot(data: Data) -> None:
    """Every command that reads all blocks has its answer in the file."""
    found = data["snapshot /dev/null"]
    assert {"report", "arenas", "leaks", "owners", "pins", "census"} <= set(found["answers"]) and found["file_bytes"] > 5000


def export(data: Data) -> None:
    """Stacks of all blocks in use, each once."""
    found, used = data["export --format folded"]["stacks"], data["census"]["used"]
    assert (sum(one["blocks"] for one in found), sum(one["bytes"] for one in found)) == (used["blocks"], used["bytes"])


def pins(data: Data) -> None:
    """What is kept is what `arenas` has; each byte of it is in one row."""
    found = data["pins"]
    assert sum(one["kept_bytes"] for one in found["groups"]) == found["kept_bytes"]
    assert [one["difference_bytes"] for one in found["sums"] if one["arenas_bytes"] is not None] == [0] * len(found["sums"])
    rows = [row for row in data["arenas"]["arenas"] if row["allocator"] == found["sums"][0]["allocator"]]
    if "top_bytes" in rows[0]:
        assert found["kept_bytes"] == sum(row["free_bytes"] + row["fast_bytes"] + row["top_bytes"] - row["reclaimable_bytes"] for row in rows)
    else:
        assert found["kept_bytes"] == sum(row["bytes"] for row in data["bins"]["bins"] if row["kind"] == "small")


def what_if(data: Data) -> None:
    """The settings of each allocator, once; what returns memory saves what it says itself; a core does not tell RSS."""
    found = data["what-if"]
    keys = [(one["allocator"], one["code"], one["setting"]) for one in found["settings"]]
    assert len(set(keys)) == len(keys) > 0
    for one in found["settings"]:
        ends = one["then_least_bytes"], one["then_most_bytes"]
        assert found["rss_bytes"] is not None or ends == (None, None)
        assert None in ends or ends[0] <= ends[1]
        if one["code"] in ("trim", "purge") and one["kind"] == "exact":
            dry = data.get("%s --dry-run" % one["code"])
            assert dry is None or dry["predicted_resident_bytes"] == one["saves_most_bytes"] == one["saves_least_bytes"]


EVERYWHERE: Dict[str, Callable[[Data], None]] = {
    "check": check,
    "leaks --list": leaks,
    "owners --limit 1000": owners,
    "census": census,
    "export --format folded": export,
    "pins": pins,
    "refs BLOCK": refs,
    "snapshot /dev/null": snapshot,
    "what-if": what_if,
    "whatis 4096": whatis,
}
GLIBC: Dict[str, Callable[[Data], None]] = {
    **EVERYWHERE,
    "arenas": arenas_of_glibc,
    "bins": bins_of_glibc,
    "chunks": chunks_of_glibc,
    "chunks --histogram": histogram,
    "doctor": doctor,
    "malloc-info": malloc_info,
    "malloc-stats": malloc_stats_of_glibc,
    "report": report_of_glibc,
    "tcache": tcache_of_glibc,
    "trim --dry-run": trim_dry_run,
    "tunables": tunables_of_glibc,
}
JEMALLOC: Dict[str, Callable[[Data], None]] = {
    **EVERYWHERE,
    "arenas": arenas_of_jemalloc,
    "bins": bins_of_jemalloc,
    "chunks": chunks_of_jemalloc,
    "decay": decay,
    "doctor": doctor,
    "malloc-stats": malloc_stats_of_jemalloc,
    "profile": profile,
    "purge --dry-run": purge_dry_run,
    "report": report_of_jemalloc,
    "tcache": tcache_of_jemalloc,
    "tickers": tickers,
    "tunables": tunables_of_jemalloc,
}


def arenas_of_mimalloc(data: Data) -> None:
    """What threads own, every byte in a part; the listing has the same blocks in use."""
    rows = [row for row in data["arenas"]["arenas"] if row["allocator"] == "mimalloc"]
    mimallocs.adds_up(rows)
    used = [row["usable_bytes"] for row in data["chunks"]["chunks"] if row["status"] == "used" and row["allocator"] == "mimalloc"]
    assert (len(used), sum(used)) == tuple(sum(row[name] for row in rows) for name in ("used_blocks", "used_bytes")) > (100, 0)


def bins_of_mimalloc(data: Data) -> None:
    """Block sizes add up to the arenas."""
    rows, totals = own_of_mimalloc(data["bins"]["bins"]), data["arenas"]["totals"]["mimalloc"]
    for name in ("used_blocks", "used_bytes", "free_bytes", "remote_free_bytes", "reserve_bytes"):
        assert sum(row[name] for row in rows) == totals[name], name


def own_of_mimalloc(rows: List[Data]) -> List[Data]:
    return [row for row in rows if row["allocator"] == "mimalloc"]


def chunks_of_mimalloc(data: Data) -> None:
    """By address, in mimalloc's words."""
    rows = own_of_mimalloc(data["chunks"]["chunks"])
    assert {"used", "free", "metadata"} <= {row["status"] for row in rows} and [row["address"] for row in rows] == sorted(row["address"] for row in rows)


def report_of_mimalloc(data: Data) -> None:
    """It has a verdict of its own."""
    check_sums(data["report"])
    assert "mimalloc" in data["report"]["verdicts"] and data["report"]["totals"]["mimalloc"] == data["arenas"]["totals"]["mimalloc"]


def pins_of_mimalloc(data: Data) -> None:
    """What is kept is what `arenas` has as free; each byte of it is in one row."""
    found = data["pins"]
    assert [one["difference_bytes"] for one in found["sums"] if one["arenas_bytes"] is not None] == [0] * len(found["sums"])
    (own,) = own_of_mimalloc(found["sums"])
    assert own["kept_bytes"] == data["arenas"]["totals"]["mimalloc"]["free_bytes"]


def doctor_of_mimalloc(data: Data) -> None:
    """Its release, and how it was found."""
    checks = "\n".join(row["found"] for row in data["doctor"]["checks"])
    assert "structures of mimalloc" in checks and "addresses by structure" in checks


MIMALLOC: Dict[str, Callable[[Data], None]] = {
    **EVERYWHERE,
    "arenas": arenas_of_mimalloc,
    "bins": bins_of_mimalloc,
    "chunks": chunks_of_mimalloc,
    "doctor": doctor_of_mimalloc,
    "report": report_of_mimalloc,
    "pins": pins_of_mimalloc,
}


def report_of_i386(data: Data) -> None:
    """The same verdict live and on a core: nothing can be returned in between."""
    assert (data["report"]["verdict"]["kind"], data["report"]["verdict"]["code"]) == ("kept", "freed-and-held")
    check_split(data["report"])


I386 = "glibc of i386"
CASES = {"glibc": GLIBC, I386: {**GLIBC, "report": report_of_i386}, "jemalloc": JEMALLOC, "mimalloc": MIMALLOC}


def watch_of_glibc(lines: List[Data], data: Data) -> None:
    """Of a process at rest the counters are what the walk counts; what is in use includes what thread caches hold."""
    told, totals = lines[1]["allocators"]["glibc"], data["arenas"]["totals"]["glibc"]
    assert [one["kind"] for one in lines] == ["start", "sample", "sample", "end"] and lines[0]["allocators"][0]["estimates"]
    for key in ("system_bytes", "top_bytes", "mmapped_bytes"):
        assert told[key] == totals[key], key
    assert told["free_bytes"] == totals["free_bytes"] + totals["fast_bytes"] > 10 * MB
    assert told["used_bytes"] == told["held_bytes"] - told["kept_bytes"]


def watch_of_jemalloc(lines: List[Data], data: Data) -> None:
    """Its own counters; what is allocated as malloc_stats_print has it, which counts a sampled block as the large one that it takes."""
    told, totals = lines[2]["allocators"]["jemalloc"], data["arenas"]["totals"]["jemalloc"]
    assert told["allocated_bytes"] == data["malloc-stats"]["jemalloc"]["stats"]["allocated"] >= totals["allocated_bytes"]
    for key in ("arenas", "active_bytes", "dirty_bytes", "muzzy_bytes", "retained_bytes"):
        assert told[key] == totals[key], key
    assert told["used_bytes"] == told["allocated_bytes"] > 0 and lines[0]["allocators"][0]["estimates"] == []


def watch_of_mimalloc(lines: List[Data], data: Data) -> None:
    """Its pages' own counters; what other threads have freed counts as used."""
    told, totals = lines[2]["allocators"]["mimalloc"], data["arenas"]["totals"]["mimalloc"]
    for key in ("pages", "free_bytes", "reserve_bytes", "span_bytes", "held_bytes"):
        assert told[key] == totals[key], key
    assert told["used_bytes"] == totals["used_bytes"] + totals["remote_free_bytes"] > 0


REPEATING = {"watch --every 0.05 --times 2": {"glibc": watch_of_glibc, I386: watch_of_glibc, "jemalloc": watch_of_jemalloc, "mimalloc": watch_of_mimalloc}}
"""Commands that write a JSON object a line, from a shell alone."""
ACTIONS = {"glibc": "trim", "jemalloc": "purge"}


# ---------------------------------------------------------------------------------------------------- looks


def start(stage: Stage, allocator: str) -> Process:
    """Four threads that left free memory behind, or three; at rest."""
    if allocator == "glibc":
        return stage.start("trimmer", "arenas")
    if allocator == I386:
        return stage.start("trimmer", "arenas", flags=i386_flags(stage.builder))
    if allocator == "mimalloc":
        require_addon("allocators")
        return stage.start("victim", "rest", env={"LD_PRELOAD": str(mimallocs.library())})
    return stage.start("victim", "rest", env={"LD_PRELOAD": str(jemallocs.library()), "MALLOC_CONF": CONF})


def used_block(process: Process, kind: str) -> str:
    """The address of one."""
    rows = alone(process.target(kind), "chunks", "--status", "used", "--limit", "20", "--json").envelope["data"]["chunks"]
    return str(rows[-1]["address"])


def look(process: Process, kind: str, allocator: str) -> Data:
    """Every command's data from one gdb."""
    block = used_block(process, kind)
    envelopes = answers(process.target(kind), process.folder, *(words.replace("BLOCK", block) for words in CASES[allocator]))
    for envelope in envelopes:
        assert envelope["partial"] is False and envelope["target"]["kind"] == kind, (envelope["command"], envelope["problems"])
    return {words: envelope["data"] for words, envelope in zip(CASES[allocator], envelopes)}


def look_alone(process: Process, kind: str, allocator: str) -> Data:
    """The same without gdb, one run of the tool each."""
    found: Data = {}
    block = used_block(process, kind)
    for words in CASES[allocator]:
        # a gdb can be found, so that what needs one may be advised
        outcome = alone(process.target(kind), *words.replace("BLOCK", block).split(), "--json", env={"PATH": os.environ["PATH"]}, is_started=True)
        found[words], envelope = outcome.data, outcome.envelope
        assert (outcome.code, envelope["tool"]["gdb"], envelope["target"]["kind"]) == (0, None, kind)
        assert (envelope["target"]["stopped_ms"] is None) == (kind == "core")
    return found


@pytest.fixture(scope="module")
def looked(builder: Builder, attach_reason: str) -> Iterator[Callable[[str], Looked]]:
    """By allocator: asked live, made to give memory back, ended with a core, and that asked; once each."""
    stage = Stage(builder)
    seen: Dict[str, Looked] = {}

    def of(allocator: str) -> Looked:
        if allocator not in seen:
            process = start(stage, allocator)
            no_core = kernelcore.reason() or ""
            without = {"live": {}, "core": {}}  # type: Dict[str, Data]
            if not attach_reason:
                without["live"] = look_alone(process, "live", allocator)
            asked = () if attach_reason else REPEATING
            repeated = {words: heapx(process.target("live"), *words.split(), "--json").lines for words in asked}
            live = {} if attach_reason else look(process, "live", allocator)
            done = None
            if not attach_reason and allocator in ACTIONS:
                outcome = heapx(process.target("live"), ACTIONS[allocator], "--yes", "--json")
                done = outcome.data
                check_envelope(outcome.envelope)
            core = {} if no_core else look(process, "core", allocator)
            if not no_core:
                without["core"] = look_alone(process, "core", allocator)
            seen[allocator] = Looked(live, done, core, without, {"live": attach_reason, "core": no_core}, repeated)
        return seen[allocator]

    yield of
    stage.close()


def seen(looked: Callable[[str], Looked], allocator: str, kind: str) -> Tuple[Looked, Data]:
    """What the program was asked, and the look of this kind; skips, with the reason, where there is none."""
    found = looked(allocator)
    if found.reasons[kind]:
        pytest.skip(found.reasons[kind])
    return found, found.live if kind == "live" else found.core


def cases() -> List[Any]:
    """Each command on each allocator that it is about, both ways."""
    both: List[Tuple[str, str, str]] = [(allocator, words, kind) for allocator, of in CASES.items() for words in of for kind in ("live", "core")]
    return [pytest.param(*case, marks=pytest.mark.live if case[2] == "live" else ()) for case in both]


@pytest.mark.parametrize("allocator, words, kind", cases())
def test_a_command_answers(looked: Callable[[str], Looked], allocator: str, words: str, kind: str) -> None:
    """Its figures agree with those that other commands have of the same moment."""
    CASES[allocator][words](seen(looked, allocator, kind)[1])


@pytest.mark.parametrize("allocator, words, kind", cases())
def test_a_command_answers_the_same_without_gdb(looked: Callable[[str], Looked], allocator: str, words: str, kind: str) -> None:
    """--gdb none: the same data, but for what is said of gdb and of where layouts come from, and for times."""
    found, data = seen(looked, allocator, kind)
    assert settled(bare(found.alone[kind][words]), words) == settled(bare(data[words]), words)


def bare(data: Any) -> Any:
    """The same without what differs between a shell and gdb in the commands that it names."""
    return json.loads(doorless(json.dumps(data)))


def settled(data: Any, words: str) -> Any:
    """What two runs of a command on a target at rest must have in common."""
    if words.startswith("snapshot"):  # its file has the moment, and how long the process stood still
        return {**data, "file_bytes": 0, "taken": ""}
    if words == "doctor":
        return [(row["what"], row["ok"]) for row in data["checks"] if row["what"] not in ("gdb", "calls")]
    if words == "report":  # to attach gdb to a process brings pages of files in, and its layouts come from debug information
        own = [part for part in data["split"] if part["kind"] == "allocator"]
        same = {key: value for key, value in data.items() if key not in ("allocators", "memory", "next")}
        whole = [(one["command"], timeless(one["why"])) for one in data["next_steps"] if " what-if" not in str(one["command"])]
        return {**same, "split": own, "next": [timeless(step) for step in steps_of(data) if not step.startswith("what-if")], "next_steps": whole}
    if words == "what-if":  # RSS, as above; it is the most that can be saved
        own = [one for one in data["settings"] if one["allocator"] and one["saves_most_bytes"] != data["rss_bytes"]]
        return sorted((one["allocator"], one["setting"], one["saves_most_bytes"], one["is_in_force"]) for one in own)
    if words == "malloc-stats" and "jemalloc" in data:
        per_arena = data["jemalloc"]["stats.arenas"].items()
        return {**data["jemalloc"], "stats.arenas": {name: {**one, "uptime_ns": None} for name, one in per_arena}}
    return data


@pytest.mark.live
@pytest.mark.parametrize("words", sorted(REPEATING))
@pytest.mark.parametrize("allocator", sorted(CASES))
def test_a_command_repeats(looked: Callable[[str], Looked], allocator: str, words: str) -> None:
    """Its lines agree with what another command has of the same moment."""
    found, _ = seen(looked, allocator, "live")
    REPEATING[words][allocator](found.repeated[words], found.live)


@pytest.mark.live
@pytest.mark.parametrize("allocator", sorted(ACTIONS))
def test_an_action_gives_back_what_was_predicted(looked: Callable[[str], Looked], allocator: str) -> None:
    """trim and purge, really made: RSS falls by the bytes that the dry run had named, within a page an arena for jemalloc."""
    found, _ = seen(looked, allocator, "live")
    done, dry = acted(found.done), found.live["%s --dry-run" % ACTIONS[allocator]]
    assert done["predicted_bytes"] == dry["predicted_bytes"] and done["predicted_resident_bytes"] == dry["predicted_resident_bytes"] > 5 * MB
    slack = 0 if allocator == "glibc" else PAGE * len(found.live["arenas"]["arenas"])
    assert abs(-done["anonymous_diff_bytes"] - done["predicted_resident_bytes"]) <= slack


def test_every_command_has_a_case() -> None:
    """A new command's file needs a case here; `cold` a process that runs on (test_cold.py), `diff`, `fleet` has no target (test_snapshot.py, test_fleet.py), `query` needs DuckDB (test_query.py), `explore` a
    terminal (test_explore.py), `bill` a memory cgroup (test_bill.py), `release` is trim or purge (test_release.py), `serve` an endpoint (test_serve.py), `mcp` a client (test_agents.py), `capture` a crash (test_capture.py)."""
    asked = {catalogue.ALIASES.get(words.split()[0], (words.split()[0],))[0] for of in [*CASES.values(), REPEATING] for words in of}
    there = {path.stem.replace("_", "-") for path in COMMANDS}
    assert there - {"bill", "capture", "cold", "diff", "explore", "fleet", "mcp", "query", "release", "serve"} == asked
