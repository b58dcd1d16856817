"""Pages in swap: what a look brings back into RAM is what the answer says, and searches leave the rest where it is.

What commands cost: a sleeping process no page table, page, swap entry or page fault more; a small answer few modules and files of the product.

Files: inferior/live/source.py.
"""

import os
import signal
import sys
from array import array
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, List, Sequence, Tuple

import pytest

from gdbheapx import command
from gdbheapx.common import catalogue
from gdbheapx.inferior.live.source import LiveSource
from tests.support import jemallocs, memory_group, profiles, swap
from tests.support.addons import require_addon
from tests.support.paths import ROOT
from tests.support.processes import Process, Stage
from tests.support.tool import alone, heapx, run
from tests.support.unchanged import EVERY, JEMALLOC, WALKERS, unchanged

pytestmark = pytest.mark.once  # the kernel's, which all images share

MIB = 1 << 20
SLACK_BYTES = 64 << 10
SLACK_SHARE = 0.02
"""Two threads of the C kernel each count the pages that both read at once, some eight each time they meet, which is the more often the slower
the swap is: a lock would lengthen the stop. So much may be said too much, of what came, and never less than came."""

MOST_PLACES = 96
"""Where the header of one mapped block may be, one place for each alignment of its memory (kernel/glibc/mmapped.c: MAX_PLACES)."""


@pytest.fixture
def swap_on() -> Iterator[None]:
    """The machine has swap while the test runs; skips with the reason where it cannot."""
    try:
        with swap.swap():
            yield
    except swap.NoSwap as reason:
        pytest.skip("no swap: %s" % reason)


def swapped(process: Process) -> int:
    """VmSwap, in bytes."""
    with open("/proc/%d/status" % process.pid) as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmSwap:"))


def private(process: Process) -> List[Tuple[int, int]]:
    """Its private writable memory."""
    with open("/proc/%d/maps" % process.pid) as maps:
        fields = [line.split() for line in maps]
    ranges = [[int(part, 16) for part in one[0].split("-")] for one in fields if one[1][1] == "w" and one[1][3] == "p"]
    return [(start, end) for start, end in ranges]


def push_out(process: Process) -> int:
    """Nearly everything of the process is in swap; it was awake once since, so that its next wake brings nothing in. VmSwap then."""
    swap.push_out(process.pid, private(process))
    process.command(b"w")
    found = swapped(process)
    assert found > 40 * MIB, "the kernel left the pages where they were"
    return found


def preload(allocator: str) -> "dict[str, str]":
    """The environment: 100 KB of it, in pages that are touched by nobody."""
    filler = {"FILLER": "x" * 100000, "MALLOC_CONF": "narenas:3"}
    return {"LD_PRELOAD": str(jemallocs.library()), **filler} if allocator == "jemalloc" else filler

SOME = {"glibc": ("report", "chunks", "leaks --weak"), "jemalloc": ("arenas", "tunables", "tickers", "owners")}
"""A walk, a search, a graph, an environment: each way into memory."""

EACH = {"glibc": EVERY, "jemalloc": EVERY + JEMALLOC}
ASKED = list(SOME.items()) + [pytest.param(name, EACH[name], marks=pytest.mark.wild) for name in EACH]


@pytest.mark.parametrize("allocator, commands", ASKED, ids=["glibc", "jemalloc", "glibc-every", "jemalloc-every"])
def test_what_came_in_is_said(swap_on: None, stage: Stage, live: str, allocator: str, commands: Sequence[str]) -> None:
    """Of reading commands: VmSwap falls by what target.swapped_in_bytes says, a note says it, and a second look brings nothing in."""
    process = stage.start("swapped", env=preload(allocator))
    for words in commands:
        before = push_out(process)
        outcome = heapx(process.target(live), *words.split(), "--json")
        came, said = before - swapped(process), outcome.envelope["target"]["swapped_in_bytes"]
        is_partial = any(problem["code"] == "memory-unread" for problem in outcome.envelope["problems"])  # a third of it is the program's own
        assert outcome.code in ((4,) if is_partial else (0, 1, 3)), (words, outcome.stderr)
        assert came <= said <= came * (1 + SLACK_SHARE) + SLACK_BYTES, words
        assert bool(said) == any(problem["code"] == "swapped-in" for problem in outcome.envelope["problems"]), words
        assert outcome.envelope["partial"] == is_partial
        if words == "tunables" and allocator == "jemalloc":
            assert outcome.data["sources"]["jemalloc"][-1]["text"] == "narenas:3", "the environment was not read"
    before = swapped(process)
    again = heapx(process.target(live), "arenas", "--json").envelope["target"]["swapped_in_bytes"]
    assert before - swapped(process) <= again


def test_blocks_in_swap_are_known_by_owner(swap_on: None, stage: Stage, live: str, tmp_path: Path) -> None:
    """A profile for pprof says what of the blocks was in swap when they were read, and what in RAM."""
    process = stage.start("swapped")
    push_out(process)
    file = tmp_path / "made.pb.gz"
    assert heapx(process.target(live), "export", "--format", "pprof", "-o", str(file)).code == 0
    found = profiles.read(file)
    assert [name for name, _ in found.types][2:4] == ["resident_space", "swapped_space"]
    resident, swapped_out = (sum(one.more[place] for one in found.samples) for place in (0, 1))
    assert swapped_out > 20 * MIB > resident and resident + swapped_out <= sum(one.bytes for one in found.samples)


def plain_sums(process: Process) -> Tuple[int, int, int]:
    """Of the blocks that `touching` records: bytes in swap, and of those that are there as a whole bytes and number."""
    words, page = process.words(), os.sysconf("SC_PAGESIZE")
    blocks = [(words[place], max(24, -(-(words[place + 1] + 8) // 16) * 16 - 8)) for place in range(3, 3 * words[0] + 3, 3)]
    least, most = min(blocks)[0], sum(max(blocks))
    with open("/proc/%d/pagemap" % process.pid, "rb", buffering=0) as pagemap:
        entries = array("Q", os.pread(pagemap.fileno(), 8 * (most // page - least // page + 1), 8 * (least // page)))
    inside = whole_bytes = whole_blocks = 0
    for address, size in blocks:
        parts = []
        for at in range(address // page * page, address + size, page):
            is_there = entries[at // page - least // page] >> 62 == 1
            parts.append((min(at + page, address + size) - max(at, address)) * is_there)
        inside += sum(parts)
        whole_blocks, whole_bytes = whole_blocks + (sum(parts) == size), whole_bytes + size * (sum(parts) == size)
    return inside, whole_bytes, whole_blocks


@pytest.mark.wild  # the machine has swap meanwhile
def test_cold_adds_up_what_was_in_swap(swap_on: None, stage: Stage, live: str, tmp_path: Path) -> None:
    """By class and owner, of a process and of a snapshot, as a plain sum over its pages has it: part of the heap is in swap."""
    require_addon("labs")
    process, snap = stage.start("touching", "8"), tmp_path / "made.snap"
    os.kill(process.pid, signal.SIGSTOP)
    try:
        start, end = max(private(process), key=lambda one: one[1] - one[0])
        for by in ("both", "class", "owner", "both in a snapshot", "class in a snapshot"):
            if by != "class in a snapshot":
                swap.push_out(process.pid, [(start, start + (end - start) // 8 * 5)])
                inside, whole_bytes, whole_blocks = plain_sums(process)
            if by == "both in a snapshot":
                assert heapx(process.target(live), "snapshot", str(snap)).code == 0
            target = ["--snapshot", str(snap)] if "snapshot" in by else process.target(live)
            found = heapx(target, "cold", "--by", by.split()[0], "--json").data
            told = found["totals"]
            assert inside > 20 * MIB and told["bytes"] > inside + 10 * MIB
            for key, wanted in (("swapped_bytes", inside), ("cold_bytes", whole_bytes)):
                assert 0 <= told[key] - wanted <= 8 << 10, (by, key)  # the C library has blocks of its own
            assert 0 <= told["cold_blocks"] - whole_blocks <= 4 and told["cold_bytes"] + told["partly_cold_bytes"] == told["swapped_bytes"]
            for key in ("swapped_bytes", "cold_bytes", "cold_blocks", "bytes", "blocks", "resident_bytes", "unknown_bytes"):
                assert sum(row[key] for row in found["rows"]) == told[key], (by, key)
    finally:
        os.kill(process.pid, signal.SIGCONT)


@pytest.mark.parametrize("scan", ["1", "0"], ids=["scan", "no scan"])
@pytest.mark.parametrize("allocator", ["glibc", "jemalloc"])
def test_searches_leave_swap_alone(swap_on: None, stage: Stage, live: str, allocator: str, scan: str) -> None:
    """The search for mapped chunks finds all of them, and of memory that is no allocator's it brings in only where the header of one more
    block may be, which depends on what lies beside it; with PAGEMAP_SCAN and without."""
    process = stage.start("swapped", env=preload(allocator))
    start, size_bytes = process.words()
    push_out(process)
    data = heapx(process.target(live), "report", "--json", env={"GDBHEAPX_PAGEMAP_SCAN": scan}).data
    if allocator == "glibc":
        assert data["totals"]["glibc"]["mmapped_chunks"] >= 24
    with open("/proc/%d/pagemap" % process.pid, "rb", buffering=0) as pagemap:
        entries = array("Q", os.pread(pagemap.fileno(), 8 * (size_bytes >> 12), 8 * (start >> 12)))
    assert sum(entry >> 62 == 1 for entry in entries) == len(entries) - sum(entry >> 63 for entry in entries)
    assert sum(entry >> 63 for entry in entries) <= MOST_PLACES < len(entries) // 50, "the search brought pages in"

STRUCTURES = ["arenas", "arenas --bins", "arenas --caches", "tunables", "stats --format xml", "doctor", "chunks --limit 5", "trim --dry-run"]
"""What reads no block's contents."""


@pytest.mark.parametrize("words", STRUCTURES)
def test_structures_are_read_without_a_copy(swap_on: None, stage: Stage, live: str, words: str) -> None:
    """Who asks for the allocator's structures brings in none but these of a process in swap: it is walked, however small it is, since a copy
    would bring in all of it."""
    process = stage.start("swapped")
    start, size_bytes = process.words()
    push_out(process)
    assert heapx(process.target(live), *words.split(), "--json").code in (0, 4)
    with open("/proc/%d/pagemap" % process.pid, "rb", buffering=0) as pagemap:
        entries = array("Q", os.pread(pagemap.fileno(), 8 * (size_bytes >> 12), 8 * (start >> 12)))
    assert sum(entry >> 63 for entry in entries) <= MOST_PLACES < len(entries) // 50


def test_shared_memory_in_swap_may_hold(swap_on: None, stage: Stage, live: str) -> None:
    """The page table has nothing of it: it is not read, which is said, and nothing is leaked for sure; in RAM it holds its blocks."""
    process = stage.start("shared")
    start, size_bytes = process.words()
    before = heapx(process.target(live), "leaks", "--json")
    assert before.code == 0 and not before.data["classes"]["leaked"]["blocks"]
    swap.push_out(process.pid, [(start, start + size_bytes)])
    outcome = heapx(process.target(live), "leaks", "--fail-on-leak", "1", "--json")
    assert outcome.code == 4 and "in-swap" in [problem["code"] for problem in outcome.envelope["problems"]]
    leaked = outcome.envelope["data"]["classes"]["leaked"]
    assert leaked["blocks"] >= 90 and leaked["is_upper_bound"]


def test_shared_memory_in_swap_is_read_where_the_user_says_so(swap_on: None, stage: Stage, live: str) -> None:
    """--read-swap: it holds its blocks, and what came in is said."""
    process = stage.start("shared")
    start, size_bytes = process.words()
    swap.push_out(process.pid, [(start, start + size_bytes)])
    outcome = heapx([*process.target(live), "--read-swap"], "leaks", "--fail-on-leak", "1", "--json")
    assert outcome.code == 0 and not outcome.data["classes"]["leaked"]["blocks"], outcome.stderr
    assert size_bytes - SLACK_BYTES <= outcome.envelope["target"]["swapped_in_bytes"] <= size_bytes + SLACK_BYTES
    assert "swapped-in" in [problem["code"] for problem in outcome.envelope["problems"]]

LIMIT_BYTES = 40 * MIB


@contextmanager
def limited(stage: Stage, program: str, limit_bytes: int) -> Iterator[Process]:
    """The program in a memory cgroup; skips with the reason where none can be made."""
    try:
        with memory_group.limited(limit_bytes) as group:
            folder = stage.folder()
            command = [str(stage.builder.build(program)), str(folder / "record")]
            process = stage.spawn_ready(memory_group.entering(group, *command), folder)
            try:
                yield process
            finally:
                process.end()
    except memory_group.NoGroup as reason:
        pytest.skip(str(reason))


@pytest.fixture
def bounded(swap_on: None, stage: Stage) -> Iterator[Process]:
    """The program takes twice what its memory cgroup may have."""
    with limited(stage, "swapped", LIMIT_BYTES) as process:
        yield process


def test_small_reads_of_shared_memory_ask_as_well(swap_on: None, stage: Stage) -> None:
    """They go through the file, whose pages are charged to who has written them: no more is read than there is room for."""
    with limited(stage, "shared", 6 * MIB) as process:
        start, size_bytes = process.words()
        swap.push_out(process.pid, [(start, start + size_bytes)])
        source = LiveSource(process.pid)
        data = source.read_prefix(start, size_bytes)
        assert len(data) < size_bytes and source.swap.refused and process.popen.poll() is None
        assert data == b"" or set(data[8:4096]) == {1}
        assert "memory cgroup" in str(source.problems()[0].what)
        source.swap.accept()
        assert source.read_prefix(start + size_bytes // 2, 4096) == b"\1" * 4096


def test_no_look_kills(bounded: Process, live: str) -> None:
    """What there is no room for stays in swap: the answers are partial and say why, an action is refused for it, nothing is leaked for sure."""
    for words, code in (("arenas", 4), ("leaks --fail-on-leak 1", 4), ("trim --yes", 1)):
        before = swapped(bounded)
        outcome = heapx(bounded.target(live), *words.split(), "--max-stop", "100", "--json")  # a disk is slow
        assert bounded.popen.poll() is None, (words, outcome.stderr)
        codes = [problem["code"] for problem in outcome.envelope["problems"]] + [outcome.envelope.get("error", {}).get("code")]
        assert before > 20 * MIB and outcome.code == code and "in-swap" in codes, (words, outcome.code, codes, outcome.stderr)
        if words.startswith("leaks"):
            assert outcome.envelope["data"]["classes"]["leaked"]["is_upper_bound"]

PATIENT = ("--max-stop", "60")
"""Where ten other programs run a look may take longer than the two seconds that people wait."""

CASES = [("glibc", words) for words in EVERY] + [("jemalloc", words) for words in WALKERS + JEMALLOC]


def codes(allocator: str, words: str) -> Sequence[int]:
    """`refs` reads everything before it says that there is no such block; a trim, and malloc_info(), are refused where another allocator owns
    malloc."""
    return (1,) if words == "refs 4096" or (allocator == "jemalloc" and words in ("trim --dry-run", "malloc-info")) else (0, 3)


@pytest.mark.parametrize("allocator, words", CASES)
def test_command_changes_nothing(stage: Stage, live: str, allocator: str, words: str) -> None:
    """VmPTE, VmSwap and Rss of a process and of the child it forked, and the page faults of both, are equal before and after its first look."""
    env = {"LD_PRELOAD": str(jemallocs.library()), "MALLOC_CONF": "prof:true,lg_prof_sample:12"} if allocator == "jemalloc" else {}
    process = stage.start("asleep", env=env)
    process.command(b"w")
    with unchanged(process.pid, process.words()[0]):
        outcome = heapx([*process.target(live), *PATIENT], *words.split(), "--json")
        assert outcome.code in codes(allocator, words), outcome.stderr[-1000:]


def test_every_command_is_among_them() -> None:
    """A command that is new is looked at here as well; `diff` looks by `snapshot`, `fleet` by `report`, test_query.py
    looks at `query`, test_bill.py at `bill`, test_serve.py at `serve`, `release` by `trim` and `purge`, and `explore` and `mcp` take no process."""
    command.load_commands()
    asked = {words.split()[0] for _, words in CASES}
    others = {"bill", "capture", "diff", "explore", "fleet", "mcp", "query", "release", "serve"}
    assert asked | {catalogue.ALIASES[name][0] for name in asked if name in catalogue.ALIASES} == (set(command.command_names()) - others) | (asked & set(catalogue.ALIASES))


def test_one_page_would_be_seen(stage: Stage) -> None:
    """A single page that somebody reads through /proc/PID/mem where nothing was ever touched is told as a change."""
    process = stage.start("asleep")
    with open("/proc/%d/maps" % process.pid) as maps:
        ranges = [[int(part, 16) for part in line.split()[0].split("-")] for line in maps if len(line.split()) == 5]
    start, end = max(ranges, key=lambda each: each[1] - each[0])
    with pytest.raises(AssertionError, match="the look changed the process"), unchanged(process.pid):
        memory = os.open("/proc/%d/mem" % process.pid, os.O_RDONLY)
        os.pread(memory, 1, start + (end - start) // 4)
        os.close(memory)


@pytest.mark.parametrize("words", WALKERS)
def test_what_lies_behind_heaps_and_stacks_is_left_alone(stage: Stage, live: str, words: str) -> None:
    """Nine threads with arenas and stacks, whose ends without permissions nobody has touched: /proc/PID/mem would read these all the same."""
    process = stage.start("recorder", "9", "2000", "3")
    with unchanged(process.pid):
        ask = heapx if words in ("report", "leaks --weak") else alone  # gdb's own reading is the same for each
        outcome = ask([*process.target(live), *PATIENT], *words.split(), "--json")
        assert outcome.code in codes("glibc", words), outcome.stderr[-1000:]

MODULES, FILES = 100, 80
"""Of the product, that an answer about the arenas of a small core imports and runs; the goal of files is 50. Three modules are there for
hostile cores: watchdog, roots, contradictions; three for every command and every text: catalogue
(which file has a command), hints and place (commands that texts name, whole for the place where they are read). One of them is the package's own,
which Python asks for each module before it looks for its file."""

COUNTED = """
import os, sys
ran, end = set(), os._exit

def called(frame, event, argument):
    ran.add(frame.f_code.co_filename)
    if frame.f_code.co_name == "<module>":  # what runs at import is no part of the answer
        sys.setprofile(lambda inner, event, argument: sys.setprofile(called) if inner is frame and event == "return" else None)

def told(code):
    sys.setprofile(None)
    modules = [name for name in sys.modules if name.split(".")[0] == "gdbheapx"]
    files = [file for file in ran if file.startswith((%(root)r + "/gdbheapx/", %(root)r + "/commands/"))]
    absent = [name for name in modules if name.split(".")[1:3] == ["addons", "allocators"] and name.count(".") > 3]
    print(len(modules), len(files), "tabulate" in sys.modules, len(absent), file=sys.stderr)
    end(code)

os._exit = told
from gdbheapx.app.cli import main
sys.setprofile(called)
main()
"""


@pytest.mark.parametrize("form", ["text", "json"])
def test_modules_and_files_of_arenas(stage: Stage, form: str) -> None:
    """No more modules are imported, and no more files run, than these; tabulate only where a table is printed, and nothing of allocators that
    are behind a gate (addons/allocators/gates.py): the program has none of them."""
    core = stage.start("recorder", "1", "2000", "5").core()
    words = [sys.executable, "-c", COUNTED % {"root": str(ROOT)}, "--core", str(core), "arenas", *["--json"] * (form == "json")]
    outcome = run(words, env={"GDBHEAPX_GDB": "none"})
    modules, files, has_tabulate, absent = outcome.stderr.split()
    assert absent == "0"
    assert outcome.code == 0 and int(modules) <= MODULES and int(files) <= FILES
    assert has_tabulate == str(form == "text")
