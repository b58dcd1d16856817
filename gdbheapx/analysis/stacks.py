"""Stacks for viewers: what memory is, by frames from the outermost in, each with its blocks and bytes."""

from typing import List, NamedTuple, Optional, Tuple

from gdbheapx.analysis.census.find import Census


class Frame(NamedTuple):
    """One frame: of a program's code, or one step of a way that memory is divided."""

    name: str
    """Empty for code: a viewer finds its name by the address."""
    module: str = ""
    address: Optional[int] = None
    """Of code: inside the call."""


class Stack(NamedTuple):
    """What has the same frames."""

    frames: Tuple[Frame, ...]
    """Outermost first."""
    blocks: int
    bytes: int


NOT_NAMED, NO_MODULE = "[not named]", "[no module]"


def of_census(found: Census) -> List[Stack]:
    """Module, signature, and the size where all blocks of a row have the same. Their sum is what is in use."""
    return [
        Stack(
            (
                Frame(row.module or NO_MODULE, row.module),
                Frame(row.signature or NOT_NAMED, row.module),
                *([Frame("%d bytes each" % row.size_bytes, row.module)] if row.size_bytes is not None else []),
            ),
            row.blocks,
            row.bytes,
        )
        for row in found.rows
    ]
