"""What is said of a jemalloc that is there and is not read, and which builds are not taken for a release."""

from typing import Any, Optional

import pytest

from gdbheapx.inferior.base import DebugHint, Module
from gdbheapx.jemalloc.detection import layouts, unread
from gdbheapx.jemalloc.detection.unread import NotRead
from tests.support.builders.jemalloc import LIBRARY, FakeMemory

PROGRAM = Module("/srv/service", 0x400000, True, "abcdef", None)


class Hinting(FakeMemory):
    """It knows how to get debug files."""

    def debug_hint(self, module: Module, packages: Any = ()) -> DebugHint:
        return DebugHint(module.build_id, None, ("debuginfod-find debuginfo %s" % module.build_id,))


@pytest.mark.parametrize(
    "text, release, may_differ, bug",
    [
        ("5.3.0-0-g54eaed1d8b56b1aa528be3bdd1877e59c56fa90c", (5, 3, 0), False, False),
        ("5.3.0-1-ge13ca993e8ccb9ba9847cc330696e02839f328f7", (5, 3, 0), False, False),
        ("5.3.0-196-ga25b9b8ba91881964be3083db349991bbbbf1661", (5, 3, 0), True, False),
        ("5.2.1-2-g172143a2979d9d948035423ce347e35cd1388fc3", (5, 2, 1), False, True),
        ("5.2.1-3-g172143a", (5, 2, 1), True, None),
        ("5.0.0-0-g1", (5, 0, 0), False, False),
        ("4.5.0-0-g04380e79f1e2428bd0ad000bbc6e3d2dfc6b66a5", (4, 5, 0), False, None),
        ("0.0.0-0-g0000000000000000000000000000000000000000", None, True, None),
        ("5.3.0", (5, 3, 0), False, False),
        ("after 5.3.1", None, True, None),
        (None, None, True, None),
    ],
)
def test_a_snapshot_is_not_its_release(text: Optional[str], release: object, may_differ: bool, bug: Optional[bool]) -> None:
    """Only as many commits as were seen to keep the layout; of the fault that makes threads blind no more is said than the text tells."""
    assert layouts.release_of(text) == release
    assert layouts.may_differ(text) is may_differ
    assert layouts.text_has_ticker_bug(text) is bug
    assert layouts.is_read(text) is (text is None or not text.startswith("4"))


def test_a_refusal_names_what_is_there() -> None:
    """Version, file, reason, page size, what the release means, and the way to have it read."""
    made = unread.make(Hinting(), PROGRAM, NotRead(unread.STRIPPED), "5.2.1-0-gea6b3e973b477b8061e0076bb257dbd7f3faa756", 65536)
    assert made.what.startswith("cannot read jemalloc 5.2.1 in /srv/service: it has no symbols, and no pack was found for it (build-id abcdef)")
    assert "its pages are 65536 bytes" in made.what and "its release has the bug that makes threads blind" in made.what
    assert made.hint is not None and "strip = false" in made.hint and "DIR/.build-id/ab/cdef.debug" in made.hint and "--debug-dir DIR" in made.hint
    assert (made.why, made.page_bytes, made.has_ticker_bug) == ("stripped", 65536, True)


def test_nothing_is_said_that_is_not_known() -> None:
    """Without a version text the traces name the release, and the record's text stays unknown; without either there is no word of it."""
    told = unread.make(Hinting(), LIBRARY, NotRead(unread.STRIPPED), None, None, "5.3.0")
    assert told.what.startswith("cannot read jemalloc 5.3.0 in ") and told.version_text is None and told.has_ticker_bug is False
    silent = unread.make(Hinting(), LIBRARY, NotRead(unread.STRIPPED), None, None)
    assert silent.what.startswith("cannot read jemalloc in ") and "pages" not in silent.what and "bug" not in silent.what and silent.has_ticker_bug is None


def test_each_reason_has_its_own_sentence() -> None:
    """Symbols without types, a snapshot, a layout that does not hold, a release before 5, memory that cannot be read."""
    text = "5.3.0-196-ga25b9b8ba91881964be3083db349991bbbbf1661"
    said = {why: unread.make(Hinting(), LIBRARY, NotRead(why, "seen"), text, None) for why in (unread.NO_LAYOUT, unread.SNAPSHOT, unread.WRONG_LAYOUT, unread.UNREADABLE)}
    assert "it has symbols but no debug information" in said[unread.NO_LAYOUT].what
    assert "jemalloc 5.3.0-196-ga25b9b8ba918 in" in said[unread.SNAPSHOT].what and "made 196 commits after 5.3.0" in said[unread.SNAPSHOT].what
    assert "its memory does not match its layout (seen)" in said[unread.WRONG_LAYOUT].what
    assert said[unread.UNREADABLE].what.startswith("cannot read jemalloc 5.3.0-196-ga25b9b8ba918 in /lib/libjemalloc.so.2: seen") and said[unread.UNREADABLE].hint is None
    assert "debuginfod-find" in (said[unread.SNAPSHOT].hint or "") and "--symbols DIR" in (said[unread.SNAPSHOT].hint or "")
    old = unread.make(Hinting(), LIBRARY, NotRead(unread.OTHER_RELEASE), "4.5.0-0-g04380e79", None)
    assert "jemalloc 4.5.0 in" in old.what and "only jemalloc 5 is" in old.what
    nameless = unread.make(Hinting(), LIBRARY, NotRead(unread.SNAPSHOT), None, None)
    assert "it does not state its release" in nameless.what
