"""Who owns linked containers while threads, requests and a table use their elements, held against what the program itself took.

Files: analysis/reachability/dominance.py, analysis/reachability/dominance.py, kernel/blocks/graph.py.
"""

from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.support.owned import Verdict, asked, facts, judged
from tests.support.paths import PROGRAMS
from tests.support.processes import Stage, by_turns
from tests.support.random_containers import program

pytestmark = pytest.mark.once  # what owners make of a graph, which is the same on all images


def lines(verdicts: List[Verdict]) -> str:
    """What was wrong, for the reader of a failure."""
    return "\n".join(one.line() for one in verdicts if not one.good)


@by_turns("threads", ("0", "8"))
def test_ten_forms(stage: Stage, kind: str, threads: str) -> None:
    """Each of ten forms is owned by its global, whoever works on its elements."""
    process = stage.start("ten_containers", "2000", threads)
    verdicts = judged(process.target(kind), facts(process.record_path))
    assert len(verdicts) == 10 and all(one.good for one in verdicts), lines(verdicts)


def test_a_cache_in_shards(stage: Stage, kind: str) -> None:
    """A cache whose rings begin in one block, with entries of several sizes, has all of them; each shard has its entries, not their values."""
    process = stage.start("sharded_cache", "20000", "8")
    verdicts = judged(process.target(kind), facts(process.record_path))
    assert len(verdicts) == 2 and all(one.good for one in verdicts), lines(verdicts)
    rows = list(asked(process.target(kind), "--of", "g_cache", "--depth", "4", "--limit", "100")["data"]["owners"])
    elements = 0
    while rows:
        row = rows.pop()
        rows += row["children"]
        elements += (row["container"] or {}).get("elements", 0)
    assert 19_000 <= elements <= 20_000


@pytest.mark.parametrize(
    "words, owned, start",
    [
        ("ten_containers 20000 8", 10, {"flags": ["-s"]}),
        ("std_containers 1000 8", 13, {}),
        ("glib_containers 2000 8", 10, {"env": {"G_SLICE": ""}}),
        ("glib_containers 2000 8", 10, {"env": {"G_SLICE": "always-malloc"}}),
        ("rust_containers 2000 8", 10, {}),
    ],
    ids=["without-symbols", "std", "glib-slices", "glib-malloc", "rust"],
)
def test_containers_are_owned_by_their_globals(stage: Stage, live: str, words: str, owned: int, start: Dict[str, Any]) -> None:
    """Heads side by side without names are owners of their own; std:: containers, whatever iterators lead into them; GLib's, whether nodes are cut from
    slices or malloc gives them, as since 2.76; Rust's, and a tree whose children know their parent, whose arrays may be as large as they."""
    process = stage.start(*words.split(), **start)
    verdicts = judged(process.target("live"), facts(process.record_path))
    assert len(verdicts) == owned and all(one.good for one in verdicts), lines(verdicts)


def test_who_else_uses_elements_is_told(stage: Stage, kind: str) -> None:
    """Beside the owner: threads, a table of work and requests, each by its variable, and so many elements at most as they point to."""
    process = stage.start("ten_containers", "2000", "8")
    row = asked(process.target(kind), "--of", "g_tailq")["data"]["owners"][0]
    linked, users = row["container"], {user["owner"].split(" in ")[0]: user["pointers"] for user in row["users"]}
    assert users.get("g_in_work", 0) + users.get("g_requests", 0) and not [name for name in users if name.startswith(("block", "g_tailq"))]
    assert 0 < linked["used_elements"] <= sum(users.values()) and 56 * linked["used_elements"] <= linked["used_bytes"] < linked["own_bytes"]


def test_graphs_of_several_owners(stage: Stage, live: str) -> None:
    """A list that two globals hold by its ends, and elements of two tables, are of neither alone; no subtree is larger than it is, and at most one of
    the graphs is not told as it is."""
    process = stage.start("counter_graphs", "8")
    verdicts = judged(process.target("live"), facts(process.record_path))
    assert {one.fact.how for one in verdicts} == {"owns", "most", "child"} and sum(not one.good for one in verdicts) <= 1, lines(verdicts)
    assert not [one for one in verdicts if one.false_collapse], lines(verdicts)


def test_lists_that_change(stage: Stage, live: str) -> None:
    """Lists that threads change without pause are owned in each of three looks."""
    process = stage.start("flux", "10")
    for _ in range(3):
        verdicts = judged(process.target("live"), facts(process.record_path))
        assert all(one.good for one in verdicts), lines(verdicts)


def test_random_containers(stage: Stage, live: str) -> None:
    """Of small containers of three random programs nine of ten are owned, and nothing is given to one of two owners. In memory nothing tells
    who holds a ring without a head of which others have elements, too."""
    verdicts: List[Verdict] = []
    for seed in (1, 2, 3):
        source = stage.folder() / ("random%d" % seed)
        Path(str(source) + ".c").write_text(program(seed, 600))
        process = stage.start(str(source), "8", flags=("-I" + str(PROGRAMS),))
        verdicts += judged(process.target("live"), facts(process.record_path))
        process.end()
    assert sum(one.good for one in verdicts) >= 0.9 * len(verdicts) and not [one for one in verdicts if one.false_collapse], lines(verdicts)
