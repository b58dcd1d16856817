"""jemalloc as the registry has it."""

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Sequence, cast

from gdbheapx.allocators.fingerprints import Fingerprint
from gdbheapx.allocators.heap import Allocator, AllocatorInstance
from gdbheapx.allocators.records import AllocatorJudgement, AllocatorPart, Answered, ArenaRow, HeapContext, Instances, Page, Surroundings
from gdbheapx.inferior.base import Target
from gdbheapx.jemalloc.help import PURGE

if TYPE_CHECKING:
    from gdbheapx.jemalloc.records import JemallocArena, JemallocFacts
    from gdbheapx.jemalloc.symbols import Jemalloc


class JemallocEntry(Allocator["Jemalloc", "JemallocFacts"]):
    """Any jemalloc, whatever its prefix: a process can have several."""

    name = "jemalloc"
    preload = "libjemalloc.so.2"
    fingerprint = Fingerprint(functions=("mallctl", "je_mallctl", "_rjem_mallctl"))
    statuses = ("used", "cached", "free", "dirty", "muzzy", "pinned", "retained", "metadata")
    known_capabilities = frozenset(("cure", "tickers", "decay", "profile", "native-stats", "held-bytes", "meter", "exact-reading"))
    returning = PURGE
    records = MappingProxyType(
        {
            "arenas": "gdbheapx.jemalloc.records.JemallocArena",
            "bins": "gdbheapx.jemalloc.records.JemallocBin",
            "tunables": "gdbheapx.jemalloc.options.JemallocTunables",
            "decay": "gdbheapx.jemalloc.text.DecayAnswer",
            "tickers": "gdbheapx.jemalloc.text.TickersAnswer",
        }
    )

    def preload_bytes(self, request_bytes: int) -> int:
        """Round a request to the size classes of 64-bit machines."""
        from gdbheapx.allocators.answers import four_to_a_doubling

        return four_to_a_doubling(request_bytes)

    def find(self, target: Target) -> Instances:
        """Every one of them, calibrated before it is believed."""
        from gdbheapx.jemalloc.traces import find_suspects

        suspects = find_suspects(target)
        if not suspects:
            return Instances(())
        from gdbheapx.jemalloc.find import find_jemallocs

        return find_jemallocs(target, suspects)

    def prepare(self, target: Target, located: "Jemalloc") -> None:
        """Its symbols."""
        located.symbols.prepare()

    def open(self, located: "Jemalloc", around: HeapContext) -> AllocatorInstance:
        """Open one instance."""
        from gdbheapx.jemalloc.allocator import JemallocMalloc

        return JemallocMalloc(located, around)

    def together(self, capability: str, told: Sequence[Any], unread: Sequence[Any], unsure: bool) -> Answered:
        """Join the ticker reports of all jemallocs of a process."""
        from gdbheapx.jemalloc.text import TickersAnswer, UnreadJemallocRow

        rows = [UnreadJemallocRow(copy.module.name, copy.version_text, copy.page_bytes, copy.has_ticker_bug, copy.why) for copy in unread]
        return TickersAnswer(told, rows, unsure=unsure)

    def part_name(self, allocator_id: str, is_alone: bool) -> str:
        """Name it by its id."""
        return "%s (extents and metadata)" % allocator_id

    def arenas_page(self, rows: Sequence[ArenaRow], totals: Mapping[str, Optional[int]]) -> Page:
        """Show a line for each arena."""
        from gdbheapx.jemalloc.text import show_arenas

        return show_arenas(cast("Sequence[JemallocArena]", rows), totals)

    def page(self, name: str, answer: Any) -> Page:
        """Show a line for each size class, or each option."""
        from gdbheapx.jemalloc.text import show_bins, show_tunables

        return show_bins(answer) if name == "bins" else show_tunables(answer)

    def parts_page(self, allocator_id: str, parts: Sequence[AllocatorPart], totals: Mapping[str, Optional[int]]) -> Page:
        """Show the parts of the memory it holds."""
        from gdbheapx.jemalloc.text import show_parts

        return show_parts(allocator_id, parts, totals)

    def judge(self, facts: "Sequence[JemallocFacts]", around: Surroundings) -> List[AllocatorJudgement]:
        """Judge each instance by itself."""
        from gdbheapx.jemalloc.text import judge_jemallocs

        return judge_jemallocs(facts, around)


ALLOCATOR = JemallocEntry()
