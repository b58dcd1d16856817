"""The overview of a session: what comes first, what is left out, and that it needs no allocator.

Files: report/overview_text.py.
"""

from typing import Any, List, Optional

from gdbheapx.analysis.overview import Overview, make_overview
from gdbheapx.budget import Budget
from gdbheapx.command import TextStyle
from gdbheapx.report import overview_text
from gdbheapx.report.text import format_page
from tests.support.builders.recorded import FirstPages, Recorded, recorded, use


class Looked:
    """A session without an allocator that can be read, what it discovered, and its heaps."""

    def __init__(self, target: Recorded) -> None:
        self.target, self.kernel, self.budget = target, FirstPages(target), Budget()
        self.discovery = self.heaps = self
        self.allocator_id: Optional[str] = None
        self.is_copied_whole = False

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
    return make_overview(Looked(target))[0]  # type: ignore[arg-type]


def text(found: Overview, plain: bool = False) -> str:
    style = TextStyle(plain, False)
    return "\n".join(line for page in (overview_text.format_overview(found), overview_text.format_last_lines(style, found, 99)) for line in format_page(style, page))


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
