"""Resident memory of runtimes outside malloc while a process runs: CPython's arenas, a Java heap, named as `report` names them."""

from typing import Dict, Mapping, Optional

from gdbheapx.addons.monitor.watch.counters import open_counters
from gdbheapx.analysis.memory import attribute, kinds
from gdbheapx.analysis.memory.attribute import Attribution
from gdbheapx.session import Session


class PoolMeter:
    """Sums the mappings of the runtimes that are loaded. The process runs on; the kernel counts its pages for it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def read(self) -> Optional[Mapping[str, int]]:
        """Bytes in RAM by name; None where the kernel does not say."""
        counting = open_counters(self._session.target)
        use = counting.memory_use() if counting is not None else None
        if use is None:
            return None
        sums: Dict[str, int] = {}
        for piece in Attribution(self._session.target, self._session.kernel, use, {}).pieces():
            if piece.owner.kind == kinds.RUNTIME and piece.owner.program is not None:
                sums[piece.owner.name] = sums.get(piece.owner.name, 0) + piece.taken_bytes
        return sums


def find_meter(session: Session) -> Optional[PoolMeter]:
    """Return the meter; None where no runtime with memory of its own is loaded."""
    here = [runtime for runtime in attribute.find_present_runtimes(session.target) if runtime.shapes or runtime.rest is not None]
    return PoolMeter(session) if here else None
