"""What is said of a jemalloc that is there and is not read, and which builds are not taken for a release."""

from typing import Any, Optional

import pytest

from gdbheapx.inferior.base import DebugHint, Module
from gdbheapx.jemalloc import find, layouts
from gdbheapx.jemalloc.find import NotReadable
from tests.support.builders.jemalloc import LIBRARY, FakeMemory


class Hinting(FakeMemory):
    """It knows how to get debug files."""

    def debug_hint(self, module: Module, packages: Any = ()) -> DebugHint:
        return "debuginfod-find debuginfo %s" % module.build_id, None


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
    assert layouts.parse_jemalloc_release(text) == release
    assert layouts.may_differ(text) is may_differ
    assert layouts.text_has_ticker_bug(text) is bug
    assert layouts.is_read(text) is (text is None or not text.startswith("4"))


def test_nothing_is_said_that_is_not_known() -> None:
    """Without a version text the traces name the release, and the record's text stays unknown; without either there is no word of it."""
    told = find.make_unread(Hinting(), LIBRARY, NotReadable(find.STRIPPED), None, None, "5.3.0")
    assert told.what.startswith("cannot read jemalloc 5.3.0 in ") and told.version_text is None and told.has_ticker_bug is False
    silent = find.make_unread(Hinting(), LIBRARY, NotReadable(find.STRIPPED), None, None)
    assert silent.what.startswith("cannot read jemalloc in ") and "pages" not in silent.what and "bug" not in silent.what and silent.has_ticker_bug is None
