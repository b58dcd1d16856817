"""Mappings of a process, and blocks with a mapping of their own that the kernel shows as several."""

from typing import Any, Dict, List, NamedTuple, Tuple

import pytest

from tests.support.gcores import gcore
from tests.support.processes import Process, Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # the compiler's library alone says how its containers lie

STRIPPED, HIDDEN = ("-O2", "-s", "-rdynamic"), ("-O2", "-s")
FIRST, SECOND = "gate::ProfileResolver::cache_", "gate::Sessions::table_"
MAP, LIST = "unordered map or set", "list"


class Truth(NamedTuple):
    """As the program records it."""

    first_at: int
    first_bytes: int
    first_blocks: int
    first_entries: int
    second_at: int
    second_bytes: int
    second_blocks: int
    second_entries: int
    list_length: int
    names_at: int
    by_time_entries: int


def truth(process: Process) -> Truth:
    return Truth(*process.words())


@pytest.fixture
def running(stage: Stage) -> Process:
    return stage.start("maps", flags=STRIPPED)


def rows_of(target: List[str], *words: str) -> Dict[str, Dict[str, Any]]:
    return {row["owner"].split(" in ")[0]: row for row in heapx(target, "owners", "--json", *words).data_beside_own_memory["owners"]}


def counts(row: Dict[str, Any]) -> List[Tuple[str, int]]:
    return [(one["kind"], one["elements"]) for one in row["containers"]]


def check_counts(rows: Dict[str, Dict[str, Any]], made: Truth) -> None:
    assert counts(rows[FIRST]) == [(MAP, made.first_entries), (LIST, made.list_length)]
    assert counts(rows[SECOND]) == [(MAP, made.second_entries)]
    assert counts(rows["gate::Sessions::by_time_"]) == [("map or set", made.by_time_entries)]
    assert counts(rows["gate::Sessions::names_"]) == [("vector of strings", 100)]


def test_names_and_numbers(stage: Stage, kind: str) -> None:
    """A stripped program's exported variables have names, and each says which containers it has, and how many elements these have."""
    process = stage.start("maps", flags=STRIPPED)
    made = truth(process)
    check_counts(rows_of(process.target(kind)), made)


def test_in_a_snapshot(running: Process, live: str, folder: Any) -> None:
    """What was told when it was taken; `--no-names` leaves the names out, and not the numbers."""
    for number, words in enumerate(((), ("--no-names",))):
        path = str(folder / str(number))
        heapx(running.target(live), "snapshot", path, *words)
        rows = rows_of(["--snapshot", path])
        if words:
            assert FIRST not in rows
            assert [(MAP, truth(running).first_entries), (LIST, 4096)] in [counts(row) for row in rows.values()]
        else:
            check_counts(rows, truth(running))


def test_without_names(stage: Stage, live: str) -> None:
    """Of a program that exports nothing the containers are told all the same."""
    process = stage.start("maps", flags=HIDDEN)
    made = truth(process)
    told = [one for row in rows_of(process.target(live)).values() for one in counts(row)]
    wanted = [(MAP, made.first_entries), (LIST, made.list_length), (MAP, made.second_entries), ("map or set", made.by_time_entries)]
    assert sorted(told) == sorted([*wanted, ("vector of strings", 100)])


def test_the_way_to_a_node(running: Process, live: str) -> None:
    """`refs` says to which container of the variable the last pointer belongs."""
    children = rows_of(running.target(live), "--of", SECOND, "--depth", "2")[SECOND]["children"]
    table = max(children, key=lambda row: int(row["retained_bytes"]))["address"]
    chains = heapx(running.target(live), "refs", table, "--json").data_beside_own_memory["chains"]
    last = [chain[-1] for chain in chains if (chain[-1]["root"] or "").startswith(SECOND)]
    assert last and {(one["container"]["kind"], one["container"]["elements"]) for one in last} == {(MAP, truth(running).second_entries)}


def within(part: int, whole: int) -> bool:
    """Two percent of it at most, either way."""
    return abs(part - whole) <= 0.02 * whole


def test_each_retains_its_own(stage: Stage, kind: str) -> None:
    """What is stale behind strings and in vectors, and what leads from one to the other's nodes, takes nothing away: each has what it says."""
    process = stage.start("maps", flags=STRIPPED)
    made = truth(process)
    rows = rows_of(process.target(kind))
    assert within(rows[FIRST]["retained_bytes"], made.first_bytes) and within(rows[SECOND]["retained_bytes"], made.second_bytes)
    assert within(rows[FIRST]["retained_blocks"], made.first_blocks) and within(rows[SECOND]["retained_blocks"], made.second_blocks)
    most = 1.02 * (made.first_bytes + made.second_bytes)  # pointers to the other's nodes lead on to all of it
    assert all(rows[one]["retained_bytes"] <= rows[one]["reached_bytes"] <= most for one in (FIRST, SECOND))


def test_what_speaks_against_a_suspect(running: Process, live: str) -> None:
    """Both maps are suspects; each says what else points into it, in JSON and in a sentence."""
    target = running.target(live)
    suspects = heapx(target, "owners", "--json").data_beside_own_memory["suspects"]
    assert [one["owner"].split(" in ")[0] for one in suspects] == [FIRST, SECOND]
    assert all(one["others"]["unowning"] > 100 for one in suspects)
    lines = [line for line in heapx(target, "owners").stdout.decode().split("\n") if line.startswith("Suspect: ")]
    assert len(lines) == len(suspects)
    for line in lines:
        assert " in use elsewhere: " in line and " words of " in line and "unordered map or set of 32,000 entries" in line


def test_which_one_grew(running: Process, live: str, folder: Any) -> None:
    """`diff` of two snapshots names it, with what the program says that it has more; the other one has as much as before."""
    before, after = str(folder / "before"), str(folder / "after")
    heapx(running.target(live), "snapshot", before)
    first = truth(running)
    running.command(b"\n")
    second = truth(running)
    assert second.first_entries == first.first_entries + 30000 and second.second_bytes == first.second_bytes
    heapx(running.target(live), "snapshot", after)
    grown = heapx([], "diff", before, after, "--json").data["owners"]
    named = {one["what"].split(" in ")[0]: one for one in grown}
    assert next(iter(named)) == FIRST and SECOND not in named
    assert within(named[FIRST]["diff_bytes"], second.first_bytes - first.first_bytes)


def done_to_blocks(process: Process) -> Dict[int, str]:
    """What was done to each block, by its address."""
    lines = (line.split() for line in process.record().decode().splitlines())
    return {int(address, 16): how for how, address, _ in lines}


@pytest.mark.parametrize("way", ["live", "gcore", "core"])
def test_every_block_is_counted_and_held(stage: Stage, way: str) -> None:
    """None is missing from chunks and sums, none is a mapping that nothing points to, and no rule is broken."""
    process = stage.start("mapped")
    blocks = done_to_blocks(process)
    target = ["--core", str(gcore(process))] if way == "gcore" else process.target("live" if way == "live" else "core")

    def asked(*command: str) -> Any:
        return heapx(target, *command, "--json").envelope["data"]

    rows = [row for row in asked("chunks", "--limit", "1000")["chunks"] if row["status"] == "mmapped"]
    assert {blocks.get(int(row["address"], 16), "?") for row in rows} == set(blocks.values()) and len(rows) == len(blocks)
    assert asked("arenas")["mmapped"]["chunks"] == len(blocks)
    found = asked("leaks")
    assert (found["classes"]["held"]["blocks"], found["classes"]["leaked"]["blocks"], found["mappings"]) == (len(blocks), 0, [])
    assert asked("check") == {"findings": []}
