"""bench/stops.py: limits and what follows for larger heaps, without a process."""

import pytest

from bench import run, stops
from bench.rows import Row

pytestmark = pytest.mark.once  # numbers alone


def test_limits() -> None:
    """Of what copies by size; of `arenas` by the blocks' size, or by a plain read; of --short-stop by size and by pages."""
    assert [stops.limit_ms("small", 2, command, 0) for command in stops.COPYING] == [500] * len(stops.COPYING)
    assert stops.limit_ms("large", 8, "arenas", 0) == 200
    assert stops.limit_ms("holes", 0.6, "arenas", 100) == stops.limit_ms("runs", 0.6, "arenas", 100) == 80
    assert stops.limit_ms("small", 2, "arenas", 0) is stops.limit_ms("large", 2, "report", 0) is None
    assert stops.short_limit_ms(8, 1000) == 0.5 + 8 + 3


def test_computed() -> None:
    """A straight line through the smallest and the largest heap; none through what failed, is no time, or has one size."""
    found = {gib: [Row("%g GiB, x: leaks" % gib, None, 10 + 100 * gib, "ms"), Row("y: z", None, 1, "x")] for gib in (1.0, 3.0)}
    rows = stops.far_rows(found, "small")
    assert len(rows) == 1
    assert rows[0].measured == pytest.approx(10 + 100 * stops.FAR_GIB)
    assert rows[0].figure.endswith("computed: leaks")
    assert not stops.far_rows({1.0: found[1.0]}, "small")
    assert not stops.far_rows({**found, 3.0: [row._replace(wrong="FAILED") for row in found[3.0]]}, "small")


def test_dirty_pages() -> None:
    """Wherever the answer tells them."""
    assert stops.dirty_pages({"short_stop": {"dirty_pages": 17}}) == 17
    assert stops.dirty_pages({"stopped_ms": 3}) == stops.dirty_pages(None) == 0


def test_by_name_alone() -> None:
    """It takes more memory than a look at all parts may."""
    assert "stops" in run.PARTS and "stops" not in run.CORES
