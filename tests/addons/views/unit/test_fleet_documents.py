"""Documents as rows."""

from gdbheapx.addons.views.fleet.documents import Document, grouped, ordered


def test_order_and_groups() -> None:
    """The largest first, the unknown last; a group adds up what is known."""
    rows = [Document("a", verdict="x", used_bytes=1), Document("b"), Document("c", verdict="x", used_bytes=5)]
    assert [one.core for one in ordered(rows, "used_bytes")] == ["c", "a", "b"]
    assert [(one.value, one.documents, one.used_bytes) for one in grouped(rows, "verdict")] == [("x", 2, 6), ("unknown", 1, 0)]
