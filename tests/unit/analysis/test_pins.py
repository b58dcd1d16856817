"""How the groups of `pins` are ranked, and what its page says.

Files: allocators/keeping.py, analysis/pins.py, report/pins_text.py.
"""

from gdbheapx.allocators.keeping import Term
from gdbheapx.analysis import pins
from gdbheapx.analysis.pins import Sum, ranked
from gdbheapx.columns import Table
from gdbheapx.hints import again
from gdbheapx.report import pins_text
from tests.support.builders.records import MB, pin_group, pins_kept


def test_what_keeps_much_for_little_comes_first() -> None:
    """By kept bytes for each byte; but what keeps less than a twentieth of all, and what no block keeps, comes after, by kept bytes."""
    little, large, small, rest = pin_group(30 * MB, 10, 16), pin_group(500 * MB, 100000, 1000), pin_group(MB, 1, 16), pin_group(20 * MB)
    assert ranked([large, rest, small, little], 551 * MB) == [little, large, rest, small]


def test_the_page_closes_with_arenas() -> None:
    """The sum by the columns of `arenas`, and how far from it; what a trim would return is told beside."""
    terms = [Term("free", 5 * MB), Term("top", MB), Term("reclaimable", 4 * MB, True)]
    found = pins_kept(pin_group(2 * MB, 2, 16))
    lines = [str(one) for one in pins_text.page(found._replace(sums=[Sum("glibc", 2 * MB, 2 * MB, 0, terms, 4 * MB, "trim")]), None)]
    assert lines[1] == "2 blocks (32 bytes, of 16 bytes each) keep 2.0 MiB"
    assert lines[2] == "glibc: free 5.0 MiB + top 1.0 MiB - reclaimable 4.0 MiB = 2.0 MiB, as `arenas` has it"
    assert lines[3].startswith("4.0 MiB more is free") and "trim --dry-run" in lines[3]
    other = [str(one) for one in pins_text.page(found._replace(sums=[Sum("glibc", 2 * MB, 3 * MB, -MB, terms, None, "")]), None)]
    assert other[2].endswith("by `arenas`; found here: 2.0 MiB")


def test_nothing_is_kept() -> None:
    """No table, no sentence on blocks, no finding."""
    found = pins_kept()._replace(sums=[Sum("toy", 0, None, None, [], None, "")])
    page = list(pins_text.page(found, None))
    assert page[0] == "No free memory is pinned by blocks in use." and not any(isinstance(one, Table) for one in page)
    assert pins.pins_finding(found) is None and pins.largest_group(pins_kept(pin_group(MB))) is None


def test_what_is_not_known_is_not_nothing() -> None:
    """An arena could not be read: no word of nothing, and no whole sum."""
    found = pins_kept()._replace(kept_bytes=None, is_cut=True)
    assert pins_text.data(found, None)["kept_bytes"] is None and str(next(iter(pins_text.page(found, None)))).startswith("Unknown: ")
    assert str(next(iter(pins_text.page(pins_kept(pin_group(MB, 1, 16))._replace(is_cut=True), None)))).startswith("Free memory that cannot be returned: at least 1.0 MiB")


def test_a_limit_says_what_it_left_out() -> None:
    """Rows and their bytes."""
    page = [str(one) for one in pins_text.page(pins_kept(pin_group(2 * MB, 2, 16), pin_group(MB, 1, 16)), 1)]
    assert "1 more row (1.0 MiB): " + again("--limit %d", 2) in page
