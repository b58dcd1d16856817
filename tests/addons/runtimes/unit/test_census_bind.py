"""BIND's structures, by the number that each begins with.

Files: addons/runtimes/bind.py.
"""

from types import SimpleNamespace
from typing import Any, List, Optional, cast

import pytest

from gdbheapx.addons.runtimes.bind import LEAST_BYTES, RECOGNISERS
from gdbheapx.analysis.census.world import EXACT, Signature, World, order_rows
from tests.support.plain_signer import PlainSigner

pytestmark = pytest.mark.once  # pure functions

HEAP, BLOCK_BYTES = 0x10000, 32


@pytest.fixture(params=["little", "big"])
def world(request: Any) -> World:
    """A process of 64 bits that has loaded libisc."""
    modules = [SimpleNamespace(file_name="libisc-9.18.so")]
    target = SimpleNamespace(word_bytes=8, little_endian=request.param == "little", byte_order=request.param, modules=lambda: modules)
    return World(cast(Any, SimpleNamespace(target=target)))


def named(world: World, contents: List[bytes], usable: int = BLOCK_BYTES) -> List[Optional[Signature]]:
    """What blocks with these bytes are, by a signer that asks every condition of every row."""
    (bind,) = RECOGNISERS
    asked = order_rows(bind.asks(world))
    memory = b"".join(data.ljust(BLOCK_BYTES, b"\1") for data in contents)
    told = PlainSigner(world.target.byte_order, asked.rows, asked.sets).tell(memory, HEAP, [(HEAP + at, usable) for at in range(0, len(memory), BLOCK_BYTES)])
    return [asked.signature(told.found[label - 1]) if label else None for label in told.labels]


def test_a_block_is_what_its_number_says(world: World) -> None:
    """The four letters as a number of the machine; nothing without them, elsewhere than at the start, or in a block that is too small."""
    order = cast(Any, world.target.byte_order)
    view, zone = (int.from_bytes(letters, "big").to_bytes(4, order) for letters in (b"View", b"ZONE"))
    assert RECOGNISERS[0].is_here(world)
    assert named(world, [view, zone, b"\2\3\4\5", b"\0" * 8 + view]) == [
        Signature("dns_view ('View')", "bind", EXACT), Signature("dns_zone ('ZONE')", "bind", EXACT), None, None,
    ]  # fmt: skip
    assert named(world, [view], LEAST_BYTES - 1) == [None]
