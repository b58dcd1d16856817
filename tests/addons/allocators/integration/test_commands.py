"""Every command once on a program with musl, and with tcmalloc, live and on a core, with gdb and without: the same answers, each whole."""

import json
import subprocess
from typing import Any, Dict

import pytest

from tests.support import musls, tcmallocs
from tests.support.bare import doorless
from tests.support.processes import Lasting, Process, Stage
from tests.support.tool import alone, answers, heapx
from tests.support.unchanged import WALKERS, unchanged

pytestmark = pytest.mark.image  # this system's libtcmalloc

MUSL = [pytest.mark.once, pytest.mark.first]  # the rules are the tool's own, whatever the release

COMMANDS = (
    *("arenas", "bins", "chunks --limit 50", "chunks --histogram", "tcache", "tunables", "check", "leaks", "owners", "census", "pins"),
    *("whatis BLOCK", "refs BLOCK", "export --format folded", "report", "doctor", "tickers"),
)
NONE = ("malloc-info", "malloc-stats", "profile", "trim --dry-run", "purge --dry-run", "decay")
"""What musl has nothing of."""


def recorder(stage: Stage, way: str) -> Process:
    """Four threads' blocks."""
    return tcmallocs.recorder(stage) if way == "tcmalloc" else musls.start(stage, "mu_recorder", way, "4", "600", "2")


def beside(stage: Stage, way: str) -> Process:
    """One more."""
    return recorder(stage, way)


def of_each(way: str) -> pytest.MarkDecorator:
    """A test of musl's malloc, built in this way, and of tcmalloc."""
    return pytest.mark.parametrize("way", [pytest.param(way, marks=MUSL), "tcmalloc"])


def settled(words: str, data: Any) -> Any:
    """What two runs have in common: a look by gdb brings pages of files in, and names the commands that follow as gdb has them."""
    data = json.loads(doorless(json.dumps(data)))
    if words == "doctor":
        return [(row["what"], row["ok"]) for row in data["checks"] if row["what"] not in ("gdb", "calls")]
    if words == "report":
        for line in data["verdict"]["lines"]:
            line["hint"] = None  # without gdb, of a small process, all blocks were looked at, which leaves less to be done
        return {key: data[key] for key in ("verdict", "totals", "arenas", "sizes")}
    return data


@pytest.mark.parametrize(
    "kind, way",
    [
        pytest.param("live", "shared", marks=MUSL),
        pytest.param("core", "static, stripped", marks=MUSL),
        ("live", "tcmalloc"),
        ("core", "tcmalloc"),
    ],
    indirect=["kind"],
)
def test_commands_answer_the_same_with_gdb_and_without(lasting: Lasting, kind: str, way: str) -> None:
    """Each answer is whole; malloc is this one's."""
    process = lasting.of(kind, recorder, way)
    block = alone(process.target(kind), "chunks", "--status", "used", "--limit", "9", "--json").envelope["data"]["chunks"][-1]["address"]
    asked = [words.replace("BLOCK", block) for words in COMMANDS]
    by_gdb: Dict[str, Any] = dict(zip(COMMANDS, answers(process.target(kind), process.folder, *asked)))
    for words, said in zip(COMMANDS, asked):
        outcome = alone(process.target(kind), *said.split(), "--json")
        assert outcome.code in ((0, 3) if way == "tcmalloc" else (0,)), (words, outcome.stderr)
        assert outcome.envelope["partial"] is by_gdb[words]["partial"] is False, (words, outcome.stderr, by_gdb[words]["problems"])
        assert settled(words, outcome.envelope["data"]) == settled(words, by_gdb[words]["data"]), words
        if words not in ("doctor", "tickers"):
            owners = [(one["name"], one["owns_malloc"]) for one in outcome.envelope["allocators"]]
            assert owners == ([("tcmalloc", True), ("glibc", False)] if way == "tcmalloc" else [("musl", True)])


@pytest.mark.once
@pytest.mark.first
@pytest.mark.parametrize("words", NONE)
def test_what_there_is_none_of_is_one_line(lasting: Lasting, live: str, words: str) -> None:
    """No traceback; where memory is to be returned, why none is, and what helps."""
    outcome = heapx(lasting.of(live, recorder, "static, stripped").target(live), *words.split())
    told = outcome.stderr.strip()
    assert outcome.code in (0, 1) and len(told.splitlines()) <= 1, told
    if words.startswith("malloc"):
        assert outcome.code == 1 and "musl owns malloc here" in told and " arenas" in told
    if "dry-run" in words:
        assert outcome.code == 1 and "musl's malloc returns nothing when it is asked" in told and "pins" in told


@pytest.mark.once
@pytest.mark.first
def test_a_variable_beside_the_main_threads_block_is_a_variable(lasting: Lasting, live: str) -> None:
    """The control block of the main thread lies in the program's data: what lies next to it is no thread-local storage."""
    process = lasting.of(live, recorder, "static")
    symbols = subprocess.run(["nm", process.executable], capture_output=True, text=True).stdout.splitlines()
    address = next(line.split()[0] for line in symbols if line.endswith(" __malloc_context"))
    outcome = heapx(process.target(live), "whatis", "0x" + address)
    assert outcome.code == 0 and b"__malloc_context" in outcome.stdout and b"thread-local" not in outcome.stdout


@pytest.mark.once
@pytest.mark.first
def test_actions_are_refused(lasting: Lasting, live: str) -> None:
    """trim and purge touch nothing."""
    process = lasting.of(live, recorder, "shared")
    for words in ("trim --yes", "purge --yes"):
        outcome = heapx(process.target(live), *words.split())
        assert outcome.code == 1 and "musl owns malloc" in outcome.stderr, outcome.stderr


@pytest.mark.once
@of_each("static")
@pytest.mark.parametrize("words", WALKERS)
def test_reading_costs_the_process_nothing(lasting: Lasting, live: str, words: str, way: str) -> None:
    """No page table, page, swap entry or page fault more. A second process keeps the program's code in memory: the first executes it again
    when it goes on, and would have to fetch it."""
    process, _ = lasting.of(live, recorder, way), lasting.of(live, beside, way)
    with unchanged(process.pid):
        outcome = alone(process.target(live), *words.split(), "--json")
        assert outcome.code in (0, 3), outcome.stderr[-1000:]


@of_each("shared")
def test_what_watch_reads_is_what_a_walk_counts(lasting: Lasting, live: str, way: str) -> None:
    """By metas, or counters, alone, of a process at rest."""
    process = lasting.of(live, recorder, way)
    runs = [heapx(process.target(live), "watch", "--every", "0.05", "--times", "2", *more, "--json").lines for more in ((), ("--exact",))]
    samples = [[line for line in lines if line["kind"] == "sample"][-1] for lines in runs]
    counted, exact = (sample["allocators"][way.replace("shared", "musl")] for sample in samples)
    of_musl = ("groups", "slots_used_bytes", "slots_free_bytes", "held_bytes", "used_bytes", "kept_bytes")
    of_tcmalloc = ("system_bytes", "free_bytes", "returned_bytes", "central_bytes", "transfer_bytes", "cached_bytes", "held_bytes")
    for key in of_tcmalloc if way == "tcmalloc" else of_musl:
        assert counted[key] == exact[key], key


@of_each("static, stripped")
def test_a_snapshot_and_what_grew(lasting: Lasting, live: str, way: str) -> None:
    """A snapshot answers as the process does, and two have a difference."""
    process = lasting.of(live, recorder, way)
    files = [str(process.folder / name) for name in ("old.heapx", "new.heapx")]
    for file in files:
        assert heapx(process.target(live), "snapshot", file).code == 0
    for words in ("arenas", "bins", "leaks", "report", "tcache"):
        outcome = heapx(["--snapshot", files[0]], *words.split(), "--json")
        assert outcome.code == 0 and outcome.envelope["partial"] is False, outcome.stderr
    outcome = heapx([], "diff", *files, "--json")
    assert outcome.code == 0 and outcome.envelope["problems"] == [], outcome.envelope["problems"]
