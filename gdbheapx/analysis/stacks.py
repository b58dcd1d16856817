"""Stacks for viewers: what memory is, by frames from the outermost in, each with its blocks and bytes."""

from typing import Iterable, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.census.find import Census
from gdbheapx.inferior.base import Target


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


class Image(NamedTuple):
    """A mapped part of a file that has code."""

    name: str
    start: int
    end: int
    offset: int
    build_id: Optional[str]


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


def of_calls(found: Iterable[Tuple[Sequence[int], int, int]]) -> List[Stack]:
    """Of (return addresses, innermost first; blocks; bytes). An address is put into the call that it returns from."""
    return [
        Stack(tuple(Frame("", "", address - 1) for address in reversed(addresses) if address), blocks, size)
        for addresses, blocks, size in found
    ]


def images(target: Target) -> List[Image]:
    """What of the target's files is mapped to be run, the program's own first."""
    modules = {module.name: module for module in target.modules()}
    programs = {name for name, module in modules.items() if module.is_executable}
    ids = {name: module.build_id for name, module in modules.items()}
    mapped = (one for one in target.code_mappings() if one.name)
    found = [Image(one.name, one.start, one.end, one.offset, ids.get(one.name)) for one in mapped]
    return sorted(found, key=lambda one: one.name not in programs)
