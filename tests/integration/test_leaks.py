"""Against a program that records what holds its blocks: what `leaks` says of each.

Files: analysis/reachability/leaks.py, analysis/reachability/heap_graph.py.
"""

import re
from collections import Counter
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import pytest

from tests.support.gcores import gcore
from tests.support.jemallocs import library as jemalloc
from tests.support.jemallocs import preloads
from tests.support.processes import Process, Stage, by_turns
from tests.support.tool import heapx

pytestmark = pytest.mark.image  # where its libc keeps thread-local storage, and its compiler what a register holds

WORKERS = 4
MAYBE = {"inside": "inside", "lost-mapping": "mapping"}


class Truth(NamedTuple):
    """What became of one block."""

    how: str
    size: int
    group: int


class Told(NamedTuple):
    """What the program told."""

    blocks: Dict[int, Truth]
    mappings: List[int]


def told(process: Process) -> Told:
    """The program's record."""
    blocks, mappings = {}, []  # type: Dict[int, Truth], List[int]
    for line in process.record().decode().splitlines():
        how, address, size, group = line.split()
        if how == "mapping":
            mappings.append(int(address, 16))
        else:
            blocks[int(address, 16)] = Truth(how, int(size), int(group))
    return Told(blocks, mappings)


def holders(stage: Stage, way: str) -> Process:
    """The program at rest, on glibc's malloc or jemalloc's."""
    library = str(stage.builder.build("holding", "-shared", "-fPIC"))
    env = preloads(way)
    return stage.start("holders", str(WORKERS), library, env=env, flags=("-Wl,--no-as-needed,-ldl",))


def judged(data: Any) -> Dict[int, Tuple[str, str, str]]:
    """Class, evidence and kind of each block that is not held."""
    return {int(one["address"], 16): (one["class"], one["evidence"], one["kind"]) for one in data["blocks"]}


def check(process: Process, data: Any) -> None:
    """Every recorded block is told as it is; nothing that is held is called leaked."""
    truth, found = told(process), judged(data)
    wrong = Counter()  # type: Counter[Tuple[str, str, str]]
    for address, one in truth.blocks.items():
        class_, evidence, _ = found.get(address, ("held", "", ""))
        wanted = ("leaked", "none") if one.how == "leaked" else ("maybe", MAYBE[one.how]) if one.how in MAYBE else ("held", "")
        if (class_, evidence) != wanted:
            wrong[one.how, class_, evidence] += 1
    assert not wrong
    assert len(truth.blocks) > 4000
    assert [hex(address) for address, one in found.items() if one[0] == "leaked" and address not in truth.blocks] == []
    assert set(truth.mappings) <= {int(one["start"], 16) for one in data["mappings"]}


def check_roots(process: Process, data: Any) -> None:
    """Each lost chain has one root, each lost ring one block of it; what hangs behind adds up, each byte once."""
    truth, found = told(process), judged(data)
    kinds = {}  # type: Dict[int, Counter[str]]
    for address, one in truth.blocks.items():
        if one.how == "leaked":
            kinds.setdefault(one.group, Counter())[found[address][2]] += 1
    for group, count in kinds.items():
        is_ring = 20 <= group < 40
        assert (count["root"], count["cycle"]) == ((0, 1) if is_ring else (1, 0)), (group, count)
    classes, groups = data["classes"], data["groups"]
    assert sum(one["blocks"] + one["behind_blocks"] for one in groups) == classes["leaked"]["blocks"]
    assert sum(one["bytes"] + one["behind_bytes"] for one in groups) == classes["leaked"]["bytes"]
    assert sum(one["blocks"] for one in groups) == classes["leaked"]["roots"] == len(kinds)


@by_turns("way, options", [("glibc", ()), ("jemalloc", ()), ("jemalloc", ("--no-debug-info",)), ("glibc", ("--no-debug-info",))])
def test_every_block_is_told_as_it_is(stage: Stage, kind: str, way: str, options: Sequence[str]) -> None:
    """Blocks held by globals, stacks, registers, thread-local storage, keys, mappings and contexts; lost chains, rings and single blocks. Nothing of
    it rests on a name."""
    process = holders(stage, way)
    data = heapx([*options, *process.target(kind)], "leaks", "--list", "--json").data
    check(process, data)
    if not options:
        check_roots(process, data)


@by_turns("way", ["glibc", "jemalloc"])
def test_ends_of_vectors(stage: Stage, kind: str, way: str) -> None:
    """A lost block is leaked, or maybe by the end of the vector right before it; an emptied vector holds it. No vector and no half of a pair is
    anything but held."""
    library, record = None if way == "glibc" else jemalloc(), stage.folder() / "record"
    process = stage.spawn_ready([str(stage.builder.build_by("g++", "-O1", name="ends.cpp")), str(record)], env={"LD_PRELOAD": str(library)} if library else {})
    truth = {int(address, 16): how for how, address in (line.split() for line in record.with_suffix(".told").read_text().splitlines())}
    found, wrong, ends = judged(heapx(process.target(kind), "leaks", "--list", "--json").data), Counter(), 0  # type: ignore[var-annotated]
    for address, how in truth.items():
        before = truth.get(address - 64) if how == "lost" else None
        wanted = "none" if how == "lost" and before not in ("full", "part", "emptied") else "end" if before in ("full", "part") else "held"
        evidence = found[address][1] if address in found else "held"
        wrong[how, before, wanted, evidence] += evidence != wanted
        ends += wanted == "end"
    # a register or a stale word may lead to a few, and holds them
    assert len(truth) == 8000 and sum(wrong.values()) <= 5 and all(one[0] == "lost" or not count for one, count in wrong.items()), +wrong
    assert ends > 1000 if library else not ends


@by_turns("pie", ["-pie", "-no-pie"])
def test_places_inside_that_are_by_design(stage: Stage, kind: str, pie: str) -> None:
    """Second bases, arrays behind their number and old strings are held, by the one read; a pointer to any other place inside is weak."""
    flags = ("-fPIE", "-pie") if pie == "-pie" else ("-fno-pie", "-no-pie")
    process = stage.spawn_ready([str(stage.builder.build_by("g++", "-O1", *flags, name="inside.cpp"))])
    options = process.target(kind)
    for weak in ("--weak", "--no-weak"):
        classes = heapx(options, "leaks", "--json", weak).data["classes"]
        assert classes["leaked"]["blocks"] == 0
        assert classes["maybe"] == {"blocks": 10, "bytes": 10 * 200, "by_evidence": {"inside": {"blocks": 10, "bytes": 10 * 200}}}


@by_turns("way", ["glibc", "jemalloc"], "core")
def test_a_thread_on_a_stack_that_malloc_gave(stage: Stage, kind: str, way: str) -> None:
    """Nothing points to its begin, and the stack pointer lies in it: it is held, and what only it holds."""
    process = stage.start("coroutine", env=preloads(way))
    truth = {name: int(address, 16) for name, address, _ in (line.split() for line in process.record().decode().splitlines())}
    options = process.target(kind)
    data = heapx(options, "leaks", "--list", "--no-weak", "--json").data
    found = judged(data)
    assert set(truth) == {"stack", "held", "lost"} and set(truth.values()) & set(found) == {truth["lost"]}
    assert found[truth["lost"]][0] == "leaked"


@by_turns("way", ["glibc", "jemalloc"])
def test_disguised_pointers(stage: Stage, kind: str, way: str) -> None:
    """The second look finds what is held by a pointer with other bits, at an odd place, or mangled; without it all of them are leaked."""
    process = stage.start("disguised", env=preloads(way))
    truth = {int(address, 16): evidence for evidence, address in (line.split() for line in process.record().decode().splitlines())}
    expected = {address: ("leaked" if evidence == "none" else "maybe", evidence) for address, evidence in truth.items()}
    options = process.target(kind)
    for weak, wanted in (("--weak", expected), ("--no-weak", dict.fromkeys(truth, ("leaked", "none")))):
        data = heapx(options, "leaks", "--list", "--json", weak).data
        assert {address: one[:2] for address, one in judged(data).items() if address in truth} == wanted
        assert data["classes"]["leaked"]["blocks"] == sum(class_ == "leaked" for class_, _ in wanted.values())


@pytest.mark.once  # the limit is the tool's own
@by_turns("way", ["glibc", "jemalloc"], "core")
def test_where_the_graph_does_not_fit(stage: Stage, kind: str, way: str) -> None:
    """`leaks` and `owners` are refused before they begin, each with how much they take and a command that takes less."""
    options = holders(stage, way).target(kind)
    for command, lighter in (("leaks", "census"), ("owners", "leaks")):
        refused = heapx(options, command, env={"GDBHEAPX_MEMORY": "1000"})
        assert (refused.code, refused.stdout) == (1, b"") and "memory" in refused.stderr and " %s`" % lighter in refused.stderr


@pytest.mark.parametrize("kind", ["core", "gcore"])
def test_a_file_that_a_core_left_out_may_hold(stage: Stage, kind: str) -> None:
    """Its shared mapping of a file alone points to its blocks: held in the process; of a core leaked at most, and no limit of leaks is passed for sure."""
    process = stage.start("recorder", "4", "400", "3")
    assert heapx(process.target("live"), "leaks", "--fail-on-leak", "1", "--json").code == 0
    target = ["--core", str(gcore(process))] if kind == "gcore" else process.target("core")
    found = heapx(target, "leaks", "--json")
    assert found.code == 0 and found.data["classes"]["leaked"]["is_upper_bound"] and found.data["classes"]["leaked"]["blocks"] > 400
    assert [one["code"] for one in found.envelope["problems"]] == ["mapped-files-not-in-core"]
    asked = heapx(target, "leaks", "--fail-on-leak", "1", "--json")
    assert asked.code == 4 and "leak-unknown" in [one["code"] for one in asked.envelope["problems"]]


@pytest.mark.parametrize("kind", ["live", "core"])
def test_where_nobody_retains_much(stage: Stage, kind: str) -> None:
    """Two tables hold the same blocks: neither keeps them alone, and both are named."""
    target = stage.start("crossed").target(kind)
    (suspect,) = heapx(target, "owners", "--json").data["suspects"]
    assert suspect["kind"] == "shared" and suspect["retained_bytes"] >= 20_000 * 200
    assert suspect["owner"] == "by_age in crossed and by_number in crossed"
    for words in (("owners",), ("report", "--deep")):
        text = heapx(target, *words).stdout.decode()
        assert all(name in text for name in ("by_age", "by_number")) and "neither alone" in text


@pytest.mark.parametrize("kind", ["live", "core"])
def test_which_several_hold(stage: Stage, kind: str) -> None:
    """A table that two variables hold is the suspect, and both are named."""
    target = stage.start("both").target(kind)
    (suspect,) = heapx(target, "owners", "--json").data["suspects"]
    assert suspect["kind"] == "shared" and suspect["retained_bytes"] >= 20_000 * 200
    assert set(suspect["holders"]) == {"by_one in both", "by_other in both"}
    text = heapx(target, "owners").stdout.decode()
    assert re.search(r"which by_o\w+ in both and by_o\w+ in both hold, keeps 4\.\d MiB", text), text


def test_mappings_that_were_forgotten(stage: Stage, core: str) -> None:
    """Of windows of a file `report` says how many nothing points to; the last one is held."""
    target = stage.start("windows").target(core)
    data = heapx(target, "report", "--json").data["inside"]
    row = data["lost_mappings"][0]
    assert (row["mappings"], row["name"].endswith("record.stream")) == (30, True) and 27 <= row["lost"] <= 29
    assert row["bytes"] == row["lost"] << 20
    assert "%d of 30 mappings of " % row["lost"] in heapx(target, "report").stdout.decode()
