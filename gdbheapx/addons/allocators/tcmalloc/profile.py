"""The live heap profile of a tcmalloc that samples: each sampled block has a span of its own, which leads to the stack of its call.

Sources: StackTrace (src/common.h), DoSampledAllocation (src/tcmalloc.cc), GetHeapSample (src/malloc_extension.cc).
"""

import math
import struct
from typing import Any, Dict, Iterator, NamedTuple, Sequence, Tuple

from gdbheapx.addons.allocators.tcmalloc import codes, tunables
from gdbheapx.addons.allocators.tcmalloc.counts import Counts
from gdbheapx.errors import HeapxError
from gdbheapx.inferior.base import Module, Target
from gdbheapx.problems import NOT_PROFILED, Report

MOST_FRAMES = 31
"""kMaxStackDepth."""
PERIOD = "TCMALLOC_SAMPLE_PARAMETER"
HINT = "start the program with %s=524288 and the full libtcmalloc.so.4 (libtcmalloc_minimal never samples)" % PERIOD


class Site(NamedTuple):
    """What is live of one call."""

    blocks: int
    bytes: int
    """As they were asked for."""


class TcProfile(NamedTuple):
    """The answer of `profile`."""

    sites: Dict[Tuple[int, ...], Site]
    """By return addresses, innermost first."""
    sample_bytes: int
    """One block in about so many bytes was sampled; 1: that is not known, and what was sampled is told as it is."""
    shortfall: None = None
    """Sampling is not switched on and off: what is missing is chance."""

    def data(self) -> Dict[str, Any]:
        """What there is to say of it."""
        return {"sample_bytes": self.sample_bytes, "backtraces": len(self.sites)}

    def stacks(self) -> Iterator[Tuple[Sequence[int], int, int]]:
        """(return addresses, innermost first; blocks; bytes) of what is live, unsampled."""
        for frames, site in self.sites.items():
            share = -math.expm1(-site.bytes / site.blocks / self.sample_bytes) or 1.0
            yield frames, round(site.blocks / share), round(site.bytes / share)

    def lines(self, maps: str) -> Iterator[str]:
        """The text, as MallocExtension::GetHeapSample writes it."""
        total = Site(sum(site.blocks for site in self.sites.values()), sum(site.bytes for site in self.sites.values()))
        yield "heap profile: %6d: %8d [%6d: %8d] @ heap_v2/%d" % (*total, *total, self.sample_bytes)
        for frames, site in self.sites.items():
            yield "%6d: %8d [%6d: %8d] @" % (*site, *site) + "".join(" 0x%x" % frame for frame in frames)
        if maps:
            yield ""
            yield "MAPPED_LIBRARIES:"
            yield from maps.rstrip("\n").split("\n")  # names may hold what splitlines() takes for the end of a line


def read(target: Target, module: Module, counts: Counts, report: Report) -> TcProfile:
    """Of all sampled spans; HeapxError where there is none."""
    rows = zip(*(counts.spans.column(name) for name in ("is_sampled", "size_class", "location", "list", "start", "bytes")))
    sites: Dict[Tuple[int, ...], Site] = {}
    for is_sampled, size_class, location, address, start, span_bytes in rows:
        if not is_sampled or size_class or location:
            continue
        data = target.read_prefix(address, 16 + 8 * MOST_FRAMES)
        size, depth = struct.unpack_from("<2Q", data) if len(data) >= 16 else (0, MOST_FRAMES + 1)
        if depth > MOST_FRAMES or len(data) < 16 + 8 * depth or size > span_bytes:
            what = "cannot read the stack of the sampled block at 0x%x" % start
            report(codes.SAMPLE_UNREADABLE, address, what, "it is missing in the profile")
            continue
        frames = struct.unpack_from("<%dQ" % depth, data, 16)
        before = sites.get(frames, Site(0, 0))
        sites[frames] = Site(before.blocks + 1, before.bytes + size)
    if not sites:
        raise HeapxError("tcmalloc has sampled no block that is live", HINT, code=NOT_PROFILED)
    return TcProfile(sites, _period(target, module))


def _period(target: Target, module: Module) -> int:
    """By its variable, else by the environment; 1: not known."""
    known = tunables.flag(target, module, "tcmalloc_sample_parameter", tunables.INT64)
    found = [int(known)] if known is not None else []
    text = target.environment_variable(PERIOD)
    found += [int(text)] if text is not None and text.isascii() and text.isdigit() else []
    return next((period for period in found if 0 < period < 1 << 62), 1)
