"""Documents as rows."""

from gdbheapx.fleet.documents import Row, grouped, ordered


def test_order_and_groups() -> None:
    """The largest first, the unknown last; a group adds up what is known."""
    rows = [Row("a", verdict="x", used_bytes=1), Row("b"), Row("c", verdict="x", used_bytes=5)]
    assert [one.core for one in ordered(rows, "used_bytes")] == ["c", "a", "b"]
    assert [(one.value, one.documents, one.used_bytes) for one in grouped(rows, "verdict")] == [("x", 2, 6), ("unknown", 1, 0)]
