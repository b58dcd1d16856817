"""Paths through C++ containers, held against what the program itself writes down of its blocks.

Files: analysis/census/cplusplus_paths.py,
analysis/reachability/paths.py, inferior/elf/dwarf.py.
"""

import json
import random
import re
from bisect import bisect_right
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import pytest

from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census import block
from gdbheapx.analysis.census.cplusplus_paths import hash_of, quote_cpp_text
from gdbheapx.analysis.reachability import dominance
from gdbheapx.analysis.reachability.owners import ELEMENTS, Owners, walk_owned
from gdbheapx.analysis.reachability.paths import PathStep, format_path
from gdbheapx.inferior.source import CoreSource
from gdbheapx.inferior.target import ElfTarget
from tests.support.hidden import STRIPPED
from tests.support.jemallocs import library as jemalloc
from tests.support.processes import Process, Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.image  # the layout of libstdc++'s containers, and what is left in libc's blocks

BUILDS = {
    "symbols": ("-O2",),
    "dynamic symbols": ("-O2", "-s", "-rdynamic"),
    "stripped": ("-O2", "-s"),
    "jemalloc": ("-O2", "-s", "-rdynamic"),
}
OBJECTS, LEAST = 1000, 950
VAGUE = ("[...]", "[+0x")
"""A key or a place that is not proven."""
KEYS = {b"u:1234": '"u:1234"', b'a"\\\n\x00': '"a\\"\\\\\\n\\u{0}"', b"\xff": '"\xff"', b"x" * 61: '"%s"...' % ("x" * 60)}


def folded(path: str) -> str:
    """As a text is shown that is long."""
    return format_path([PathStep("variable", path, None)])


class Truth:
    """What the program has recorded."""

    def __init__(self, process: Process, base: int, has_names: bool) -> None:
        lines = [line.split(" ", 1) for line in process.record_path.read_text().splitlines()]
        self._base, self._has_names, self._read_program = base, has_names, Path(process.executable).name
        self._variables = {words[2:]: int(address, 16) for address, words in lines if words.startswith("= ")}
        self.rows = [(int(address, 16), words) for address, words in lines if not words.startswith(("= ", "?"))]
        self.unproven = [int(address, 16) for address, words in lines if words == "?"]

    def path(self, words: str) -> str:
        """As it must be called: without symbols a container in a variable by its distance from where the program lies."""
        if self._has_names:
            return folded(words)
        name, inside, rest = re.match(r"(\w+)(?:\.\+0x([0-9a-f]+))?(.*)", words).groups()  # type: ignore[union-attr]
        return folded("%s+0x%x%s" % (self._read_program, self._variables[name] + int(inside or "0", 16) - self._base, rest))


def opened(core: Path) -> Session:
    """A session of that core, whose members are told as bytes from where an object begins."""
    session = Session(ElfTarget(CoreSource(str(core)), debug_info=False))
    session.prepare()
    return session


def check(truth: Truth, chosen: Sequence[Tuple[int, str]], paths: Sequence[Optional[str]]) -> None:
    """None is called what it is not, and 95 % have a whole path."""
    pairs = [(truth.path(words), path) for (_, words), path in zip(chosen, paths)]
    assert [pair for pair in pairs if pair[1] not in (pair[0], None) and not any(word in pair[1] for word in VAGUE)] == []
    assert sum(path == words for words, path in pairs) >= LEAST * len(pairs) // OBJECTS, [pair for pair in pairs if pair[0] != pair[1]]


@pytest.mark.parametrize("build, seed", [(build, number % 3 + 1) for number, build in enumerate(BUILDS)])
def test_paths_lead_where_they_say(stage: Stage, core: str, build: str, seed: int) -> None:
    """Of 1,000 random blocks of a core none is called what it is not, and 95 % have their path: with symbols, with those for the dynamic
    linker alone, by the place in the program; on jemalloc, where one block begins where another ends. No key is told that may be part of one, or a fraction, nor the place of a pair."""
    preloaded = {"LD_PRELOAD": str(jemalloc())} if build == "jemalloc" else {}
    process = stage.start("keys", str(seed), flags=BUILDS[build], env=preloaded)
    session = opened(process.core())
    graph = block.make_named_graph(session)
    truth = Truth(process, session.target.modules()[0].base, build in ("dynamic symbols", "jemalloc") or (build == "symbols" and not STRIPPED))
    chosen = random.Random(seed).sample(truth.rows, OBJECTS)
    places = [graph.reach.graph.find(address) for address, _ in chosen]
    assert graph.paths is not None and None not in places
    check(truth, chosen, [graph.paths.text(place[0]) for place in places if place is not None])
    unproven = [graph.paths.text(place[0]) for place in map(graph.reach.graph.find, truth.unproven) if place is not None]
    assert len(unproven) >= OBJECTS and not [path for path in unproven if path is not None and not any(word in path for word in VAGUE)]


@pytest.mark.once  # the same paths, by another command
@pytest.mark.parametrize("kind, seed", [("live", 4), ("core", 5)], indirect=["kind"])
def test_paths_in_sql(stage: Stage, kind: str, seed: int) -> None:
    """The same of a process as it lives and of a core, by `query`; without names there are none."""
    pytest.importorskip("duckdb", reason="duckdb is not installed")
    process = stage.start("keys", str(seed), flags=BUILDS["dynamic symbols"])
    target = process.target(kind)
    rows = heapx(target, "query", "select address, path from held_blocks order by address", "--json").data["rows"]
    starts = [int(str(row["address"]), 0) for row in rows]
    truth = Truth(process, 0, True)
    chosen = random.Random(seed).sample(truth.rows, OBJECTS)
    check(truth, chosen, [rows[bisect_right(starts, address) - 1]["path"] for address, _ in chosen])


def places(process: Process, *wanted: str) -> List[int]:
    """Addresses of what is called so."""
    rows = [line.split(" ", 1) for line in process.record_path.read_text().splitlines()]
    return [int(next(address for address, words in rows if re.fullmatch(pattern, words)), 16) for pattern in wanted]


@pytest.mark.once  # the same paths, by other commands
def test_each_command_has_the_same_name(stage: Stage, live: str) -> None:
    """refs, whatis and owners --of; keys are left out of snapshots, and paths with --no-names."""
    process = stage.start("keys", "6", flags=BUILDS["dynamic symbols"])
    session, queued = places(process, r'g_sessions\["u:\d+"\]\[0\]', r"g_queue\[7\]")
    target, folder = process.target(live), process.folder
    answer = heapx(target, "refs", hex(session), "--json").data
    assert re.fullmatch(r'g_sessions\["u:\d+"\]\[0\]', answer["path"]), answer["path"]
    assert [step["kind"] for step in answer["path_steps"]] == ["variable", "key", "index"]
    assert answer["path_steps"][-1]["address"] in (session, hex(session))
    held: Dict[str, Any] = heapx(target, "whatis", hex(queued), "--holders", "--json").data["held_by"]
    assert held["path"] == "g_queue[7]"
    assert heapx(target, "refs", hex(session)).stdout.decode().count(answer["path"]) == 1
    assert heapx(target, "refs", hex(session), "--no-names", "--json").data["path"] is None
    kept = folder / "kept.gdbheapx"
    heapx(target, "snapshot", str(kept))
    assert b"u:1" not in kept.read_bytes() and "g_sessions[\"" not in json.dumps(heapx(["--snapshot", str(kept)], "owners", "--json").data)


@pytest.mark.once  # what damaged words are taken for is the tool's own
def test_damaged_memory_ends(stage: Stage, core: str) -> None:
    """Whatever words say, every question is answered."""
    process = stage.start("keys", "0", flags=BUILDS["symbols"])
    session = opened(process.core())
    graph = block.make_named_graph(session)
    rng, read, lines = random.Random(0), session.target.read_prefix, process.record_path.read_text().splitlines()

    def damaged(address: int, size_bytes: int) -> bytes:
        data = bytearray(read(address, size_bytes))
        if data and rng.random() < 0.1:
            data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0xFF))
        return bytes(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.05 else data)

    session.target.read_prefix = damaged  # type: ignore[method-assign]
    found = [graph.reach.graph.find(int(line.split(" ", 1)[0], 16)) for line in rng.sample(lines, 600)]
    texts = [graph.paths.text(place[0]) for place in found if place is not None and place[0] < graph.reach.numbers.blocks]
    assert any(texts) and None in texts


@pytest.mark.parametrize("data", KEYS)
def test_keys_are_literals(data: bytes) -> None:
    """Escaped, and cut."""
    assert quote_cpp_text(data) == KEYS[data]


def test_damaged_hash() -> None:
    """One bit more is another hash."""
    assert len({hash_of(b"u:1234"), hash_of(b"u:1235"), hash_of(b"u:1234\0"), hash_of(b"u:1234567"), hash_of(b"u:12345678")}) == 5


def test_members_are_called_as_in_the_source(stage: Stage, core: str) -> None:
    """With debug information, a member's name stands where else its distance does, one for each; what is a container's own has none."""
    process = stage.start("keys", "3", flags=BUILDS["symbols"])
    session = Session(ElfTarget(CoreSource(str(process.core()))))
    session.prepare()
    graph = block.make_named_graph(session)
    rows = [row for row in Truth(process, 0, True).rows if row[1].startswith(("g_service", "g_other"))]
    places = [graph.reach.graph.find(address) for address, _ in rows]
    found = [graph.paths.of(place[0]) if place is not None else None for place in places]
    paths = [None if path is None else "".join(step.name for step in path.steps) for path in found]
    whole = re.compile(r"(g_service\.|g_other->)(cache(\[\".*\]|\.<key \".*\">)(\.(name|numbers|parts.*))?|lines\[\d+\])")
    assert len(rows) > 300 and sum(path is not None and whole.fullmatch(path) is not None for path in paths) >= LEAST * len(rows) // OBJECTS
    assert [pair for pair in zip(rows, paths) if pair[1] is not None and "+0x" in pair[1] and "[+0x" not in pair[1]] == []


def printed(owners: Owners) -> Set[str]:
    """Every name in the answer, but for what is told of elements that are alike."""
    found = {row.owner for row in walk_owned([*owners.owners, *owners.together]) if row.kind != ELEMENTS}
    for suspect in owners.suspects:
        found |= {suspect.owner, suspect.accumulation.name, *(part.name for part in suspect.accumulation.parts), *suspect.holders}
    return found


@pytest.mark.once  # the tool's own names
def test_every_printed_name_is_accepted(stage: Stage, core: str, tmp_path: Path) -> None:
    """What `owners` prints of a core, `--of` and `whatis` find again, and what it prints of a process and a snapshot, too. The storage of a
    container is called as its variable is, without its file: that finds the variable."""
    process = stage.start("keys", "7", flags=BUILDS["symbols"])
    tallied = dominance.OwnerTally(*block.make_named_graph(opened(process.core())))
    names = random.Random(7).sample(sorted(printed(dominance.find_owners(tallied, 4, 12))), 60)
    nodes = {name: dominance.find_named_node(tallied, name) for name in names}
    found = {name: None if node is None else tallied.name(node) for name, node in nodes.items()}
    assert [pair for pair in found.items() if pair[1] not in (pair[0], pair[0] + " in keys-O2")] == []
    process = stage.start("keys", "8", flags=BUILDS["symbols"])
    assert heapx(process.target("live"), "snapshot", str(tmp_path / "keys.snap")).code == 0
    for target in (process.target("live"), ["--snapshot", str(tmp_path / "keys.snap")]):
        row = heapx(target, "owners", "--depth", "3", "--limit", "3", "--json").data["owners"][0]
        retained = {row["owner"]: row["retained_bytes"]}
        while row["children"]:
            row = row["children"][-1]
            retained[row["owner"]] = row["retained_bytes"]
        same = heapx(target, "owners", "--of", row["owner"], "--json").data["owners"][0]
        assert same["owner"] in (row["owner"], row["owner"] + " in keys-O2")
        assert same["retained_bytes"] == retained[same["owner"]]
        assert heapx(target, "whatis", row["owner"], "--json").code == 0
