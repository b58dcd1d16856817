"""musl's malloc as the registry has it."""

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, List, Sequence

from gdbheapx.addons.allocators.gates import GATES
from gdbheapx.allocators.heap import Allocator, AllocatorInstance
from gdbheapx.allocators.records import AllocatorJudgement, HeapContext, Instances, NeverReturns, Page, Surroundings
from gdbheapx.hints import hint_command
from gdbheapx.inferior.base import Target

if TYPE_CHECKING:
    from gdbheapx.addons.allocators.musl.detect import Musl
    from gdbheapx.addons.allocators.musl.records import MuslFacts

GATE = GATES[__name__]
NEVER_RETURNS = NeverReturns(
    "musl's malloc returns nothing when it is asked: it unmaps a group of slots as soon as the last block in it is freed",
    "`%s` shows which blocks keep free slots; free these, or allocate what lives long before what lives short" % hint_command("pins"),
)


class MuslEntry(Allocator["Musl", "MuslFacts"]):
    """musl's mallocng."""

    name, fingerprint = GATE.name, GATE.fingerprint
    statuses = ("used", "free", "metadata")
    never_returns = NEVER_RETURNS
    has_caches, part_words = False, "groups and metas"
    known_capabilities = GATE.capabilities
    records = MappingProxyType(
        {"arenas": "gdbheapx.addons.allocators.musl.records.MuslArena", "bins": "gdbheapx.addons.allocators.musl.records.MuslBin"}
    )

    def find(self, target: Target) -> Instances:
        """Every copy, by its secret."""
        if not GATE.may_be_in(target):
            return Instances(())
        from gdbheapx.addons.allocators.musl.detect import find_musls

        return find_musls(target)

    def open(self, located: "Musl", around: HeapContext) -> AllocatorInstance:
        """Open one of them."""
        from gdbheapx.addons.allocators.musl.heap import MuslMalloc

        return MuslMalloc(located, around)

    def part_name(self, allocator_id: str, is_alone: bool) -> str:
        """Call it malloc where it is the only heap."""
        return super().part_name("malloc" if is_alone else allocator_id, is_alone)

    def judge(self, facts: "Sequence[MuslFacts]", around: Surroundings) -> List[AllocatorJudgement]:
        """Judge each heap."""
        from gdbheapx.addons.allocators.musl.text import judge_musl

        return [judge_musl(one, around) for one in facts]

    def page(self, name: str, answer: Any) -> Page:
        """Return a table of size classes; there are no settings."""
        from gdbheapx.allocators.heap import plain_page

        return plain_page(answer, {}) if name == "bins" and answer else ["musl's malloc has no %s" % name]


ALLOCATOR = MuslEntry()
