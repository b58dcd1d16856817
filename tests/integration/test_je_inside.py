"""Work inside jemalloc while it is looked at, and extents that a program's hooks can never return."""

import json
import os
from pathlib import Path
from typing import Any, Dict, List

import pytest

from gdbheapx.layout import pack
from tests.support.jemalloc_inside import Inside, inside
from tests.support.jemalloc_record import read
from tests.support.jemallocs import BUILDS, has_stats, library_version, start, version
from tests.support.processes import Lasting, Process, Stage, by_turns
from tests.support.tool import Outcome, heapx, steps_of, told

pytestmark = pytest.mark.once  # programs that bring their jemalloc with them

MB = 1 << 20
STRIPPED = {
    "static program": Inside(static=True),
    "program": Inside(),
    "program, names of its own": Inside(prefix="xy_"),
    "loaded library": Inside(prefix="xy_", library=True),
}
NAMED = Inside(prefix="xy_", stripped=False)


def stripped(stage: Stage, way: str) -> Process:
    """One of those without symbols, that holds enough for `report` to tell."""
    return inside(stage, STRIPPED[way], 40)


def named() -> str:
    """The release that the archive is of."""
    return ".".join(map(str, library_version()))


def sentences(data: Dict[str, Any]) -> List[str]:
    """Verdict and findings of a report."""
    return ["%s: %s" % (line["what"], line["evidence"]) for line in data["verdict"]["lines"] + data["findings"]]


# ---------------------------------------------------------------------------------------------------- without symbols


@by_turns("way", STRIPPED)
def test_one_without_symbols_is_read(lasting: Lasting, kind: str, way: str) -> None:
    """By its structure: a static program's, one under names of its own, one that is loaded at run time. What the program holds is there."""
    target = lasting.of(kind, stripped, way).target(kind)
    tickers = heapx(target, "tickers", "--json")
    assert tickers.code in (0, 3) and not tickers.envelope["partial"], tickers.envelope["problems"]
    assert tickers.data["unread"] == [] and tickers.data["threads"] and tickers.data["affected"] is ((5, 0, 1) <= library_version() < (5, 3, 0))
    envelope = heapx(target, "arenas", "--json", "--allocator", "jemalloc").envelope
    (info,) = [one for one in envelope["allocators"] if one["name"] == "jemalloc"]
    assert (info["layout"], info["address_source"], info["version"]) == ("table", "probe", named())
    assert envelope["data"]["totals"]["jemalloc"]["allocated_bytes"] >= 3 * MB


@pytest.mark.parametrize("command", ["profile", "purge --yes"])
def test_refusals_name_what_is_there(stage: Stage, live: str, command: str) -> None:
    """A command that needs names says so in one line, with the next step."""
    process = inside(stage, STRIPPED["program, names of its own"], 8)
    outcome = heapx(process.target(live), *command.split())
    assert outcome.code == 1 and len(outcome.stderr.strip().splitlines()) == 1, outcome.stderr
    assert ";" in outcome.stderr, outcome.stderr


def test_its_unstripped_file_has_it_read(stage: Stage, kind: str) -> None:
    """The way that the refusal names: the same build with its symbols, below a directory of debug files."""
    process = inside(stage, STRIPPED["program, names of its own"], 8)
    kept = Path(process.executable)
    with_symbols = inside(stage, NAMED, 8)
    build_id = next(one["build_id"] for one in heapx(with_symbols.target("live"), "arenas", "--json").envelope["allocators"] if one["name"] == "jemalloc")
    checks = heapx(process.target(kind), "doctor", "--json").data["checks"]
    hint = next(one["hint"] for one in checks if one["found"].startswith("no names"))
    wanted = next(word for word in hint.split() if word.startswith("DIR/.build-id/"))
    assert kept.exists() and build_id
    place = kept.parent / "debug" / wanted[len("DIR/") :]
    assert wanted.endswith("%s/%s.debug" % (build_id[:2], build_id[2:]))
    place.parent.mkdir(parents=True)
    os.link(with_symbols.executable, place)
    data = heapx(process.target(kind), "--debug-dir", str(kept.parent / "debug"), "tickers", "--json").data
    assert data["unread"] == [] and data["arenas"]


PROGRAMS = {
    "bash": ["bash", "-c", "echo ready; read line"],
    "python3": ["/usr/bin/python3", "-c", "import ctypes, decimal, hashlib, json, lzma, ssl, sqlite3; print('ready', flush=True); input()"],
    "perl": ["perl", "-e", "$| = 1; print \"ready\\n\"; <STDIN>"],
}


@by_turns("name", PROGRAMS)
def test_no_other_program_is_taken_for_one(stage: Stage, kind: str, name: str) -> None:
    """tickers of programs without a jemalloc is whole: exit 0, not affected."""
    process = stage.spawn_ready(PROGRAMS[name])
    data = heapx(process.target(kind), "tickers", "--json").data
    assert data["affected"] is False and data["unread"] == [] and data["threads"] == []


# ---------------------------------------------------------------------------------------------------- names of its own


def test_advice_has_the_builds_own_names(stage: Stage, kind: str) -> None:
    """The call that report names is the one that the program has."""
    process = inside(stage, NAMED, 64)
    data = heapx(process.target(kind), "report", "--json").data
    steps = " ".join(steps_of(data))
    assert 'xy_mallctl("arena.4096.purge"' in steps, steps
    assert not any(word.startswith("mallctl(") for word in steps.split())
    rows = heapx(process.target(kind), "doctor", "--json").data["checks"]
    assert any("private names begin with `xy_private_je_`, public names with `xy_`" in row["found"] for row in rows)


def test_options_are_found_under_the_public_prefix(stage: Stage, kind: str) -> None:
    """The program's own xy_malloc_conf, and the environment's variable under the name that the build looks for."""
    how = NAMED._replace(defines=('JE_CONF="dirty_decay_ms:4321,narenas:3"',))
    process = inside(stage, how, 8, {"MALLOC_CONF": "narenas:2"})
    data = heapx(process.target(kind), "tunables", "--json").data
    sources = {one["name"]: one["text"] for one in data["sources"]["jemalloc"]}
    assert sources["the variable xy_malloc_conf"] == "dirty_decay_ms:4321,narenas:3"
    rows = {row["name"]: row for row in data["tunables"]["jemalloc"]}
    assert rows["opt.dirty_decay_ms"]["value"] == 4321 and rows["opt.dirty_decay_ms"]["set_in"] == "the variable xy_malloc_conf"
    if kind == "live":
        assert sources["the environment, MALLOC_CONF"] == "narenas:2"  # objcopy renames symbols, not texts: this build does look there
        assert rows["opt.narenas"]["value"] == 2 and rows["opt.narenas"]["set_in"] == "the environment, MALLOC_CONF"


def test_purge_calls_the_builds_own_mallctl(stage: Stage, live: str) -> None:
    """It was not found although the symbol table has it; and main, next to jemalloc's code, is outside of it."""
    process = inside(stage, NAMED, 64)
    data = heapx(process.target(live), "purge", "--yes", "--json").data
    assert data["returned"] == 0 and data["call"].startswith('xy_mallctl("arena.4096.purge"')
    assert data["dirty_before_pages"] > 1000 and data["dirty_after_pages"] == 0 and data["rss_diff_bytes"] < -10 * MB


def test_arenas_of_the_programs_own(stage: Stage, kind: str) -> None:
    """Unused pages in an arena that arenas.create made are not left there by threads that have ended."""
    process = inside(stage, NAMED._replace(defines=("JE_ARENA",)), 64)
    said = sentences(heapx(process.target(kind), "report", "--json").data)
    assert any("arenas that the program made" in line and "arenas.create" in line for line in said), said
    assert not any("have exited" in line for line in said), said


# ---------------------------------------------------------------------------------------------------- another layout


def test_a_snapshot_without_a_slab_is_not_its_release(stage: Stage, kind: str) -> None:
    """Made nine commits after the release, by its own account, and nothing to prove the release's layout on: named, not read."""
    process = inside(stage, NAMED._replace(commits=9), 0)
    outcome = heapx(process.target(kind), "tickers", "--json")
    data = outcome.envelope["data"]
    assert outcome.code == 4 and data["affected"] is None and data["threads"] == []
    (unread,) = data["unread"]
    assert unread["why"] == "snapshot" and unread["version_text"].startswith(named() + "-9-g")
    assert any("made 9 commits after %s" % named() in one["what"] for one in outcome.envelope["problems"])


def test_a_snapshot_whose_slabs_hold_is_read(stage: Stage, kind: str) -> None:
    """And keeps its name."""
    process = inside(stage, NAMED._replace(commits=9), 8)
    envelope = heapx(process.target(kind), "arenas", "--json").envelope
    (found,) = [one for one in envelope["allocators"] if one["name"] == "jemalloc"]
    assert found["version"].startswith(named() + "-9-g") and envelope["data"]["totals"]["jemalloc"]["allocated_bytes"] >= 3 * MB


def test_arenas_that_name_another_index_refute_the_layout(stage: Stage, kind: str) -> None:
    """What a release's layout makes of another build: nothing of it is told as a figure."""
    process = inside(stage, NAMED, 8)
    rows = heapx(process.target("live"), "arenas", "--json", "--allocator", "jemalloc").data["arenas"]
    types = next(one.types for one in pack.shipped_packs() if (one.version_text or "").startswith(named() + "-"))
    for row in rows:
        overwrite_index(process, types, int(row["address"], 16), 1234567)
    outcome = heapx(process.target(kind), "report", "--json")
    problems = outcome.envelope["problems"]
    assert any("arenas[0] points to a struct that says it is arena 1234567" in one["what"] for one in problems), problems
    assert "jemalloc" not in outcome.envelope["data"]["totals"]


def overwrite_index(process: Process, types: Any, arena: int, index: int) -> None:
    """arena_s.ind, before 5.3.0 that of its base."""
    with open("/proc/%d/mem" % process.pid, "r+b", buffering=0) as memory:
        place = types.place("arena_s", "ind")
        if place is None:
            base = types.place("arena_s", "base")
            memory.seek(arena + base.offset)
            arena, place = int.from_bytes(memory.read(8), "little"), types.place("base_s", "ind")
        memory.seek(arena + place.offset)
        memory.write(index.to_bytes(4, "little"))


# ---------------------------------------------------------------------------------------------------- guard pages, lack of time


def guarded(stage: Stage) -> Process:
    """Four threads that filled many guarded slabs, so that ends of their regions were given back."""
    if library_version() < (5, 3, 0):
        pytest.skip("opt.san_guard_small came with 5.3.0")
    return start(stage, "preload", "big", "40000", "40000000", conf="san_guard_small:1")


def test_guarded_slabs_are_no_damage(stage: Stage, kind: str) -> None:
    """Whole, and what the program holds is there."""
    process = guarded(stage)
    data = heapx(process.target(kind), "arenas", "--json").data
    live_bytes = read(process).words[2]
    assert live_bytes <= data["totals"]["jemalloc"]["allocated_bytes"] < 1.2 * live_bytes
    assert all(row["unparsed_bytes"] == 0 for row in data["arenas"] if row["allocator"] == "jemalloc")


def test_purge_of_guarded_slabs(stage: Stage, live: str) -> None:
    """It refused, because the heap was damaged."""
    process = guarded(stage)
    assert heapx(process.target(live), "purge", "--yes", "--json").data["returned"] == 0


def refused(outcome: Outcome) -> str:
    """The one line."""
    assert outcome.code == 1 and len(outcome.stderr.strip().splitlines()) == 1, (outcome.code, outcome.stderr)
    return outcome.stderr


def test_a_purge_without_time_is_not_refused_for_damage(stage: Stage, live: str) -> None:
    """--max-seconds is named as the reason."""
    process = start(stage, "preload", "big", "40000", "40000000")
    line = refused(heapx(process.target(live), "purge", "--yes", "--max-seconds", "0.000001"))
    assert "stopped after --max-seconds" in line and "damage" not in line and "nothing was done" in line


def test_a_trim_without_time_is_not_refused_for_damage(stage: Stage, live: str) -> None:
    """The same for glibc's heap."""
    process = stage.start("trimmer", "main")
    line = refused(heapx(process.target(live), "trim", "--yes", "--max-seconds", "0.000001"))
    assert "stopped after --max-seconds" in line and "damage" not in line
    assert json.loads(heapx(process.target(live), "trim", "--yes", "--json").stdout)["data"]["returned"] == 1


NEWER = [way for way in BUILDS if version(way) > (5, 3, 1) and has_stats(way)] or [pytest.param("", marks=pytest.mark.skip(reason="GDBHEAPX_JEMALLOCS names no jemalloc after 5.3.1 that counts"))]
ASKED = ("arenas", "chunks", "bins", "check", "malloc-stats --allocator jemalloc")


def pinned(stage: Stage, way: str) -> Process:
    """An arena of the program's own with hooks, of whose mappings each second one is pinned."""
    return start(stage, way, "pinned")


@pytest.mark.parametrize("way", NEWER)
def test_a_state_of_their_own(lasting: Lasting, kind: str, way: str) -> None:
    """Pinned bytes are jemalloc's own figure in every command; they are in `mapped`, and a purge is not said to reach them."""
    process = lasting.of(kind, pinned, way)
    record = read(process)
    index, pinned_bytes, dirty_pages, mapped_bytes = record.words[:4]
    arenas, chunks, bins, check, stats = told(process, kind, *ASKED)
    assert not any(answer["partial"] for answer in (arenas, chunks, bins, check, stats)), arenas["problems"]
    (row,) = [row for row in arenas["data"]["arenas"] if row["allocator"] == "jemalloc" and row["index"] == index]
    assert pinned_bytes and (row["pinned_bytes"], row["dirty_bytes"]) == (pinned_bytes, 4096 * dirty_pages)
    assert row["reclaimable_bytes"] == row["dirty_bytes"] + row["muzzy_bytes"]
    assert row["mapped_bytes"] == mapped_bytes
    own: List[Dict[str, Any]] = [chunk for chunk in chunks["data"]["chunks"] if chunk["allocator"] == "jemalloc" and chunk["arena"] == index]
    assert sum(chunk["size_bytes"] for chunk in own if chunk["status"] == "pinned") == pinned_bytes
    used = {int(chunk["address"], 16): chunk for chunk in own if chunk["status"] == "used"}
    assert {address: block.usable for address, block in record.live.items()} == {
        address: used[address]["usable_bytes"] for address in record.live if address in used
    }
    assert not set(record.freed) & set(used)
    assert sum(one["bytes"] for one in bins["data"]["bins"] if one["kind"] == "pinned") == pinned_bytes
    assert check["data"]["findings"] == []
    entry = stats["data"]["jemalloc"]["stats.arenas"][str(index)]
    assert entry["pinned"] == pinned_bytes == sum(one["pinned_bytes"] for one in entry["extents"])


@pytest.mark.parametrize("way", NEWER[:1])
def test_where_an_address_lies(stage: Stage, kind: str, way: str) -> None:
    """`whatis` names the state, and the filter of `chunks` knows it."""
    process = pinned(stage, way)
    target = process.target(kind)
    listed = heapx(target, "chunks", "--status", "pinned", "--json").data["chunks"]
    assert listed and {chunk["status"] for chunk in listed} == {"pinned"}
    found = heapx(target, "whatis", listed[0]["address"], "--json").data
    assert '"pinned"' in str(found).replace("'", '"')
