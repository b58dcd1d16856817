"""tcmalloc as the registry has it."""

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Sequence, cast

from gdbheapx.addons.allocators.gates import GATES, OF_GOOGLE, TC_FILES, TC_FUNCTION
from gdbheapx.allocators import fingerprints
from gdbheapx.allocators.heap import Allocator, Heap
from gdbheapx.allocators.records import ArenaRow, HeapContext, Instances, Judged, Page, Part, Returning, Surroundings
from gdbheapx.inferior.base import Module, Target

if TYPE_CHECKING:
    from gdbheapx.addons.allocators.tcmalloc.detect import Tcmalloc
    from gdbheapx.addons.allocators.tcmalloc.records import TcArena, TcFacts

GATE = GATES[__name__]

RELEASE = Returning("purge", "purged", "a purge")


class Entry(Allocator["Tcmalloc", "TcFacts"]):
    """gperftools' tcmalloc."""

    name, fingerprint = GATE.name, GATE.fingerprint
    preload = "libtcmalloc_minimal.so.4"
    statuses = ("used", "free", "transfer", "tcache", "free-span", "returned", "tail", "metadata")
    known_capabilities = GATE.capabilities
    returning = RELEASE
    records = MappingProxyType(
        {
            "arenas": "gdbheapx.addons.allocators.tcmalloc.records.TcArena",
            "bins": "gdbheapx.addons.allocators.tcmalloc.records.TcBin",
            "tunables": "gdbheapx.addons.allocators.tcmalloc.tunables.TcTunables",
        }
    )

    def preload_bytes(self, request_bytes: int) -> int:
        """As a library of a distribution has its size classes."""
        from gdbheapx.addons.allocators.tcmalloc.classes import block_bytes

        return block_bytes(request_bytes)

    def find(self, target: Target) -> Instances:
        """Every copy, by its structure."""
        objects = suspects(target)
        if not objects:
            return Instances(())
        from gdbheapx.addons.allocators.tcmalloc import detect

        return detect.find(target, objects)

    def confirm(self, target: Target, located: "Tcmalloc") -> "Optional[Tcmalloc]":
        """Proved again."""
        from gdbheapx.addons.allocators.tcmalloc import detect

        return detect.confirm(target, located)

    def open(self, located: "Tcmalloc", around: HeapContext) -> Heap:
        """One copy."""
        from gdbheapx.addons.allocators.tcmalloc.allocator import TcmallocHeap

        return TcmallocHeap(located, around)

    def part_name(self, allocator_id: str, is_alone: bool) -> str:
        """By its id, alone or not."""
        return "%s (spans and metadata)" % allocator_id

    def arenas_page(self, rows: Sequence[ArenaRow], totals: Mapping[str, Optional[int]]) -> Page:
        """One line."""
        from gdbheapx.addons.allocators.tcmalloc.messages import arenas

        return arenas(cast("Sequence[TcArena]", rows), totals)

    def page(self, name: str, answer: Any) -> Page:
        """One line per size class, or per setting."""
        from gdbheapx.addons.allocators.tcmalloc import messages, tunables

        return messages.bins(answer) if name == "bins" else tunables.page(answer)

    def parts_page(self, allocator_id: str, parts: Sequence[Part], totals: Mapping[str, Optional[int]]) -> Page:
        """What it holds."""
        from gdbheapx.addons.allocators.tcmalloc.messages import parts_page

        return parts_page(allocator_id, parts, totals)

    def judge(self, facts: "Sequence[TcFacts]", around: Surroundings) -> List[Judged]:
        """Each by itself."""
        from gdbheapx.addons.allocators.tcmalloc.messages import judge

        return judge(facts, around)


def suspects(target: Target) -> List[Module]:
    """Objects that may hold one. A program that has malloc itself is asked for its texts, no other is."""
    modules, owner = target.modules(), target.dynamic_symbol("malloc")
    known = [module for module in modules if TC_FILES.match(module.file_name)]
    for exported in map(target.dynamic_symbol, (TC_FUNCTION, OF_GOOGLE)):
        if exported is not None and exported.module not in known:
            known.append(exported.module)
    alone = modules[0] if len(modules) == 1 else None
    program = owner.module if owner is not None else alone
    if program is not None and program.is_executable and program not in known and fingerprints.find(target, program, GATE.texts):
        known.append(program)
    return known


ALLOCATOR = Entry()
"""What the registry asks for."""
