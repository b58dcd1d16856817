"""`malloc-stats --json` equals what jemalloc itself printed while memory was as it is, figure by figure; and so do the other commands.

Files: commands/stats.py, jemalloc/arenas.py.
"""

from typing import Any, Dict, Iterator, List, Tuple

import pytest

from tests.support.hidden import hidden
from tests.support.jemalloc_record import Record, read
from tests.support.jemallocs import C_WAYS, EVERY_PAIR, WAYS, has_names, has_stats, pairs, start, version
from tests.support.processes import Lasting, Process, Stage
from tests.support.tool import heapx, told

pytestmark = [pytest.mark.image, pytest.mark.first]  # what its libjemalloc says of itself

CONFS = ("narenas:1", "tcache:false", "percpu_arena:percpu", "retain:false", "dirty_decay_ms:0", "san_guard_small:1,san_guard_large:2")

STATISTICS = ("stats", "stats.arenas")
"""The sections that count; the others say how jemalloc was built and set."""

MOVING = {
    "uptime_ns": "time goes on between the print and the stop",
    "mutexes": "printing takes locks, and counts them",
    "mutex": "printing takes locks, and counts them",
}
"""Figures that are others by the time of the stop: not compared, only asked to be there."""
ONLY_NAMES_TELL = ("background_thread", "zero_reallocs")
"""Of `stats`: null where names are hidden."""


def recorder(stage: Stage, way: str, conf: str = "", rest: str = "park") -> Process:
    """The program at rest inside malloc_stats_print's write callback, so that its print buffer is counted on both sides; or after it."""
    return start(stage, way, "recorder", rest, "4", "4", conf=conf)


def answer(process: Process, kind: str, command: str = "malloc-stats --allocator jemalloc") -> Dict[str, Any]:
    """What a command says, whole; all that the tests of this module ask a process is asked at once."""
    for envelope in told(process, kind, "malloc-stats --allocator jemalloc", "arenas"):
        assert envelope["partial"] is False, envelope["problems"]
    return dict(process.told[command]["data"])


def leaves(printed: Any, path: Tuple[str, ...] = ()) -> Iterator[Tuple[Tuple[str, ...], Any]]:
    """Every figure of a document, with its path."""
    if isinstance(printed, (dict, list)):
        pairs = printed.items() if isinstance(printed, dict) else ((str(number), entry) for number, entry in enumerate(printed))
        for key, entry in pairs:
            yield from leaves(entry, (*path, key))
    else:
        yield path, printed


def at(document: Any, path: Tuple[str, ...]) -> Any:
    """The figure at that path; KeyError, IndexError or TypeError if there is none."""
    for key in path:
        document = document[int(key)] if isinstance(document, list) else document[key]
    return document


def differences(printed: Dict[str, Any], found: Dict[str, Any], way: str, record: Record) -> List[Tuple[str, Any, Any]]:
    """Figures that are not the printed ones, but for the known exceptions."""
    differing = []
    large_cached = sum(block.usable for block in record.cached.values() if block.usable >= 16384)
    for path, own in leaves(printed):
        try:
            ours = at(found, path)
        except (KeyError, IndexError, TypeError):
            differing.append((".".join(path), own, "is not there"))
            continue
        if MOVING.keys() & set(path):
            continue
        if path[-1] == "tcache_bytes" and version(way) < (5, 3, 0) and own <= ours <= own + large_cached:
            continue  # up to 5.2.1 jemalloc leaves out its caches' large bins
        if ours is None and path[0] in ONLY_NAMES_TELL and is_nameless(way, "only names lead to the counters of background threads and of reallocs to 0"):
            continue
        if ours != own:
            differing.append((".".join(path), own, ours))
    return differing


def is_nameless(way: str, why: str) -> bool:
    """This build has no names here, by itself or because they are hidden."""
    return not has_names(way) or hidden("symbols", why)


@pytest.mark.parametrize("kind, way", EVERY_PAIR, indirect=["kind"])
def test_every_figure(lasting: Lasting, kind: str, way: str) -> None:
    """Per arena, per bin, per class of large blocks and of extents: each figure that jemalloc printed is the one that memory gives."""
    check_figures(lasting.of(kind, recorder, way), kind, way)


@pytest.mark.parametrize("conf", CONFS)
def test_every_figure_however_it_is_set(lasting: Lasting, core: str, conf: str) -> None:
    """The same with other numbers of arenas, without caches, with pages given back at once."""
    check_figures(lasting.of(core, recorder, "preload", conf), core, "preload")


def check_figures(process: Process, kind: str, way: str) -> None:
    """Compare both sections that count."""
    record = read(process)
    assert "stats.arenas" in record.json or not has_stats(way)
    found = answer(process, kind)["jemalloc"]
    for section in STATISTICS:
        printed = {key: figures for key, figures in record.json.get(section, {}).items() if key != "destroyed"}
        differing = differences(printed, found.get(section, {}), way, record)
        assert not differing, "%d in %s, of them (figure, printed, found) %s" % (len(differing), section, differing[:8])


@pytest.mark.parametrize("way", C_WAYS)
def test_destroyed_arenas(lasting: Lasting, kind: str, way: str) -> None:
    """What arenas that were destroyed had counted is only in jemalloc's own copy, which `destroyed` is read from."""
    process = lasting.of(kind, recorder, way)
    record = read(process)
    found = answer(process, kind)["jemalloc"]["stats.arenas"]
    printed = record.json["stats.arenas"]["destroyed"]
    assert printed["large"]["nmalloc"] == 1 or record.json["arenas"]["page"] > 4096, "with larger pages it is a small one"
    if is_nameless(way, "only a name leads to what destroyed arenas had counted"):
        assert found["destroyed"] is None
        return
    differing = differences(printed, found["destroyed"], way, record)
    assert not differing, differing[:8]


@pytest.mark.parametrize("way, conf", [(way, "") for way in WAYS] + [("preload", conf) for conf in CONFS])
def test_how_it_was_built_and_set(lasting: Lasting, core: str, way: str, conf: str) -> None:
    """Version, constants and options are those that jemalloc printed; what memory cannot say is null, never another value."""
    process = lasting.of(core, recorder, way, *([conf] if conf else []))
    record = read(process)
    found = dict(answer(process, core)["jemalloc"])
    sections = ["config", "opt"]
    if is_nameless(way, "constants that code alone has, and options that no code names, are null or not listed"):
        sections.append("arenas")
        found["opt"] = {**dict.fromkeys(record.json["opt"]), **found["opt"]}
    else:
        assert found["arenas"] == record.json["arenas"]
    if not hidden("libraries", "the release, and the code that leads to options, are in files"):
        assert found["version"] == record.json["version"]
        assert len([path for path, own in leaves(record.json["opt"]) if at(found["opt"], path) is not None]) > 10
    assert found["version"] in (record.json["version"], None) and {"page", "quantum", "nbins"} <= {key for key, value in found["arenas"].items() if value}
    for section in sections:
        wrong = [(path, own, at(found[section], path)) for path, own in leaves(record.json[section]) if at(found[section], path) not in (own, None)]
        assert not wrong, wrong[:8]


@pytest.mark.parametrize("kind, way", pairs(["preload", "rust-0.4", "rust-0.6-stats"]), indirect=["kind"])
def test_after_the_print(stage: Stage, kind: str, way: str) -> None:
    """At rest after the print too; from 5.3 on its 64 KiB buffer, of arena 0, is then freed: that arena differs by it, no other does."""
    process = recorder(stage, way, rest="after")
    record = read(process)
    found = heapx(process.target(kind), "malloc-stats", "--json", "--allocator", "jemalloc").data["jemalloc"]["stats.arenas"]
    for index, printed in record.json["stats.arenas"].items():
        if index == "destroyed":
            continue
        if version(way) >= (5, 3, 0) and index in ("0", "merged"):
            if record.json["arenas"]["page"] == 4096:  # with larger pages it is a small one, of a bin
                assert found[index]["large"]["allocated"] == printed["large"]["allocated"] - 65536
                assert found[index]["small"] == printed["small"]
            continue
        differing = differences(printed, found[index], way, record)
        assert not differing, (index, differing[:8])


@pytest.mark.parametrize("kind, way", EVERY_PAIR, indirect=["kind"])
def test_arenas_columns(lasting: Lasting, kind: str, way: str) -> None:
    """The columns of `arenas` are jemalloc's own figures, with and without its counters; the totals are its six words."""
    process = lasting.of(kind, recorder, way)
    record = read(process)
    data = answer(process, kind, "arenas")
    rows = {str(row["index"]): row for row in data["arenas"] if row["allocator"] == "jemalloc"}
    live = {}  # type: Dict[str, int]
    cached = record.cached.values() if version(way) < (5, 3, 1) else ()  # whose caches are flushed by the clock too: some may be free by now
    for block in [*record.live.values(), *cached]:
        live[str(block.arena)] = live.get(str(block.arena), 0) + block.usable
    for index, size in live.items():
        assert index == "None" or rows[index]["allocated_bytes"] >= size
    if not has_stats(way):
        return
    printed = {index: arena for index, arena in record.json["stats.arenas"].items() if index.isdigit()}
    assert set(rows) == set(printed)
    for index, row in rows.items():
        own = printed[index]
        page = record.json["arenas"]["page"]
        expected = {
            "allocated_bytes": own["small"]["allocated"] + own["large"]["allocated"],
            "active_bytes": own["pactive"] * page,
            "dirty_bytes": own["pdirty"] * page,
            "muzzy_bytes": own["pmuzzy"] * page,
            "retained_bytes": own["retained"],
            "metadata_bytes": own["base"] + own["internal"],
            "mapped_bytes": own["mapped"],
            "resident_bytes": own["resident"],
            "threads": own["nthreads"],
            "dirty_decay_ms": own["dirty_decay_ms"],
            "muzzy_decay_ms": own["muzzy_decay_ms"],
            "reclaimable_bytes": (own["pdirty"] + own["pmuzzy"]) * page,
        }
        assert {key: row[key] for key in expected} == expected, index
    totals = data["totals"]["jemalloc"]
    for word in ("allocated", "active", "metadata", "resident", "mapped", "retained"):
        assert totals[word + "_bytes"] == record.json["stats"][word], word
    # Cached blocks count where they lie, jemalloc's own figure where the cache belongs: only the sums must agree.
    recorded = sum(block.usable for block in record.cached.values())
    assert totals["cached_bytes"] == recorded or (version(way) >= (5, 3, 1) and totals["cached_bytes"] < recorded)  # flushed by the clock meanwhile
    if version(way) >= (5, 3, 0):
        assert totals["cached_bytes"] == record.json["stats.arenas"]["merged"]["tcache_bytes"]


@pytest.mark.parametrize("kind, way", pairs(["preload", "rust-0.4", "rust-0.6-stats"]), indirect=["kind"])
def test_text_has_its_words(lasting: Lasting, kind: str, way: str) -> None:
    """The text is in malloc_stats_print's own words, with its table of decay."""
    process = lasting.of(kind, recorder, way)
    record = read(process)
    outcome = heapx(process.target(kind), "malloc-stats", "--allocator", "jemalloc")
    assert outcome.code == 0
    text = outcome.stdout.decode()
    words = " ".join(text.split())
    stats = record.json["stats"]
    assert "Allocated: %d, active: %d, metadata: %d" % (stats["allocated"], stats["active"], stats["metadata"]) in words
    assert "resident: %d, mapped: %d, retained: %d" % (stats["resident"], stats["mapped"], stats["retained"]) in words
    assert "decaying: time npages sweeps madvises purged" in words
    for index, arena in record.json["stats.arenas"].items():
        if index.isdigit():
            assert "arenas[%s]:" % index in text
            figures = [arena["dirty_decay_ms"], arena["pdirty"], arena["dirty_npurge"], arena["dirty_nmadvise"], arena["dirty_purged"]]
            shown = " ".join("N/A" if figure == -1 else str(figure) for figure in figures)
            assert "dirty: " + shown in words, (index, shown)


@pytest.mark.parametrize("kind, way", pairs(["preload", "rust-0.6-stats", "rust-0.6"]), indirect=["kind"])
def test_no_counter_is_zero_where_none_is_kept(lasting: Lasting, kind: str, way: str) -> None:
    """A build without statistics has null for its counters, and totals from the walk over the extents."""
    process = lasting.of(kind, recorder, way)
    record = read(process)
    found = dict(leaves(answer(process, kind)["jemalloc"].get("stats.arenas", {})))
    counters = [found.get(path) for path in (("merged", "small", "nmalloc"), ("merged", "dirty_npurge"), ("merged", "bins", "0", "nmalloc"))]
    assert all(isinstance(counter, int) for counter in counters) if has_stats(way) else counters == [None, None, None]
    allocated = answer(process, kind, "arenas")["totals"]["jemalloc"]["allocated_bytes"]
    known = sum(block.usable for block in [*record.live.values(), *record.cached.values()])
    assert known <= allocated <= known + (4 << 20)
