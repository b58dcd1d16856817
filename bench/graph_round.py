"""One round on one core: `python -m bench.graph_round CORE LIBRARY` prints the processor time of each phase in seconds, and sizes, as JSON.

A process of its own for each round: no phase finds memory that an earlier round has left.
"""

import ctypes
import json
import mmap
import sys
import time
from array import array
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census import find
from gdbheapx.analysis.reachability import heap_graph
from gdbheapx.inferior.target import open_elf_target
from gdbheapx.kernel.blocks.stream import CLASS_USED


def used_blocks(session: Session) -> Tuple["array[int]", "array[int]"]:
    """Places in the core's file, and sizes, of all used blocks."""
    source: Any = session.target.bulk_source()
    segments, place = source.segments, 0
    offsets, sizes = array("Q"), array("Q")
    for heap in session.heaps.all():
        for blocks in heap.blocks():
            for address, size, class_ in zip(blocks.addresses, blocks.usable_bytes, blocks.classes):
                if class_ == CLASS_USED:
                    while not segments[place].address <= address < segments[place].address + segments[place].size_bytes:
                        place = (place + 1) % len(segments)
                    offsets.append(address - segments[place].address + segments[place].file_offset)
                    sizes.append(size)
    return offsets, sizes


def read_graph(session: Session, slots: bool) -> heap_graph.Reach:
    """The graph of all blocks; `slots`: with the place of each pointer in its block."""
    return heap_graph.resolve_graph(session, heap_graph.read_world(session, slots))


def opened(core: str) -> Session:
    """A look that has found everything but the blocks."""
    session = Session(open_elf_target(core=core))
    session.prepare()
    return session


def peak_bytes(forget: bool = False) -> int:
    """The most memory that this process has had in RAM since that was forgotten (proc(5): clear_refs)."""
    if forget:
        Path("/proc/self/clear_refs").write_text("5")
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


class Clock:
    """Processor time of this process, by phase."""

    def __init__(self) -> None:
        self.took: Dict[str, float] = {}

    def time(self, name: str, work: Callable[[], Any]) -> Any:
        """What the work gives; its time is added."""
        before = time.process_time()
        done = work()
        self.took[name] = self.took.get(name, 0.0) + time.process_time() - before
        return done


def bare(clock: Clock, core: str, library: str) -> None:
    """All words of all used blocks, twice: what comes first pays for the mapping's page table."""
    words = ctypes.CDLL(library).words
    words.restype = ctypes.c_uint64
    words.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
    offsets, sizes = used_blocks(opened(core))
    with open(core, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    base = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    arguments = (base, offsets.buffer_info()[0], sizes.buffer_info()[0], len(offsets))
    words(*arguments)
    clock.time("bare", lambda: words(*arguments))
    libc = ctypes.CDLL(None)
    libc.madvise(ctypes.c_void_p(base), ctypes.c_size_t(len(mapped)), 4)  # MADV_DONTNEED: no part of what is measured then


def main(core: str, library: str) -> None:
    """Measure, print."""
    clock = Clock()
    bare(clock, core, library)
    session = opened(core)
    clock.time("survey", lambda: [heap.claims() for heap in session.heaps.all()])
    before = peak_bytes(forget=True)
    reach = clock.time("graph", lambda: read_graph(session, slots=False))
    clock.time("mark", lambda: reach.graph.mark(reach.roots_from))
    clock.time("leak roots", reach.graph.find_leak_roots)
    found = {**clock.took, "blocks": reach.numbers.blocks, "edges": reach.numbers.edges}
    found["bytes a block"] = (peak_bytes() - before) / max(1, reach.numbers.blocks)
    del reach
    session = opened(core)
    reach = read_graph(session, slots=True)
    clock.time("dominators", lambda: reach.graph.dominators(reach.roots_from, reach.weak))
    found["dominators"] = clock.took["dominators"]
    reach = None  # its memory is none of the census's
    session = opened(core)
    before = peak_bytes(forget=True)
    clock.time("census", lambda: find.find_census(session, contents=False))
    found["census"] = clock.took["census"]
    found["bytes a block of census"] = (peak_bytes() - before) / max(1, found["blocks"])
    session = opened(core)
    used = clock.time("census with contents", lambda: find.find_census(session)).bytes
    found["content a GB"] = (clock.took["census with contents"] - found["census"]) / used * 1e9
    print(json.dumps(found))


if __name__ == "__main__":
    arguments: List[str] = [str(Path(one).resolve()) for one in sys.argv[1:]]
    main(*arguments)
