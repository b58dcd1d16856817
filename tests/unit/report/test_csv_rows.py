"""The file of all blocks, and of those in use with their names."""

from array import array
from typing import Iterator, List, NamedTuple

import pytest

from gdbheapx import kernel
from gdbheapx.kernel.blocks.stream import CLASS_FREE, CLASS_OVERHEAD, CLASS_USED, NO_ARENA, BlockShape, NativeBlocks, make_blocks
from gdbheapx.report import encodings

pytestmark = pytest.mark.once  # no memory, and nothing of the machine


class Info(NamedTuple):
    """Its id."""

    id: str = "glibc"


class Heap(NamedTuple):
    """Two batches: three blocks, and a mapped one."""

    info: Info = Info()
    shape: BlockShape = BlockShape(("used", "free", "mmapped"), (8, 8, 16), 16)

    def blocks(self) -> Iterator[NativeBlocks]:
        """By address."""
        yield make_blocks([(0x1010, 24, CLASS_OVERHEAD, 0, 0), (0x1030, 56, CLASS_FREE, 1, 0), (0x1070, 40, CLASS_USED, 0, 0)])
        yield make_blocks([(0x7010, 4080, CLASS_USED, 2, NO_ARENA)])


def test_every_block_is_a_row() -> None:
    """The size is the allocator's own; a block of no arena has an empty cell."""
    assert "".join(encodings.format_csv(kernel.load_native_library(), [Heap()])).splitlines() == [
        "address,size_bytes,usable_bytes,class,status,arena,allocator",
        "0x1010,32,24,overhead,used,0,glibc",
        "0x1030,64,56,free,free,0,glibc",
        "0x1070,48,40,used,used,0,glibc",
        "0x7010,4096,4080,used,mmapped,,glibc",
    ]


@pytest.mark.parametrize("addresses, labels", [([0x1070, 0x7010], [2, 1]), ([0x1000, 0x1070, 0x3000, 0x7010], [1, 2, 2, 1])])
def test_names_are_found_by_address(addresses: List[int], labels: List[int]) -> None:
    """Whether or not other blocks with a name lie between."""
    signed = encodings.BlockSignatures(array("Q", addresses), array("I", labels), ["=cmd", "Session"])
    lines = "".join(encodings.format_signed_csv(kernel.load_native_library(), list(encodings.read_used_blocks([Heap()])), signed)).splitlines()
    assert lines[1:] == ["0x1070,48,40,used,used,0,glibc,Session", "0x7010,4096,4080,used,mmapped,,glibc,'=cmd"]


def test_a_block_without_a_name_has_none() -> None:
    """It is in use all the same."""
    signed = encodings.BlockSignatures(array("Q", [0x7010]), array("I", [1]), ["Session"])
    lines = "".join(encodings.format_signed_csv(kernel.load_native_library(), list(encodings.read_used_blocks([Heap()])), signed)).splitlines()
    assert lines[1:] == ["0x1070,48,40,used,used,0,glibc,", "0x7010,4096,4080,used,mmapped,,glibc,Session"]
