"""Paths of a PHP program's values: the program itself evaluates them, and must get the same values.

Files: addons/runtimes/php.py.
"""

import json
import random
import re
from pathlib import Path
from typing import Iterator, List, NamedTuple, Tuple

import pytest

from gdbheapx.addons.runtimes import php as php_values
from gdbheapx.addons.runtimes.php import OBJECT, STRING, find_php_tables, make_php_reader
from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census import find
from gdbheapx.analysis.census.block import make_named_graph as made_graph
from gdbheapx.analysis.census.world import CensusTarget
from gdbheapx.analysis.reachability.paths import FIELD, NamedGraph
from gdbheapx.common.problems import RUNTIME_UNREAD
from tests.support.interpreters import releases, session_of, started
from tests.support.processes import Process, Stage

pytestmark = pytest.mark.wild  # an interpreter that may not be here

IMMUTABLE = 1 << 6
"""GC_IMMUTABLE, of a string IS_STR_INTERNED."""
SAMPLES, LEAST_NAMED = 1000, 0.95
ODD = ("quoted", "accent", "lines", "empty", "conf", "field", "zero", "words", "odd")
"""What keys and names of every sort lead to: asked for always."""
PROGRAM = (Path(__file__).parents[1] / "programs" / "paths.php").read_text()

CHECKS = r"""foreach ($GLOBALS["asked"] as $__n => $__path) if (str_starts_with($__path, "frame " . OWN . "(): ")) {
    try { $__value = eval("return " . substr($__path, strlen("frame " . OWN . "(): ")) . ";"); }
    catch (\Throwable $__e) { $__value = "failed: " . $__e->getMessage(); }
    $GLOBALS["told"][$__n] = is_object($__value) ? get_class($__value) . " " . spl_object_id($__value) : $__value;
}"""
FRAMES = (Path(__file__).parents[1] / "programs" / "frames.php").read_text()
INCLUDED = r"""<?php
$swapped = App\made(11000, 200); $left = null; $later = ["truth later " . getmypid()];
for ($i = 0; $i < 300; $i++) $more[] = "truth appended $i";
echo "ready\n"; flush(); fgets(STDIN);
$GLOBALS["asked"] = explode("\n", file_get_contents($GLOBALS["argv"][1] . "/paths"));
CHECK(App\including)
"""


class Sample(NamedTuple):
    """A value in the core."""

    node: int
    told: str
    """As the program tells it."""


def values(session: Session, graph: NamedGraph) -> Iterator[Sample]:
    """Strings that begin with `truth` and are no constants of the code, and objects of the program's classes."""
    found, world = graph.reach.graph, CensusTarget(session)
    reading, known = world.once(make_php_reader), world.once(find_php_tables)
    classes = {value.data: reading.class_name(value.data) for name, value in reading.named(known.classes) if name.startswith("app\\")}
    for node, (address, size) in enumerate(found.blocks(list(range(graph.reach.numbers.blocks)))):
        words = reading.words(address, 4) if size >= 32 else ()
        kind = words[0] >> 32 if words else 0
        if kind & 0xF == STRING and not kind & IMMUTABLE and words[3].to_bytes(8, "little").startswith(b"truth "):
            yield Sample(node, str(reading.text(address)))
        elif kind & 0xF == OBJECT and words[2] in classes:
            yield Sample(node, "%s %d" % (classes[words[2]], words[1] & 0xFFFFFFFF))


def checked(text: str) -> str:
    """The program, which asks for its paths where it says so."""
    return re.sub(
        r"CHECK\((.*)\)", lambda match: CHECKS.replace("OWN", "'%s'" % match[1].replace("CLOSURE", "' . $GLOBALS['closure'] . '")), text
    )


def sampled(process: Process, kind: str) -> Tuple[List[Sample], List[str]]:
    """1,000 of its values, and their paths; empty for those that have none."""
    session = session_of(process, kind)
    graph = made_graph(session)
    every = list(values(session, graph))
    samples = [sample for sample in every if sample.told.split(" ")[1] in ODD]
    samples += random.Random(1).sample([sample for sample in every if sample not in samples], SAMPLES - len(samples))
    paths = [graph.paths.of(sample.node) for sample in samples]
    texts = ["" if path is None or any(step.kind == FIELD for step in path.steps) else path.text for path in paths]
    (process.folder / "paths").write_text("\n".join(texts))
    process.command(b"check\n")
    assert sum(map(bool, texts)) >= LEAST_NAMED * SAMPLES
    return samples, texts


@pytest.mark.parametrize("kind", ["live", "core"])
@pytest.mark.parametrize("php", releases("php"))
def test_the_program_finds_its_values_by_them(stage: Stage, php: str, kind: str) -> None:
    """1,000 strings, arrays and objects: strings by their text, which each has alone; objects by their number."""
    process = started(stage, php, PROGRAM)
    samples, texts = sampled(process, kind)
    told = (process.folder / "told").read_text().split("\n")
    assert [pair for pair in zip(texts, told) if pair[0]] == [(text, sample.told) for text, sample in zip(texts, samples) if text]
    assert {sample.told.split(" ")[1] for text, sample in zip(texts, samples) if text} >= set(ODD)
    assert {words.split(" ")[0] for words in told} >= {"truth", "App\\Item", "App\\Later"}


@pytest.mark.parametrize("kind", ["live", "core"])
@pytest.mark.parametrize("php", releases("php"))
def test_functions_find_theirs(stage: Stage, php: str, kind: str) -> None:
    """Variables of functions, methods, closures and generators that have not returned, and of one that includes a file, which has changed them:
    each function evaluates its paths itself, where it goes on."""
    process = started(stage, php, checked(FRAMES), included=checked(INCLUDED))
    samples, texts = sampled(process, kind)
    told = json.loads((process.folder / "told").read_text())
    assert [(text, told[str(number)]) for number, text in enumerate(texts) if text] == [
        (text, sample.told) for text, sample in zip(texts, samples) if text
    ]
    functions = {re.sub(r"\(\): (?!.*\(\): ).*", "", text) for text in texts if text}
    own = ("App\\Shop::handle", "App\\Shop::fill", "App\\Shop::" + told["closure"], "App\\running", "App\\including", "App\\main")
    assert functions == {"frame " + name for name in own}


@pytest.mark.parametrize("php", releases("php"))
def test_a_release_that_is_not_known_is_told_once_and_named_nowhere(stage: Stage, php: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has taken is told all the same."""
    process = started(stage, php, PROGRAM)
    monkeypatch.setattr(php_values, "LAYOUTS", {})
    session = session_of(process, "core")
    graph = made_graph(session)
    assert graph.paths is None or not list(graph.paths.starts()), "containers of C++ alone may have paths"
    (problem,) = (problem for problem in session.problems if problem.code == RUNTIME_UNREAD)
    assert re.match(r"PHP 8\.\d+\.\d+", problem.what)
    found = find.find_census(session)
    assert not any(row.module == "php" for row in found.rows)
    assert [memory.module for memory in found.managed] == ["php"]
