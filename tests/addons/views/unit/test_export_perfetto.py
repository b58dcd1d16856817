"""A heap graph in packets: what is written is what stands there, whatever the packets' size.

Files: addons/views/export.py.
"""

from typing import Any, Dict, Iterator, List, Tuple

import pytest

from gdbheapx.addons.views import export as perfetto
from gdbheapx.addons.views.export import UNNAMED, VARIABLE, PerfettoObject, each_gathered_object
from gdbheapx.analysis.census.owned import OwnerFrame, OwnerStack
from gdbheapx.analysis.reachability import heap_graph
from tests.support.profiles import fields
from tests.support.profiles import varint as read_varint


def packed(data: Any) -> List[int]:
    """Numbers that stand side by side."""
    found, at = [], 0
    while at < len(data):
        number, at = read_varint(data, at)
        found.append(number)
    return found


def graphs(trace: bytes) -> Iterator[Dict[int, List[Any]]]:
    """The heap graph of each packet, by field."""
    for _, content in fields(trace):
        for number, value in fields(content):  # type: ignore[arg-type]
            if number == 56:
                made: Dict[int, List[Any]] = {}
                for field, one in fields(value):  # type: ignore[arg-type]
                    made.setdefault(field, []).append(one)
                yield made


def objects(trace: bytes) -> Tuple[Dict[int, Any], Dict[int, int]]:
    """({id: (class, module, size, {(field, target)})}, {id: root type})."""
    types: Dict[int, Any] = {}
    names: Dict[int, str] = {}
    places: Dict[int, str] = {}
    found: Dict[int, Any] = {}
    roots: Dict[int, int] = {}
    for graph in graphs(trace):
        for field, known in ((4, names), (8, places)):
            known.update({one[1]: one[2].decode() for one in map(dict, map(fields, graph.get(field, [])))})  # type: ignore[arg-type]
        for one in map(dict, map(fields, graph.get(9, []))):  # type: ignore[arg-type]
            types[one[1]] = (one[3].decode(), places.get(one.get(2), ""))
        last = 0
        for one in map(dict, map(fields, graph.get(2, []))):  # type: ignore[arg-type]
            last = one[1] if 1 in one else last + one[7]
            assert last not in found
            pairs = list(zip((names[number] for number in packed(one.get(4, b""))), packed(one.get(5, b""))))
            found[last] = (*types[one[2]], one.get(3, 0), pairs)
        for one in map(dict, map(fields, graph.get(7, []))):  # type: ignore[arg-type]
            roots.update(dict.fromkeys(packed(one[1]), one.get(2, 0)))
    return found, roots


SOME = [
    PerfettoObject(0x7F0000000010, ("Node", "app"), 48, [("+0x0", 0x7F0000000040), ("+0x8", UNNAMED + 3)]),
    PerfettoObject(0x7F0000000040, ("=cmd\n\x1b\udcff", "app"), 24, []),
    PerfettoObject(0x10, ("48 bytes", ""), 1 << 40, [("+0x0", 0x10)] * 300),
    PerfettoObject(UNNAMED + 3, ("registers of thread 1", ""), 0, [("?", 0x10)], heap_graph.REGISTERS),
    PerfettoObject(0x4000, ("g_cache", "app"), 0, [("+0x0", 0x10)], heap_graph.DATA),
]


@pytest.mark.parametrize("size", [1, 100, 1 << 20])
def test_objects_come_back(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids, types, sizes, references with their fields, and roots by kind; names in one line of UTF-8."""
    monkeypatch.setattr(perfetto, "PACKET_BYTES", size)
    trace = b"".join(perfetto.trace_pieces(SOME, 42, "/bin/a\npp"))
    found, roots = objects(trace)
    clean = {"=cmd\n\x1b\udcff": "=cmd\\x0a\\x1b\\xff"}
    assert found == {one.id: (clean.get(one.type[0], one.type[0]), one.type[1], one.size_bytes, list(one.references)) for one in SOME}
    assert roots == {UNNAMED + 3: perfetto.NATIVE_STACK, 0x4000: perfetto.STICKY_CLASS}
    assert b"/bin/a\\x0app" in trace


def test_packets_go_on_until_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of bounded size, numbered, each but the last with `continued`."""
    monkeypatch.setattr(perfetto, "PACKET_BYTES", 1000)
    many = [PerfettoObject(0x10000 + 32 * n, ("Node", ""), 24, [("+0x0", 0x10000)]) for n in range(1000)]
    made = list(perfetto.trace_pieces(many, 1, "app"))
    found = list(graphs(b"".join(made)))
    assert [one.get(6, [0]) for one in found] == [[number] for number in range(len(found))] and len(found) > 10
    assert [one.get(5, [0]) for one in found] == [[1]] * (len(found) - 1) + [[0]]
    assert max(map(len, made)) < 1100


def test_owners_are_gathered() -> None:
    """An object for each stack; what they take together is the sum of the stacks, and the first frames are the roots."""
    top, child = OwnerFrame("g_cache", "app"), OwnerFrame("Session", "app")
    found = list(each_gathered_object([OwnerStack((top, child), 3, 300), OwnerStack((top,), 1, 8), OwnerStack((OwnerFrame("[leaked]"), child), 1, 50)]))
    assert sum(one.size_bytes for one in found) == 358
    assert [one.type[0] for one in found if one.root == VARIABLE] == ["g_cache", "[leaked]"]
    known = {one.id: one for one in found}
    assert sorted(known[target].type[0] for one in found for _, target in one.references) == ["Session", "Session (3 blocks)"]
