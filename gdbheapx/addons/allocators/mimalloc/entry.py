"""mimalloc as the registry has it."""

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence

from gdbheapx.addons.allocators.gates import GATES, MI_NEVER_RETURNS
from gdbheapx.allocators.heap import Allocator, AllocatorInstance
from gdbheapx.allocators.records import AllocatorJudgement, ArenaRow, HeapContext, Instances, Page, Surroundings
from gdbheapx.inferior.base import Target

if TYPE_CHECKING:
    from gdbheapx.addons.allocators.mimalloc.detect import Mimalloc
    from gdbheapx.addons.allocators.mimalloc.records import MimallocFacts


GATE = GATES[__name__]
CLASSES_BYTES, SLICE_BYTES = 128 << 10, 64 << 10
"""MI_MEDIUM_OBJ_SIZE_MAX, MI_SEGMENT_SLICE_SIZE."""


class MimallocEntry(Allocator["Mimalloc", "MimallocFacts"]):
    """Any mimalloc: a process can have several, hidden in libraries."""

    name, fingerprint = GATE.name, GATE.fingerprint
    part_words = "pages and metadata"
    preload = "libmimalloc.so.2"
    has_caches, never_returns = False, MI_NEVER_RETURNS
    statuses = ("used", "free", "remote-free", "reserve", "span", "returned", "metadata")
    known_capabilities = GATE.capabilities
    records = MappingProxyType(
        {
            "arenas": "gdbheapx.addons.allocators.mimalloc.records.MimallocArena",
            "bins": "gdbheapx.addons.allocators.mimalloc.records.MimallocBin",
            "tunables": "gdbheapx.addons.allocators.mimalloc.detect.MimallocTunables",
        }
    )

    def preload_bytes(self, request_bytes: int) -> int:
        """Round up to a size class of 64-bit machines; a larger block begins on a slice of a segment and ends with the request."""
        from gdbheapx.allocators.answers import four_to_a_doubling

        return four_to_a_doubling(request_bytes) if request_bytes <= CLASSES_BYTES else -(-request_bytes // SLICE_BYTES) * SLICE_BYTES

    def find(self, target: Target) -> Instances:
        """Every one of them, by its texts and its structures."""
        modules = GATE.hidden_in(target)
        if not modules:
            return Instances(())
        from gdbheapx.addons.allocators.mimalloc.detect import find_mimallocs

        return find_mimallocs(target, modules)

    def open(self, located: "Mimalloc", around: HeapContext) -> AllocatorInstance:
        """Open one of them."""
        from gdbheapx.addons.allocators.mimalloc.heap import MimallocHeap

        return MimallocHeap(located, around)

    def arenas_page(self, rows: Sequence[ArenaRow], totals: Mapping[str, Optional[int]]) -> Page:
        """Return the page `arenas`."""
        from gdbheapx.addons.allocators.mimalloc.text import make_mimalloc_arenas_page

        return make_mimalloc_arenas_page(rows, totals)

    def page(self, name: str, answer: Any) -> Page:
        """Options as they are in force."""
        from gdbheapx.addons.allocators.mimalloc.detect import make_options_page

        return make_options_page(answer) if name == "tunables" else super().page(name, answer)

    def judge(self, facts: "Sequence[MimallocFacts]", around: Surroundings) -> "Sequence[AllocatorJudgement]":
        """Judge each heap."""
        from gdbheapx.addons.allocators.mimalloc.text import judge_mimallocs

        return judge_mimallocs(facts, around)


ALLOCATOR = MimallocEntry()
