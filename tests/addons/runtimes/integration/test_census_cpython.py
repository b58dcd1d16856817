"""Objects and pools of CPython as the census finds them, against what the process itself counts.

Texts of objects that runtimes lay out, shown by `census --show-data`: those that the program itself has put there.

Files: addons/runtimes/cpython/objects.py, addons/runtimes/cpython/paths.py, addons/runtimes/php.py, addons/runtimes/ruby/__init__.py,
analysis/census/contents.py.
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import pytest

from gdbheapx.addons.runtimes.cpython import CPython
from gdbheapx.addons.runtimes.cpython.objects import PyBody
from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census.world import CensusTarget, Inner, order_rows
from gdbheapx.inferior.target import open_elf_target
from gdbheapx.kernel.blocks.stream import CLASS_USED, NativeBlocks
from tests.support.interpreters import started
from tests.support.processes import Process, Stage, by_turns
from tests.support.tool import heapx

pytestmark = pytest.mark.image  # depends on this Python's release and on libc's malloc

PROGRAM = """
import gc, json, sys
class Slots:
    __slots__ = ("a", "b", "c")
class Meta(type):
    pass
class Made(metaclass=Meta):
    __slots__ = ("a",)
class Änderung(list):
    __slots__ = ()
dicts = [{} for _ in range(100000)]
slots = [Slots() for _ in range(30000)]
made = [Made() for _ in range(1000)]
keyed = [{"key": number} for number in range(2000)]
lists = [[1, 2] for _ in range(5000)]
own = [Änderung() for _ in range(500)]
sets = [{number, number + 1, -number} for number in range(3000)]
floats = [number + 0.5 for number in range(20000)]
kept = [bytes(20) for _ in range(60000)]
del kept[::2]
gc.collect()
made_here = {"Slots": slots, "Made": made, "\\u00c4nderung": own}
print(json.dumps({
    "own": {name: [len(some), sum(-(-sys.getsizeof(one) // 16) * 16 for one in some)] for name, some in made_here.items()},
    "at least": {"dict": len(dicts) + len(keyed), "list": len(lists), "set": len(sets), "float": len(floats), "bytes": len(kept)},
    "heads": sys.getsizeof([]) - list.__basicsize__,
}), file=sys.stderr, flush=True)
sys._debugmallocstats()
sys.stderr.flush()
print("ready", flush=True)
sys.stdin.read()
"""

BUILTINS = {"int", "list", "tuple", "bytes", "str", "dict", "type"}
MARGIN = 4096
"""What sys._debugmallocstats and json themselves have meanwhile."""


class Census(NamedTuple):
    """What was found: by name blocks and bytes."""

    blocks: Dict[str, int]
    bytes: Dict[str, int]
    inner: Sequence[Inner]
    inner_bytes: int
    """Used cells of pools."""
    shifts: Sequence[int]
    bodies: Dict[str, int]
    """Blocks of no type that objects own, by their name."""


def census(options: Sequence[str], **hide: Any) -> Optional[Census]:
    """None where there is no CPython."""
    kind, where = options
    target = open_elf_target(pid=int(where), **hide) if kind == "--pid" else open_elf_target(core=where, **hide)
    session = Session(target)
    session.prepare()
    world, recogniser = CensusTarget(session), CPython()
    if not recogniser.is_here(world):
        return None
    asked = order_rows(recogniser.asks(world))
    signer = world.signer(asked.rows, asked.sets)
    every, inner_bytes, used = recogniser.inner(world), 0, []
    for stream in [heap.blocks() for heap in session.heaps.all()] + [inner.blocks for inner in every]:
        batches = [NativeBlocks(*(column[:] for column in batch)) for batch in stream]
        rows = [row for batch in batches for row in zip(batch.addresses, batch.usable_bytes, batch.classes)]
        assert [row[0] for row in rows] == sorted({row[0] for row in rows})
        if any(stream is inner.blocks for inner in every):
            assert all(class_ == CLASS_USED for _, _, class_ in rows)
            inner_bytes += sum(size for _, size, _ in rows)
        used += [address for address, _, class_ in rows if class_ == CLASS_USED]
        signer.stream(iter(batches))
    blocks: Dict[str, int] = Counter()
    bytes_: Dict[str, int] = Counter()
    for one in signer.found():
        if one.row >= len(asked.rows):  # told by its content
            continue
        signature = asked.signature(one)
        assert signature and signature.module == "python"
        blocks[signature.name] += one.blocks
        bytes_[signature.name] += one.bytes
    python = recogniser.python(world)
    assert python
    bodies: Dict[str, int] = Counter()
    keys = [0] + [one.key if one.row < len(asked.rows) else 0 for one in signer.found()]
    untyped = {address for address, label in zip(used, signer.labels()) if not keys[label]}
    words: Dict[int, List[PyBody]] = {}
    for body in python.bodies():
        words.setdefault(body.type, []).append(body)
    for address, label in zip(used, signer.labels()):
        for body in words.get(keys[label], ()):
            target_word = world.words(address + body.offset, 1)
            bodies[body.name] += bool(target_word and target_word[0] in untyped)
    return Census(blocks, bytes_, every, inner_bytes, python.types.shifts, bodies)


def python(stage: Stage, malloc: str = "") -> Process:
    """The program, ready."""
    environment = {"PYTHONMALLOC": malloc} if malloc else {}
    return stage.spawn_text("program.py", PROGRAM, [sys.executable, "-S", "program.py"], {**environment, "PYTHONHASHSEED": "0"})


def told(process: Process) -> List[str]:
    """What it says of itself."""
    return process.stderr_path.read_text(encoding="utf-8").split("\n")


def statistics(process: Process) -> Dict[str, int]:
    """Lines of sys._debugmallocstats() with a number."""
    found: Dict[str, int] = {}
    for line in told(process)[1:]:
        name, _, number = line.rpartition("=")
        if number.strip().replace(",", "").isdigit():
            found.setdefault(name.strip(" #"), int(number.replace(",", "")))
    return found


@pytest.fixture(params=["live", "core"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each test is made twice; a fixture of its own, since a process that lives is read without gdb here."""
    if request.param == "core":
        request.getfixturevalue("core")
    return str(request.param)


@by_turns("malloc", ["", "malloc", "debug"])
def test_objects_are_counted_by_type(stage: Stage, kind: str, malloc: str) -> None:
    """Objects of the program's own classes are as many as it made, and their bytes what sys.getsizeof says, rounded to 16; builtin ones no fewer."""
    process = python(stage, malloc)
    own = json.loads(told(process)[0])
    found = census(process.target(kind))
    assert found
    assert found.shifts == ((16, 32) if malloc == "debug" else (0,))
    for name, (count, bytes_) in own["own"].items():
        assert found.blocks[name] == count
        if not malloc:
            assert abs(found.bytes[name] - bytes_) <= bytes_ / 100
    for name, count in own["at least"].items():
        assert count <= found.blocks[name] <= count + 3000
    assert bool(found.inner) == (malloc != "malloc")
    if malloc != "debug":  # its heads stand before bodies, too
        assert 2000 <= found.bodies["dict keys"] <= 3000
        assert 5000 <= found.bodies["list items"] <= 6500


def test_pools_are_what_the_process_says(stage: Stage, kind: str) -> None:
    """Arenas are as many as sys._debugmallocstats() says, with as many bytes used and free."""
    process = python(stage)
    said = statistics(process)
    found = census(process.target(kind))
    assert found
    (inner,) = found.inner
    assert len(inner.taken) == said["arenas allocated current"]
    taken = sum(end - start for start, end in inner.taken)
    assert found.inner_bytes + inner.free_bytes + inner.overhead_bytes == taken
    unused = next(number for name, number in said.items() if "unused pools" in name)
    lost = sum(number for name, number in said.items() if name.startswith("bytes lost to") and "map" not in name)
    assert abs(found.inner_bytes - said["bytes in allocated blocks"]) <= MARGIN
    assert abs(inner.free_bytes - said["bytes in available blocks"] - unused) <= MARGIN
    assert abs(inner.overhead_bytes - lost) <= MARGIN


def test_builtins_have_names_without_files(stage: Stage, core: str) -> None:
    """In a core whose process's files are not here the flags of seven types tell their names; classes have theirs in the heap."""
    process = python(stage)
    found = census(process.target("core"), sysroot=str(stage.folder()))
    assert found
    assert {name for name in BUILTINS if found.blocks[name]} == BUILTINS
    assert found.blocks["Slots"] == 30000
    assert any(name.startswith("type at ") for name in found.blocks)


def test_the_command(stage: Stage, kind: str) -> None:
    """What objects own is named by them, also in the pools; nearly all of it has a name."""
    process = python(stage)
    own = json.loads(told(process)[0])
    data = heapx(process.target(kind), "census", "--json").data
    rows = {row["signature"]: row for row in data["rows"] if row["module"] == "python"}
    for name, (count, _) in own["own"].items():
        assert (rows[name]["blocks"], rows[name]["sure"]) == (count, "exact")
    assert rows["dict keys"]["blocks"] >= 2000 and rows["list items"]["blocks"] >= 5000
    assert data["named_bytes"] >= data["used"]["bytes"] * 0.85
    assert [one["module"] for one in data["managed"]] == ["python"]

PYTHON = r"""
import sys
class User:
    def __init__(self, number):
        self.name, self.mail, self.number = "user-%d" % number, "u%d@example.org" % number, number
class Slots:
    __slots__ = ("name",)
    def __init__(self, number): self.name = b"slot\n%d" % number
class Row(dict): pass
class Rows(list): pass
class Pair(tuple): pass
class Tags(set): pass
class Title(str): __slots__ = ()
users = [User(number) for number in range(2000)]
slots = [Slots(number) for number in range(2000)]
rows = [Row(name="n%d" % number, count=number) for number in range(2000)]
lists = [Rows(["first %d" % number, "second"]) for number in range(2000)]
pairs = [Pair(["left %d" % number, number]) for number in range(2000)]
tags = [Tags(["tag %d" % number]) for number in range(2000)]
titles = [Title("\u00dcber \x1b[31m%d" % number + "x" * 100) for number in range(2000)]
templates = ["template %d " % (number % 3) * 100 for number in range(3000)]
print("ready", flush=True)
sys.stdin.read()
"""

RUBY = (Path(__file__).parents[1] / "programs" / "texts.rb").read_text()

PHP = r"""<?php
class Session { public $key; public $number; }
$sessions = [];
for ($i = 0; $i < 5000; $i++) { $s = new Session; $s->key = "session $i"; $s->number = $i; $sessions[] = $s; }
$templates = [];
for ($i = 0; $i < 3000; $i++) $templates[] = str_repeat("template " . ($i % 3) . " ", 40);
echo "ready\n"; flush();
while (fgets(STDIN));
"""


def samples(target: Any, signature: str) -> Dict[str, Any]:
    """Of the row that is called so, and what the text says of it."""
    (one,) = [
        one for one in heapx(target, "census", "--json", "--show-data", "--limit", "1000").data["samples"] if one["signature"] == signature
    ]
    return dict(one)


def test_python(stage: Stage, kind: str) -> None:
    """Strings of an object's attributes, also of those beside it; keys of a dict, items, elements; escaped in the text, and cut."""
    process = started(stage, sys.executable, PYTHON)
    target = process.target(kind)
    answer = heapx(target, "census", "--json", "--show-data", "--limit", "1000").data
    told = {one["signature"].rpartition(".")[2]: one for one in answer["samples"]}
    mail, name = sorted(told["User"]["texts"][:2])  # 3.14 stores what stands last in the tuple first
    number = re.fullmatch(r"user-(\d+)", name)
    assert number and mail == "u%s@example.org" % number[1]
    assert re.fullmatch(r"slot\n\d+", told["Slots"]["texts"][0])
    assert told["Row"]["texts"] == ["name", "count"] and told["Row"]["contents"] == "Row of 2 entries"
    assert re.fullmatch(r"first \d+", told["Rows"]["texts"][0]) and told["Rows"]["contents"] == "Rows of 2"
    assert [re.sub(r"\d+", "N", text) for text in told["Pair"]["texts"]] == ["left N"]
    assert [re.sub(r"\d+", "N", text) for text in told["Tags"]["texts"]] == ["tag N"]
    same = [one for one in answer["samples"] if one["texts"] and one["texts"][0].startswith("template ")]
    assert {len(one["texts"][0]) for one in same} == {60} and len({one["texts"][0] for one in same}) >= 3
    shown = heapx(target, "census", "--show-data", "--limit", "1000").stdout.decode()
    assert "Row of 2 entries: " in shown and "slot\\n" in shown and "\x1b" not in shown


@pytest.mark.parametrize("program", [pytest.param("ruby", marks=pytest.mark.once), "php"])  # images have no Ruby, and one has PHP
def test_ruby_and_php(stage: Stage, kind: str, program: str) -> None:
    """Strings of an object's variables, of a Struct's members, and of repeated contents."""
    process = started(stage, program, RUBY if program == "ruby" else PHP)
    answer = heapx(process.target(kind), "census", "--json", "--show-data", "--limit", "1000").envelope[
        "data"
    ]  # partial for a PHP that is not read
    told = {one["signature"]: one["texts"] for one in answer["samples"]}
    if "Session" not in told:
        pytest.skip("this release of %s is not one that is read" % program)
    assert re.match(r"session \d+", told["Session"][0])
    assert program != "ruby" or re.fullmatch(r"item \d+", told["Item"][0])
    assert sum(one["texts"][:1] != [] and one["texts"][0].startswith("template ") for one in answer["samples"]) >= 3
