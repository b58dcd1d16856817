"""mimalloc's options, found by their shape, and the sentences of its findings."""

import struct
from array import array
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterable, Optional, Sequence

import pytest

from gdbheapx import allocators
from gdbheapx.addons.allocators.mimalloc import detect, entry
from gdbheapx.addons.allocators.mimalloc import entry as mimalloc_judgement
from gdbheapx.addons.allocators.mimalloc.records import ABANDONED, THREAD, MimallocArena, MimallocFacts
from gdbheapx.allocators.records import Surroundings
from gdbheapx.common import findings, verdict
from gdbheapx.common import findings as codes
from gdbheapx.common.model import AllocatorInfo, Finding
from tests.support.said import Case, check_case, unsaid

MB = 1 << 20
BASE, TEXTS = 0x10000, 0x20000
NAMES = ["show_errors", *("option%d" % place for place in range(1, 20)), "purge_delay"]


class Data:
    """An object's data and texts."""

    def __init__(self, states: Dict[int, int], lead: int = 3) -> None:
        self.texts = b"".join(name.encode().ljust(32, b"\0") for name in NAMES)
        rows = [detect.OPTION_STRUCT.pack(-1 if name == "purge_delay" else 7, states.get(place, 1), place, TEXTS + 32 * place, 0) for place, name in enumerate(NAMES)]
        self.data = struct.pack("<%dQ" % lead, *([(15 << 32) | 1] * lead)) + b"".join(rows) + bytes(64)

    def read_prefix(self, address: int, size: int) -> bytes:
        start, data = (TEXTS, self.texts) if address >= TEXTS else (BASE, self.data)
        return data[address - start : address - start + size]


def test_options_are_found_by_their_shape() -> None:
    """Each counts its own place; what precedes the array looks like one of them and is none. No word of the name table: not found."""
    target: Any = Data({3: 2})
    place = detect.find_options(target, [(BASE, array("Q", target.data))])
    assert place == BASE + 24
    found = detect.read_mimalloc_options(target, place)
    assert found is not None and [one.name for one in found] == NAMES and [one.name for one in found if one.is_set] == ["option3"]
    assert detect.map_options(found)["purge_delay"] == -1
    target.texts = bytes(len(target.texts))
    assert detect.find_options(target, [(BASE, array("Q", target.data))]) is None
    assert detect.read_mimalloc_options(target, None) is None and "cannot be read" in str(list(detect.make_options_page(detect.MimallocTunables(None)))[0])


def arena(owner: str, **fields: Any) -> MimallocArena:
    made: Any = MimallocArena("mimalloc", *([0] * (len(MimallocArena._fields) - 1)))  # type: ignore[arg-type]
    return made._replace(owner=owner, **fields)  # type: ignore[no-any-return]


def judged(rows: Sequence[MimallocArena], given: int = 0, droppable: Optional[int] = None, taken: Optional[int] = None, **facts: Any) -> Any:
    """One mimalloc whose arenas are these; `given`: bytes that were given back and are in RAM."""
    info = AllocatorInfo("mimalloc", "mimalloc", "2.3.2", "libmimalloc.so", None, "table", "probe", True)
    held = sum(row.held_bytes for row in rows) + given
    around = Surroundings(
        1, [], None, taken_bytes={"mimalloc": held if taken is None else taken}, taken=lambda ranges: given, droppable_bytes={} if droppable is None else {"mimalloc": droppable}
    )
    (made,) = entry.ALLOCATOR.judge([MimallocFacts(info, rows, {}, (), (), returned=[(0, 1 << 30)], **facts)], around)
    return made


@pytest.mark.parametrize("known", [{"droppable": 300 * MB}, {"is_reset": True}], ids=["live", "core"])
def test_pages_given_to_madv_free_are_a_state(known: Dict[str, Any]) -> None:
    """In RAM, and neither in use nor held: the verdict says that the kernel takes them, and nothing of them counts twice."""
    made = judged([arena(THREAD, held_bytes=6 * MB, free_bytes=6 * MB, returned_bytes=400 * MB)], 300 * MB, **known)
    assert (made.verdict.code, made.verdict.kind, made.held_bytes) == (findings.GIVEN_BACK_IN_RAM, verdict.KEPT, 306 * MB)
    assert "the kernel takes these pages" in made.verdict.lines[0].hint and "6.0 MiB (100 %) are free" in str(made.verdict.lines[1].evidence)
    assert [step.command for step in made.next_steps if step.command.startswith("MIMALLOC")] == ["MIMALLOC_PURGE_DECOMMITS=1"] * ("is_reset" in known)
    page = [str(line) for line in entry.ALLOCATOR.arenas_page([], {"returned_bytes": 400 * MB, "returned_resident_bytes": 300 * MB})]
    assert any("plus 300.0 MiB returned" in line for line in page) and any("plus 100.0 MiB of address space" in line for line in page)


@pytest.mark.parametrize(
    "start, is_file, kind, what",
    [
        (0x3AC43200000, False, "live", "90.0 MiB of anonymous memory in this process is probably its"),
        (0x3AC43200000, False, "core", "not read: anonymous memory in this process is probably its"),
        (0x3AC43200000, True, "live", None),
        (0x3AC43201000, False, "live", None),
        (0x7F0000000000, False, "live", None),
    ],
)
def test_a_copy_that_is_not_read_is_not_called_unused(monkeypatch: pytest.MonkeyPatch, start: int, is_file: bool, kind: str, what: Optional[str]) -> None:
    """Memory that begins where mimalloc alone asks for it is probably its; elsewhere nothing was ever allocated."""
    monkeypatch.setattr(detect, "_find_page_map", lambda target, module: None)
    monkeypatch.setattr(detect, "_find_segments", lambda target, module, heads: None)
    use = SimpleNamespace(mapping=SimpleNamespace(start=start, is_file=is_file), resident_bytes=90 * MB)
    target: Any = SimpleNamespace(kind=kind, word_bytes=8, little_endian=True, dynamic_symbol=lambda name: None, memory_use=lambda: SimpleNamespace(mappings=[use]))
    module: Any = SimpleNamespace(file_name="bun")
    found = detect.find_mimallocs(target, [module])
    assert [len(rows) for rows in (found.located, found.unread, found.unused)] == ([0, 1, 0] if what else [0, 0, 1])
    assert what is None or found.unread[0].what.endswith(what)


def test_a_large_block_of_mimallocs_is_whole_slices() -> None:
    """As malloc_usable_size has it, up to 512 KiB."""
    allocator = allocators.by_name()["mimalloc"]
    assert [allocator.preload_bytes(size) for size in (131072, 131073, 196609)] == [131072, 196608, 262144]


def mimalloc(*rows: Dict[str, Any], has_ended: bool = True) -> Callable[[], Iterable[Finding]]:
    """What is said of such arenas."""
    arenas = [MimallocArena("mimalloc", *([0] * (len(MimallocArena._fields) - 1)))._replace(index=index, **row) for index, row in enumerate(rows)]  # type: ignore[arg-type]
    info: Any = None
    return lambda: mimalloc_judgement.make_mimalloc_findings(
        MimallocFacts(info, arenas, {}, (), (), has_ended=has_ended), sum(row.held_bytes for row in arenas)
    )


def mimalloc_steps() -> Iterable[Any]:
    """Each way to return free memory, and the option that keeps MADV_FREE from hiding it."""
    row = MimallocArena("mimalloc", *([0] * (len(MimallocArena._fields) - 1)))._replace(  # type: ignore[arg-type]
        owner=THREAD, held_bytes=100 * MB, used_blocks=1, free_bytes=50 * MB, collectable_resident_bytes=20 * MB, unowned_collectable_resident_bytes=30 * MB
    )
    info = AllocatorInfo("mimalloc", "mimalloc", "2.3.2", "libmimalloc.so", None, "table", "probe", True)
    facts = MimallocFacts(info, [row], {}, (), (), delay=("purge_delay", 10), returned=[(0, 1)], is_reset=True)
    (judged,) = mimalloc_judgement.ALLOCATOR.judge([facts], Surroundings(1, [], None, taken_bytes={"mimalloc": 190 * MB}, taken=lambda ranges: 90 * MB))
    return judged.next_steps


WAITING = {"owner": THREAD, "lwp": 71, "held_bytes": 100 * MB, "remote_free_bytes": 40 * MB, "uncollected_bytes": 32 * MB}
LEFT = {"owner": ABANDONED, "lwp": None, "held_bytes": 50 * MB, "used_bytes": 10 * MB, "free_bytes": 40 * MB}
MIMALLOC = {
    "freed by others": Case(mimalloc(WAITING), [codes.UNCOLLECTED], ["40.0 MiB were freed by other threads", "40.0 MiB of it belong to thread 71", "32.0 MiB of it whole pages", "have it call mi_collect"]),
    "of two threads": Case(mimalloc(WAITING, {**WAITING, "lwp": None, "remote_free_bytes": 41 * MB}), [codes.UNCOLLECTED], ["belong to arena 1", "have each of 2 threads call"]),
    "little is freed by others": Case(mimalloc({**WAITING, "remote_free_bytes": MB}), []),
    "left behind": Case(mimalloc(LEFT), [codes.ABANDONED_PAGES], ["40.0 MiB of free blocks are in pages that no thread owns: their threads have ended"]),
    "ways on": Case(
        mimalloc_steps,
        ["MIMALLOC_PURGE_DECOMMITS=1", "mi_collect(true)", "MIMALLOC_PURGE_DELAY=0", "pins"],
        ["any one thread returns 30.0 MiB that no thread owns to the OS, by each thread that owns pages returns 20.0 MiB"],
    ),
    "full pages": Case(mimalloc(LEFT, has_ended=False), [codes.ABANDONED_PAGES], ["no thread owns: they were full, or their threads have ended"]),
}


@pytest.mark.parametrize("name", sorted(MIMALLOC))
def test_a_sentence_is_whole(name: str) -> None:
    """Each figure has its place, under the codes of the case."""
    check_case(MIMALLOC[name])


def test_no_sentence_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call of Finding and of Step is made by a case above."""
    assert not unsaid(mimalloc_judgement, list(MIMALLOC.values()), monkeypatch)
