"""Paths by a plain search: what the kernel's must equal."""

from array import array
from bisect import bisect_right
from struct import unpack
from typing import Dict, List, Optional, Sequence, Tuple

from gdbheapx.analysis.census import find
from gdbheapx.analysis.census.world import Recogniser, World, together
from gdbheapx.analysis.naming.namer import LAST_BIT, Hop, Namer, PathStep, Start, text_of
from gdbheapx.inferior.target import open_elf_target
from gdbheapx.kernel.blocks.records import CLASS_USED, Blocks
from gdbheapx.session import Session


class Searched:
    """All blocks of a target, breadth first from what has a name."""

    def __init__(self, world: World, recogniser: Recogniser) -> None:
        self.world = world
        asked = together(recogniser.asks(world))
        signer = world.signer(asked.rows, asked.sets)
        rows: List[Tuple[int, int]] = []
        for stream in [heap.blocks() for heap in world.session.heaps.all()] + [memory.blocks for memory in recogniser.inner(world)]:
            batches = [Blocks(*(column[:] for column in batch)) for batch in stream]
            signer.stream(iter(batches))
            for batch in batches:
                rows += [row[:2] for row in zip(*batch) if row[2] == CLASS_USED]
        names = {number: find.named(asked, match) for number, match in enumerate(signer.found(), 1)}
        labelled = sorted(zip(rows, signer.labels()))
        self.addresses = array("Q", (row[0] for row, _ in labelled))
        self.sizes = array("Q", (row[1] for row, _ in labelled))
        self.signatures = [names[label].name if names.get(label) is not None else None for _, label in labelled]  # type: ignore[union-attr]
        namer = recogniser.namer(world)
        assert namer is not None
        self.namer: Namer = namer
        self.starts: Dict[int, Start] = {}
        self.above: Dict[int, Tuple[int, int]] = {}
        self._search()

    def place(self, address: int) -> Optional[int]:
        """Number of the block that has this address."""
        place = bisect_right(self.addresses, address) - 1
        return place if place >= 0 and address < self.addresses[place] + self.sizes[place] else None

    def _search(self) -> None:
        queue: List[int] = []
        for start in self.namer.starts():
            place = self.place(start.address)
            if place is not None and place not in self.starts:
                self.starts[place] = start
                queue.append(place)
        for place in queue:
            mask = self.namer.owning_words(self.signatures[place])
            size = self.sizes[place] // 8
            data = self.world.read(self.addresses[place], 8 * size) if mask else b""
            for number, word in enumerate(unpack("<%dQ" % (len(data) // 8), data[: len(data) & -8])):
                if not mask >> min(number, LAST_BIT) & 1:
                    continue
                next_place = self.place(word)
                if next_place is not None and next_place not in self.starts and next_place not in self.above:
                    self.above[next_place] = place, 8 * number
                    queue.append(next_place)

    def path(self, address: int) -> Optional[Sequence[PathStep]]:
        """None: nothing leads there."""
        place = self.place(address)
        if place is None or (place not in self.starts and place not in self.above):
            return None
        hops = [Hop(self.addresses[place], self.sizes[place], self.signatures[place], None)]
        while place not in self.starts:
            place, offset = self.above[place]
            hops.insert(0, Hop(self.addresses[place], self.sizes[place], self.signatures[place], offset))
        return self.namer.steps(self.starts[place], hops)

    def text(self, address: int) -> Optional[str]:
        """As the language writes it."""
        path = self.path(address)
        return None if path is None else text_of(path)


def searched(recogniser: Recogniser, pid: Optional[int] = None, core: Optional[str] = None) -> Searched:
    """Of a process at rest, or a core."""
    session = Session(open_elf_target(pid=pid) if pid is not None else open_elf_target(core=core))
    session.prepare()
    return Searched(World(session), recogniser)
