"""Commands on one tcmalloc: its settings, samples, purge, meter, and broken rules."""

import math
import struct
from bisect import bisect_right
from operator import mul
from re import finditer
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, Union

from gdbheapx.addons.allocators.gates import TC_RELEASE
from gdbheapx.addons.allocators.tcmalloc import codes, records, structure, survey
from gdbheapx.allocators import answers
from gdbheapx.allocators.heap import MeteredInstance, cache_answer
from gdbheapx.allocators.plan import FUTEX, DryRun, Held, Plan, Portion, Predicted, SystemCall
from gdbheapx.allocators.records import HeapContext, Page
from gdbheapx.common.columns import BYTES, TEXT, Column, ColumnsTable, add_values
from gdbheapx.common.errors import HeapxError, Refusal
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import CacheBin, Claim, HistogramRow, TargetAddress, ThreadCache
from gdbheapx.common.problems import NOT_PROFILED, Diagnostic, PartialSink, ProblemCode
from gdbheapx.inferior.base import Module, Target
from gdbheapx.kernel.blocks.pages import ROOM, PinShape
from gdbheapx.kernel.blocks.stream import CLASS_OVERHEAD, EVERYTHING, BlockFilter, BlockShape, BlockStream, make_blocks
from gdbheapx.kernel.common.in_ram import UNKNOWN

TYPE_LETTERS = {"bool": "<?", "double": "<d", "int64": "<q", "int64_t": "<q"}
INT64 = ("int64", "int64_t")
"""The latter since 2.16."""
FlagValue = Tuple[str, Sequence[str]]
"""Name, and types that it has in the releases (DEFINE_int64, src/base/commandlineflags.h)."""
TC_SETTINGS: Sequence[Tuple[str, Optional[FlagValue], str]] = (
    ("TCMALLOC_RELEASE_RATE", ("tcmalloc_release_rate", ("double",)), "free spans are returned while others are freed; 0: never"),
    ("TCMALLOC_AGGRESSIVE_DECOMMIT", None, "true: each free span is returned at once"),
    ("TCMALLOC_DISABLE_MEMORY_RELEASE", ("malloc_disable_memory_release", ("bool",)), "true: nothing is returned"),
    ("TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES", None, "limits what all thread caches keep"),
    ("TCMALLOC_HEAP_LIMIT_MB", ("tcmalloc_heap_limit_mb", INT64), "free spans are returned from this size of the heap on; 0: no limit"),
    ("TCMALLOC_SAMPLE_PARAMETER", ("tcmalloc_sample_parameter", INT64), "one block in about so many bytes is sampled; 0: none"),
    ("TCMALLOC_SKIP_MMAP", ("malloc_skip_mmap", ("bool",)), ""),
    ("TCMALLOC_SKIP_SBRK", ("malloc_skip_sbrk", ("bool",)), ""),
)
YES = ("1", "t", "y")
"""How true begins (EnvToBool, src/base/commandlineflags.h)."""


class TcSetting(NamedTuple):
    """A setting, and its source."""

    name: str
    """The variable of the environment."""
    value: Union[bool, int, float, str, None]
    """In force, by its flag; else as the environment has it; None where neither says."""
    environment: Optional[str]
    """None: not set, or not known."""
    meaning: str


class TcTunables(NamedTuple):
    """The settings of one tcmalloc."""

    tunables: List[TcSetting]


def read_flag(target: Target, module: Module, name: str, types: Sequence[str]) -> Union[bool, int, float, None]:
    """The value of a flag; None where the object does not name it."""
    for kind in types:
        space = "FLAG__namespace_do_not_use_directly_use_DECLARE_%s_instead" % kind
        symbol = "_ZN%d%s%dFLAGS_%sE" % (len(space), space, len(name) + 6, name)
        place, size = target.module_symbol(module, symbol), struct.calcsize(TYPE_LETTERS[kind])
        data = target.read_prefix(place.address, size) if place is not None else b""
        if len(data) == size:
            return struct.unpack(TYPE_LETTERS[kind], data)[0]  # type: ignore[no-any-return]
    return None


def read_tcmalloc_tunables(target: Target, module: Module) -> TcTunables:
    """Return the settings in force, as far as flags and the environment show them."""
    rows = []
    for name, known, meaning in TC_SETTINGS:
        text = target.environment_variable(name)
        value = read_flag(target, module, *known) if known is not None else None
        rows.append(TcSetting(name, value if value is not None else text, text, meaning))
    return TcTunables(rows)


_TUNABLE_COLUMNS = (Column("name", TEXT, field="name"), Column("value", TEXT, field="value"), Column("meaning", TEXT, field="meaning"))


def make_tunables_page(found: TcTunables) -> Page:
    """Yield a table with a row for each setting."""
    yield "values in force; -: not set, or not to be seen in this build"
    yield ColumnsTable(
        _TUNABLE_COLUMNS, [{**row._asdict(), "value": "-" if row.value is None else str(row.value).lower()} for row in found.tunables]
    )


MOST_FRAMES = 31
"""kMaxStackDepth."""
PERIOD_SYMBOL = "TCMALLOC_SAMPLE_PARAMETER"
PROFILE_HINT = "start the program with %s=524288 and the full libtcmalloc.so.4 (libtcmalloc_minimal never samples)" % PERIOD_SYMBOL


class TcProfile(NamedTuple):
    """The answer of `profile`."""

    sites: Dict[Tuple[int, ...], Tuple[int, int]]
    """By return addresses, innermost first: live blocks, and their bytes as they were asked for."""
    sample_bytes: int
    """One block in about so many bytes was sampled; 1: unknown, and what was sampled is reported as it is."""
    shortfall: None = None
    """Sampling is not switched on and off: what is missing is chance."""

    def data(self) -> Dict[str, Any]:
        """Return the keys of the JSON answer."""
        return {"sample_bytes": self.sample_bytes, "backtraces": len(self.sites)}

    def stacks(self) -> Iterator[Tuple[Sequence[int], int, int]]:
        """(return addresses, innermost first; blocks; bytes) of what is live, unsampled."""
        for frames, (blocks, size_bytes) in self.sites.items():
            share = -math.expm1(-size_bytes / blocks / self.sample_bytes) or 1.0
            yield frames, round(blocks / share), round(size_bytes / share)

    def lines(self, maps: str) -> Iterator[str]:
        """The text, as MallocExtension::GetHeapSample writes it."""
        total = sum(blocks for blocks, _ in self.sites.values()), sum(size_bytes for _, size_bytes in self.sites.values())
        yield "heap profile: %6d: %8d [%6d: %8d] @ heap_v2/%d" % (*total, *total, self.sample_bytes)
        for frames, site in self.sites.items():
            yield "%6d: %8d [%6d: %8d] @" % (*site, *site) + "".join(" 0x%x" % frame for frame in frames)
        if maps:
            yield ""
            yield "MAPPED_LIBRARIES:"
            yield from maps.rstrip("\n").split("\n")  # names may hold what splitlines() takes for the end of a line


def read_tcmalloc_profile(target: Target, module: Module, counts: survey.TcmallocCounts, report: PartialSink) -> TcProfile:
    """Return the profile of all sampled spans; HeapxError where nothing was sampled."""
    rows = zip(*(counts.spans.column(name) for name in ("is_sampled", "size_class", "location", "list", "start", "bytes")))
    sites: Dict[Tuple[int, ...], Tuple[int, int]] = {}
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
        blocks, size_bytes = sites.get(frames, (0, 0))
        sites[frames] = blocks + 1, size_bytes + size
    if not sites:
        raise HeapxError("tcmalloc has sampled no block that is live", PROFILE_HINT, code=NOT_PROFILED)
    known, text = read_flag(target, module, "tcmalloc_sample_parameter", INT64), target.environment_variable(PERIOD_SYMBOL)
    periods = [int(known)] if known is not None else []
    periods += [int(text)] if text is not None and text.isascii() and text.isdigit() else []
    return TcProfile(sites, next((period for period in periods if 0 < period < 1 << 62), 1))


RELEASE_FUNCTION = "MallocExtension_ReleaseFreeMemory"
PURGE_KEYS = ("allocator", "index", "free_bytes", "free_resident_bytes", "free_exclusive_bytes")
PAGE_HEAP_LOCK = "_ZN8tcmalloc6Static14pageheap_lock_E"
LOCK_BEFORE_ROOT = 524_296
"""PageHeap::lock_ lies so far before the root of the page map, since 2.15 with pages of 8 KiB; before, the lock is a variable."""
LOCK_IN_HEAP = (2, 15)
_PURGE_COLUMNS = (
    Column("arena", TEXT, field="index"),
    Column("free spans", BYTES, field="free_bytes"),
    Column("resident", BYTES, field="free_resident_bytes"),
)


def predict_tcmalloc_purge(rows: Sequence[records.TcArena], page_bytes: int) -> Predicted:
    """Every span that is free, also in tcmalloc's own pages; what caches hold is not flushed."""
    size, resident, exclusive = (add_values(getattr(row, name) for row in rows) for name in PURGE_KEYS[2:])
    return Predicted(size, resident, exclusive, {"free_pages": None if size is None else size // page_bytes})


class TcmallocPurge(Plan):
    """The call, which takes the page heap's lock alone and asks the system for one range at a time."""

    system_calls = (SystemCall("madvise", (None, None, 4)), *FUTEX, *map(SystemCall, ("sched_yield", "nanosleep", "clock_nanosleep")))
    damaged = ("tcmalloc's heap", "a call could crash the process", "see " + hint_command("check"))

    def __init__(self, around: HeapContext, anew: Callable[[PartialSink], Any], portion: Portion, tcmalloc: structure.Tcmalloc) -> None:
        super().__init__(around, anew, portion, tcmalloc.module, RELEASE_FUNCTION)
        self._tcmalloc = tcmalloc

    def check(self) -> None:
        super().check()
        if self.target.environment_variable("TCMALLOC_DISABLE_MEMORY_RELEASE") not in (None, "", "0", "false", "f", "n", "no"):
            raise Refusal("TCMALLOC_DISABLE_MEMORY_RELEASE is set: the call would return nothing", "start the program without it")

    def locks(self) -> List[Held]:
        target, known = self.target, self._tcmalloc.structure
        rows = structure.read_central_lists(target, known, _ignore_problem)
        held = [Held("the central list of class %d" % row.size_class, None) for row in rows if row.lock]
        symbol = target.module_symbol(self.module, PAGE_HEAP_LOCK)
        version = structure.split_version(self._tcmalloc.version) or (0,)
        address = symbol.address if symbol is not None else 0
        if not address and version >= LOCK_IN_HEAP and known.page_map.page_shift == 13:
            address = known.page_map.root - LOCK_BEFORE_ROOT
        if address and any(target.read_prefix(address, 4)):
            held.append(Held("the page heap's lock", None))
        return held

    def look(self, heap: Any) -> Predicted:
        return predict_tcmalloc_purge(heap.arenas(), self._tcmalloc.structure.page_map.page_bytes)

    def kept(self) -> Optional[Mapping[str, Optional[int]]]:
        return self.look(self.anew(_ignore_problem)).kept


def _ignore_problem(*complaint: Any, **more: Any) -> None:
    """predict() hears it."""


RULE_CODES = {code for code in vars(codes).values() if isinstance(code, ProblemCode)}
OBJECT_CODES = (codes.FREE_LIST_BROKEN, codes.FREED_TWICE, codes.FREE_LIST_UNREADABLE)
"""Something wrote into a free object: the block before it may have been overrun."""
MOST_SUSPECTS = 20


TCMALLOC_FIGURES = (
    answers.Figure("system_bytes", "system", "bytes of all spans", is_shown=False),
    answers.Figure("free_bytes", "free spans", "bytes of unused pages that the OS has not got back"),
    answers.Figure("returned_bytes", "returned", "bytes of address space that is kept without memory"),
    answers.Figure("central_bytes", "central", "bytes of free objects in spans with others in use"),
    answers.Figure("transfer_bytes", "transfer", "bytes of free objects on their way between threads", is_shown=False),
    answers.Figure("cached_bytes", "cached", "bytes of free objects in thread caches"),
)


CountedBytes = Tuple[int, int, int, Optional[int], Optional[int], Optional[int]]
"""Bytes, one for each of TCMALLOC_FIGURES."""


class TcmallocMeter(answers.LocatedMeter):
    """Reads the counters of one tcmalloc."""

    figures = TCMALLOC_FIGURES

    def read(self, walk_seconds: float) -> answers.Reading:
        """The counters now. There is nothing to be estimated."""
        own, central = survey.read_stats(self.target, self.located), self._read_central()
        if len(own) < 3:
            return answers.make_empty_reading(TCMALLOC_FIGURES)
        system, free, returned = own
        if free + returned > system:  # read at different moments
            return answers.make_empty_reading(TCMALLOC_FIGURES)
        in_spans, in_transfer = (None, None) if central is None else central
        return _make_reading((system, free, returned, in_spans, in_transfer, self._read_cached()))

    def _read_central(self) -> Optional[Tuple[int, int]]:
        """Bytes in spans and in transfer caches."""
        known = self.located.structure
        sizes, count = known.sizes, known.sizes.classes
        data = self.target.read_prefix(known.central, known.stride * count)
        if len(data) < known.stride * count:
            return None
        in_spans = in_transfer = 0
        for number in range(1, count):
            base, size = number * known.stride, sizes.object_bytes[number]
            (counter,) = struct.unpack_from("<Q", data, base + structure.CentralPlaces.counter)
            (used,) = struct.unpack_from("<i", data, base + structure.CentralPlaces.used_slots)
            if not 0 <= used <= structure.CentralPlaces.most_slots or counter >> 40:
                return None
            in_spans, in_transfer = in_spans + counter * size, in_transfer + used * sizes.batch[number] * size
        return in_spans, in_transfer

    def _read_cached(self) -> Optional[int]:
        """Bytes in thread caches; None where a thread begins or ends meanwhile."""
        threads, target = self.located.structure.threads, self.target
        if threads is None:
            return None
        seen: Set[int] = set()
        total, behind = 0, self.located.structure.sizes.lists_bytes
        data = target.read_prefix(threads.head, 8)
        while len(data) == 8 and any(data):
            (address,) = struct.unpack("<Q", data)
            here = target.read_prefix(address + behind, structure.CACHE_REST)
            if address in seen or len(seen) >= structure.MOST_CACHES or len(here) < structure.CACHE_REST:
                return None
            seen.add(address)
            (size,) = struct.unpack_from("<i", here, 0)
            total += max(0, size)
            data = here[threads.next - behind : threads.next - behind + 8]
        return total if len(data) == 8 else None


def _make_reading(counted: CountedBytes, used: Optional[int] = None) -> answers.Reading:
    system, free_spans, returned, *cached = counted
    held, free = system - returned, free_spans + sum(part or 0 for part in cached)
    if used is None and None not in cached and free <= held:
        used = held - free
    return answers.Reading(counted, held, used, None if used is None else held - used, free_spans)


TC_UNIT_BYTES = 8
TCMALLOC_SHAPE = BlockShape(
    records.TC_WORDS,
    (0,) * len(records.TC_WORDS),
    None,
    unit_bytes=TC_UNIT_BYTES,
    in_size_classes=True,
    keeps_freed_content=True,
    unreturned_kinds=frozenset((records.TC_FREE_SPAN,)),
)
RATE_VARIABLE = "TCMALLOC_RELEASE_RATE"


class TcmallocHeap(MeteredInstance):
    """Everything one tcmalloc can be asked for."""

    located: structure.Tcmalloc
    returning = TC_RELEASE
    block_shape, meter_type = TCMALLOC_SHAPE, TcmallocMeter

    def __init__(self, tcmalloc: structure.Tcmalloc, around: HeapContext) -> None:
        report = answers.call_changing(around.target, tcmalloc.module, codes.LISTS_CHANGING, around.report)
        super().__init__(tcmalloc, around._replace(report=report))

    @property
    def capabilities(self) -> Mapping[str, Callable[..., Any]]:
        """Return the readers of its counters and samples."""
        return {**super().capabilities, "profile": self.profile}

    def profile(self) -> TcProfile:
        """Return the live heap profile; HeapxError where nothing was sampled."""
        return read_tcmalloc_profile(self.target, self.located.module, self.counts(), self.around.report)

    def exact_reading(self) -> answers.Reading:
        """Return the meter's figures from a walk of a stopped process; ends of spans count as kept."""
        (row,) = self.arenas()
        cached = row.central_bytes, row.transfer_bytes, row.cached_bytes
        return _make_reading((row.system_bytes, row.free_bytes, row.returned_bytes, *cached), row.used_bytes)

    def anew(self, report: PartialSink) -> "TcmallocHeap":
        """Open the heap again, with nothing cached."""
        return TcmallocHeap(self.located, self.around.anew(report))

    def would_return(self, portion: Portion) -> DryRun:
        """Its free spans."""
        rows, arenas = self.arenas(), [{key: getattr(row, key) for key in PURGE_KEYS} for row in self.arenas()]
        predicted = predict_tcmalloc_purge(rows, self.located.structure.page_map.page_bytes)
        return DryRun(TC_RELEASE, predicted, arenas, ColumnsTable(_PURGE_COLUMNS, rows), self.target.kind == "live")

    def return_plan(self, portion: Portion) -> TcmallocPurge:
        """MallocExtension_ReleaseFreeMemory()."""
        return TcmallocPurge(self.around, self.anew, portion, self.located)

    @cache_answer
    def counts(self) -> survey.TcmallocCounts:
        """The walk over all spans, and all counters: sums are made of these alone."""
        return survey.count_tcmalloc(self.located, self.around, self.around.report)

    @cache_answer
    def survey(self) -> survey.TcmallocSurvey:
        """Walk over all lists of free objects, which decide the status of each block."""
        return survey.survey_tcmalloc(self.located, self.around, self.counts(), self.around.report)

    @cache_answer
    def metadata(self) -> List[Tuple[int, int]]:
        """Return the ranges of tcmalloc's own structures."""
        return survey.find_metadata(self.located, self.counts(), self.target)

    def claims(self) -> List[Claim]:
        """Its spans, joined where they touch, and its metadata."""
        claims = [Claim(start, end, "spans") for start, end in self.counts().spans.held]
        return sorted([*claims, *(Claim(start, end, "metadata") for start, end in self.metadata())])

    def own_data(self) -> List[Tuple[int, int]]:
        """The page heap with its lists of spans, the central lists, the list of thread caches."""
        known = self.located.structure
        page_map, central = known.page_map, known.central
        heads = [] if known.threads is None else [(known.threads.head, known.threads.head + structure.WORD)]
        return sorted([(page_map.root, page_map.stats), (central, central + known.stride * known.sizes.classes), *heads])

    def blocks(self, block_filter: BlockFilter = EVERYTHING, arena: Optional[int] = None) -> BlockStream:
        """Objects, large blocks, unused spans and metadata by address. Damage is reported beforehand."""
        if arena not in (None, 0):
            block_filter = block_filter._replace(kinds=frozenset())
        rows = []
        if block_filter.kinds is None or records.TC_METADATA in block_filter.kinds:
            for start, end in self.metadata():
                if block_filter.has(records.TC_METADATA, end - start):
                    rows.append((start, end - start, CLASS_OVERHEAD, records.TC_METADATA, 0))
        return survey.make_tcmalloc_walker(self.counts(), self.survey().frees, self.around).blocks(block_filter, make_blocks(rows))

    def block_at(self, address: int) -> Optional[answers.AllocatorPlace]:
        """The object, and the span that holds it."""
        claim = self.find_claim(address)
        if claim is None:
            return None
        spans = self.counts().spans
        at = bisect_right(spans.column("start"), address) - 1
        parts, start = [answers.AddressPart(claim.what, claim.what, TargetAddress(claim.start), TargetAddress(claim.end))], claim.start
        if claim.what == "spans" and at >= 0:
            span = records.TcSpan._make(spans.spans[len(records.TcSpan._fields) * at : len(records.TcSpan._fields) * (at + 1)])
            start = spans.column("start")[max(0, at - 1)]
            end = TargetAddress(span.start + span.bytes)
            parts.insert(0, answers.AddressPart("span", _name_span(span), TargetAddress(span.start), end))
        stream = self.blocks(BlockFilter(start=start))
        return answers.make_heap_place(answers.find_neighbours(stream, self.shape, address), self.shape, self.info.id, address, parts)

    @cache_answer
    def arenas(self) -> Sequence[records.TcArena]:
        """Return the single row: system = used + central + transfer + cached + tails + free + returned."""
        counts, sizes = self.counts(), self.located.structure.sizes.object_bytes
        listed = {records.TC_CENTRAL: 0, records.TC_TRANSFER: 0, records.TC_CACHED: 0}
        for (kind, size_class), count in counts.objects.items():
            listed[kind] += count * sizes[size_class]
        starts, span_sizes, locations = (counts.spans.column(name) for name in ("start", "bytes", "location"))
        places = [match.start() for match in finditer(bytes((records.SPAN_ON_NORMAL,)), bytes(locations.tolist()))]
        free = [(starts[place], starts[place] + span_sizes[place]) for place in places]
        in_ram = self.around.ram.of(free) or UNKNOWN
        tallies, classes = counts.spans.tallies, range(1, records.SIZE_CLASSES)
        is_whole, large = counts.spans.is_whole, tallies[records.TC_LARGE]
        used = [counts.used_objects(number) for number in classes]
        row = records.TcArena(
            allocator=self.located.id,
            index=0,
            address=TargetAddress(self.located.structure.page_map.root),
            spans=sum(tally.spans for tally in tallies),
            system_bytes=sum(tally.bytes for tally in tallies),
            used_blocks=sum(used) + large.objects if is_whole else None,
            used_bytes=sum(map(mul, used, sizes[1:])) + large.bytes if is_whole else None,
            central_bytes=listed[records.TC_CENTRAL],
            transfer_bytes=listed[records.TC_TRANSFER],
            cached_bytes=listed[records.TC_CACHED] if counts.has_all_caches else None,
            tail_bytes=sum(tallies[number].bytes - tallies[number].objects * sizes[number] for number in classes),
            free_bytes=sum(end - start for start, end in free),
            free_resident_bytes=in_ram.resident_bytes,
            free_exclusive_bytes=in_ram.exclusive_bytes,
            returned_bytes=tallies[records.TC_RETURNED_LABEL].bytes,
            metadata_bytes=sum(end - start for start, end in self.metadata()),
        )
        return [row]

    @cache_answer
    def bins(self) -> List[records.TcBin]:
        """The size classes that have spans."""
        counts, sizes, rows = self.counts(), self.located.structure.sizes.object_bytes, []
        for size_class, tally in enumerate(counts.spans.tallies[: records.SIZE_CLASSES]):
            if not tally.spans:
                continue
            size, used = sizes[size_class], counts.used_objects(size_class)
            central, transfer, cached = (
                counts.objects[kind, size_class] for kind in (records.TC_CENTRAL, records.TC_TRANSFER, records.TC_CACHED)
            )
            rows.append(
                records.TcBin(
                    allocator=self.located.id,
                    size_class=size_class,
                    size_bytes=size or None,
                    spans=tally.spans,
                    objects=tally.objects,
                    used_objects=used,
                    used_bytes=used * size if size_class else tally.bytes,
                    central_objects=central,
                    central_bytes=central * size,
                    transfer_objects=transfer,
                    transfer_bytes=transfer * size,
                    cached_objects=cached if counts.has_all_caches else None,
                    cached_bytes=cached * size if counts.has_all_caches else None,
                )
            )
        return rows

    def histogram(self) -> List[HistogramRow]:
        """Return a row for each size class; blocks with a span of their own are grouped by quarters of a power of two."""
        found = []
        for row in self.bins():
            if row.size_bytes is not None:
                free, cached, size = row.central_objects, row.transfer_objects + (row.cached_objects or 0), row.size_bytes
                known = None if row.cached_objects is None else cached
                found.append(HistogramRow(size, size, row.used_objects or 0, row.used_bytes or 0, free, free * size, known))
        large: Dict[Tuple[int, int], List[int]] = {}
        for size, size_class, location in zip(*(self.counts().spans.column(name) for name in ("bytes", "size_class", "location"))):
            if not size_class and location == records.SPAN_IN_USE:
                step = 1 << max(0, (size - 1).bit_length() - 3)
                top = -(-size // step) * step
                group = large.setdefault((top - step + 1, top), [0, 0])
                group[0] += 1
                group[1] += size
        found += [HistogramRow(low, top, count, size, 0, 0, 0) for (low, top), (count, size) in large.items()]
        return sorted(found)

    def caches(self) -> List[ThreadCache]:
        """Return a row for each thread cache."""
        sizes, names = self.located.structure.sizes.object_bytes, {thread.lwp: thread.name for thread in self.target.threads()}
        caches = []
        for cache in self.counts().caches:
            rows = [CacheBin(number, sizes[number], length, length * sizes[number]) for number, _, length in cache.lists if length]
            caches.append(
                ThreadCache(
                    allocator=self.located.id,
                    lwp=cache.lwp,
                    name=names.get(cache.lwp) if cache.lwp is not None else None,
                    arena=0,
                    tcache=TargetAddress(cache.address),
                    chunks=sum(row.chunks for row in rows),
                    bytes=sum(row.bytes or 0 for row in rows),
                    bins=rows,
                )
            )
        return caches

    def facts(self) -> records.TcFacts:
        """Freeze one reading for the verdict."""
        known = self.arenas(), self.totals(), self.histogram(), self.claims()
        rate = self.target.environment_variable(RATE_VARIABLE)
        is_aggressive = (self.target.environment_variable("TCMALLOC_AGGRESSIVE_DECOMMIT") or "")[:1].lower() in YES
        return records.TcFacts(self.info, *known, self.counts().is_whole, rate, is_aggressive)

    def tunables(self) -> TcTunables:
        """Return the settings in force."""
        return read_tcmalloc_tunables(self.target, self.located.module)

    def what_if(self) -> Sequence[answers.Effect]:
        """Return the effects of its variables. The release rate has no row: `make advice` measured no effect on idle threads."""
        from gdbheapx.allocators.measured import AGGRESSIVE_DECOMMIT as DECOMMIT
        from gdbheapx.allocators.measured import CACHE_BYTES
        from gdbheapx.common import findings as codes

        row, value = self.arenas()[0], self.target.environment_variable
        free, cached = row.held_bytes - (row.used_bytes or 0), add_values((row.cached_bytes, row.transfer_bytes))
        spans = {
            "code": "decommit",
            "cause": codes.UNUSED_PAGES,
            "why": "free spans in RAM, each returned as it becomes free",
            "cost": "a system call for each span, and page faults",
        }
        caches = {
            "code": "thread-caches",
            "cause": codes.THREAD_CACHES,
            "why": "what thread and transfer caches hold",
            "cost": "caches are filled and emptied more often, under a lock",
        }
        return [
            answers.by_variable(DECOMMIT, value(DECOMMIT.variable), row.free_resident_bytes, free, **spans),
            answers.by_variable(CACHE_BYTES, value(CACHE_BYTES.variable), cached, free, **caches),
            answers.effect_of_restart(free),
        ]

    def kept(self) -> answers.Keeping:
        """A span of objects is free when its last object is back in it: an object that is free among others stays."""
        sizes, page, row = self.located.structure.sizes, self.located.structure.page_map.page_bytes, self.arenas()[0]
        rooms = sorted((size, pages * page) for size, pages in zip(sizes.object_bytes, sizes.pages) if size)
        terms = [answers.Term("central", row.central_bytes or 0)]
        kept = [answers.ArenaKeeps(0, row.central_bytes)]
        return answers.Keeping(PinShape(page, rooms=rooms), kept, terms, words={ROOM: answers.SPAN}, returnable_bytes=row.free_bytes)

    def rules(self) -> Iterator[answers.BrokenRule]:
        """Every place that breaks a rule of tcmalloc's. A change in progress is reported as a moment and breaks no rule."""
        told: List[Diagnostic] = []
        own = self.anew(answers.make_collector(told))
        own.survey()
        broken: Dict[Tuple[str, Optional[int]], answers.BrokenRule] = {}

        def add_broken_rule(diagnostic: Diagnostic) -> None:
            code, address = diagnostic.code, diagnostic.address
            if (str(code), address) in broken or len(broken) >= answers.MOST_BROKEN:
                return
            is_asked = code in OBJECT_CODES and len(broken) < MOST_SUSPECTS
            place = own.block_at(address) if address is not None and is_asked else None
            before = place.previous if place is not None else None
            suspect = None
            if before is not None and before.status == "used":
                suspect = answers.RuleSuspect(before.address, before.size_bytes, before.status)
            broken[str(code), address] = answers.BrokenRule(
                allocator=self.info.id,
                arena=0,
                code=code,
                address=TargetAddress(address) if address is not None else None,
                rule=str(code),
                abort=None,
                suspect=suspect,
                what=diagnostic.what,
            )

        answers.sorted_out(told, RULE_CODES, self.around.report, add_broken_rule)
        yield from broken.values()


def _name_span(span: records.TcSpan) -> str:
    if span.location != records.SPAN_IN_USE:
        return "free span" if span.location == records.SPAN_ON_NORMAL else "returned span"
    return "span of class %d" % span.size_class if span.size_class else "span of one block"
