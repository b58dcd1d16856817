"""The text of a heap profile as prof.dump writes it and jeprof reads it: heap_v2."""

import math
from typing import Any, Dict, Iterator, NamedTuple, Sequence, Tuple

from gdbheapx.jemalloc.profile.live import Counts, Profile

SHIFT = 8
"""1 << SC_LG_TINY_MIN: what counts of blocks are multiplied by before they are summed (prof.c: prof_unbias_map_init)."""
MOST = (1 << 64) - 1


class ProfileAnswer(NamedTuple):
    """The answer of `profile`."""

    found: Profile

    @property
    def sample_bytes(self) -> int:
        """One block in about so many bytes was sampled."""
        return 1 << self.found.lg_sample

    def data(self) -> Dict[str, Any]:
        """What there is to say of it."""
        return {"sample_bytes": self.sample_bytes, "backtraces": len(self.found.backtraces)}

    def stacks(self) -> Iterator[Tuple[Sequence[int], int, int]]:
        """(return addresses, innermost first; blocks; bytes) of what is live, unsampled."""
        for trace in self.found.backtraces:
            yield (trace.frames, *unsampled(*current(self.found, trace.total), self.found.lg_sample))

    def lines(self, maps: str) -> Iterator[str]:
        """The text."""
        return lines(self.found, maps)


def lines(profile: Profile, maps: str) -> Iterator[str]:
    """The lines; `maps` goes below MAPPED_LIBRARIES, by which jeprof finds symbols."""
    yield "heap_v2/%d" % (1 << profile.lg_sample)
    yield "  t*: %s" % _shown(profile, profile.total)
    for thread in profile.threads:
        yield "  t%d: %s%s" % (thread.uid, _shown(profile, thread.total), " " + thread.name if thread.name is not None else "")
    for trace in profile.backtraces:
        yield "@" + "".join(" 0x%x" % frame for frame in trace.frames)
        yield "  t*: %s" % _shown(profile, trace.total)
        for share in trace.shares:
            yield "  t%d: %s" % (share.thread_uid, _shown(profile, share.counts))
    if maps:
        yield ""
        yield "MAPPED_LIBRARIES:"
        yield from maps.rstrip("\n").split("\n")  # names may hold what splitlines() takes for the end of a line


def _shown(profile: Profile, counts: Counts) -> str:
    """`curobjs: curbytes [accumobjs: accumbytes]`."""
    ever = counts.accumobjs, counts.accumbytes
    if profile.unbias:
        ever = rebias(counts.accumobjs_shifted, counts.accumbytes_unbiased, profile.lg_sample)
    return "%d: %d [%d: %d]" % (*current(profile, counts), *ever)


def current(profile: Profile, counts: Counts) -> Tuple[int, int]:
    """(blocks, bytes) of what is live, before jeprof corrects them."""
    if profile.unbias:
        return rebias(counts.curobjs_shifted, counts.curbytes_unbiased, profile.lg_sample)
    return counts.curobjs, counts.curbytes


def unsampled(objects: int, bytes_: int, lg_sample: int) -> Tuple[int, int]:
    """What jeprof makes of a stack's counts (AdjustSamples): by the chance that a block of their mean size is sampled."""
    if not objects or not bytes_:
        return objects, bytes_
    scale = 1.0 / (1.0 - math.exp(-(bytes_ / objects) / (1 << lg_sample)))
    return _rounded(objects * scale), _rounded(bytes_ * scale)


def rebias(objects_shifted: int, bytes_: int, lg_sample: int) -> Tuple[int, int]:
    """(objects, bytes) from which jeprof, which corrects by the mean size of a stack's blocks, comes back to these unbiased sums
    (prof_do_unbias)."""
    if not objects_shifted or not bytes_:
        return 0, 0
    mean = bytes_ / (objects_shifted / SHIFT)
    biased = bytes_ * (1.0 - math.exp(-mean / (1 << lg_sample)))
    return _rounded(biased / mean), _rounded(biased)


def _rounded(number: float) -> int:
    """As C's round: halves away from 0."""
    whole = math.floor(number)
    return min(MOST, whole + (number - whole >= 0.5))
