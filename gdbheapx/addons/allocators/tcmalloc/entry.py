"""tcmalloc's entry in the registry, and the size classes of a usual build with pages of 8 KiB (SizeMap::Init in common.cc)."""

from bisect import bisect_left
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Sequence, Tuple, cast

from gdbheapx.addons.allocators.gates import GATES, OF_GOOGLE, TC_FILES, TC_FUNCTION, TC_RELEASE
from gdbheapx.allocators.fingerprints import match_fingerprints
from gdbheapx.allocators.heap import Allocator, AllocatorInstance
from gdbheapx.allocators.records import AllocatorJudgement, AllocatorPart, ArenaRow, HeapContext, Instances, Page, Surroundings
from gdbheapx.inferior.base import Module, Target

if TYPE_CHECKING:
    from gdbheapx.addons.allocators.tcmalloc.records import TcArena, TcFacts
    from gdbheapx.addons.allocators.tcmalloc.structure import Tcmalloc

USUAL_PAGE_BYTES = 8 << 10
MOST_CLASS_BYTES = 256 << 10
"""Larger blocks are whole pages."""
MOVED_BYTES, MOVED_MOST = 64 << 10, 32
"""So much at once, and so many objects, go between a thread and the central list."""


@cache
def list_size_classes() -> Tuple[int, ...]:
    """Return the sizes in ascending order. Neighbouring sizes with equal numbers of pages and of objects in a span are one class."""
    made, before, size = [8], (1, USUAL_PAGE_BYTES // 8), 16
    while size <= MOST_CLASS_BYTES:
        # of a span: less than an eighth is left over, and a quarter of a transfer fits in
        pages, moved = 1, max(2, min(MOVED_MOST, MOVED_BYTES // size)) // 4
        while pages * USUAL_PAGE_BYTES % size > pages * USUAL_PAGE_BYTES >> 3 or pages * USUAL_PAGE_BYTES // size < moved:
            pages += 1
        shape = pages, pages * USUAL_PAGE_BYTES // size
        if shape == before:
            made.pop()
        made.append(size)
        before, size = shape, size + (16 if size < 128 else min(USUAL_PAGE_BYTES, 1 << (size.bit_length() - 4)))
    return tuple(made)


GATE = GATES[__name__]


class TcmallocEntry(Allocator["Tcmalloc", "TcFacts"]):
    """gperftools' tcmalloc."""

    name, fingerprint = GATE.name, GATE.fingerprint
    part_words = "spans and metadata"
    preload = "libtcmalloc_minimal.so.4"
    statuses = ("used", "free", "transfer", "tcache", "free-span", "returned", "tail", "metadata")
    known_capabilities = GATE.capabilities
    returning = TC_RELEASE
    records = MappingProxyType(
        {
            "arenas": "gdbheapx.addons.allocators.tcmalloc.records.TcArena",
            "bins": "gdbheapx.addons.allocators.tcmalloc.records.TcBin",
            "tunables": "gdbheapx.addons.allocators.tcmalloc.heap.TcTunables",
        }
    )

    def preload_bytes(self, request_bytes: int) -> int:
        """Round up to a size class of a distribution's library."""
        if request_bytes > MOST_CLASS_BYTES:
            return -(-request_bytes // USUAL_PAGE_BYTES) * USUAL_PAGE_BYTES
        return list_size_classes()[bisect_left(list_size_classes(), request_bytes)]

    def find(self, target: Target) -> Instances:
        """Every copy, by its structure."""
        objects = find_suspect_objects(target)
        if not objects:
            return Instances(())
        from gdbheapx.addons.allocators.tcmalloc.structure import find_tcmallocs

        return find_tcmallocs(target, objects)

    def open(self, located: "Tcmalloc", around: HeapContext) -> AllocatorInstance:
        """Open one of them."""
        from gdbheapx.addons.allocators.tcmalloc.heap import TcmallocHeap

        return TcmallocHeap(located, around)

    def arenas_page(self, rows: Sequence[ArenaRow], totals: Mapping[str, Optional[int]]) -> Page:
        """Return the page `arenas`."""
        from gdbheapx.addons.allocators.tcmalloc.text import make_tcmalloc_arenas_page

        return make_tcmalloc_arenas_page(cast("Sequence[TcArena]", rows), totals)

    def page(self, name: str, answer: Any) -> Page:
        """Return a table of size classes, or of settings."""
        from gdbheapx.addons.allocators.tcmalloc.heap import make_tunables_page
        from gdbheapx.addons.allocators.tcmalloc.text import make_bins_page

        return make_bins_page(answer) if name == "bins" else make_tunables_page(answer)

    def parts_page(self, allocator_id: str, parts: Sequence[AllocatorPart], totals: Mapping[str, Optional[int]]) -> Page:
        """Return the sums of its parts."""
        from gdbheapx.addons.allocators.tcmalloc.text import make_parts_page

        return make_parts_page(allocator_id, parts, totals)

    def judge(self, facts: "Sequence[TcFacts]", around: Surroundings) -> List[AllocatorJudgement]:
        """Judge each heap."""
        from gdbheapx.addons.allocators.tcmalloc.text import judge_tcmallocs

        return judge_tcmallocs(facts, around)


def find_suspect_objects(target: Target) -> List[Module]:
    """Objects that may hold one. A program that has malloc itself is asked for its texts, no other is."""
    modules, owner = target.modules(), target.dynamic_symbol("malloc")
    known = [module for module in modules if TC_FILES.match(module.file_name)]
    for exported in map(target.dynamic_symbol, (TC_FUNCTION, OF_GOOGLE)):
        if exported is not None and exported.module not in known:
            known.append(exported.module)
    alone = modules[0] if len(modules) == 1 else None
    program = owner.module if owner is not None else alone
    if program is not None and program.is_executable and program not in known and match_fingerprints(target, program, GATE.texts):
        known.append(program)
    return known


ALLOCATOR = TcmallocEntry()
"""What the registry asks for."""
