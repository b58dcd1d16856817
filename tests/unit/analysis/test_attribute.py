"""Whose a mapping is may be asked of any word that a process has, whatever stands there."""

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbheapx.analysis.memory.attribute import Attribution, HeldMemory
from gdbheapx.analysis.memory.kinds import MappingPlaces
from gdbheapx.analysis.memory.stacks import WORD, ControlBlocks
from gdbheapx.budget import Budget

pytestmark = pytest.mark.once  # pure functions
PAGE = 4096
TOP = 1 << 64


def reader(kind: str, words: bytes) -> Any:
    """A reader of a process of which every page has these bytes, again and again; it asks for no range that there cannot be."""

    def held(ranges: Any) -> HeldMemory:
        assert all(0 <= start < end < TOP for start, end in ranges)
        return sum(end - start for start, end in ranges), None

    def read_prefix(address: int, size_bytes: int) -> bytes:
        assert 0 <= address < address + size_bytes < TOP
        return bytes(words[(address + at) % len(words)] for at in range(size_bytes))

    made = SimpleNamespace(_target=SimpleNamespace(kind=kind, page_bytes=PAGE, read_prefix=read_prefix), _count_pages=held)
    return lambda address, size_bytes: Attribution._read_present(made, address, size_bytes)  # type: ignore[arg-type]


@given(kind=st.sampled_from(["live", "core"]), head=st.integers(0, TOP - 1), words=st.binary(min_size=8, max_size=64))
def test_lists_lead_anywhere(kind: str, head: int, words: bytes) -> None:
    """A list of stacks whose links are any words is followed as far as there can be memory, and no further."""
    assert isinstance(ControlBlocks(MappingPlaces([]), reader(kind, words), PAGE, 704).follow(head), list)


def test_time_ends_a_list() -> None:
    """Of a list that leads on and on the node is known where there was no more time."""
    budget = Budget()
    endless = {8 * WORD * at: (8 * WORD * (at + 1), 8 * WORD * (at - 1)) for at in range(1, 9)}
    blocks = ControlBlocks(MappingPlaces([]), lambda address, size_bytes: struct.pack("<2Q", *endless[address]), PAGE, 704, budget)
    budget.interrupt()
    assert not blocks.follow(8 * WORD) and blocks.cut_at == 2 * 8 * WORD


@pytest.mark.parametrize("address", [-8, TOP - 8, TOP - 1, TOP, TOP + 8])
@pytest.mark.parametrize("kind", ["live", "core"])
def test_nothing_is_read_outside(kind: str, address: int) -> None:
    """There is no byte below the first address nor behind the last."""
    assert reader(kind, b"12345678")(address, 16) == b""
