"""Record of one glibc malloc, as detect.py fills it, and its arenas. The ring of arenas: main_arena first, then the newest thread arena
to the oldest (malloc_info's order); and the heaps of a thread arena, each of which starts on a multiple of HEAP_MAX_SIZE with a heap_info
(arena.c).
"""

from typing import TYPE_CHECKING, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.budget import Budget
from gdbheapx.errors import UnreadableMemory
from gdbheapx.glibc import codes, layouts
from gdbheapx.glibc.layouts import HEAP_INFO, MALLOC_STATE, align_chunk
from gdbheapx.inferior.base import Module, StructType, Symbol, Target, ThreadLocal, TypeSet
from gdbheapx.kernel.glibc.records import Geometry, Region
from gdbheapx.layout.pack import Pack
from gdbheapx.layout.view import LayoutView, read_view
from gdbheapx.model import AllocatorInfo
from gdbheapx.problems import PartialSink

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
    """It was never used, so that no thread has any; told only where nothing leads to them."""

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
        if layouts.is_listed(self.version):
            return None
        newest = "%d.%d" % layouts.NEWEST_KNOWN
        return (
            "glibc %s is newer than %s, the newest tested: where debug information is missing, gdbheapx assumes that nothing has changed"
            % (self.version_text, newest)
        )

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
        """`mp_` as it is now. Unreadable if it cannot be read."""
        return read_view(target, self.types, layouts.MALLOC_PAR.name, self.mp.address)


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

    @property
    def is_contiguous(self) -> bool:
        """Return whether all of the arena came from brk."""
        return not self.state["flags"] & NONCONTIGUOUS

    @property
    def title(self) -> str:
        """Return the arena's name for messages."""
        return "main_arena" if self.is_main else "arena %d" % self.index


def read_ring(target: Target, glibc: Glibc, report: PartialSink, budget: Optional[Budget] = None) -> List[Arena]:
    """Return all arenas, following `next` from main_arena until it comes back; stops with a report where the ring is broken or time runs
    out. Arenas never disappear, and new ones are linked right behind main_arena (arena.c: _int_new_arena).
    """
    ring: List[Arena] = []
    seen = set()
    address = glibc.main_arena.address
    while address not in seen and len(ring) < MAX_ARENAS:
        seen.add(address)
        if budget is not None and len(seen) % BETWEEN_CLOCKS == 0 and budget.expired():
            report(
                codes.RING_CUT, None, "the walk of the ring of arenas did not finish: %s" % budget.reason, "some arenas are missing here"
            )
            return ring
        try:
            state = read_view(target, glibc.types, MALLOC_STATE.name, address)
        except UnreadableMemory as problem:
            report(
                codes.RING_UNREADABLE,
                problem.address,
                "the ring of arenas points to 0x%x, which cannot be read" % address,
                "the arenas after it are missing here",
            )
            return ring
        if ring and not _follows_heap_info(target, glibc, address):
            report(
                codes.RING_BROKEN,
                address,
                "the ring of arenas points to 0x%x, which is not a malloc_state" % address,
                "the arenas after it are missing here",
            )
            return ring
        ring.append(Arena(len(ring), address, address == glibc.main_arena.address, state))
        address = state["next"]
    if address != glibc.main_arena.address:
        report(codes.RING_OPEN, ring[-1].address, "the ring of arenas does not return to main_arena", "arenas may be missing here")
    return ring


def _follows_heap_info(target: Target, glibc: Glibc, address: int) -> bool:
    """A thread arena stands directly behind the heap_info of its first heap, whose ar_ptr points to it (arena.c: _int_new_arena)."""
    heap = address - glibc.heap_info.size_bytes
    try:
        return address % glibc.geometry.word_bytes == 0 and target.read_word(heap + glibc.heap_info.members["ar_ptr"].offset) == address
    except UnreadableMemory:
        return False


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
        """The run of chunks in it: in an arena's first heap the malloc_state stands before the first chunk."""
        first = self.address + glibc.heap_info.size_bytes
        if self.arena == first:
            first += glibc.malloc_state.size_bytes
        end = self.address + self.size_bytes
        return Region(align_chunk(first, glibc.geometry), end, top if self.address <= top < end else 0)


def read_heap(target: Target, glibc: Glibc, address: int, heap_max: int) -> Optional[HeapInfo]:
    """The heap_info at `address`; None if what is there is none. Unreadable if it cannot be read."""
    info = read_view(target, glibc.types, HEAP_INFO.name, address)
    return _check_heap_info(info, glibc, heap_max)


def _check_heap_info(info: LayoutView, glibc: Glibc, heap_max: int) -> Optional[HeapInfo]:
    page = glibc.geometry.page_bytes
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
    chain = _follow_heaps(target, glibc, arena, heap_max, report)
    if sum(heap.size_bytes for heap in chain) != arena.state["system_mem"]:
        known = {heap.address for heap in chain}
        chain += [heap for heap in scan_heap_infos(target, glibc, heap_max, known, budget) if heap.arena == arena.address]
    return chain


def _follow_heaps(target: Target, glibc: Glibc, arena: Arena, heap_max: int, report: PartialSink) -> List[HeapInfo]:
    chain: List[HeapInfo] = []
    seen: Set[int] = set()
    address = arena.top & -heap_max
    while address and address not in seen:
        seen.add(address)
        try:
            heap = read_heap(target, glibc, address, heap_max)
        except UnreadableMemory:
            report(
                codes.HEAP_UNREADABLE,
                address,
                "cannot read a heap of %s (not mapped, or not in the core)" % arena.title,
                "its bytes count as unparsed",
            )
            break
        if heap is None or heap.arena != arena.address:
            report(
                codes.HEAP_DAMAGED,
                address,
                "heap_info of %s is damaged (ar_ptr, size or mprotect_size)" % arena.title,
                "its bytes count as unparsed",
            )
            break
        chain.append(heap)
        address = heap.prev
    return chain


def scan_heap_infos(target: Target, glibc: Glibc, heap_max: int, known: Set[int], budget: Optional[Budget] = None) -> List[HeapInfo]:
    """Every plausible heap_info on a multiple of heap_max in writable anonymous memory, but for the known ones; fewer where time runs
    out."""
    heaps: Dict[int, HeapInfo] = {}
    looked = 0
    for mapping in target.mappings():
        if not (mapping.readable and mapping.writable) or mapping.is_file:
            continue
        address = -(-mapping.start // heap_max) * heap_max
        while address + glibc.heap_info.size_bytes <= mapping.end:
            looked += 1
            if budget is not None and looked % BETWEEN_CLOCKS == 0 and budget.expired():
                return _with_readable_arena(target, glibc, list(heaps.values()))
            if address not in known:
                try:
                    heap = read_heap(target, glibc, address, heap_max)
                except UnreadableMemory:
                    heap = None
                if heap is not None and heap.arena % glibc.geometry.word_bytes == 0 and heap.arena:
                    heaps[address] = heap
            address += heap_max
    return _with_readable_arena(target, glibc, list(heaps.values()))


def _with_readable_arena(target: Target, glibc: Glibc, heaps: Sequence[HeapInfo]) -> List[HeapInfo]:
    """Heaps whose ar_ptr stands behind the heap_info of some heap on a boundary, or can be read at all."""
    kept = []
    for heap in heaps:
        if len(target.read_prefix(heap.arena, glibc.malloc_state.size_bytes)) == glibc.malloc_state.size_bytes:
            kept.append(heap)
    return kept
