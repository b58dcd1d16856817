"""One pointer of the graph in Python."""


class TwinEdge:
    """One pointer, whose rule may change."""

    __slots__ = ("inside", "is_link", "node", "rule", "slot")

    def __init__(self, node: int, rule: int, slot: int, inside: int, is_link: bool = False) -> None:
        self.node, self.rule, self.slot, self.inside, self.is_link = node, rule, slot, inside, is_link
