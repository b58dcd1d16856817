"""The overview of a session: what comes first, what is left out, and that it needs no allocator.

Files: report/overview_text.py.
"""

from typing import Any, Dict, List, Optional

from gdbheapx.analysis.overview import Overview, overview
from gdbheapx.budget import Budget
from gdbheapx.command import Style
from gdbheapx.report import json, overview_text
from gdbheapx.report.text import on_screen, show
from tests.support.builders.recorded import FirstPages, Recorded, recorded, use

MB = 1 << 20


class Looked:
    """A session without an allocator that can be read, what it discovered, and its heaps."""

    def __init__(self, target: Recorded) -> None:
        self.target, self.kernel, self.budget = target, FirstPages(target), Budget()
        self.discovery = self.heaps = self
        self.allocator_id: Optional[str] = None
        self.is_rehearsal = self.is_copied_whole = False

    def kept(self, name: str, kind: Any, make: Any) -> Any:
        return make()

    def report(self, code: str, address: Optional[int], what: str, hint: Optional[str]) -> None:
        raise AssertionError(what)

    def all(self) -> List[Any]:
        return []

    def unused(self) -> List[Any]:
        return []

    def unread(self) -> List[Any]:
        return []

    def foreign_owner(self) -> Optional[Any]:
        return None

    def inner(self) -> List[Any]:
        return []

    def may_be_hidden(self) -> bool:
        return False


def seen(target: Recorded) -> Overview:
    return overview(Looked(target))[0]  # type: ignore[arg-type]


def text(found: Overview, plain: bool = False) -> str:
    style = Style(plain, False)
    return "\n".join(line for page in (overview_text.lines(found), overview_text.last_lines(style, found, 99)) for line in show(style, page))


def test_a_process_without_an_allocator_is_split() -> None:
    """A static Go program: its heap is the verdict, and there are no arenas."""
    go = recorded("go-1.26-cgo-linux-6.18.smaps", modules=["/srv/service"], sections=[".gopclntab"])
    found = seen(go)
    assert found.split is not None and found.split[0].program == "Go"
    assert (found.verdict.kind, found.verdict.code, list(found.arenas)) == ("runtime", "mostly-runtime", [])
    assert "Go: heap" in text(found) and found.next[0].command is not None


def test_a_small_process_without_an_allocator_gets_no_verdict() -> None:
    """It is said that there is none to read."""
    found = seen(Recorded([use(0x10000, 0x20000, resident=0x8000)]))
    assert (found.verdict.kind, found.verdict.code) == ("inconclusive", "no-allocator")
    assert "no allocator could be read" in text(found)


def test_the_end_fits_a_small_terminal() -> None:
    """The verdict is said again where the head is out of sight, with as many steps as a terminal of 24 lines shows."""
    found = seen(recorded("go-1.26-cgo-linux-6.18.smaps", modules=["/srv/service"], sections=[".gopclntab"]))
    many = found._replace(next_steps=list(found.next_steps) * 9)
    style = Style(False, False, 80, True, wraps=True)
    lines = "".join(on_screen(style, line) for line in show(style, overview_text.last_lines(style, many, 30))).splitlines()
    assert len(lines) <= 22 and lines.index("Verdict") < lines.index("Next steps") < len(lines) - 2 and found.verdict.lines[0].what[:40] in "\n".join(lines)
    assert "Verdict" not in list(show(style, overview_text.last_lines(style, many, 3)))
    whole = list(show(Style(False, False), overview_text.last_lines(Style(False, False), many, 30)))
    assert len(whole) >= len(many.next_steps), "a file has them all"


def test_what_the_head_leaves_out_of_the_verdict_is_in_the_details() -> None:
    """Its figures and what follows from it, once each, beside what else stands out."""
    found = seen(recorded("go-1.26-cgo-linux-6.18.smaps", modules=["/srv/service"], sections=[".gopclntab"]))
    first = found.verdict.lines[0]._replace(details="3 of 4 are free", hint="free them")
    found = found._replace(verdict=found.verdict._replace(lines=[first]), findings=[])
    lines = list(show(Style(False, False), overview_text.lines(found)))
    assert lines.count("  3 of 4 are free") == lines.count("  free them") == 1 and first.evidence not in "\n".join(lines)


def test_json_keeps_its_keys_and_has_the_new_ones() -> None:
    """Every part has every key."""
    data: Dict[str, Any] = json.jsonable(seen(recorded("java-17-linux-6.18.smaps", modules=["/usr/lib/jvm/lib/server/libjvm.so"])))
    assert {"split", "memory", "verdict", "verdicts", "held", "totals", "arenas", "sizes", "findings", "next", "allocators"} <= set(data)
    assert {"kind", "lines", "code", "sure", "evidence", "confidence", "causes", "kind_1_0", "code_1_0"} == set(data["verdict"]) and {"what", "evidence", "hint", "code", "details", "size_bytes"} == set(data["verdict"]["lines"][0])
    assert [step["why"] for step in data["next"]] and data["next"][0]["command"] == "jcmd 100 GC.heap_info"
    assert {"kind", "name", "resident_bytes", "swapped_bytes", "shared_bytes"} <= set(data["split"][0])
    assert {"measure", "total_bytes", "swapped_bytes", "allocator_bytes", "allocators", "stack_bytes", "file_bytes", "anonymous_bytes", "largest"} <= set(data["memory"])


def test_names_of_the_program_cannot_drive_the_terminal() -> None:
    """An escape in the name of a memfd or of a mapping is shown, not sent."""
    evil = "\x1b]0;gone\x07"
    uses = [use(0x100000, 0x100000 + 40 * MB, "rw-s", "/memfd:%s (deleted)" % evil, 40 * MB), use(0x8000000, 0x8100000, "rw-p", "[anon:%s]" % evil, MB)]
    shown = text(seen(Recorded(uses)))
    assert "\x1b" not in shown and "\\x1b" in shown


def test_small_parts_are_one_line_and_guesses_are_marked() -> None:
    """What would show as 0.0 % is put together; a question mark is explained."""
    uses = [use(0x10000000, 0x10000000 + 64 * MB, resident=64 * MB)]
    uses += [use(0x20000000, 0x20002000, "r--p", "/usr/lib/x.so", 0x1000, anonymous_bytes=0), use(0x30000000, 0x30002000, "rw-p", "[heap]", 0x1000)]
    shown = text(seen(Recorded(uses, modules=["/usr/lib/gcc/cc1plus"])))
    assert "2 smaller parts" in shown and "GCC: trees" in shown and " ?" in shown and "?  a guess" in shown
    plain = text(seen(Recorded(uses, modules=["/usr/lib/gcc/cc1plus"])), plain=True)
    assert str(64 * MB) in plain
