"""What every reader of a jemalloc carries along: where it reads, what is constant, whom it tells."""

from typing import NamedTuple, Optional

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource, Target
from gdbheapx.inferior.types import TypeSet
from gdbheapx.jemalloc.detection.detect import Jemalloc
from gdbheapx.jemalloc.detection.geometry import Geometry
from gdbheapx.jemalloc.detection.symbols import Symbols
from gdbheapx.kernel.common.in_ram import Ram
from gdbheapx.kernel.common.interface import Kernel
from gdbheapx.layout.view import View, read_view
from gdbheapx.problems import Report


class Context(NamedTuple):
    """What every step needs."""

    target: Target
    jemalloc: Jemalloc
    kernel: Kernel
    source: BulkSource
    budget: Budget
    report: Report
    ram: Ram
    """What tells what is in RAM."""

    @property
    def types(self) -> TypeSet:
        """Its types."""
        return self.jemalloc.types

    @property
    def symbols(self) -> Symbols:
        """Its variables."""
        return self.jemalloc.symbols

    @property
    def geometry(self) -> Geometry:
        """Its constants."""
        return self.jemalloc.geometry

    def view(self, struct: str, address: int) -> View:
        """The struct at `address`. Unreadable if a byte of it is missing."""
        return read_view(self.target, self.types, struct, address)

    def variable(self, name: str, size_bytes: int = 0, signed: bool = False) -> Optional[int]:
        """The integer in the variable `name` (a word unless size_bytes says otherwise); None if this build has none or it cannot be
        read."""
        symbol = self.symbols.find(name)
        data = self.target.read_prefix(symbol.address, size_bytes or self.geometry.word_bytes) if symbol is not None else b""
        if len(data) < (size_bytes or self.geometry.word_bytes):
            return None
        return int.from_bytes(data, self.target.byte_order, signed=signed)
