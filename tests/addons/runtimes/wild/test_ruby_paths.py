"""Paths of a Ruby program's objects: the program itself evaluates them, and must get the same objects.

Files: addons/runtimes/ruby/__init__.py, addons/runtimes/ruby/objects.py.
"""

from pathlib import Path
from typing import Dict, List, NamedTuple, Optional

import pytest

from gdbheapx.addons.runtimes.ruby import objects
from gdbheapx.analysis.census import find
from gdbheapx.analysis.census.block import make_named_graph as made_graph
from gdbheapx.analysis.reachability.paths import FIELD, FRAME, NamedGraph
from gdbheapx.common.problems import RUNTIME_UNREAD
from tests.support.interpreters import releases, session_of, started
from tests.support.processes import Stage

pytestmark = pytest.mark.wild  # an interpreter that may not be here

LEAST_NAMED = 0.95
PROGRAM = (Path(__file__).parents[1] / "programs" / "paths.rb").read_text(encoding="utf-8")


class Sample(NamedTuple):
    """An object that the program has chosen."""

    address: int
    type: str
    size: int
    """Entries, or bytes of a String."""


def samples(folder: Path) -> List[Sample]:
    rows = [line.split() for line in (folder / "objects").read_text().splitlines()]
    return [Sample(int(address, 16), kind, int(size)) for address, kind, size in rows]


def named(graph: NamedGraph, objects: List[Sample]) -> List[str]:
    """A path for each; empty: none, or one with a step that has no word."""
    paths = []
    for sample in objects:
        place = graph.reach.graph.find(sample.address)
        path = graph.paths.of(place[0]) if place is not None else None
        paths.append(path.text if path is not None and all(step.kind not in (FIELD, FRAME) for step in path.steps) else "")
    return paths


def contents(graph: NamedGraph, sample: Sample) -> Optional[str]:
    place = graph.reach.graph.find(sample.address)
    return graph.paths.contents(place[0])


def classes(folder: Path) -> Dict[str, int]:
    """Objects by class, as the program counts them."""
    return {name: int(count) for name, count in (line.split() for line in (folder / "classes").read_text().splitlines())}


def of_class(graph: NamedGraph, name: str) -> int:
    """Blocks that are called so."""
    told = graph.paths
    labels = {label for label, kind in enumerate(told.kinds) if kind.name == name}
    return sum(label in labels for label in told.labels)


WORDS = {"HASH": "Hash of {:,} entries", "ARRAY": "Array of {:,}", "STRING": "String, {:,} bytes", "STRUCT": "Struct of {:,}"}


@pytest.mark.parametrize("ruby", releases("ruby"))
@pytest.mark.parametrize("kind, age, seed", [("core", "young", 1), ("core", "old", 2), ("live", "old", 3)])
def test_the_program_finds_its_objects_by_them(stage: Stage, ruby: str, kind: str, age: str, seed: int) -> None:
    """1,000 of them, by identity: none is wrong."""
    process = started(stage, ruby, PROGRAM, age, str(seed))
    objects = samples(process.folder)
    session = session_of(process, kind)
    graph = made_graph(session)
    paths = named(graph, objects)
    for sample in objects:
        assert contents(graph, sample) == (WORDS[sample.type].format(sample.size) if sample.type in WORDS else None)
    assert len(objects) == 1000 and sum(map(bool, paths)) >= LEAST_NAMED * len(objects)
    assert {row: of_class(graph, row) for row in classes(process.folder)} == classes(process.folder)
    (process.folder / "paths").write_text("\n".join(paths) + "\n")
    process.command(b"check\n")
    good, wrong, failed = map(int, (process.folder / "verdict").read_text().split())
    assert (good, wrong, failed) == (sum(map(bool, paths)), 0, 0)


@pytest.mark.parametrize("ruby", releases("ruby"))
def test_a_release_that_is_not_known_is_told_once_and_named_nowhere(stage: Stage, ruby: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of its memory is told apart."""
    monkeypatch.setattr(objects, "LAYOUTS", {})
    session = session_of(started(stage, ruby, PROGRAM), "core")
    graph = made_graph(session)
    assert graph.paths is None or not list(graph.paths.starts()), "containers of C++ alone may have paths"
    assert [problem.code for problem in session.problems if problem.code == RUNTIME_UNREAD] == [RUNTIME_UNREAD]
    assert not any(row.module == "ruby" for row in find.find_census(session).rows)
