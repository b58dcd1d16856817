"""Targets made of recorded smaps texts: what the split asks of a process, without a process."""

from typing import Any, Dict, List, Optional, Sequence, Tuple

from gdbheapx.analysis.split import Split, split_memory
from gdbheapx.common.model import Claim, MemoryPart
from gdbheapx.inferior.arch import architecture_named
from gdbheapx.inferior.base import Mapping, MappingUse, MemoryUse, Module, PageTable, Thread
from gdbheapx.inferior.live import usage
from gdbheapx.kernel.common.library import Residency
from tests.support.paths import ROOT

RECORDED = ROOT / "tests" / "data" / "smaps"
PAGE = 4096


class Recorded:
    """A live process as far as its smaps tells, and a few bytes of its memory."""

    kind = "live"
    pid = 100
    page_bytes = PAGE
    arch = architecture_named("i386:x86-64")
    little_endian = True

    def __init__(
        self,
        uses: Sequence[MappingUse],
        modules: Sequence[str] = (),
        threads: Sequence[Thread] = (),
        images: Sequence[Tuple[int, int]] = (),
        sections: Sequence[str] = (),
        memory: Optional[Dict[int, bytes]] = None,
    ) -> None:
        self.uses, self._threads, self._images, self._sections = list(uses), list(threads), images, sections
        self._modules = [Module(name, 0x1000 * place, not place, None, None) for place, name in enumerate(modules)]
        self._memory = memory or {}
        self.reads: List[int] = []

    def memory_use(self) -> MemoryUse:
        return MemoryUse("resident", self.uses, None)

    def lost_bytes(self) -> int:
        return 0

    def anonymous_use(self) -> None:
        return None

    def parent_pages(self) -> None:
        return None

    def page_table(self) -> PageTable:
        return PageTable(self.pid, True, True, -1, ())

    def modules(self) -> List[Module]:
        return self._modules

    def threads(self) -> List[Thread]:
        return self._threads

    def image_ranges(self) -> List[Tuple[int, int, Module]]:
        return [(start, end, Module("/usr/bin/service", start, True, None, None)) for start, end in self._images]

    def writable_segments(self, module: Module) -> List[Tuple[int, int, int]]:
        return []

    def function_name(self, address: int) -> None:
        return None

    def has_section(self, module: Module, name: str) -> bool:
        return name in self._sections

    def read_prefix(self, address: int, size_bytes: int) -> bytes:
        self.reads.append(address)
        for start, data in self._memory.items():
            if start <= address < start + len(data):
                return data[address - start : address - start + size_bytes]
        return b""


class FirstPages:
    """A kernel for which the first Rss bytes of each mapping are in RAM, the next Swap bytes in swap."""

    def __init__(self, target: Recorded) -> None:
        self._target = target

    def residency(self, pages: PageTable, ranges: Sequence[Tuple[int, int]], with_exclusive: bool = True) -> Residency:
        present = swapped = 0
        for use in self._target.uses:
            start, middle = use.mapping.start, use.mapping.start + use.resident_bytes
            for low, high in ranges:
                present += overlap(low, high, start, middle)
                swapped += overlap(low, high, middle, middle + (use.swapped_bytes or 0))
        return Residency(present, present, swapped, 0, 0)


def overlap(low: int, high: int, start: int, end: int) -> int:
    return max(0, min(high, end) - max(low, start))


def recorded(name: str, filesystems: Optional[Dict[str, str]] = None, **target: Any) -> Recorded:
    """The process of a recorded text."""
    return Recorded(usage.parse_smaps((RECORDED / name).read_bytes(), filesystems), **target)


def use(start: int, end: int, rights: str = "rw-p", name: str = "", resident: int = 0, **more: Any) -> MappingUse:
    """One mapping."""
    mapping = Mapping(start, end, rights[0] == "r", rights[1] == "w", rights[2] == "x", rights[3] == "s", name, None)
    known = {"pss_bytes": resident, "shared_bytes": 0, "anonymous_bytes": resident, "swapped_bytes": 0, "hugetlb_bytes": 0, "huge_bytes": 0}
    known.update(more)
    return MappingUse(mapping, resident, **known)


def divide(target: Recorded, claims: Optional[Dict[str, List[Tuple[int, int]]]] = None) -> Split:
    """The split of it."""
    made = {name: [Claim(start, end, "") for start, end in ranges] for name, ranges in (claims or {}).items()}
    parts = split_memory(target, FirstPages(target), made)  # type: ignore[arg-type]
    assert parts is not None
    return parts


def part(found: Split, kind: str, word: str = "") -> MemoryPart:
    """The one part of that kind with that word in its name."""
    (only,) = [one for one in found.parts if one.kind == kind and word in one.name]
    return only
