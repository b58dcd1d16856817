"""Random words in what an allocator keeps for itself: arenas, headers, links, caches, and trees."""

import random
import signal
from array import array
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Sequence

from gdbheapx.glibc.layouts import HEAP_INFO
from tests.support.busy import stretch
from tests.support.damaged_glibc import Damaged
from tests.support.damaged_jemalloc import Patient
from tests.support.plants_glibc import Map

HOW_MANY = (1, 1, 2, 4, 16, 64)
LOOK_SECONDS = 30


@contextmanager
def in_time(what: str) -> Iterator[None]:
    """Fails where the body hangs."""

    def hangs(*_: Any) -> None:
        raise AssertionError("%s is not done after %d s" % (what, LOOK_SECONDS))

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(round(stretch(LOOK_SECONDS)))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


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


def another(numbers: random.Random, old: int, places: Sequence[int]) -> int:
    """What stands there instead: a bit flipped, noise, zeros, ones, text, a little more or less, or an address of something else."""
    choice = numbers.randrange(8)
    if choice < 3:
        return old ^ 1 << numbers.randrange(64)
    if choice == 7:
        return numbers.choice(places)
    return (numbers.getrandbits(64), 0, (1 << 64) - 1, 0x4141414141414141, old + numbers.choice((1, -1, 8, 16, 4096, -4096)))[choice - 3]


def damage(core: Damaged, kinds: Dict[str, List[int]], seed: int) -> None:
    """Another word in some places."""
    numbers, filled = random.Random(seed), [places for places in kinds.values() if places]
    for _ in range(numbers.choice(HOW_MANY)):
        places = numbers.choice(filled)
        place = numbers.choice(places)
        core.put(place, another(numbers, core.get(place), places))


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


def damage_jemalloc(patient: Patient, places: List[List[int]], seed: int) -> None:
    """Another word in some places."""
    numbers = random.Random(seed)
    for _ in range(numbers.choice((1, 1, 2, 4, 16, 100))):
        own = numbers.choice(places)
        place = numbers.choice(own)
        if patient.holds(place):
            patient.put(place, another(numbers, patient.get(place), own))
