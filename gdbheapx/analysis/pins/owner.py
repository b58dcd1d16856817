"""Who owns blocks that keep free memory, in words."""

from typing import Dict, Sequence

from gdbheapx.analysis.census import find as census
from gdbheapx.analysis.reachability.owners import Tallied
from gdbheapx.kernel.blocks.graph import NO_NODE
from gdbheapx.kernel.blocks.pins import BY_NOBODY, BY_SEVERAL

SEVERAL, LEAKED = "several", "leaked"
"""In place of an owner: no single one; nothing leads there."""


class Owners:
    """Who owns blocks, in words; each node is named once."""

    def __init__(self, told: census.LabelSet, tallied: Tallied) -> None:
        self._told, self._tallied = told, tallied
        self._names: Dict[int, str] = {BY_SEVERAL: SEVERAL, BY_NOBODY: LEAKED}
        self._parents: Sequence[int] = ()

    def name(self, node: int) -> str:
        """What stands at the top."""
        if node not in self._names:
            self._names[node] = self._shared(node) if node < self._told.reach.numbers.blocks else self._tallied.name(node)
        return self._names[node]

    def _shared(self, node: int) -> str:
        """`g_server in app and others, by Config 0x...`: a block that several own, and the nearest of them."""
        reach = self._told.reach
        if not self._parents:
            self._parents = reach.graph.parents(reach.roots_from)
        above = node
        while above < reach.roots_from and self._parents[above] != NO_NODE:
            above = self._parents[above]
        label = self._told.labels[node] if node < len(self._told.labels) else 0
        known = self._told.names[label - 1] if label else None
        what = known.name if known is not None else "block"
        by = "%s 0x%x" % (what, reach.graph.blocks([node])[0][0])
        return "%s and others, by %s" % (self._tallied.name(above), by) if above >= reach.roots_from else by
