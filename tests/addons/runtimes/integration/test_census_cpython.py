"""Objects and pools of CPython as the census finds them, against what the process itself counts.

Files: addons/runtimes/cpython/objects.py.
"""

import json
import sys
from collections import Counter
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import pytest

from gdbheapx.addons.runtimes.cpython import CPython
from gdbheapx.addons.runtimes.cpython.objects import PyBody
from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census.world import CensusTarget, Inner, order_rows
from gdbheapx.inferior.target import open_elf_target
from gdbheapx.kernel.blocks.stream import CLASS_USED, NativeBlocks
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
    folder = stage.folder()
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    environment = {"PYTHONMALLOC": malloc} if malloc else {}
    return stage.spawn_ready([sys.executable, "-S", str(folder / "program.py")], folder, {**environment, "PYTHONHASHSEED": "0"})


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
