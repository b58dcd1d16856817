"""The bins of one tcache_t: where each has its stack of pointers, and how many stand on it (tcache_structs.h, cache_bin.h)."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from gdbheapx.errors import Unreadable
from gdbheapx.inferior.types import Member
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.detection.calibrate import words
from gdbheapx.jemalloc.detection.layouts import has_short_ncached_max
from gdbheapx.jemalloc.heap.columns import strided
from gdbheapx.layout.picker import Picker
from gdbheapx.layout.view import View
from gdbheapx.units import plural

LOW_BITS = 0xFFFF
"""A stack takes less than 64 KiB: from 5.3.0 on a bin keeps 16 bits of the addresses of its ends."""
MAX_NHBINS = 1 << 12
MAX_NCACHED = 1 << 16
"""Where tcache_bin_info cannot be read: more than any release allows."""


class Stack(NamedTuple):
    """Pointers that stand together."""

    szind: int
    start: int
    """Address of the lowest."""
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a record


class Bins(NamedTuple):
    """All bins of one cache."""

    stacks: Sequence[Stack]
    """What the cache holds, stashed blocks too: they were freed, and jemalloc keeps them to find writes after that."""
    counted: Sequence[Stack]
    """Those of them that jemalloc counts as ncached."""
    nhbins: int
    """Size classes up to here have a bin."""
    complete: bool

    def by_class(self) -> List[Stack]:
        """One for each size class."""
        sums: Dict[int, int] = {}
        for stack in self.stacks:
            sums[stack.szind] = sums.get(stack.szind, 0) + stack.count
        return [Stack(szind, 0, count) for szind, count in sorted(sums.items())]


PICKED = (("stack_head",), ("low_bits_full",), ("low_bits_empty",), ("bin_info.ncached_max",))
"""Of each bin; the last from 5.3.1 on."""
NOTHING = Bins((), (), 0, False)


class Limits(NamedTuple):
    """What is the same for all caches."""

    nhbins: Optional[int]
    """None where this build has no such variable: each cache has its own."""
    disabled: Optional[int]
    """Address of the stand-in for bins that are turned off (5.3.1)."""
    most: Sequence[int]
    """tcache_bin_info[szind].ncached_max; empty where that cannot be read."""
    picker: Optional[Picker]
    """What is read of each bin from 5.3.0 on; None before."""


def read_limits(context: Context) -> Limits:
    """nhbins, disabled_bin and tcache_bin_info."""
    nhbins, pointer, disabled = context.variable("nhbins", 4), context.variable("tcache_bin_info"), context.symbols.find("disabled_bin")
    count = min(nhbins, MAX_NHBINS) if nhbins is not None else len(context.geometry.size_classes)
    try:
        most = words(context.target, pointer, count, 2 if has_short_ncached_max(context.types) else 4) if pointer else []
    except Unreadable:
        most = []
    element = context.types.place("tcache_s", "bins")
    picker = (
        Picker(context.types, element.struct, PICKED, context.geometry.little_endian)
        if element is not None and element.struct is not None
        else None
    )
    return Limits(nhbins, disabled.address if disabled is not None else None, most, picker)


def read_bins(context: Context, address: int, limits: Limits) -> Bins:
    """The bins of the tcache_t at `address`. A bin that cannot be as it stands is reported and left out."""
    try:
        view = context.view("tcache_s", address)
    except Unreadable as problem:
        context.report(
            codes.CACHE_UNREADABLE, problem.address, "cannot read the thread cache at 0x%x" % address, "what it holds counts as used"
        )
        return NOTHING
    if view.has("bins"):
        return _Descending(context, view, limits).read()
    return _Ascending(context, view, limits).read()


class _Reader:
    """What both layouts have in common."""

    def __init__(self, context: Context, view: View, limits: Limits) -> None:
        self.context = context
        self.view = view
        self.word = context.geometry.word_bytes
        self.stacks: List[Stack] = []
        self.counted: List[Stack] = []
        self.complete = True
        self.limits, self.nhbins = limits, limits.nhbins

    def integers(self, data: bytes, element: Member, place: Optional[Member]) -> List[int]:
        """One member of every bin in `data`, an array of structs of element.size_bytes."""
        if place is None:
            return [0] * (len(data) // element.size_bytes)
        return strided(data, place.offset, element.size_bytes, place.size_bytes, self.context.geometry.little_endian, place.signed)

    def column(self, path: str, name: str) -> List[int]:
        """Member `name` of every bin of the array `path`."""
        element = self.context.types.place("tcache_s", path)
        assert element is not None and element.struct is not None
        return self.integers(self.view.bytes_of(path), element, self.context.types.place(element.struct, name))

    def most(self, count: int) -> List[int]:
        """tcache_bin_info[szind].ncached_max of the first size classes; the widest bound where that cannot be read."""
        return list(self.limits.most[:count]) if len(self.limits.most) >= count else [MAX_NCACHED] * count

    def refuse(self, szind: int, what: str) -> None:
        """A bin that is left out."""
        self.complete = False
        text = "size class %d of the thread cache at 0x%x: %s" % (szind, self.view.address, what)
        self.context.report(codes.CACHE_BIN_WRONG, self.view.address, text, "what it holds counts as used")

    def done(self, nhbins: int) -> Bins:
        """The answer."""
        return Bins(self.stacks, self.counted, nhbins, self.complete)


class _Ascending(_Reader):
    """5.0 to 5.2: avail points just above the stack, avail[-ncached .. -1] are its members."""

    def read(self) -> Bins:
        """All bins."""
        nbins = self.context.geometry.nbins
        nhbins = self.nhbins if self.nhbins is not None else len(self.context.geometry.size_classes)
        limits = self.most(nhbins)
        for first, paths, limit in ((0, ("bins_small", "tbins_small"), nbins), (nbins, ("bins_large", "tbins_large"), nhbins)):
            path = self.context.types.first("tcache_s", *paths)
            if path is None:
                continue
            rows = zip(self.column(path, "ncached"), self.column(path, "avail"))
            for szind, (count, avail) in enumerate(rows, first):
                if szind >= limit:
                    break
                if not avail or not count:
                    continue
                if not 0 < count <= limits[szind]:
                    self.refuse(szind, "it counts %s of at most %d" % (plural(count, "block"), limits[szind]))
                    continue
                self.stacks.append(Stack(szind, avail - count * self.word, count))
        self.counted = self.stacks
        return self.done(nhbins)


class _Descending(_Reader):
    """From 5.3.0: stack_head[0 .. ncached-1], up to the address whose low bits are low_bits_empty; stashed blocks at the low end.

    From 5.3.1 on each bin knows its own ncached_max, and one that is turned off points to a common stand-in.
    """

    def read(self) -> Bins:
        """All bins."""
        element, picker, word = self.context.types.place("tcache_s", "bins"), self.limits.picker, self.word
        assert element is not None and picker is not None
        own_limits, disabled = picker.addresses[-1] is not None, self.limits.disabled
        nhbins = element.count if own_limits or self.nhbins is None else min(element.count, self.nhbins)
        columns: Any = picker.columns(self.view.bytes_of("bins")[: nhbins * element.size_bytes], element.size_bytes)
        heads, full, empty, own = columns
        known = disabled is not None or not own_limits
        for szind, (head, low, high, limit) in enumerate(zip(heads, full, empty, own if own_limits else self.most(nhbins))):
            if not head and high and not own_limits:  # both are written by cache_bin_init
                self.refuse(szind, "its stack_head is null")
                continue
            if not head or head == disabled:
                continue
            count = (high - (head & LOW_BITS) & LOW_BITS) // word
            if count > limit:
                self.refuse(szind, "it holds %s of at most %d" % (plural(count, "block"), limit))
                continue
            if count:
                self.counted.append(Stack(szind, head, count))
            if low != high - limit * word & LOW_BITS:
                self._stashed(szind, head + count * self.word, low, high, limit, known)
        self.stacks += self.counted
        return self.done(nhbins)

    def _stashed(self, szind: int, end: int, full: int, empty: int, limit: int, known: bool) -> None:
        """Blocks between the low end of the array and low_bits_full (cache_bin_nitems_get_remote)."""
        low = empty - limit * self.word & LOW_BITS
        count = (full - low & LOW_BITS) // self.word
        if count and known and limit < MAX_NCACHED:
            if count > limit:
                self.refuse(szind, "it keeps %d stashed blocks of at most %d" % (count, limit))
            else:
                self.stacks.append(Stack(szind, end - limit * self.word, count))
