"""Read one glibc malloc as detect.py found it: the ring of arenas, main_arena first, then the newest thread arena to the oldest
(malloc_info's order), the heaps of a thread arena, each of which starts on a multiple of HEAP_MAX_SIZE with a heap_info (arena.c), and
the memory where heaps can lie.

malloc.c changes an arena under its mutex, except in a process of one thread (SINGLE_THREAD_P), and thread caches without any. What a thread
was changing when the process was stopped is called changing, and not damaged."""

from bisect import bisect_right
from typing import TYPE_CHECKING, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.common.budget import Budget
from gdbheapx.common.errors import UnreadableMemory
from gdbheapx.common.model import AllocatorInfo
from gdbheapx.common.problems import Diagnostic, PartialSink, ProblemCode
from gdbheapx.common.ranges import Range, subtract_ranges, unite_ranges
from gdbheapx.glibc import codes, layouts
from gdbheapx.glibc.layouts import HEAP_INFO, MALLOC_STATE, align_chunk
from gdbheapx.inferior.base import BulkSource, Mapping, Module, StructType, Symbol, Target, ThreadLocal, TypeSet
from gdbheapx.kernel.common.in_ram import Ram
from gdbheapx.kernel.common.library import STOP_TOP, Kernel
from gdbheapx.kernel.glibc.records import Geometry, Region, WalkResult, add_results
from gdbheapx.kernel.glibc.walkers import ChunkWalker
from gdbheapx.layout.pack import Pack
from gdbheapx.layout.view import LayoutView, read_view

if TYPE_CHECKING:
    from gdbheapx.glibc.structure_search import ArenaPlace, ThreadLocalOffsets

NONCONTIGUOUS = 2
"""malloc_state.flags: the main arena has pieces that do not come from brk."""
MAX_ARENAS = 65536
"""Far above 8 per core: only there to end a broken ring."""
BETWEEN_CLOCKS = 128
"""Arenas or heaps that are read before it is asked whether time is up."""


class Glibc(NamedTuple):
    """Everything constant about one glibc malloc in the target."""

    id: str
    module: Module
    version: Optional[Tuple[int, int]]
    version_text: Optional[str]
    main_arena: Symbol
    mp: Symbol
    geometry: Geometry
    traits: layouts.Traits
    types: TypeSet
    """The structs of layouts.py, by their tags; tcache_perthread_struct is left out if this build has no thread cache."""
    layout_source: str
    curbrk: Optional[Symbol]
    """`__curbrk`, the break as libc knows it."""
    owns_malloc: Optional[bool]
    pack: Optional[Pack] = None
    """What its types and addresses come from where no symbol table has them."""
    place: "Optional[ArenaPlace]" = None
    """What its types and addresses come from where no pack has them either: what memory looks like."""
    locals: "Optional[ThreadLocalOffsets]" = None
    """Where its threads have their variables by structure, where symbols or a pack have all but these."""
    is_untouched: bool = False
    """It was never used, so that no thread has any; set only if nothing leads to them."""

    @property
    def malloc_state(self) -> StructType:
        """struct malloc_state: an arena."""
        return self.types.structs[layouts.MALLOC_STATE.name]

    @property
    def malloc_par(self) -> StructType:
        """struct malloc_par: mp_."""
        return self.types.structs[layouts.MALLOC_PAR.name]

    @property
    def heap_info(self) -> StructType:
        """struct _heap_info: the head of a thread arena's heap."""
        return self.types.structs[layouts.HEAP_INFO.name]

    @property
    def tcache(self) -> Optional[StructType]:
        """struct tcache_perthread_struct; None if this build has no thread cache."""
        return self.types.structs.get(layouts.TCACHE.name)

    @property
    def unlisted(self) -> Optional[str]:
        """Return a warning for a release newer than any that was tried, or None."""
        if not layouts.is_newer(self.version, layouts.NEWEST_TRIED):
            return None
        newest = "glibc %s is newer than %d.%d, the newest tested" % (self.version_text, *layouts.NEWEST_TRIED)
        return newest + ": where debug information is missing, gdbheapx assumes that nothing has changed"

    def info(self) -> AllocatorInfo:
        """The entry of the envelope."""
        name = self.module.file_name
        return AllocatorInfo(
            self.id, "glibc", self.version_text, name, self.module.build_id, self.layout_source, self.main_arena.source, self.owns_malloc
        )

    def break_address(self, target: Target) -> Optional[int]:
        """The program break as libc knows it (`__curbrk`); None if it is not known."""
        try:
            return target.read_word(self.curbrk.address) if self.curbrk is not None else None
        except UnreadableMemory:
            return None

    def thread_local(self, target: Target, name: str) -> Optional[ThreadLocal]:
        """Return where each thread has its `tcache` or `thread_arena`, or None if that cannot be determined."""
        if self.is_untouched or (self.place is not None and not self.place.bins):  # malloc was never used: no thread has either
            return ThreadLocal({thread.lwp: None for thread in target.threads()}, "static-tls")
        local = self.named_local(target, name) if self.place is None else None
        own = self.place.locals if self.place is not None else self.locals
        if local is not None or own is None:
            return local
        distance = own.tcache if name == "tcache" else own.thread_arena
        return None if distance is None else target.beside_thread_pointer(distance)

    def named_local(self, target: Target, name: str) -> Optional[ThreadLocal]:
        """Return thread_local() by the variable's offset in the object's TLS block (symbols, or the pack) and the object's relocations."""
        if self.pack is None:
            return target.thread_local(name, self.main_arena)
        place = self.pack.thread_locals.get(name)
        return None if place is None else target.thread_local_at(self.module, place[0])

    def prepare(self, target: Target) -> None:
        """Look up, before the process is stopped, what is needed then."""
        if self.place is not None:
            return
        if self.pack is None:
            target.prepare_thread_local(("tcache", "thread_arena"), self.main_arena)
        else:
            target.prepare_thread_local_at(self.module)

    def read_mp(self, target: Target) -> LayoutView:
        """Read `mp_` as it is now. Raises UnreadableMemory."""
        return read_view(target, self.types, layouts.MALLOC_PAR.name, self.mp.address)

    def read_setting(self, target: Target, name: str) -> Optional[int]:
        """Return a member of `mp_`; None if it cannot be read, or this release has none."""
        try:
            return self.read_mp(target).get(name)
        except UnreadableMemory:
            return None


class Arena(NamedTuple):
    """A malloc_state as it was read."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    address: int
    is_main: bool
    state: LayoutView

    @property
    def top(self) -> int:
        """Address of the top chunk; 0 if the arena was never used (top is 0, or points into the struct itself: initial_top)."""
        top = self.state["top"]
        return 0 if self.address <= top < self.address + self.state.size_bytes else top

    def read_top_size(self, target: Target, glibc: Glibc) -> int:
        """Return the size of the top chunk; 0 if the arena was never used. Raises UnreadableMemory."""
        return target.read_word(self.top + glibc.geometry.word_bytes) & ~7 if self.top else 0

    @property
    def is_contiguous(self) -> bool:
        """Return whether all of the arena came from brk."""
        return not self.state["flags"] & NONCONTIGUOUS

    @property
    def title(self) -> str:
        """Return the arena's name for messages."""
        return "main_arena" if self.is_main else "arena %d" % self.index


def read_ring(target: Target, glibc: Glibc, report: PartialSink, budget: Optional[Budget] = None) -> List[Arena]:
    """Return all arenas, following `next` from main_arena until it comes back; stops with a report if the ring is broken or time runs
    out. Arenas never disappear, and new ones are linked right after main_arena (arena.c: _int_new_arena).
    """
    ring: List[Arena] = []
    seen = set()
    address = glibc.main_arena.address
    while address not in seen and len(ring) < MAX_ARENAS:
        seen.add(address)
        if budget is not None and len(seen) % BETWEEN_CLOCKS == 0 and budget.expired():
            message = "the walk of the ring of arenas did not finish: %s" % budget.reason
            report(codes.RING_CUT, None, message, "some arenas are missing here")
            return ring
        try:
            state = read_view(target, glibc.types, MALLOC_STATE.name, address)
        except UnreadableMemory as problem:
            message = "the ring of arenas points to 0x%x, which cannot be read" % address
            report(codes.RING_UNREADABLE, problem.address, message, "the arenas after it are missing here")
            return ring
        if ring and not layouts.follows_heap_info(target, glibc.heap_info, address):
            message = "the ring of arenas points to 0x%x, which is not a malloc_state" % address
            report(codes.RING_BROKEN, address, message, "the arenas after it are missing here")
            return ring
        ring.append(Arena(len(ring), address, address == glibc.main_arena.address, state))
        address = state["next"]
    if address != glibc.main_arena.address:
        report(codes.RING_OPEN, ring[-1].address, "the ring of arenas does not return to main_arena", "arenas may be missing here")
    return ring


class HeapInfo(NamedTuple):
    """A heap_info."""

    address: int
    arena: int
    """ar_ptr: address of the malloc_state."""
    prev: int
    size_bytes: int
    """Bytes in use by the arena; system_mem counts these."""
    mprotect_size_bytes: int

    def region(self, glibc: Glibc, top: int) -> Region:
        """Return the run of chunks in it: in an arena's first heap the malloc_state comes before the first chunk."""
        first = self.address + glibc.heap_info.size_bytes
        if self.arena == first:
            first += glibc.malloc_state.size_bytes
        end = self.address + self.size_bytes
        return Region(align_chunk(first, glibc.geometry), end, top if self.address <= top < end else 0)


def read_heap(target: Target, glibc: Glibc, address: int, heap_max: int) -> Optional[HeapInfo]:
    """The heap_info at `address`; None if what is there is none. Unreadable if it cannot be read."""
    info, page = read_view(target, glibc.types, HEAP_INFO.name, address), glibc.geometry.page_bytes
    size, writable = info["size"], info["mprotect_size"]
    if not 0 < size <= writable <= heap_max or size % page or writable % page or info["prev"] % heap_max:
        return None
    return HeapInfo(info.address, info["ar_ptr"], info["prev"], size, writable)


def heaps_of(
    target: Target, glibc: Glibc, arena: Arena, heap_max: int, report: PartialSink, budget: Optional[Budget] = None
) -> List[HeapInfo]:
    """The heaps of a thread arena, newest (the one that holds top) first.

    Where the chain breaks, or does not add up to system_mem, the address space is searched for the others.
    """
    chain: Dict[int, HeapInfo] = {}
    address = arena.top & -heap_max
    while address and address not in chain:
        try:
            heap = read_heap(target, glibc, address, heap_max)
        except UnreadableMemory:
            message = "cannot read a heap of %s (not mapped, or not in the core)" % arena.title
            report(codes.HEAP_UNREADABLE, address, message, "its bytes count as unparsed")
            break
        if heap is None or heap.arena != arena.address:
            message = "heap_info of %s is damaged (ar_ptr, size or mprotect_size)" % arena.title
            report(codes.HEAP_DAMAGED, address, message, "its bytes count as unparsed")
            break
        chain[address] = heap
        address = heap.prev
    heaps = list(chain.values())
    if sum(heap.size_bytes for heap in heaps) != arena.state["system_mem"]:
        heaps += [heap for heap in scan_heap_infos(target, glibc, heap_max, set(chain), budget) if heap.arena == arena.address]
    return heaps


def scan_heap_infos(target: Target, glibc: Glibc, heap_max: int, known: Set[int], budget: Optional[Budget] = None) -> List[HeapInfo]:
    """Return every plausible heap_info on a multiple of heap_max in writable anonymous memory, except the known ones, whose arena can be
    read; fewer if time runs out.
    """
    heaps: List[HeapInfo] = []
    for mapping in target.mappings():
        if not (mapping.readable and mapping.writable) or mapping.is_file:
            continue
        first = -(-mapping.start // heap_max) * heap_max
        for looked, address in enumerate(range(first, mapping.end - glibc.heap_info.size_bytes + 1, heap_max)):
            if budget is not None and looked % BETWEEN_CLOCKS == BETWEEN_CLOCKS - 1 and budget.expired():
                return heaps
            try:
                heap = read_heap(target, glibc, address, heap_max) if address not in known else None
            except UnreadableMemory:
                continue
            if heap is None or not heap.arena or heap.arena % glibc.geometry.word_bytes:
                continue
            if len(target.read_prefix(heap.arena, glibc.malloc_state.size_bytes)) == glibc.malloc_state.size_bytes:
                heaps.append(heap)
    return heaps


MOST_LEFT_OUT_BYTES = 1 << 30
"""A gap between mappings of a core that is no larger may be memory that was left out of it: gdb's gcore drops what cannot be read, and what
the program asked to leave out (MADV_DONTDUMP)."""
LOCKED_ONCE = "its mutex is held: a thread was changing this arena, so this may not be damage"
LOOK_AGAIN = "run it again; if it persists, `thread apply all backtrace` in gdb shows which thread is inside malloc"


class Context(NamedTuple):
    """State of one heap walk: target, memory source, budget and error sink."""

    target: Target
    glibc: Glibc
    kernel: Kernel
    source: BulkSource
    budget: Budget
    report: PartialSink
    ram: Ram
    """Source of what is in RAM."""
    others: Callable[[], Sequence[Tuple[int, int]]]
    """Ranges that other allocators hold."""

    @property
    def walker(self) -> ChunkWalker:
        """The kernel's, bound to this heap."""
        return ChunkWalker(self.kernel, self.source, self.glibc.geometry, self.budget)

    def threads_at_work(self) -> Set[int]:
        """Return the ids of a live process's threads that were stopped while they ran in malloc's object: their caches, and what malloc
        counts without a lock, may be in the middle of a change."""
        from gdbheapx.inferior.base import find_running_threads

        return find_running_threads(self.target, self.glibc.module) if self.target.kind == "live" else set()


class ArenaWalk:
    """Progress and results of walking one arena."""

    def __init__(self, arena: Arena, report: PartialSink) -> None:
        self.arena = arena
        self.report = report
        """For what does not add up in this arena."""
        self.heaps: Sequence[HeapInfo] = ()
        self.runs: List[Tuple[Region, WalkResult]] = []
        self.system_bytes = arena.state["system_mem"]
        self.overhead_bytes = 0
        """heap_info, malloc_state, alignment and fenceposts; without tcache structs and foreign bytes."""
        self.foreign_bytes = 0
        self.unparsed_bytes = 0
        self.pieces = 0
        self.behind_fences: List[Tuple[Region, int]] = []
        """Of an arena that is not contiguous: runs of the break that end in fenceposts, and where a further one may begin, not
        searched yet."""
        self.damages = 0
        self.timed_out = False
        self.walked_bytes = 0
        """Bytes of chunks in all runs."""
        self.unlocated_bytes = 0
        """Bytes of system_mem that the walk did not come by; known once it is over."""
        self.members: Optional[Sequence[int]] = None
        """bins.members: chunks in its bins, sorted; None until they were asked for."""

    def ranges(self, page_bytes: int) -> List[Tuple[int, int]]:
        """Addresses (start, end) that the arena occupies, whole pages, sorted: its heaps, or the pieces of the main arena."""
        if not self.arena.is_main:
            return sorted((heap.address, heap.address + heap.size_bytes) for heap in self.heaps)
        spans = []
        for region, result in self.runs:
            end = region.top + result.top_bytes if result.stop == STOP_TOP else result.at
            spans.append((region.begin & -page_bytes, -(-end // page_bytes) * page_bytes))
        return sorted(spans)

    def reserves(self, heap_max: int) -> List[Tuple[int, int]]:
        """Return the unused end of each heap: from heap_info.size to the end of its HEAP_MAX_SIZE bytes (arena.c)."""
        return sorted((heap.address + heap.size_bytes, heap.address + heap_max) for heap in self.heaps if heap.size_bytes < heap_max)

    def total(self) -> Optional[WalkResult]:
        """Return all runs of chunks as one result, or None if the arena holds no chunk."""
        return add_results([result for _, result in self.runs])


def chunk_bytes(total: WalkResult) -> int:
    """Return the bytes of all chunks in a walk result."""
    cached = total.tcache_bytes + total.tcache_struct_bytes
    return total.used_bytes + cached + total.fast_bytes + total.free_bytes + total.top_bytes + total.fence_bytes


def private_mappings(target: Target) -> List[Mapping]:
    """Private anonymous memory with any rights, sorted: a program may protect a part of what malloc gave it."""
    return [
        mapping
        for mapping in target.mappings()
        if not mapping.is_file and not mapping.shared and not mapping.name.startswith(("[v", "[stack"))
    ]


def find_reaches(target: Target, ranges: Sequence[Range], taken: Sequence[Range]) -> List[int]:
    """Return for each range of private anonymous memory how far a block that begins in it may extend: over memory with other rights, in a
    core over memory that may have been left out, up to `taken` or other owners.
    """
    own = {mapping.start for mapping in private_mappings(target)}
    runs: List[Range] = []
    last = 0
    for mapping in target.mappings():
        gap = mapping.start - last
        if mapping.start not in own:
            last = -1 - MOST_LEFT_OUT_BYTES
            continue
        if runs and (gap == 0 or (target.kind == "core" and 0 < gap <= MOST_LEFT_OUT_BYTES)):
            runs[-1] = (runs[-1][0], mapping.end)
        else:
            runs.append((mapping.start, mapping.end))
        last = mapping.end
    runs = subtract_ranges(runs, taken)
    starts = [start for start, _ in runs]
    places = (bisect_right(starts, start) - 1 for start, _ in ranges)
    return [max(end, runs[place][1]) if place >= 0 and runs[place][1] > start else end for place, (start, end) in zip(places, ranges)]


def unite_mappings(mappings: Iterable[Mapping]) -> List[Range]:
    """Neighbouring mappings as one range: the kernel merges and splits them at will."""
    return unite_ranges((mapping.start, mapping.end) for mapping in mappings)


def anonymous_ranges(target: Target) -> List[Range]:
    """Return the memory in which arenas can lie."""
    return unite_mappings(mapping for mapping in private_mappings(target) if mapping.readable and mapping.writable)


def report_arena(context: Context, arena: Arena, complaints: Sequence[Diagnostic]) -> None:
    """Report the complaints about an arena that was read. One that a thread was changing is reported as changing, not as damaged: its mutex
    is held, or a live process has one thread, which takes no lock (SINGLE_THREAD_P, 2.27), and was stopped in malloc's object.
    """
    is_locked, is_live = bool(arena.state["mutex"]), context.target.kind == "live"
    if complaints and is_live and (is_locked or (len(context.target.threads()) == 1 and context.threads_at_work())):
        holder = ": a thread holds its mutex" if is_locked else ""
        context.report(codes.ARENA_CHANGING, arena.address, "%s is in the middle of a change%s" % (arena.title, holder), LOOK_AGAIN)
        return
    for code, address, message, hint in complaints:
        context.report(code, address, message, LOCKED_ONCE if is_locked else hint)


def tell_unless_changing(context: Context, complaints: Sequence[Diagnostic], code: ProblemCode, change: str) -> None:
    """Report complaints about what no arena's mutex guards; of a live process with a thread in malloc's object the change alone."""
    if complaints and context.threads_at_work():
        context.report(code, None, change, LOOK_AGAIN)
        return
    for complaint in complaints:
        context.report(*complaint)
