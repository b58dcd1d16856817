"""Whether a layout is that of the build at hand: arenas name the index under which they stand.

Files: jemalloc/symbols.py.
"""

from typing import Any, List, Union

import pytest

from gdbheapx.jemalloc.symbols import Jemalloc, prove_layout
from tests.support.builders.jemalloc import NBINS, World

NEW = ((5, 3, 0), (5, 3, 1))


def world(version: Any, names: List[int]) -> World:
    """Arenas that say they are these; no bin of theirs has a slab."""
    made = World(version, len(names))
    for arena, name in zip(made.arenas, names):
        made.put("arena_s", arena.address, ind=name)
    made.symbols.places["arenas"] = (made.bytes(b"".join(arena.address.to_bytes(8, "little") for arena in made.arenas)), 8 * len(names))
    made.symbols.places["arena_bin_offsets"] = (made.bytes(b"".join((4 * 8 * number).to_bytes(4, "little") for number in range(NBINS))), 4 * NBINS)
    return made


def check(made: World, is_own: bool) -> Union[Jemalloc, str]:
    """The proof."""
    bins = tuple(info._replace(nregs=info.slab_size_bytes // info.reg_size_bytes) for info in made.geometry.bins)
    return prove_layout(made.context.jemalloc._replace(geometry=made.geometry._replace(bins=bins)), is_own)


@pytest.mark.parametrize("version", NEW)
@pytest.mark.parametrize("is_own", [True, False])
def test_arenas_that_name_themselves(version: Any, is_own: bool) -> None:
    """Without a slab this much is proven."""
    found = check(world(version, [0, 1, 2]), is_own)
    assert isinstance(found, Jemalloc) and (found.calibrated_slabs, found.named_arenas) == (0, 3)


@pytest.mark.parametrize("version", NEW)
@pytest.mark.parametrize("is_own", [True, False])
def test_arenas_that_name_others_refute_a_layout(version: Any, is_own: bool) -> None:
    """Nothing else holds, so that nothing is believed: an arena index of another build's layout is whatever stands there."""
    found = check(world(version, [3454013632, 7, 2]), is_own)
    assert found == "arenas[0] points to a struct that says it is arena 3454013632"


@pytest.mark.parametrize("version", NEW)
def test_one_damaged_arena_of_several_refutes_nothing(version: Any) -> None:
    """Most decide: that one is left out when arenas are read."""
    found = check(world(version, [0, 1, 99]), False)
    assert isinstance(found, Jemalloc) and found.named_arenas == 2


def test_an_arena_that_cannot_be_asked_is_no_proof() -> None:
    """Neither for nor against."""
    made = world((5, 3, 0), [0])
    assert made.context.jemalloc.read_own_index(0x123000) is None
    made.symbols.places["arenas"] = (made.bytes((0x123000).to_bytes(8, "little")), 8)
    found = check(made, False)
    assert isinstance(found, str) and "0x123000" in found
