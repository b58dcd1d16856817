"""A snapshot without names, and without the places of mappings.

Files: snapshot/take.py.
"""

from typing import List

import pytest

from gdbheapx.analysis.addon_answers import Books, MemoryContext, QueueRow
from gdbheapx.analysis.census import owned
from gdbheapx.analysis.census.find import Census, CensusRow
from gdbheapx.analysis.census.owned import FlameFrame
from gdbheapx.common import problems
from gdbheapx.common.model import AllocatorInfo, Problem, TargetAddress
from gdbheapx.common.units import make_sentence
from gdbheapx.inferior.base import Mapping
from gdbheapx.report.text import make_printable
from gdbheapx.snapshot import container
from gdbheapx.snapshot import take as names
from gdbheapx.snapshot.record import RecordedMapping, RecordedOutcome, SnapshotHead, SnapshotRecord
from gdbheapx.snapshot.take import FIRST, MovedAddresses

pytestmark = pytest.mark.once  # pure functions

HOSTILE = ["</svg><script>", "a\nb", "\x1b[31mred", "=cmd()", "x;y", "\udcff\udcfe", "v", "two words", "std::map<Key, Value>"]
INFO = AllocatorInfo("one", "one", "1", "libsecret.so.1", "abcdef", "table", "symbol", True)


def record_with(name: str) -> SnapshotRecord:
    """One that has the name wherever there may be one."""
    head = SnapshotHead(
        "1",
        "now",
        "live",
        5,
        "/opt/%s/run" % name,
        1.0,
        1,
        5,
        True,
        [INFO],
        [],
        [RecordedMapping(FIRST, FIRST + 4096, "/opt/%s/lib.so" % name)],
    )
    census = Census([CensusRow(name, "libsecret.so.1", "exact", None, 3, 72, 100.0, TargetAddress(0x5000))], 3, 72, 72, 0, [], False)
    context = MemoryContext(TargetAddress(0x6000), name, 5, None, None, 0, None, 0, 1, 0)
    books = container.encode_value(Books("BIND", [context], [QueueRow("task", name, 1, 0)], 5, 72))
    data = {"books": books, "threads": [{"thread": name, "module": "libsecret.so.1"}], "classes": [{"signature": name}]}
    lines = ["  12 %s of libsecret.so.1" % name, "  13 %s" % make_printable(name), "Suspect: %s keeps 5 bytes" % name]
    problem = Problem(problems.CORE_CUT, None, make_sentence("%s could not be read", name), None)
    return SnapshotRecord(head, {"report": RecordedOutcome(problems=[problem])}, {"census": container.encode_value(census), "report": {**data, "lines": lines}})


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_stays(name: str) -> None:
    """In models, tables, sentences and paths; figures stay, and the same name has the same number everywhere."""
    made = names.remove_names(record_with(name), ["/opt/%s/lib.so" % name, "libsecret.so.1", name])
    texts = names.list_strings(made)
    assert not any("libsecret" in text or "abcdef" in text or text == name for text in texts)
    assert len(name) < 3 or not any(name in text or make_printable(name) in text for text in texts)
    assert names.escape_shown_name(name) == make_printable(name)
    found = container.decode_value(Census, made.models["census"])
    assert (found.rows[0].blocks, found.rows[0].bytes, found.rows[0].sample, found.bytes) == (3, 72, 0x5000, 72)
    assert found.rows[0].signature == made.models["report"]["classes"][0]["signature"] and not made.head.has_names
    assert made.models["report"]["lines"][2].endswith(" keeps 5 bytes") and made.models["report"]["lines"][2].startswith("Suspect: ")


def test_names_of_contexts_and_tasks_are_numbers() -> None:
    """A context and a task of one name have the same number; the program's name is BIND's, and figures stay."""
    found = container.decode_value(Books, names.remove_names(record_with("keeper"), []).models["report"]["books"])
    assert found.program == "BIND" and found.contexts[0].inuse_bytes == 5
    assert (
        found.contexts[0].name
        == found.queues[0].name
        == names.remove_names(record_with("keeper"), []).models["report"]["classes"][0]["signature"]
        != "keeper"
    )


def test_holders_are_names() -> None:
    """Who holds a suspect may stand in no other row."""
    record = record_with("keeper")._replace(models={"owners": {"suspects": [{"owner": "block", "holders": ["kept by secret", "sly in secret"]}]}})
    holders = names.remove_names(record, []).models["owners"]["suspects"][0]["holders"]
    assert len(set(holders)) == 2 and not any("secret" in one or "sly" in one for one in holders)


def test_frames_of_a_flame_graph_have_numbers() -> None:
    """The program's names; what stands there in place of one is read as before, whatever the program names so."""
    frames = [FlameFrame(name, "lib.so", 5, 1, 0, [FlameFrame("Order", "", 5, 1, 0)]) for name in ("several", *owned.WORDS)]
    record = record_with("keeper")
    made = names.remove_names(record._replace(models={"page": container.encode_value({"flame": frames})}), [])
    found = container.decode_value(List[FlameFrame], made.models["page"]["flame"])
    assert [frame.owner for frame in found] == ["owner-1", *owned.WORDS] and {frame.frames[0].owner for frame in found} == {"owner-2"}
    assert {frame.module for frame in found} == {"module-2"} and [frame.bytes for frame in found] == [5] * len(frames)


def test_all_strings_are_shown() -> None:
    """Those of models, tables and sentences."""
    texts = names.list_strings(record_with("Order"))
    assert {"Order", "/opt/Order/run", "Suspect: Order keeps 5 bytes", "Order could not be read", "libsecret.so.1"} <= set(texts)


def mapping(start: int, end: int, name: str) -> Mapping:
    """A mapping like any other."""
    return Mapping(start, end, True, True, False, False, name, None)


def test_addresses_are_moved() -> None:
    """Offsets stay, places do not; text keeps its length; fixed addresses and numbers stay."""
    moved = MovedAddresses(
        [
            mapping(0x400000, 0x401000, "fixed"),
            mapping(0x7F00_1234_5000, 0x7F00_1234_9000, "a"),
            mapping(0x7FFF_0000_0000, 0x7FFF_4000_0000, "b"),
        ]
    )
    first = [place.start for place in moved.places()]
    assert first[0] == FIRST and all(place.end - place.start >= 0 for place in moved.places())
    assert moved.address(0x7F00_1234_5678) == first[0] + 0x678 and moved.address(0x7FFF_0000_0010) == first[1] + 0x10
    assert moved.address(0x400123) == 0x400123 and moved.address(0x6000_0000_0000) == 1 << 32
    text = moved.text("block 0x7f0012345678 (32 bytes) in 0x400123, 0x00007fff00000010")
    assert text == "block 0x%x (32 bytes) in 0x400123, 0x%016x" % (first[0] + 0x678, first[1] + 0x10) and "7f00" not in text
