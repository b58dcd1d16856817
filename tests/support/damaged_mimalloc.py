"""A kernel core of a program on mimalloc that is damaged and healed in place: and where its own words are."""

from pathlib import Path

from gdbheapx import kernel as kernels
from gdbheapx.addons.allocators.mimalloc import heap
from gdbheapx.addons.allocators.mimalloc.entry import ALLOCATOR
from gdbheapx.common.budget import Budget
from tests.support.damaged import DamagedCore
from tests.support.heap_contexts import heap_context


class DamagedMimalloc(DamagedCore):
    """One core."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        (self.mimalloc,) = ALLOCATOR.find(self.target).located
        around = heap_context(self.target, kernels.load_native_library(), Budget(None), lambda *told: None)
        self.found = heap.survey_mimalloc(self.mimalloc, around)
        assert not self.found.broken, self.found.broken
        form, kinds = self.mimalloc.form, {"page": [], "link": [], "head": []}  # type: ignore[var-annotated]
        for counted in self.found.pages:
            kinds["page"] += range(counted.page.address, counted.page.address + form.page.bytes, 8)
        kinds["link"] = list(self.found.frees.addresses)
        for segment in self.found.segments:
            kinds["head"] += range(segment.address, segment.address + (form.segment.pages if form.segment is not None else 160), 8)
        if form.line == 3:
            parts = [self.mimalloc.key + 8 * number for number in range(1 << 18) if self.get(self.mimalloc.key + 8 * number)]
            kinds["map"] = parts[:8]
            kinds["part"] = [
                address
                for part in parts[1:]
                for address in range(self.get(part), self.get(part) + (1 << 16), 8)
                if self.holds(address) and self.get(address)
            ]
        self.kinds = [held for held in ([one for one in places if self.holds(one)] for places in kinds.values()) if held]
