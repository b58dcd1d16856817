"""What the code of a program tells of its calls of malloc."""

from typing import NamedTuple, Optional, Sequence, Tuple

from gdbheapx.inferior.base import Module


class Site(NamedTuple):
    """One call of malloc, operator new, or of a function that hands its own argument on to them."""

    module: Module
    start: int
    """Of the function that it stands in: where a part of it begins that has call frames of its own. In memory, as all addresses here."""
    function: Optional[str]
    """Its name, where a symbol table has it."""
    address: int
    """Of the call."""
    allocator: str
    """What is called."""
    size_bytes: Optional[int]
    """What it asks for. None: that differs from call to call."""
    vtable: Optional[int] = None
    """The address that it, or a constructor that it calls, stores at the begin of the block last."""


class Scan(NamedTuple):
    """All that was found in the code of a process."""

    sites: Sequence[Site]
    unread: Sequence[Tuple[str, str]]
    """(name, why) of objects whose code could not be read."""
