"""Finds garbage in cycles, of runtimes that count references."""

from typing import Dict, List, NamedTuple, Optional, Sequence

from gdbheapx.analysis.naming.paths import Paths
from gdbheapx.analysis.reachability.garbage import Garbage, GarbageClass, reason
from gdbheapx.analysis.reachability.heap_graph import Reach
from gdbheapx.errors import HeapxError
from gdbheapx.kernel.blocks.cycles import Counting, Cycles
from gdbheapx.model import Address
from gdbheapx.session import Session

MOST_CLASSES, MOST_ASKED = 5, 8
GARBAGE = "garbage"
"""What a snapshot keeps of it for its owners."""
LEAST_BYTES = 64 << 10
"""Less is what every running program has between two collections."""


class FoundGarbage(NamedTuple):
    """The answer, and which blocks of the graph it is."""

    garbage: Garbage
    nodes: Sequence[int]


def find_garbage(session: Session, reach: Reach, paths: Optional[object]) -> Optional[Garbage]:
    """The same without its blocks; of a snapshot that which was found when it was taken."""
    try:
        kept: List[Garbage] = session.kept(GARBAGE, Sequence[Garbage], list)
    except HeapxError:  # of an older release
        return None
    if not kept and session.target.has_memory:
        found = find(reach, paths)
        kept += [found.garbage] if found is not None else []
    return kept[0] if kept else None


def find(reach: Reach, paths: Optional[object]) -> Optional[FoundGarbage]:
    """The garbage of the first runtime that counts references; None where there is none, or less than LEAST_BYTES. Memory is read."""
    if not isinstance(paths, Paths) or not paths.can_read or reach.word_bytes != 8:
        return None
    if not paths.garbage:
        paths.garbage.append(_find(reach, paths))
    found: Optional[FoundGarbage] = paths.garbage[0]
    return found


def _find(reach: Reach, paths: Paths) -> Optional[FoundGarbage]:
    for runtime, speaker in paths.speakers.items():
        namer = speaker.namer
        kinds = [kind.name if kind.runtime == runtime else None for kind in paths.kinds]
        countings = [namer.counting(name) or Counting() for name in kinds]
        if not any(counting.begin for counting in countings):
            continue
        cycles = Cycles(reach.graph, paths.strong_roots(), paths.labels, countings)
        nodes = cycles.nodes()
        places = reach.graph.blocks(nodes)
        if sum(size for _, size in places) < LEAST_BYTES:
            return None
        rows: Dict[str, List[int]] = {}
        objects, frozen_objects, frozen = 0, 0, set(namer.frozen())
        for node, (address, size) in zip(nodes, places):
            counting = countings[paths.labels[node]]
            objects += counting.is_visited
            frozen_objects += counting.is_visited and address + (counting.begin - 1) * reach.word_bytes in frozen
            if counting.begin:
                row = rows.setdefault(kinds[paths.labels[node]] or "", [0, 0, address])
                row[0] += 1
                row[1] += size
        own = sorted((name for name in rows if namer.is_of_program(name)), key=lambda name: -rows[name][1])[:MOST_ASKED]
        behind = {name: cycles.behind([label for label, kind in enumerate(kinds) if kind == name]).bytes for name in own}
        order = sorted(rows, key=lambda name: (-behind.get(name, 0), -rows[name][1]))
        classes = [GarbageClass(name, rows[name][0], rows[name][1], Address(rows[name][2]), behind.get(name)) for name in order]
        collector, size = namer.collector(), sum(size for _, size in places)
        why = reason(collector, objects, frozen_objects)
        made = Garbage(runtime, len(nodes), size, objects, frozen_objects, classes[:MOST_CLASSES], collector, why)
        return FoundGarbage(made, nodes)
    return None
