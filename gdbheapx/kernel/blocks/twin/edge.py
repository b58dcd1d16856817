"""One pointer of the graph in Python."""


class TwinEdge:
    """One pointer, whose rule may change."""

    __slots__ = ("inside", "node", "rule", "slot")

    def __init__(self, node: int, rule: int, slot: int, inside: int) -> None:
        self.node, self.rule, self.slot, self.inside = node, rule, slot, inside
