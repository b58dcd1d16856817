"""Census of real programs: rows, how much of blocks is content, slabs of objects, and objects of C++ classes by their vtables.

`census --by-text`: objects of a class by a text that they have, as the program has made them.

Files: analysis/census/block.py, analysis/census/contents.py, analysis/census/find.py, analysis/census/registry.py,
kernel/blocks/graph_queries.py, report/census_text.py.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest

from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census import find, rust
from gdbheapx.analysis.census.cplusplus import CPlusPlus
from gdbheapx.analysis.census.world import EXACT, PLACE, SHAPE
from gdbheapx.inferior.target import open_elf_target
from tests.support import gcores
from tests.support.censuses import Told, told, where
from tests.support.interpreters import started
from tests.support.jemallocs import library, preloads
from tests.support.paths import PROGRAMS
from tests.support.processes import Process, Stage, by_turns
from tests.support.tool import alone, heapx

pytestmark = pytest.mark.image  # the containers are those of its C++ library

MANY, FEW = 5000, 300
NODE, STRING, VECTOR = "node of a map or set", "string {block, length, capacity}", "vector {begin, end, capacity}"


def kinds(stage: Stage, way: str = "glibc", flags: Sequence[str] = ()) -> Process:
    """The program at rest."""
    return stage.spawn_ready([str(stage.builder.build_by("g++", "-O1", *flags, name="kinds.cpp"))], env=preloads(way))


def counted(rows: List[Dict[str, Any]], name: str) -> int:
    """Blocks of a signature."""
    return sum(row["blocks"] for row in rows if row["signature"] == name)


def check(data: Any) -> None:
    """Every kind with its number; each block counts once."""
    rows = data["rows"]
    assert counted(rows, NODE) == 2 * MANY
    assert counted(rows, STRING) == MANY
    assert counted(rows, VECTOR) == FEW
    assert counted(rows, "node of an unordered map or set") == 2 * MANY and counted(rows, "table of an unordered map or set") == 2
    assert counted(rows, "node of a list") == MANY + 3 * FEW
    assert (counted(rows, "map of a deque"), counted(rows, "buffer of a deque")) == (FEW, 8 * FEW)
    assert sum(row["blocks"] for row in rows if row["sure"] == "exact") == FEW  # the control blocks of shared pointers are a class
    assert counted(rows, "magic 'Task'") == FEW
    assert counted(rows, "magic 'Task'+0x8") == FEW
    for name, others in (("lines", ("text", "data")), ("blanks", ("zeros", "data"))):
        assert sum(counted(rows, one) for one in (name, "element of the array %s" % name, *others)) >= FEW
    assert counted(rows, "element of the array lines") in (0, FEW)  # none of the array beside it, whose elements may be as large
    assert sum(row["blocks"] for row in rows) == data["used"]["blocks"]
    assert sum(row["bytes"] for row in rows) == data["used"]["bytes"]
    assert all(row["sure"] in ("exact", "shape", "place", "content") if row["signature"] else row["size_bytes"] for row in rows)


@by_turns("way", ["glibc", "jemalloc"])
def test_numbers_are_those_of_the_program(stage: Stage, way: str, kind: str) -> None:
    """Maps, sets, strings, vectors and structures are all found, and nothing else is taken for one."""
    process = kinds(stage, way)
    target = process.target(kind)
    outcome = heapx(target, "census", "--json")
    assert outcome.code == 0, outcome.stderr
    check(outcome.data)
    used = sum(row["used_bytes"] for row in heapx(target, "arenas", "--json").data["arenas"]) if way == "jemalloc" else None
    assert used is None or abs(outcome.data["used"]["bytes"] - used) <= used // 25


def test_nothing_but_the_core(stage: Stage) -> None:
    """Without symbols and files the same is found; variables are then told as data of their module."""
    process = kinds(stage, flags=("-s",))
    check(alone(process.target("core"), "census", "--json").data)


@pytest.mark.once
@pytest.mark.parametrize("way", ["glibc", "jemalloc"])
def test_containers_of_rust_in_a_program_in_cplusplus(stage: Stage, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a library in Rust is loaded beside C++, the containers of C++ are told as before, and no block is taken for one of Rust."""
    session = Session(open_elf_target(pid=kinds(stage, way).pid))
    session.prepare()
    monkeypatch.setattr(rust, "has_rust", lambda world: True)
    rows = find.find_census(session).rows
    found = {name: sum(row.blocks for row in rows if row.signature == name) for name in (NODE, STRING, VECTOR)}
    assert found == {NODE: 2 * MANY, STRING: MANY, VECTOR: FEW}
    assert not [row for row in rows if row.sure == SHAPE and (row.signature or "").startswith(("dyn ", "Vec ", "Rc or Arc", "node of a BTree", "table of a Hash"))]


def test_without_room_for_a_graph(stage: Stage, core: str) -> None:
    """What is in use is as much as with it; blocks that only the graph names are a row without a name."""
    process = kinds(stage)
    options = process.target(core)
    whole = heapx(options, "census", "--json").data
    swept = heapx(options, "census", "--json", env={"GDBHEAPX_MEMORY": "1"})
    assert swept.code == 4 and [one["code"] for one in swept.envelope["problems"] if one["code"] != "not-copied"] == ["graph-too-large"]
    less = swept.envelope["data"]
    assert less["used"] == whole["used"] and sum(row["blocks"] for row in less["rows"]) == less["used"]["blocks"]
    assert sum(row["blocks"] for row in less["rows"] if row["signature"] is None) > 4 * MANY

SAME, TEXTS, NUMBERS, DENSE, BLANKS, PLACED, OTHERS = 1000, 300, 200, 100, 64, 2000, 400
"""See contents.c."""


@by_turns("way", ["glibc", "jemalloc"])
def test_contents(stage: Stage, way: str, kind: str) -> None:
    """What nobody names is told by its content; contents that blocks share are counted, whoever holds the blocks; random bytes are nothing."""
    target = stage.start("contents", env=preloads(way)).target(kind)
    outcome = heapx(target, "census", "--json")
    assert outcome.code == 0, outcome.stderr
    rows, copies = outcome.data["rows"], outcome.data["copies"]
    # a register or the stack may still lead to a few of those that are placed: nobody alone holds them then
    same = [row["blocks"] for row in rows if row["signature"] == "the same content" and row["size_bytes"] >= 2000]
    assert (same, counted(rows, "the same text")) == ([SAME], TEXTS)
    assert (counted(rows, "numbers (double)"), counted(rows, "mostly pointers"), counted(rows, "zeros")) == (NUMBERS, DENSE, BLANKS)
    assert all(row["sure"] == "content" for row in rows if row["signature"] in ("the same content", "numbers (double)", "mostly pointers"))
    assert (copies["contents"], copies["blocks"]) == (3, SAME + TEXTS + PLACED)
    assert copies["spare_bytes"] == copies["bytes"] - sum(same["size_bytes"] for same in copies["largest"])
    placed = [(same["signature"], same["blocks"]) for same in copies["largest"]]
    assert placed[1:] == [("the same content", SAME), ("the same text", TEXTS)]
    assert placed[0] in (("placed", PLACED), ("the same content", PLACED))  # as the first of them is called
    assert all(same["bytes"] == same["blocks"] * same["size_bytes"] for same in copies["largest"])
    text = heapx(target, "census").stdout.decode()
    assert "Duplicates: 3,300 blocks" in text and "share 3 distinct contents; keeping one copy of each would save" in text


@by_turns("way", ["glibc", "jemalloc"], "core")
def test_copies(stage: Stage, way: str, kind: str) -> None:
    """Each content that the program has many times, with its blocks, most to save first; zeros apart; texts only where asked for."""
    target = stage.start("contents", env=preloads(way)).target(kind)
    found = heapx(target, "census", "--copies", "--json").data
    sizes = {row["blocks"]: row["size_bytes"] for row in found["rows"]}
    assert [row["blocks"] for row in found["rows"]] == [PLACED, SAME, TEXTS]
    assert all(least <= sizes[blocks] < least * 1.25 + 16 for blocks, least in ((SAME, 2000), (TEXTS, 1500), (PLACED, 1024)))
    assert all(row["spare_bytes"] == (row["blocks"] - 1) * row["size_bytes"] for row in found["rows"])
    sums = {name: sum(row[name] for row in found["rows"]) for name in ("blocks", "bytes", "spare_bytes")}
    assert found["copies"] == {"contents": 3, **sums}
    assert {name: sum(row[name] for row in found["classes"]) for name in ("contents", *sums)} == found["copies"]
    assert found["zeros"]["blocks"] >= BLANKS and found["zeros"]["bytes"] >= BLANKS * 8192 and found["unlike_blocks"] == 0
    assert "samples" not in found
    text = heapx(target, "census", "--copies", "--limit", "1", "--show-data").stdout.decode()
    assert "2 more rows: gdbheapx -" in text and "contain only zeros" in text and "q" * 60 not in text
    assert '"%s"' % ("q" * 60) in heapx(target, "census", "--copies", "--show-data").stdout.decode()
    texts = heapx(target, "census", "--copies", "--like", "the same text", "--json").data
    assert [row["blocks"] for row in texts["rows"]] == [TEXTS] and len(texts["classes"]) == 1 and texts["copies"] == found["copies"]


@pytest.mark.once
def test_copies_refused(stage: Stage, core: str, folder: Path) -> None:
    """Nothing is compared of a snapshot; with too little memory; or by another option."""
    target = kinds(stage).target(core)
    heapx(target, "snapshot", str(folder / "snap"))
    refused = heapx(["--snapshot", str(folder / "snap")], "census", "--copies", "--json")
    assert (refused.code, refused.envelope["error"]["code"]) == (1, "not-in-snapshot")
    refused = heapx(target, "census", "--copies", "--json", env={"GDBHEAPX_MEMORY": "1"})
    assert (refused.code, refused.envelope["error"]["code"]) == (1, "out-of-memory")
    assert heapx(target, "census", "--copies", "--by", "module").code != 0

PYTHON = r"""
import json, sys
class Rows(list): pass
class Buffer(bytearray): pass
texts = ["%d " % number + sign * (number % 90) for number in range(100000) for sign in "x\u00fc\u4e2d\U0001f600"[number % 4]]
kept = [bytes(number % 3000) for number in range(20000)]
rows = []
for number in range(5000):
    rows.append(Rows())
    for item in range(number % 100):
        rows[-1].append(None)
buffers = [Buffer(b"x" * 1000) for _ in range(2000)]
for buffer in buffers:
    del buffer[600:]
with open(sys.argv[1] + "/truth", "w") as told:
    json.dump({"str": sum(map(sys.getsizeof, texts)), "bytes": sum(map(sys.getsizeof, kept)), "list items": sum(8 * len(one) for one in [*rows, rows, texts, kept, buffers]),
               "bytearray bytes": sum(len(one) + 1 for one in buffers)}, told)
print("ready", flush=True)
sys.stdin.read()
"""

RUBY = r"""
$a = Array.new(20000) { |number| "x" * (30 + number % 600) }
$b = Array.new(3000) { |number| list = []; (4 + number % 90).times { list << nil }; list }
GC.start
puts "ready"
STDOUT.flush
STDIN.read
"""


def rows_of(target: Any) -> Dict[str, Any]:
    """By name."""
    return {row["signature"]: row for row in heapx(target, "census", "--json").data["rows"] if row["signature"]}


@by_turns("way", ["glibc", "jemalloc"])
def test_strings_and_vectors(stage: Stage, way: str, kind: str) -> None:
    """Characters with their zero, and elements, are as many bytes as the program has put there, whoever has the string or vector."""
    made, folder = stage.builder.build_by("g++", "-O1", name="filled.cpp"), stage.folder()
    process = stage.spawn_ready([str(made), str(folder / "record")], env=preloads(way))
    texts, numbers = map(int, (folder / "record.told").read_text().split())
    target = process.target(kind)
    rows = rows_of(target)
    string, vector = rows["string {block, length, capacity}"], rows["vector {begin, end, capacity}"]
    # one or two blocks may have no owner but a register: they count as full
    assert 0 <= string["content_bytes"] - texts <= 1000 and 0 <= vector["content_bytes"] - numbers <= 2 * 4200
    assert string["blocks"] == 4001 and 4051 <= vector["blocks"] <= 4053  # buffers of stdio have such words, and nothing in them
    text = heapx(target, "census").stdout.decode()
    assert "vector {begin, end, capacity}: " in text and "is unused capacity" in text


def test_python(stage: Stage, kind: str) -> None:
    """What sys.getsizeof says of str, of every width of characters, and of bytes; items of lists, and bytes of bytearrays, that are in use."""
    process = started(stage, sys.executable, PYTHON)
    truth = json.loads((process.folder / "truth").read_text())
    rows = rows_of(process.target(kind))
    for name, known in truth.items():
        row = rows[name]
        # a few may have another name: a register leads to them as well
        assert known * 0.995 <= row["content_bytes"] <= known * 1.05 + 100_000 and row["content_bytes"] <= row["bytes"], name
    assert rows["bytearray bytes"]["content_bytes"] < rows["bytearray bytes"]["bytes"] * 0.65
    assert rows["dict"]["content_bytes"] is None


@pytest.mark.once  # of one release
def test_ruby(stage: Stage, kind: str) -> None:
    """Characters of Strings and elements of Arrays that are in use."""
    process = started(stage, "ruby", RUBY)
    rows = rows_of(process.target(kind))
    if "characters" not in rows:
        pytest.skip("this release of Ruby is not one that is read")
    lengths: List[int] = [30 + number % 600 + 1 for number in range(20000)]
    assert sum(lengths) <= rows["characters"]["content_bytes"] <= sum(lengths) * 1.2 + 2_000_000
    elements = 8 * (20000 + 3000 + sum(4 + number % 90 for number in range(3000)))
    assert elements <= rows["elements"]["content_bytes"] <= elements + 100_000

SLAB_BYTES = 65536
CLASSES = ("ast::Call", "ast::Literal", "ast::Parm")


def started_slabs(stage: Stage, way: str, *flags: str) -> Tuple[Process, Dict[str, int]]:
    """The program, and what it has made; skips without a C++ compiler."""
    made, folder = stage.builder.build_by("g++", "-O1", "-s", *flags, name="slabs.cpp"), stage.folder()
    process = stage.spawn_ready([str(made), str(folder / "record"), way], folder)
    lines = [line.split(" ", 1) for line in (folder / "record").read_text().splitlines()]
    return process, {name: int(count) for count, name in lines}


@by_turns("way", ["mixed", "tree"])
def test_slabs_are_told(stage: Stage, kind: str, way: str) -> None:
    """As many as the program has, in `census` and `report`; no slab is said to be an object of the class at its start."""
    process, record = started_slabs(stage, way)
    data = heapx(process.target(kind), "census", "--json").data
    found = data["own_allocator"]
    assert record["slabs"] >= 10 and found["blocks"] == record["slabs"]
    assert len(found["sizes_bytes"]) == 1 and 0 <= found["sizes_bytes"][0] - SLAB_BYTES < 64 and found["share_percent"] > 90
    rows = {row["signature"]: row for row in data["rows"] if row["module"] == "slabs"}
    assert not [name for name in rows if name in CLASSES or name.endswith("[]")]
    if way == "mixed":
        assert rows["slab of %s" % ", ".join(CLASSES)]["blocks"] == record["slabs"]
    for words in (("census",), ("report", "--deep")):
        assert "This program has its own allocator: about %d blocks of malloc" % record["slabs"] in heapx(process.target(kind), *words).stdout.decode()


def test_slabs_without_type_info(stage: Stage, kind: str) -> None:
    """-fno-rtti, as LLVM is built: no slab is said to be an object of the class at its start; objects of malloc's own are."""
    process, record = started_slabs(stage, "mixed", "-fno-rtti")
    rows = {row["signature"]: row["blocks"] for row in heapx(process.target(kind), "census", "--json").data["rows"] if row["module"] == "slabs"}
    assert sum(rows.values()) == record["slabs"] and all(name.startswith("slab of CLASS@") and name.count("CLASS@") == 3 for name in rows)
    process, record = started_slabs(stage, "plain", "-fno-rtti")
    rows = {row["signature"]: row["blocks"] for row in heapx(process.target(kind), "census", "--json").data["rows"] if row["module"] == "slabs"}
    assert sorted(rows.values()) == sorted(record[name] for name in CLASSES) and all(name.startswith("CLASS@") for name in rows)


@by_turns("way, blocks", [("plain", 10000), ("arrays", 20), ("runs", 1)])
def test_no_array_is_a_slab(stage: Stage, kind: str, way: str, blocks: int) -> None:
    """Objects of malloc's own, arrays as large as slabs whose elements lead to one another, and what cannot be told from these."""
    process, record = started_slabs(stage, way)
    data = heapx(process.target(kind), "census", "--json").data
    assert data["own_allocator"] is None and "own allocator" not in heapx(process.target(kind), "census").stdout.decode()
    rows = {row["signature"]: row["blocks"] for row in data["rows"]}
    if way == "plain":
        assert {name: rows[name] for name in CLASSES} == {name: record[name] for name in CLASSES}
    else:
        assert rows["ast::Call[]"] >= blocks and not set(rows) & set(CLASSES)

FIXED = {"at a fixed address": ("-no-pie", "-fno-pie"), "static, at a fixed address": ("-static", "-no-pie", "-fno-pie")}
WAYS = {"movable": (), **FIXED, "static and movable": ("-static-pie",), "another linking": ("-Wl,-z,norelro",)}
RECORDED = {"shop::Car": 32768, "Holder<int, 5>": 1000, "(anonymous namespace)::Hidden": 500, "shop::Item[]": 300}
PLAIN = [CPlusPlus()]


def started_classes(stage: Stage, flags: Tuple[str, ...] = (), env: Optional[Dict[str, str]] = None) -> Process:
    """The program at rest, stripped; skips without a C++ compiler."""
    made, folder = stage.builder.build_by("g++", "-O1", "-s", "-Wl,--build-id", *flags, name="census.cpp"), stage.folder()
    process = stage.spawn_ready([str(made), str(folder / "record")], folder, env)
    lines = [line.split(" ", 1) for line in (folder / "record").read_text().splitlines()]
    assert {name: int(count) for count, name in lines} == RECORDED
    return process


def classes(every: Told) -> Dict[str, int]:
    """By name: what is said to be a class, of the program."""
    return {one.name: count for one, count in every.items() if one.sure != PLACE and one.module == "census"}


@by_turns("way", sorted(WAYS))
def test_every_object_is_told(stage: Stage, kind: str, way: str) -> None:
    """The blocks of each class are as many as the program made, none of another kind is among them, and the classes have their names."""
    every = told(PLAIN, **where(started_classes(stage, WAYS[way]), kind))
    assert classes(every) == RECORDED
    assert all(one.sure == (SHAPE if one.name.endswith("[]") else EXACT) for one in every if one.sure != PLACE)
    constants = [count for one, count in every.items() if one.sure == PLACE and one.module == "census"]
    assert constants == ([100] if way in FIXED else [])  # a table; strings, which can be read, are told by nobody


def test_leaked_objects_have_their_class(stage: Stage, core: str) -> None:
    """The program lets go of all: the groups of `leaks` tell classes apart, also those of one size."""
    process = started_classes(stage)
    process.command(b"d")
    data = heapx(process.target(core), "leaks", "--json").data
    sums: Dict[Optional[str], int] = Counter()
    for group in data["groups"]:
        sums[group["signature"]] += group["blocks"]
    for name, count in RECORDED.items():
        assert count - 3 <= sums[name] <= count, sums  # a register or a stack may still lead to one
    assert sum(sums.values()) == data["classes"]["leaked"]["roots"]


@pytest.mark.parametrize("way", sorted(set(WAYS) - set(FIXED)))
def test_a_core_without_any_file(stage: Stage, core: str, way: str) -> None:
    """The core alone has the vtables: as many blocks of as many classes, which are called by build-id and place."""
    process, nothing = started_classes(stage, WAYS[way]), stage.folder()
    every = told(PLAIN, **where(process, core), sysroot=str(nothing))
    assert sorted(classes(every).values()) == sorted(RECORDED.values())
    assert all(one.name.startswith("CLASS@") and "+0x" in one.name for one in every if one.sure != PLACE)


def test_a_fixed_address_without_its_file(stage: Stage, core: str) -> None:
    """Vtables that are constants of a file which is not here are no classes, but places in it that blocks begin with."""
    process, nothing = started_classes(stage, FIXED["at a fixed address"]), stage.folder()
    every = told(PLAIN, **where(process, core), sysroot=str(nothing))
    assert not classes(every)
    assert {32768, 1000, 500} <= {count for one, count in every.items() if one.sure == PLACE and one.name.startswith("constant census+0x")}


def test_a_core_of_gdb(stage: Stage, live: str) -> None:
    """gcore leaves out code, with its rights."""
    process = started_classes(stage)
    core, nothing = str(gcores.gcore(process)), str(stage.folder())
    assert classes(told(PLAIN, core=core)) == RECORDED
    assert sorted(classes(told(PLAIN, core=core, sysroot=nothing)).values()) == sorted(RECORDED.values())


def test_another_allocator(stage: Stage, kind: str) -> None:
    """Under jemalloc the counts are the same."""
    assert classes(told(PLAIN, **where(started_classes(stage, (), {"LD_PRELOAD": str(library())}), kind))) == RECORDED


@by_turns("way", ["movable", "at a fixed address"])
def test_without_type_infos(stage: Stage, kind: str, way: str) -> None:
    """-fno-rtti leaves vtables without type_infos: objects are told by what stands at their vtable's address, arrays not."""
    every = told(PLAIN, **where(started_classes(stage, (*WAYS[way], "-fno-rtti")), kind))
    assert sorted(classes(every).values()) == [500, 1000, 32768]
    assert {one.sure for one in every if one.module == "census" and one.sure != PLACE} == {SHAPE}

TEXTS_IN_PYTHON = r"""
import sys
class Task:
    def __init__(self, number):
        self.kind, self.key = ("zone", "resolver", "client")[0 if number % 10 else 1 if number % 100 else 2], "k%d" % number
class Slots:
    __slots__ = ("kind", "number")
    def __init__(self, number): self.kind, self.number = "even" if number % 2 else "odd", number
tasks = [Task(number) for number in range(3000)]
slots = [Slots(number) for number in range(3000)]
print("ready", flush=True)
sys.stdin.read()
"""

TEXTS_IN_RUBY = (PROGRAMS / "tasks.rb").read_text()
LONG = (PROGRAMS / "long_texts.c").read_text()


def asked(target: List[str], like: str, *field: str) -> Any:
    """The answer, and its rows by text."""
    return heapx(target, "census", "--like", like, "--by-text", *field, "--json").data


def rows(answer: Any) -> Dict[str, int]:
    """Blocks by text."""
    assert sum(row["blocks"] for row in answer["rows"]) == answer["looked_blocks"] == answer["blocks"]
    return {row["text"]: row["blocks"] for row in answer["rows"]}


def test_a_name_inside(stage: Stage, kind: str) -> None:
    """Names in the structure, and those that it points to; found by themselves, by offset, or by one of the texts; escaped in the text."""
    target = stage.start("tasks").target(kind)
    names = {"zone": 5270, "resolver": 700, None: 30}
    found = asked(target, "magic 'Task'", "+0x18")
    assert rows(found) == names  # what is not printable is no text
    assert rows(asked(target, "magic 'Task'", "zone")) == names
    owners = asked(target, "magic 'Task'", "+0x28")
    assert rows(owners) == {"view 0": 2000, "view 1": 2000, "view 2": 2000}
    assert rows(asked(target, "magic 'Task'", "running")) == {"running long": 3000, "idle": 3000}
    assert asked(target, "magic 'Task'")["field"] == "+0x28"  # three texts
    fields = {row["field"]: row["texts"] for row in owners["fields"] if row["objects"] > 50}  # a number may look like a text
    assert fields == {"+0x0": 1, "+0x18": 2, "+0x28": 3, "+0x34": 2, "+0x2a8": 2}
    text = heapx(target, "census", "--like", "magic 'Task'", "--by-text", "+0x18").stdout.decode()
    assert "6,000 objects" in text and '"zone"' in text and "(none)" in text
    for arguments in (["--like", "magic 'Task'", "--by-text", "no such"], ["--by-text"], ["--like", "nobody", "--by-text"]):
        refused = heapx(target, "census", *arguments)
        assert refused.code in (1, 2) and refused.stderr.count("\n") == 1, refused.stderr


def test_beginnings_of_long_texts(stage: Stage, kind: str, folder: Path) -> None:
    """Texts without an end in what is shown, of several lines, too: none of them is `(none)`."""
    (folder / "texts.c").write_text(LONG)
    subprocess.run(["gcc", "-O1", "-o", str(folder / "texts"), str(folder / "texts.c")], check=True)
    process = stage.spawn_ready([str(folder / "texts")])
    shown = [("GET /index %d", '{   "id": %d')[number % 2] % number for number in range(6)]
    found = rows(asked(process.target(kind), "elements of the list", "+0x0"))
    counts = [sum(blocks for text, blocks in found.items() if text.startswith(begin)) for begin in shown]
    assert None not in found and counts[:5] == [100] * 5 and counts[5] >= 99  # a register may still have the last one


def test_objects_of_python_by_a_text(stage: Stage, kind: str) -> None:
    """Attributes by name, in values, in a dict and in slots; without one that whose texts several objects have."""
    target = started(stage, sys.executable, TEXTS_IN_PYTHON).target(kind)
    kinds = {"zone": 2700, "resolver": 270, "client": 30}
    assert rows(asked(target, "Task", "kind")) == kinds
    found = asked(target, "Task")
    assert found["field"] == "kind" and rows(found) == kinds and found["names"] == ["Task"]
    assert len(rows(asked(target, "Task", "key"))) == 3000
    assert rows(asked(target, "Slots", "kind")) == {"even": 1500, "odd": 1500}


@pytest.mark.once  # of one release
def test_objects_of_ruby_by_a_text(stage: Stage, kind: str) -> None:
    """Instance variables, and members of a Struct."""
    target = started(stage, "ruby", TEXTS_IN_RUBY).target(kind)
    signatures = {row["signature"] for row in heapx(target, "census", "--json").data["rows"]}
    if "Task" not in signatures:
        pytest.skip("this release of Ruby is not one that is read")
    assert rows(asked(target, "Task", "@kind")) == {"zone": 2700, "resolver": 300}
    assert rows(asked(target, "Item")) == {"a": 1000, "b": 2000}
