"""A jemalloc without names, read by its structure: the same figures as with its pack, by every command, live and on a core.

Files: jemalloc/find.py, jemalloc/structure.py.
"""

import os
import random
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import pytest

from gdbheapx.app import runner
from gdbheapx.command import load_commands
from gdbheapx.inferior.target import open_elf_target
from gdbheapx.jemalloc import structure
from gdbheapx.jemalloc.entry import ALLOCATOR
from tests.support import bare, gcores
from tests.support.bare import facts
from tests.support.damaged_jemalloc import Patient
from tests.support.jemallocs import RUST, UNKNOWN_LAYOUT, build_rust, knowing_tool, library_version, unknown_library
from tests.support.paths import GDB
from tests.support.processes import Process, Stage, by_turns
from tests.support.tool import Asked, heapx

pytestmark = pytest.mark.image  # this system's libjemalloc, under a build-id that nobody knows

EQUAL = ("arenas", "bins", "chunks --histogram", "tcache", "purge --dry-run")
IN_GDB = ("--gdb", GDB)
MOVING = ("late_ms", "why", "evidence", "uptime_ns")
"""What goes on by the clock of a living process."""
LOCATED_SECONDS = 0.3
SEEDS = 300


def recorder(stage: Stage, conf: str = "") -> Process:
    """je_recorder.c on the copy."""
    env = {"LD_PRELOAD": str(unknown_library(stage.folder())), "MALLOC_CONF": conf}
    return stage.start("je_recorder", "after", "4", "4", env=env, flags=["-Wl,--no-as-needed", "-ldl"])


def leaves(told: Any, path: Tuple[Any, ...] = ()) -> Iterator[Tuple[Tuple[Any, ...], Any]]:
    """Every figure, with its path."""
    if isinstance(told, (dict, list)):
        for key, entry in told.items() if isinstance(told, dict) else enumerate(told):
            yield from leaves(entry, (*path, key))
    else:
        yield path, told


BY_VARIABLES = ("kind", "explicit")
"""What only variables tell: what an arena was made for, which caches tcache.create made. Null here."""


def differences(known: Any, found: Any) -> List[Tuple[Any, ...]]:
    """Figures that are not the same."""
    one, other = dict(leaves(known)), dict(leaves(found))
    paths = [path for path in {**one, **other} if not (path and path[-1] in BY_VARIABLES and other.get(path, 0) is None)]
    return [(path, one.get(path, "missing"), other.get(path, "missing")) for path in paths if one.get(path, "missing") != other.get(path, "missing")]


def way(command: str) -> Tuple[str, ...]:
    """One command inside gdb, the others without, which reads the same structures: gdb gives memory alone."""
    return IN_GDB if command == "arenas" else ()


SET = [("live", "narenas:2,tcache:false"), ("core", "percpu_arena:percpu"), ("live", "retain:false"), ("core", "hpa:true")]
"""Another way to set it changes what lies in memory, live as in a core."""


@pytest.mark.parametrize("kind, conf", [("live", ""), *(pytest.param(*both, marks=pytest.mark.once) for both in SET)], indirect=["kind"])
def test_figures_are_those_of_the_pack(stage: Stage, kind: str, conf: str) -> None:
    """Every figure of arenas, bins, blocks and caches; where the layout and the addresses come from is told."""
    target, packs = recorder(stage, conf).target(kind), knowing_tool()
    for command in EQUAL if not conf else ("arenas", "chunks --histogram", "tcache"):
        known, found = (heapx([*target, *way(command)], *command.split(), "--json", env=env) for env in (packs, None))
        assert known.code == found.code == 0 and not found.envelope["partial"], (command, found.stderr)
        assert not differences(known.data, found.data), command
    (info,) = [one for one in found.envelope["allocators"] if one["name"] == "jemalloc"]
    assert (info["layout"], info["address_source"], info["owns_malloc"]) == ("table", "probe", True)


def moves(path: Tuple[Any, ...], kind: str) -> bool:
    """It is another from look to look of a living process: clocks, and what is due by them. `driven` is the verdict, as `decay` has it."""
    return path[-1] in MOVING or (path[0] == "arenas" and path[-1] in ("verdict", *(("driven",) if kind == "live" else ())))


def test_what_is_not_to_be_had_is_null(stage: Stage, kind: str) -> None:
    """tickers, decay, report and malloc-stats say the same or null, never another figure."""
    target, packs = recorder(stage).target(kind), knowing_tool()
    for command in ("tickers", "decay", "malloc-stats"):
        known, found = (dict(leaves(heapx([*target, *way(command)], command, "--json", env=env).data)) for env in (packs, None))
        wrong = [(path, value, known.get(path)) for path, value in found.items() if value is not None and value != known.get(path) and not moves(path, kind)]
        assert not wrong, (command, wrong[:5])
    known, found = ({one["name"]: one["value"] for one in heapx(target, "tunables", "--json", env=env).data["tunables"]["jemalloc"]} for env in (packs, None))
    assert len(found) >= 20, "every option that mallctl knows has its name"
    assert [name for name, value in found.items() if value is not None and value != known.get(name)] == []
    assert sum(value is not None for value in found.values()) >= 15 and found["opt.narenas"] and found["opt.dirty_decay_ms"] == 10000
    found = heapx(target, "report", "--json")
    assert found.code == 0 and not found.envelope["partial"]
    assert found.data["verdict"]["kind"] == heapx(target, "report", "--json", env=packs).data["verdict"]["kind"]


UNKNOWN_PREFIX = ", under this build's own prefix, which is unknown"


def without_prefix(value: Any) -> Any:
    """A sentence that advises a call, as it is where the build's names are known: a core without its library has none of them."""
    return value.replace(UNKNOWN_PREFIX, "") if isinstance(value, str) else value


def test_with_everything_hidden(stage: Stage, kind: str, folder: Path) -> None:
    """Nor any library of a core, nor gdb: every command's figures are those of the pack, or null; caches and threads are all found."""
    target, packs, tool = recorder(stage).target(kind), knowing_tool(), bare.make(folder)
    for command in (*EQUAL, "tickers", "decay", "malloc-stats", "report"):
        known = heapx(target, *command.split(), "--json", env=packs)
        for gdb in ((), IN_GDB)[: 1 + (command == "tickers")]:
            found = tool.ask([*target, *gdb], *command.split(), "--json", alone=kind == "core")
            assert (found.code, found.envelope["partial"]) == (known.code, False), (command, found.stderr)
            parts = [facts({**one.data, "findings": None, "next": None, "next_steps": None, "verdict": None, "verdicts": None}, kind) for one in (known, found)]
            one, other = (dict(leaves(part)) for part in parts)
            wrong = [(path, value, one.get(path)) for path, value in other.items() if value is not None and without_prefix(value) != one.get(path) and not moves(path, kind)]
            assert not wrong, (command, gdb, wrong[:5])
            nulls = [path for path, value in other.items() if value is None and one.get(path) is not None and path[-1] not in BY_VARIABLES]
            assert not nulls or command == "malloc-stats", (command, gdb, nulls[:5])


def test_a_pack_without_the_file(stage: Stage, core: str, folder: Path) -> None:
    """A pack knows everything but where thread-local storage is, and a core without the library does not tell: structure finds each thread.

    But for the main thread of a glibc that nobody calls: from 2.43 on nothing shows by structure that its arena is that thread's."""
    target, packs = recorder(stage).target(core), knowing_tool()
    for command in ("arenas", "tcache", "tickers"):
        known, found = (heapx([*target, *more], command, "--json", env=packs) for more in ((), ("--sysroot", str(folder))))
        assert found.code == known.code == 0 and not found.envelope["partial"], found.envelope["problems"]
        assert not [one for one in differences(facts(known.data), facts(found.data)) if one[0][-1] not in ("threads", "arena")], command


def test_a_core_of_gdbs_without_files(stage: Stage, live: str, folder: Path) -> None:
    """It has the whole first segment of each object and no constants: what they do not tell, structure does."""
    process = recorder(stage)
    target, tool = ["--core", str(gcores.gcore(process))], bare.make(folder)
    for command in ("arenas", "bins"):
        known, found = heapx(target, command, "--json"), tool.ask(target, command, "--json", alone=True)
        assert found.code == 0 and "jemalloc" in [one["name"] for one in found.envelope["allocators"]], found.stderr
        assert not differences(facts(known.data), facts(found.data)), command


def test_what_needs_names_is_refused(stage: Stage, live: str) -> None:
    """One line, with the next step: no call where global locks cannot be seen; no profile where opt.prof, found by its code, is false."""
    process = recorder(stage)
    for words, next_step in ((("purge", "--yes"), "--debug-dir DIR"), (("profile", "-o", str(stage.folder() / "profile")), "prof:true")):
        refused = heapx(process.target(live), *words)
        assert refused.code == 1 and len(refused.stderr.strip().splitlines()) == 1 and next_step in refused.stderr, refused.stderr


def test_it_is_found_in_time(stage: Stage, live: str) -> None:
    """Below 0.3 s."""
    target = open_elf_target(pid=recorder(stage).pid)
    target.modules()
    began = time.process_time()
    (found,) = ALLOCATOR.find(target).located
    took = time.process_time() - began
    assert found.symbols.by_structure and found.calibrated_slabs > 20
    assert took < LOCATED_SECONDS * 3, "caches are cold on a busy machine"


@pytest.mark.rust
@pytest.mark.parametrize("kind, name", [("live", "rust-0.4"), ("core", "rust-0.6-stats"), ("live", "rust-0.6"), ("core", UNKNOWN_LAYOUT.name)], indirect=["kind"])
def test_a_stripped_rust_program(stage: Stage, kind: str, name: str) -> None:
    """tikv-jemallocator as a release build has it: what the unstripped program says of itself."""
    whole, folder = build_rust(RUST.get(name, UNKNOWN_LAYOUT)), stage.folder()
    stripped, debug = folder / "je_rust", folder / "debug"
    subprocess.run(["strip", "-s", "-o", str(stripped), str(whole)], check=True)
    process = stage.spawn_ready([str(stripped), "recorder", str(folder / "record"), "after", "4", "4"], folder, {}, folder / "record")
    build_id = next(one["build_id"] for one in heapx(process.target(kind), "arenas", "--json").envelope["allocators"] if one["name"] == "jemalloc")
    place = debug / ".build-id" / build_id[:2] / (build_id[2:] + ".debug")
    place.parent.mkdir(parents=True)
    shutil.copy(whole, place)
    for command in EQUAL:
        known, found = (heapx([*process.target(kind), *way(command)], *extra, *command.split(), "--json") for extra in (("--debug-dir", str(debug)), ()))
        told = {one["address_source"] for outcome in (known, found) for one in outcome.envelope["allocators"] if one["name"] == "jemalloc"}
        assert told == {"symbol", "probe"} and found.code == 0, command
        assert not differences(known.data, found.data), command


@pytest.mark.once  # the images have no cargo
def test_two_in_one_process(stage: Stage, kind: str) -> None:
    """One that is preloaded and one inside the program, neither with names: each has its own arenas."""
    folder = stage.folder()
    program = folder / "je_rust"
    subprocess.run(["strip", "-s", "-o", str(program), str(build_rust(RUST["rust-0.6-stats"]))], check=True)
    env = {"LD_PRELOAD": str(unknown_library(folder))}
    process = stage.spawn_ready([str(program), "recorder", str(folder / "record"), "after", "2", "2"], folder, env, folder / "record")
    envelope = heapx(process.target(kind), "arenas", "--json").envelope
    both = [one for one in envelope["allocators"] if one["name"] == "jemalloc"]
    assert {one["id"] for one in both} == {"jemalloc", "jemalloc#2"} and {one["object"] for one in both} == {"je_rust", "libjemalloc.so.2"}
    addresses = [row["address"] for row in envelope["data"]["arenas"] if row["allocator"].startswith("jemalloc")]
    assert len(set(addresses)) == len(addresses) >= 4


# ---------------------------------------------------------------------------------------------------- a build of no known layout

OF_EXTENTS = ("index", "address", "active_bytes", "dirty_bytes", "muzzy_bytes", "retained_bytes", "allocated_bytes", "reclaimable_bytes", "kind")
UNKNOWN = ("used_bytes", "cached_bytes", "metadata_bytes", "mapped_bytes", "resident_bytes", "threads", "dirty_decay_ms", "muzzy_decay_ms")


@pytest.fixture
def without_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No table fits: as if this were a snapshot between two releases."""
    if library_version() < (5, 3, 0):
        pytest.skip("builds before 5.3.0 do not describe themselves")
    load_commands()
    monkeypatch.setattr(structure, "find_fitting_tables", lambda *_: [])


def asked(target: Sequence[str], *words: str) -> Asked:
    """One command in this process, where the tables are hidden."""
    out: List[str] = []
    given = {"core": target[1]} if target[0] == "--core" else {"pid": int(target[1])}
    host = runner.Host("gdbheapx", out.append, out.append, lambda: open_elf_target(**given), runner.Settings(traceback=True))
    ended = runner.run_command_line([*words, "--json", "--allocator", "jemalloc"], host)
    return Asked(ended.code, "".join(out), ended.line)


def test_extents_of_an_unknown_layout(stage: Stage, kind: str, without_layouts: None) -> None:
    """Pages, slabs and regions are those that the pack tells; all else is null, the answer is partial and says why."""
    target, packs = recorder(stage).target(kind), knowing_tool()
    known, found = heapx(target, "arenas", "--json", env=packs), asked(target, "arenas")
    assert found.code == 4 and [one["code"] for one in found.envelope["problems"]] == ["layout-unknown"]
    rows = found.envelope["data"]["arenas"]
    of_jemalloc = [row for row in known.data["arenas"] if row["allocator"] == "jemalloc"]
    assert [[row[key] for key in OF_EXTENTS] for row in rows] == [[row[key] for key in OF_EXTENTS] for row in of_jemalloc]
    assert {row[key] for row in rows for key in UNKNOWN} == {None}
    known, found = heapx(target, "bins", "--json", env=packs), asked(target, "bins")
    both = [[row for row in one if row["allocator"] == "jemalloc"] for one in (known.data["bins"], found.envelope["data"]["bins"])]
    counts = [[(row["arena"], row["index"], row["kind"], row["slabs"], row["extents"], row["chunks"], row["bytes"]) for row in one] for one in both]
    assert counts[0] == counts[1] and counts[0]
    assert [row["used_blocks"] for row in both[1]] == [row["used_blocks"] + row["cached_blocks"] for row in both[0]]
    assert {row["cached_blocks"] for row in both[1] if row["kind"] in ("small", "large")} == {None}


@by_turns("word", ["on", "unknown"])
def test_dirty_pages_of_huge_slabs(stage: Stage, kind: str, without_layouts: None, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    """The huge page allocator keeps what was freed in its slabs: where it is on, or no code tells, dirty pages are null, and the problem says why."""
    if word == "unknown":
        every = structure.find_option_leaves
        monkeypatch.setattr(structure, "find_option_leaves", lambda *given: {name: place for name, place in every(*given).items() if name != "hpa"})
    target = recorder(stage, "hpa:true" if word == "on" else "").target(kind)
    found = asked(target, "arenas")
    (problem,) = found.envelope["problems"]
    assert "dirty pages, as opt.hpa is %s" % word in problem["hint"]
    rows = found.envelope["data"]["arenas"]
    assert {row[key] for row in rows for key in ("dirty_bytes", "reclaimable_bytes", "reclaimable_resident_bytes")} == {None}
    assert None not in {row["active_bytes"] for row in rows}
    report = asked(target, "report")
    assert report.code == 4 and {part["bytes"] for part in leaves_named(report.envelope["data"], "dirty pages")} == {None}
    assert asked(target, "purge", "--dry-run").envelope["data"]["predicted_bytes"] is None


def leaves_named(told: Any, name: str) -> List[Dict[str, Any]]:
    """Every record of this name."""
    if isinstance(told, list):
        return [one for part in told for one in leaves_named(part, name)]
    if not isinstance(told, dict):
        return []
    return [told] * (told.get("name") == name) + [one for part in told.values() for one in leaves_named(part, name)]


def test_every_command_on_an_unknown_layout(stage: Stage, kind: str, without_layouts: None) -> None:
    """None fails, none gives a figure of counters, threads or caches; nothing is called."""
    target = recorder(stage).target(kind)
    answers = {command: asked(target, *command.split()) for command in ("chunks --histogram", "tcache", "tickers", "decay", "malloc-stats", "tunables", "report", "doctor")}
    codes = {command: answer.code for command, answer in answers.items()}
    assert codes.pop("tunables") == 0 and set(codes.values()) == {4}, codes  # options are found by mallctl's own tree
    assert {row["chunks"] for row in answers["tcache"].envelope["data"]["threads"]} == {None}
    assert {row["tcache_chunks"] for row in answers["chunks --histogram"].envelope["data"]["histogram"]} == {None}
    figures = answers["decay"].envelope["data"]["arenas"]
    assert {row[key] for row in figures for key in ("decay_ms", "pages", "sweeps", "late_ms")} == {None}
    assert set(answers["malloc-stats"].envelope["data"]["jemalloc"]["stats"].values()) == {None}
    assert [row["found"] for row in answers["doctor"].envelope["data"]["checks"] if "no known layout fits" in row["found"]]
    refused = asked(target, "purge", "--yes")
    assert refused.code == 1 and refused.line


def test_an_older_build_of_an_unknown_layout(stage: Stage, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 5.3.0 nothing leads from an arena to the radix tree: it is named and not read."""
    if library_version() >= (5, 3, 0):
        pytest.skip("this build describes itself")
    monkeypatch.setattr(structure, "find_fitting_tables", lambda *_: [])
    target = recorder(stage).target(kind)
    (unread,) = ALLOCATOR.find(open_elf_target(target[1]) if kind == "core" else open_elf_target(pid=int(target[1]))).unread
    assert "no known layout fits its arenas" in unread.what


# ---------------------------------------------------------------------------------------------------- what a search must not touch

WIDE_BYTES = 2 << 30
MOST_READ_BYTES = 64 << 20
PAGE_TABLE_BYTES = 256 << 10


def test_untouched_memory_is_not_read(stage: Stage, live: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search through a program with 2 GiB of zeroed variables reads the pages that are there: none comes in, no page table grows."""
    env = {"LD_PRELOAD": str(unknown_library(stage.folder()))}
    process = stage.start("wide", env=env, flags=["-s"])
    before = wide(process.pid)
    assert before[0] <= 1 << 16
    target, read = open_elf_target(pid=process.pid), [0]
    whole, prefix = target.read, target.read_prefix

    def counted(way: Any) -> Any:
        def count(address: int, size_bytes: int) -> bytes:
            data = bytes(way(address, size_bytes))
            read[0] += len(data)
            return data

        return count

    monkeypatch.setattr(target, "read", counted(whole))
    monkeypatch.setattr(target, "read_prefix", counted(prefix))
    assert len(ALLOCATOR.find(target).located) == 1
    after = wide(process.pid)
    assert after[0] == before[0] and after[1] - before[1] <= PAGE_TABLE_BYTES, (before, after)
    assert 0 < read[0] < MOST_READ_BYTES, read
    assert heapx(process.target(live), "arenas").code == 0 and wide(process.pid)[0] == before[0]


def wide(pid: int) -> Tuple[int, int]:
    """(resident bytes of the mapping of 2 GiB, bytes of page tables)."""
    size, resident = 0, []
    for line in Path("/proc/%d/smaps" % pid).read_text().splitlines():
        words = line.split()
        if words[0] == "Size:":
            size = int(words[1]) << 10
        elif words[0] == "Rss:" and size >= WIDE_BYTES - (1 << 20):
            resident.append(int(words[1]) << 10)
    (found,) = resident
    tables = next(line for line in Path("/proc/%d/status" % pid).read_text().splitlines() if line.startswith("VmPTE:"))
    return found, int(tables.split()[1]) << 10


# ---------------------------------------------------------------------------------------------------- damage


@pytest.fixture(scope="module")
def patient(core_stage: Stage) -> Iterator[Tuple[Patient, Dict[str, Any]]]:
    """One core for all seeds, and the sums of the sound one."""
    made = Patient(recorder(core_stage).core())
    sums, problems = look(made)
    assert sums is not None and not problems
    yield made, sums
    made.close()


def look(patient: Patient) -> "Tuple[Dict[str, Any] | None, List[Any]]":
    """The sums over all arenas, None where it is not found; what was told."""
    target = open_elf_target(str(patient.path))
    found = ALLOCATOR.find(target)
    told: List[Any] = list(found.unread)
    if not found.located:
        return None, told
    malloc = patient.look(target, found.located[0], told)
    return malloc.totals(), told


@pytest.mark.parametrize("seeds", [pytest.param(range(40), marks=pytest.mark.once), pytest.param(range(40, SEEDS), marks=pytest.mark.wild)], ids=["few", "many"])
def test_damaged_static_data(patient: Tuple[Patient, Dict[str, Any]], seeds: range) -> None:
    """Random words in .data and .bss: the sums are right, or something is told, or it is not found; never a wrong sum, and no null without its reason."""
    core, sound = patient
    target = core.target
    (found,) = ALLOCATOR.find(target).located
    spans = [(low, high) for start, _, end in target.writable_segments(found.module) for low, high in target.present_ranges(start, end)]
    places = [at for low, high in spans for at in range(low & -8, high - 7, 8) if core.get(at)]
    anchor = found.symbols.find("arenas")
    assert anchor is not None and len(places) > 500
    near = [anchor.address + 8 * index for index in range(found.geometry.narenas)]
    outcomes = {"right": 0, "told": 0, "not found": 0}
    for seed in seeds:
        numbers = random.Random(seed)
        try:
            for _ in range(numbers.choice((1, 2, 4, 16, 100))):
                place = numbers.choice(numbers.choice((places, places, near)))
                old = core.get(place)
                core.put(place, numbers.choice((old ^ 1 << numbers.randrange(64), numbers.getrandbits(64), 0, old + numbers.choice((8, -8, 4096)))) & (1 << 64) - 1)
            sums, told = look(core)
        finally:
            core.heal()
        wrong = [(key, value, sums[key]) for key, value in sound.items() if sums[key] not in (value, None)] if sums is not None else []
        assert not wrong or told, (seed, wrong)
        assert sums in (None, sound) or told, (seed, "a sum is null, and nothing says why")
        outcome = "not found" if sums is None else "told" if told else "right"
        outcomes[outcome] += 1
    assert outcomes["right"] and sum(outcomes.values()) == len(seeds), outcomes
    print(outcomes)


def test_the_copy_is_not_known(stage: Stage) -> None:
    """No pack has its build-id, or the tests here would prove nothing."""
    copy = Path(unknown_library(stage.folder()))
    assert os.path.exists(copy) and "probe" in str(ALLOCATOR.find(open_elf_target(pid=recorder(stage).pid)).located[0].info())
