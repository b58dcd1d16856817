"""What owners and refs call a mapping.

Files: analysis/reachability/heap_graph.py.
"""

from typing import Any, cast

import pytest

from gdbheapx.analysis.reachability.heap_graph import GraphNode
from gdbheapx.analysis.reachability.paths import NodeNames
from gdbheapx.inferior.base import Mapping, MappingUse

pytestmark = pytest.mark.once  # pure functions


class Known:
    """A graph whose nodes are two mappings."""

    kept = None
    stacks: Any = {}
    blocks: Any = ()

    def mapping(self, node: int) -> GraphNode:
        """See Reach."""
        plain = Mapping(0x1000, 0x3000, True, True, False, False, "", None)
        return GraphNode(0x1000, 0x3000, MappingUse(plain, 0), "JVM: Java heap" if node else None)


def test_a_runtimes_memory_is_called_as_report_calls_it() -> None:
    """By its runtime where its shape tells, with its addresses; by addresses alone where nothing does."""
    names = NodeNames(cast(Any, None), cast(Any, Known()))
    assert names.of_mapping(1) == "JVM: Java heap, mapping 0x1000-0x3000"
    assert names.of_mapping(0) == "mapping 0x1000-0x3000"
