"""Records of malloc calls found in the code of a program."""

from typing import AbstractSet, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.inferior.base import Module
from gdbheapx.model import TargetAddress

ADDRESS, ITSELF, PUSHED, BEGIN, BEYOND = "address", "itself", "pushed", "begin", "beyond"
STRING_BYTES = 16
"""From a std::string to its own buffer."""

TREE, LIST, CHAIN = "tree", "list", "chain"
"""What a block is a node of: a std::map or set, a std::list, an unordered one."""
NODES = {"node of a map or set": TREE, "node of a list": LIST, "node of an unordered map or set": CHAIN}
FEW = 3


class Word(NamedTuple):
    """Word that code stores into a new block."""

    offset: int
    kind: str
    """ADDRESS: of something in a file's memory (a vtable, a type, a function); ITSELF: of the block plus `value`;
    PUSHED: what the place had that points to the block plus `value` now. BEGIN (of the block plus `value`) and BEYOND (of where `offset` is
    counted from plus `value`) stand somewhere in the block, the code does not tell where; offsets of both are from one place."""
    value: int


class Site(NamedTuple):
    """Call of malloc, operator new, or of a function that hands its own argument on to them."""

    module: Module
    start: int
    """Of the function that it stands in: where a part of it begins that has call frames of its own. In memory, as all addresses here."""
    function: Optional[str]
    """Its name, where a symbol table has it."""
    address: int
    """Of the call."""
    size_bytes: Optional[int]
    """What it asks for. None: that differs from call to call."""
    link: Optional[str] = None
    """TREE, LIST or CHAIN: the function of the C++ runtime that links such nodes gets the block."""
    floats: bool = False
    """The words' offsets are from an object that begins behind a head of unknown size in the block."""
    words: Sequence[Word] = ()
    """What it, what it calls for the block, or the function that it asks for it stores there last."""
    loose: Sequence[int] = ()
    """Addresses that the function stores where an object of Python has its type: it was not followed into which."""


class Scan(NamedTuple):
    """Everything found in the code of a process."""

    sites: Sequence[Site]
    wrappers: AbstractSet[int]
    """Where functions begin that only hand their size on: malloc itself, too."""
    unread: Sequence[Tuple[str, str]]
    """(name, why) of objects whose code could not be read."""


class SiteCandidate(NamedTuple):
    """A function that may have allocated such blocks."""

    module: str
    function: Optional[str]
    """None: no symbol table has its name."""
    address: TargetAddress
    """Where it begins, or a part of it."""
    offset: int
    """The same in the module, as its file has it."""
    calls: int
    """Of its calls that fit."""
    sizes: Sequence[int]
    """Bytes that these ask for, where that is a number in the code."""
    is_open: bool
    """What some of them ask for is no such number."""
    why: Sequence[str]

    def named(self) -> str:
        """`make of program`, or `program+0x1230` where no symbol table has its name."""
        return "%s of %s" % (self.function, self.module) if self.function is not None else "%s+0x%x" % (self.module, self.offset)


class RowSites(NamedTuple):
    """Call sites known for one row."""

    signature: Optional[str]
    module: str
    bytes: int
    sites: Sequence[SiteCandidate]
    """Empty: none was found, so the code that allocated the blocks is unknown."""
    size_functions: int
    """Functions with a call for such a size as a number in the code. They are no candidates: most calls ask for what differs."""


class Joined(NamedTuple):
    """The answer."""

    rows: Sequence[RowSites]
    calls: int
    """That were found in the code."""
    unread: Sequence[Tuple[str, str]]
    typed_bytes: int
    few_bytes: int
    """Of them with at most FEW candidates, and at least one."""
