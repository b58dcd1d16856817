"""The rule by which tcmalloc makes its size classes."""

import pytest

from gdbheapx.addons.allocators.tcmalloc import entry

pytestmark = pytest.mark.once  # arithmetic


@pytest.mark.parametrize("request_bytes, block", [(1, 8), (8, 8), (9, 16), (17, 32), (129, 144), (1025, 1152), (3329, 4096), (262144, 262144), (262145, 270336)])
def test_a_request_gets_the_smallest_block_that_holds_it(request_bytes: int, block: int) -> None:
    """Classes of which as many fit into a span are one; beyond 256 KiB a block is whole pages."""
    assert entry.ALLOCATOR.preload_bytes(request_bytes) == block
