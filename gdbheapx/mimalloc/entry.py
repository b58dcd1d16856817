"""mimalloc as the registry has it."""

from types import MappingProxyType
from typing import TYPE_CHECKING, List, Mapping, Optional, Sequence

from gdbheapx.allocators import fingerprints
from gdbheapx.allocators.fingerprints import Fingerprint, TextFingerprint
from gdbheapx.allocators.heap import Allocator, Heap
from gdbheapx.allocators.records import ArenaRow, HeapContext, Instances, Judged, Page, Surroundings
from gdbheapx.inferior.base import Module, Target

if TYPE_CHECKING:
    from gdbheapx.mimalloc.detect import Mimalloc
    from gdbheapx.mimalloc.records import MimallocFacts


STATS_HINT = "mi_stats_print in the program shows what it holds, and so does MIMALLOC_SHOW_STATS=1 when the program exits"
TEXTS = TextFingerprint("mimalloc", (b"mimalloc: error: ", b"mimalloc: warning: "), True, STATS_HINT)
"""options.c; in every build seen, stripped Rust programs and wheels included."""
LEAST_DATA_BYTES = 8 << 10
"""Of writable memory that an object with a mimalloc has: its main heap alone takes 3 KiB and more."""


def suspects(target: Target) -> List[Module]:
    """Objects whose constants have mimalloc's texts. 64-bit little-endian targets."""
    if target.word_bytes != 8 or not target.little_endian:
        return []
    found = []
    for module in target.modules():
        data_bytes = sum(end - start for start, _, end in target.writable_segments(module))
        if data_bytes >= LEAST_DATA_BYTES and fingerprints.find(target, module, (TEXTS,)):
            found.append(module)
    return found


class Entry(Allocator["Mimalloc", "MimallocFacts"]):
    """Any mimalloc: a process can have several, hidden in libraries."""

    name = "mimalloc"
    fingerprint = Fingerprint(functions=("mi_malloc",))
    has_caches = False
    statuses = ("used", "free", "remote-free", "reserve", "span", "returned", "metadata")
    known_capabilities = frozenset(("meter", "exact-reading"))
    records = MappingProxyType(
        {
            "arenas": "gdbheapx.mimalloc.records.MimallocArena",
            "bins": "gdbheapx.mimalloc.records.MimallocBin",
        }
    )

    def find(self, target: Target, pack_directories: Sequence[str]) -> Instances:
        """Every one of them, by its texts and its structures."""
        modules = suspects(target)
        if not modules:
            return Instances(())
        from gdbheapx.mimalloc import detect

        return detect.find(target, modules)

    def confirm(self, target: Target, located: "Mimalloc") -> "Optional[Mimalloc]":
        """The same copy, proved again."""
        from gdbheapx.mimalloc import detect

        return detect.confirm(target, located)

    def open(self, located: "Mimalloc", around: HeapContext) -> Heap:
        """One of them."""
        from gdbheapx.mimalloc.allocator import MimallocHeap

        return MimallocHeap(located, around)

    def part_name(self, allocator_id: str, is_alone: bool) -> str:
        """By its id, alone or not."""
        return "%s (pages and metadata)" % allocator_id

    def arenas_page(self, rows: Sequence[ArenaRow], totals: Mapping[str, Optional[int]]) -> Page:
        """One line per owner."""
        from gdbheapx.mimalloc.messages import arenas

        return arenas.page(rows, totals)

    def judge(self, facts: "Sequence[MimallocFacts]", around: Surroundings) -> "Sequence[Judged]":
        """Each by itself, with what other threads have freed."""
        from gdbheapx.mimalloc.messages import judgement

        return judgement.judge(facts, around)


ALLOCATOR = Entry()
