"""Mappings that nothing points to: whole pages alone are listed.

Files: analysis/reachability/leaks.py.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from gdbheapx.analysis.reachability.leaks import find_leaks
from gdbheapx.kernel.blocks.graph import FROM_MAPPING, LEAKED, NativeSum

pytestmark = pytest.mark.once  # arithmetic


def test_the_rest_of_a_page_is_no_mapping() -> None:
    """320 bytes behind the storage of the main thread are no mapping that the program lost; a page is."""
    use = SimpleNamespace(mapping=SimpleNamespace(name=""))
    pieces = [(0x7F4963109EC0, 0x7F496310A000), (0x7F4964000000, 0x7F4964001000)]
    nodes = [SimpleNamespace(start=start, end=end, resident_bytes=None, use=use) for start, end in pieces]
    graph = SimpleNamespace(evidence=lambda place: FROM_MAPPING, inside_offsets=lambda: ())
    regions = SimpleNamespace(nodes=nodes, managed=())
    reach: Any = SimpleNamespace(graph=graph, regions=regions, numbers=SimpleNamespace(blocks=0), habits=[], heaps=[], word_bytes=8)
    found = find_leaks(reach, False, [NativeSum(0, 0)] * (LEAKED + 1))
    assert [(row.start, row.bytes) for row in found.mappings] == [(0x7F4964000000, 4096)]
