"""Lines of pictures over time, from samples."""

from gdbheapx.addons.monitor.watch.curves import curve


def test_curve() -> None:
    """A line between samples that are known, a gap elsewhere, a dot for one that stands alone."""
    made = curve([(0, 0), (1, 10), (2, None), (3, 5), (4, None)], 100, 50)
    assert made.paths == ["M0 50L25 0"] and made.dots == [(75.0, 25.0)] and made.top == 10
    assert curve([], 100, 50).paths == [] and curve([(1, None)], 100, 50).dots == []
    assert curve([(0, 30), (1, 3)], 10, 10, 3).paths == ["M0 0L10 0"]
