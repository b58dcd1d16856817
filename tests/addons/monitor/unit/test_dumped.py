"""A process that the kernel is writing the core of, without a kernel: reads go through as many segments as they meet."""

from types import SimpleNamespace
from typing import Any

from gdbheapx.addons.monitor.capture.dumped import _DumpedMemory

PAGE = 4096


def memory(segments: int, hole: int = -1) -> Any:
    """So many segments of a page side by side, of which the dump leaves one out."""
    loads = [SimpleNamespace(start=place * PAGE, dumped_bytes=0 if place == hole else PAGE) for place in range(segments)]
    made = _DumpedMemory.__new__(_DumpedMemory)
    made._live = SimpleNamespace(read_prefix=lambda address, size: b"%c" % (address // PAGE % 251) * size)  # type: ignore[assignment]
    made.find = lambda address: loads[address // PAGE] if address // PAGE < segments else None  # type: ignore[method-assign,assignment,return-value]
    return made


def test_a_read_goes_through_all_segments() -> None:
    """Five thousand of them, as where each page was protected by itself; to the end of the last one."""
    found = memory(5000).read_dumped(100, 5001 * PAGE)
    assert len(found) == 5000 * PAGE - 100 and found[PAGE] == 1 and found[-1] == 4999 % 251


def test_a_read_ends_where_nothing_is_dumped() -> None:
    """At a hole, and at once in it."""
    one = memory(10, hole=4)
    assert len(one.read_dumped(0, 8 * PAGE)) == 4 * PAGE and one.read_dumped(4 * PAGE, 8) == b""
