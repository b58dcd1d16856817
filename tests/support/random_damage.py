"""Random words in what an allocator keeps for itself: arenas, headers, links, caches, and trees."""

from array import array
from typing import Dict, List

from gdbheapx.glibc.layouts import HEAP_INFO
from tests.support.damaged_jemalloc import Patient
from tests.support.plants_glibc import Map


def places_of(there: Map) -> Dict[str, List[int]]:
    """Addresses of words by what they are."""
    core = there.core
    kinds: Dict[str, List[int]] = {"header": [], "link": [], "heap": [], "cache": [], "arena": [], "mp": []}
    for chunk in there.chunks:
        kinds["header"] += [chunk.address, chunk.address + 8]
        if chunk.status != "used":
            kinds["link"] += [chunk.address + 16, chunk.address + 24]
    for cache in there.caches.values():
        kinds["cache"] += range(cache, cache + core.glibc.types.size_bytes("tcache_perthread_struct"), 8)
    for arena in there.arenas:
        kinds["arena"] += range(arena, arena + core.glibc.types.size_bytes("malloc_state"), 8)
        if arena != there.arenas[0]:
            begin = arena & -(1 << 26)
            kinds["heap"] += range(begin, begin + core.glibc.types.size_bytes(HEAP_INFO.name), 8)
    kinds["mp"] += range(core.glibc.mp.address, core.glibc.mp.address + core.glibc.types.size_bytes("malloc_par"), 8)
    return {kind: [one for one in places if core.holds(one)] for kind, places in kinds.items()}


def words_in_use(patient: Patient) -> List[List[int]]:
    """Addresses of words of jemalloc's own that are not zero; each list is as likely to be hit as another."""
    kinds: Dict[str, List[int]] = {}
    for kind, begin, end in patient.metadata():
        for at in range(begin, end, 1 << 20):
            data = patient.target.read_prefix(at, min(1 << 20, end - at))
            words = array("Q", data[: len(data) // 8 * 8])
            kinds.setdefault(kind, []).extend(at + 8 * number for number, word in enumerate(words) if word)
    assert len(kinds) >= 6 and all(kinds.values())
    return [sorted(set(places)) for places in kinds.values()]
