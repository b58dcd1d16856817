"""Makes the graph of a target: one read, after which the process may run on.

A core leaves out memory of blocks: the kernel dumps no mapping that was never written to, nor one that the program excluded.
"""

from array import array
from bisect import bisect_left, bisect_right
from itertools import compress
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import problems
from gdbheapx.allocators.heap import Heap
from gdbheapx.analysis.reachability import regions
from gdbheapx.analysis.reachability import symbols as reachability_symbols
from gdbheapx.analysis.reachability.regions import Node, Regions, Root
from gdbheapx.analysis.reachability.symbols import Symbols
from gdbheapx.errors import HeapxError
from gdbheapx.inferior.base import NOWHERE, BulkSource, CallSource, FileSource, ProcessSource, Segment, StackCopy, StaticBlock, Target
from gdbheapx.kernel.blocks import graph as evidence
from gdbheapx.kernel.blocks.graph import FROM_MAPPING, LEAKED, Containers, Graph, GraphNumbers, GraphShape, Habit, Sum
from gdbheapx.kernel.blocks.records import Blocks
from gdbheapx.kernel.blocks.signatures import Signer
from gdbheapx.problems import NOT_IN_SNAPSHOT, Severity
from gdbheapx.ranges import Range, Ranges, subtract, union
from gdbheapx.session import Session
from gdbheapx.units import Size, plural, say

MOST_GUARDED_BYTES = 64 << 20
REACH = "reach"
"""The graph that commands share while a snapshot is taken."""
LOOKED_AGAIN = "looked again"
"""(node, evidence) that the second look for weak pointers has found, while a snapshot is taken: marks that are made later lose it. None: it
was not taken."""
WEAKEST = (evidence.MASKED, evidence.UNALIGNED, evidence.MANGLED)
LEAKS_UNKNOWN = (problems.ROOTS_MISSING,)
NOTHING_UNKNOWN = problems.MEMORY_UNREAD
"""Its blocks are not known, and all words in it count as pointers: what is found leaked is leaked, and more may be."""
HOLDERS_UNREAD = (problems.REGISTERS_UNREAD, problems.STOP_LIMIT, problems.FILES_NOT_DUMPED, problems.SEVERAL_MOMENTS)


def block_source(target: Target) -> BulkSource:
    """What blocks are read from: such memory has zeros. Allocators' own structures are not read so: what is missing there is missing."""
    bulk, ranges = target.bulk_source(), target.unwritten_ranges()
    if not isinstance(bulk, FileSource) or not ranges:
        return bulk
    blank = [Segment(start, end - start, NOWHERE) for start, end in ranges]
    return FileSource(bulk.path, tuple(sorted([*bulk.segments, *blank])))


def tell_unwritten(session: Session, graph: Graph) -> None:
    """Notes how much of the blocks in use it is."""
    count, missing, first = graph.numbers().blocks, 0, 0
    for start, end in session.target.unwritten_ranges():
        low, high = _first_block(graph, count, start), _first_block(graph, count, end)
        addresses, sizes = graph.columns(array("I", range(max(low - 1, 0), high)))
        here = sum(max(0, min(end, address + size) - max(start, address)) for address, size in zip(addresses, sizes))
        first = first or (start if here else 0)
        missing += here
    if missing:
        what = say(
            "%s of blocks in use are not in the core: never written to, or excluded by the program; they count as zeros", Size(missing)
        )
        session.problem(problems.NOT_DUMPED, "0x%x" % first, what, partial=False)


def _first_block(graph: Graph, count: int, address: int) -> int:
    """The id of the first block at the address or behind it."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if graph.blocks([middle])[0][0] < address else (low, middle)
    return low


def image_ranges(target: Target) -> List[Range]:
    """The parts of all images that are no code."""
    images = Ranges((start, end) for start, end, _ in target.image_ranges())
    rows = [mapping for mapping in target.mappings() if mapping.readable and not mapping.executable]
    return sorted((max(low, row.start), min(high, row.end)) for row in rows for low, high in images.within(row.start, row.end))


def image_source(target: Target, parts: Sequence[Range]) -> Optional[BulkSource]:
    """Of a living process only what is in memory: reading the rest would bring its pages in. Of a core also what only files have."""
    bulk = target.bulk_source()
    if isinstance(bulk, ProcessSource):
        pages: Tuple[Range, ...] = tuple(parts)
        return bulk._replace(untouched_zero=pages)
    return CallSource(target.read_prefix) if target.kind == "core" else None


class Kept(NamedTuple):
    """What a snapshot has in place of memory."""

    symbols: Symbols
    slots: Sequence[int]
    """Of each of Regions.roots the slot of its first pointer, or NO_SLOT: those of variables are apart already."""
    weak: Optional[Sequence[Tuple[int, int]]]
    """(node, evidence) that a second look has found; None: there was none."""


class Reach(NamedTuple):
    """The graph of a target, and what its nodes are."""

    graph: Graph
    regions: Regions
    numbers: GraphNumbers
    habits: Sequence[Habit]
    heaps: Sequence[Tuple[int, int]]
    word_bytes: int
    stacks: Dict[int, StackCopy]
    blocks: Sequence[StaticBlock]
    """Of thread-local storage; these two only where names are wanted."""
    kept: Optional[Kept] = None
    """Of a snapshot."""

    @property
    def roots_from(self) -> int:
        """The first node that is a root."""
        return self.numbers.blocks + len(self.regions.nodes)

    @property
    def weak(self) -> Tuple[int, int]:
        """Roots that are stacks and registers."""
        strong = sum(root.kind in (regions.DATA, regions.THREAD_LOCAL) for root in self.regions.roots)
        return self.roots_from + strong, self.roots_from + len(self.regions.roots)

    def mapping(self, node: int) -> Optional[Node]:
        """The mapping that the node is."""
        place = node - self.numbers.blocks
        return self.regions.nodes[place] if 0 <= place < len(self.regions.nodes) else None

    def root(self, node: int) -> Optional[Root]:
        """The root that the node is."""
        place = node - self.roots_from
        return self.regions.roots[place] if 0 <= place < len(self.regions.roots) else None


def find_containers(reach: Reach) -> Containers:
    """Find blocks that are linked with each other, while the roots of the graph are not split."""
    data = sum(root.kind == regions.DATA for root in reach.regions.roots)
    return reach.graph.containers(reach.roots_from + data, reach.weak[0])


class Further(NamedTuple):
    """Blocks that a runtime has made of memory of its own, and that memory."""

    blocks: Sequence[Iterator[Blocks]] = ()
    taken: Sequence[Tuple[int, int]] = ()
    unit_bytes: int = 16
    """They begin at multiples of this."""
    instead: Sequence[int] = ()
    """Addresses of the heaps' blocks that some of them were cut from, sorted: those are left out."""


NO_FURTHER = Further()


def make_graph(session: Session, slots: bool, names: bool = False, further: Further = NO_FURTHER) -> Reach:
    """Reads everything, lets the process go, and resolves. `slots`: keep where in its block each pointer stands; `names`: and what tells
    frames and thread-local variables. `further`: what counts as blocks, too."""
    shared: Optional[Reach] = session.shared(REACH)
    return shared if shared is not None else finish(session, gather(session, slots, names, further=further))


def marked(
    session: Session, again: Optional[bool], further: Further = NO_FURTHER, made: Optional[Reach] = None, slots: bool = False
) -> Tuple[Reach, Sequence[Sum]]:
    """The graph with its marks. `again`: look once more, for weak pointers; None: on a core. `further`: what counts as blocks, too; `made`:
    the graph, of memory that is as it was then. `slots`: containers are to be found in it."""
    shared: Optional[Reach] = session.shared(REACH) or made
    if shared is not None and shared.kept is not None:
        return shared, marked_again(shared, shared.kept, again)
    is_wanted = session.target.kind == "core" if again is None else again
    reach = shared if shared is not None else finish(session, gather(session, slots, further=further, owning=False), hold=is_wanted)
    sums: Sequence[Sum] = reach.graph.mark(reach.roots_from)
    if had_to_go_on(session):
        sums = reach.graph.mark(reach.roots_from)
    elif is_wanted and sums[LEAKED].blocks and reach.word_bytes == 8 and session.target.can_read_on and not session.budget.expired():
        session.budget.progress.stage = "second pass: weak pointers (skip with --no-weak)"
        unknown = session.target.arch.ignorable_bits if session.target.kind != "live" else 0
        sums = reach.graph.look_again(held_ranges(session.target, reach), pointer_guard(session.target), ignorable_bits=unknown)
        had_to_go_on(session)
        tell_tags(session, reach.graph)
    if session.store is not None:
        seen = [rule for rule in WEAKEST if sums[rule].blocks]
        weak = reach.graph.with_evidence(seen, 0, reach.numbers.blocks) if seen else []
        session.share(LOOKED_AGAIN, weak if is_wanted and not session.budget.expired() else None)
    session.target.let_go()
    return reach, sums


def had_to_go_on(session: Session) -> bool:
    """The process had to run on before the second pass was over: what the first one has read is an answer, and is worked out."""
    budget = session.budget
    if not budget.expired() or not budget.is_stop_over:
        return False
    session.target.let_go()
    what = "%s before the second pass, for weak pointers, was over: more may be held by them" % budget.reason
    session.problem(problems.STOP_LIMIT, None, what, budget.next_step)
    budget.go_on()
    return True


def marked_again(reach: Reach, kept: Kept, again: Optional[bool]) -> Sequence[Sum]:
    """The marks of a graph from a snapshot, with what the second look had found unless that is not wanted."""
    if again and kept.weak is None:
        raise HeapxError(
            "the snapshot was taken without the search for weak pointers",
            "omit --weak; or ask the process or its core",
            code=NOT_IN_SNAPSHOT,
        )
    sums = reach.graph.mark(reach.roots_from)
    return sums if kept.weak is None or again is False else reach.graph.set_evidence(kept.weak)


def held_ranges(target: Target, reach: Reach) -> List[Tuple[int, int]]:
    """Memory outside the heaps that counts: roots, and mappings that something points to."""
    roots = [part for root in reach.regions.roots if root.kind != regions.REGISTERS for part in parts(target, root.start, root.end, False)]
    for place, node in enumerate(reach.regions.nodes):
        if reach.graph.evidence(reach.numbers.blocks + place) not in (FROM_MAPPING, LEAKED) and not is_blank(node):
            roots += of_node(target, node)
    return roots


def pointer_guard(target: Target) -> Optional[Tuple[int, int]]:
    """With what this process's C library mangles pointers, and how far it rotates them: the same in all threads (nptl's tls.h:
    tcbhead_t.pointer_guard), or a variable."""
    storage, places = target.arch.storage, []
    if storage.guard_at is not None:
        places = [thread.thread_pointer + storage.guard_at for thread in target.threads() if thread.thread_pointer]
    elif storage.guard_name is not None:
        variable = target.dynamic_symbol(storage.guard_name)
        places = [variable.address] if variable is not None else []
    for place in places:
        data = target.read_prefix(place, 8)
        if len(data) == 8:
            return int.from_bytes(data, "little"), storage.guard_turn
    return None


class Read(NamedTuple):
    """What was read of a target, before it is resolved."""

    graph: Graph
    regions: Regions
    heaps: Sequence[Tuple[int, int]]
    stacks: Dict[int, StackCopy]
    blocks: Sequence[StaticBlock]


class World(NamedTuple):
    """What is to be read of a target."""

    heaps: Sequence[Heap]
    regions: Regions
    shape: GraphShape

    @property
    def own_places(self) -> List[int]:
        """Addresses in blocks that are the allocators' own."""
        return [place for heap in self.heaps for place in heap.own_places()]


def world(session: Session, slots: bool, further: Further = NO_FURTHER) -> World:
    """Heaps, and what lies outside of them. `further`: blocks of others."""
    target, heaps = session.target, session.heaps.all()
    claims = mapped(target, Ranges([*((claim.start, claim.end) for heap in heaps for claim in heap.claims()), *further.taken]))
    own = [part for heap in heaps for part in heap.own_data()]
    outside = regions.find(target, union([*claims, *own]))
    shape = GraphShape(
        heaps=subtract(claims, union(own)),
        mappings=[(node.start, node.end) for node in outside.nodes],
        word_bytes=target.word_bytes,
        little_endian=target.little_endian,
        unit_bytes=min([further.unit_bytes, *(heap.shape.unit_bytes for heap in heaps)]) if heaps else 8,
        all_slots=slots,
        images=image_ranges(target),
        ignored_bits=target.ignored_bits,
    )
    return World(heaps, outside, shape)


def apart(stream: Iterator[Blocks], gone: Sequence[int]) -> Iterator[Blocks]:
    """The stream without the blocks at these addresses."""
    return without(stream, gone) if gone else stream


def without(stream: Iterator[Blocks], gone: Sequence[int]) -> Iterator[Blocks]:
    """The same, where there are some."""
    for blocks in stream:
        known = blocks.addresses
        if not len(known) or bisect_left(gone, min(known)) == bisect_right(gone, max(known)):
            yield blocks
            continue
        left = set(gone[bisect_left(gone, min(known)) : bisect_right(gone, max(known))])
        stays = [address not in left for address in known]
        columns: Tuple[array[int], ...] = tuple(array(column.typecode, compress(column, stays)) for column in blocks)
        yield Blocks(*columns)


def mapped(target: Target, claims: Ranges) -> List[Tuple[int, int]]:
    """What of them is memory of the process: damage may lead an allocator anywhere, and the index of blocks spans all of it."""
    return union(part for mapping in target.mappings() for part in claims.within(mapping.start, mapping.end))


def gather(
    session: Session,
    slots: bool,
    names: bool = False,
    signer: Optional[Signer] = None,
    further: Further = NO_FURTHER,
    owning: bool = True,
) -> Read:
    """Reads everything. `signer`: what signs all blocks in this one read; `further`: what counts as blocks, too; `owning`: words that own
    nothing are told apart, if slots are kept."""
    target = session.target
    session.budget.progress.stage = "reading all blocks"
    made = world(session, slots, further)
    outside = made.regions
    vtables = image_source(target, made.shape.images)
    graph = session.kernel.graph(block_source(target), made.shape, session.budget, vtables)
    if signer is not None:
        graph.sign(signer)
    if owning:
        graph.note_unowning()
    graph.gather([*(apart(heap.blocks(), further.instead) for heap in made.heaps), *further.blocks], made.own_places)
    session.budget.progress.stage = "reading all other memory"
    read_bytes, node_bytes = 0, sum(node.end - node.start for node in outside.nodes)
    session.budget.progress.measure(lambda: read_bytes, node_bytes + sum(root.end - root.start for root in outside.roots))
    for node in outside.nodes:
        if not is_blank(node):
            for low, high in of_node(target, node):
                graph.scan(node.start, low, high)
        graph.end_node()
        read_bytes += node.end - node.start
    for root in outside.roots:
        if root.kind == regions.REGISTERS:
            graph.scan_words(root.words, root.exact)
        else:
            for low, high in parts(target, root.start, root.end, False):
                graph.scan(root.start, low, high)
        graph.end_node()
        read_bytes += root.end - root.start
    graph.settle()
    kept, blocks = (reachability_symbols.keep_frames(target, outside.roots), target.static_blocks()) if names else ({}, [])
    return Read(graph, outside, made.shape.heaps, kept, blocks)


def finish(session: Session, read: Read, hold: bool = False) -> Reach:
    """Everything is read: the rest needs no more of the process, unless it is to be held."""
    if not hold:
        session.target.let_go()
    session.budget.progress.stage = "following all pointers"
    was_read = session.budget.reason is None
    habits = read.graph.resolve()
    if hold and was_read and had_to_go_on(session):
        habits = read.graph.resolve()
    check_time(session)
    numbers = read.graph.numbers()
    tell(session, numbers, read.regions)
    tell_unwritten(session, read.graph)
    return Reach(read.graph, read.regions, numbers, habits, read.heaps, session.target.word_bytes, read.stacks, read.blocks)


def is_plain(node: Node) -> bool:
    """Pages of it that were never touched are known to be zeros without reading them. A smaller one may be a stack with guard pages inside
    (MADV_GUARD_INSTALL, Linux 6.13): there the page table is asked first."""
    return node.use.mapping.is_untouched_zero and node.end - node.start > MOST_GUARDED_BYTES


def is_blank(node: Node) -> bool:
    """Zeros without a look at any page: of its whole mapping none is in memory or in swap, which every kernel tells."""
    use = node.use
    return use.mapping.is_untouched_zero and not use.mapping.is_hugetlb and use.resident_bytes == 0 and use.swapped_bytes == 0


def parts(target: Target, start: int, end: int, plain: bool) -> Sequence[Tuple[int, int]]:
    """What of a range may be read; `plain`: pages that were never touched are known to be zeros, and are passed by who reads."""
    return [(start, end)] if plain and target.kind != "core" else target.touched_ranges(start, end)


def of_node(target: Target, node: Node) -> Sequence[Tuple[int, int]]:
    """What of a node is read."""
    return shared_data(target, node) or parts(target, node.start, node.end, is_plain(node))


def shared_data(target: Target, node: Node) -> Optional[Sequence[Tuple[int, int]]]:
    """Of shared memory of which something is in swap all that its file has, where the user wants that read; None elsewhere."""
    room = target.swap_room()
    if not node.use.mapping.shared or not node.use.swapped_bytes or room is None or not room.is_accepted:
        return None
    room.take_shared(node.use.swapped_bytes, target.page_bytes)
    return target.swappable_ranges(node.start, node.end)


def check_time(session: Session) -> None:
    """HeapxError where time has run out: a half of a graph says nothing."""
    if session.budget.expired():
        raise session.budget.cut("the graph was complete")


def tell(session: Session, numbers: GraphNumbers, outside: Regions) -> None:
    """Notes what could not be read."""
    tell_unread(session, numbers.unread_bytes, numbers.unread_at)
    tell_shared_in_swap(session, outside.nodes)
    tell_undumped(session)
    if outside.unknown_threads:
        threads = "registers of %s could not be read: these stacks count as a whole" % plural(len(outside.unknown_threads), "thread")
        session.problem(problems.REGISTERS_UNREAD, None, threads, "blocks that only registers reference count as leaked", partial=True)


def tell_tags(session: Session, graph: Graph) -> None:
    """Notes words that are pointers if the process has had the processor ignore some of their bits: only a living process tells that."""
    if graph.tagged_words:
        what = "%s to blocks without another reference, if the process uses tagged pointers: a %s does not say whether it does"
        hint = "ask the process while it runs; until then `maybe` counts the blocks behind them"
        verb = "%s lead%s" % (plural(graph.tagged_words, "word"), "s" if graph.tagged_words == 1 else "")
        kind = "core" if session.target.kind == "core" else "remote process"
        session.problem(problems.TAGS_UNKNOWN, None, what % (verb, kind), hint, partial=False)


def tell_undumped(session: Session) -> None:
    """Notes mapped files that the core left out: the usual core does so, and is whole in all else."""
    files = session.target.undumped_files()
    if files:
        what = say(
            "%s of %s that the program may have written to, %s first, are not in this core",
            Size(sum(end - start for start, end, _ in files)),
            plural(len(files), "mapped file"),
            files[0][2],
        )
        hint = "blocks that only they reference count as leaked; for a core with them: echo 0x3f > /proc/PID/coredump_filter"
        session.problem(problems.FILES_NOT_DUMPED, "0x%x" % files[0][0], what, hint, partial=False)


def lacks_holders(session: Session) -> bool:
    """Something that may hold blocks was not read, or is damaged: what is called leaked then is so at most."""
    codes = (code for code in _codes(session) if code != NOTHING_UNKNOWN)
    return any(code.nature in (Severity.UNREAD, Severity.DAMAGE) or code in HOLDERS_UNREAD for code in codes)


def is_leak_unknown(session: Session, leaked: Optional[Sum] = None) -> bool:
    """Memory that holds most of what is in use was not read: what nothing else leads to may well be held. Or nothing was found leaked, and
    much has no reader: there may be any number of blocks in there."""
    codes = _codes(session)
    return any(code in LEAKS_UNKNOWN for code in codes) or (leaked is not None and not leaked.blocks and NOTHING_UNKNOWN in codes)


def _codes(session: Session) -> List[problems.Code]:
    return [problem.code for problem in session.problems] + [complaint.code for complaint in session.target.problems()]


def tell_shared_in_swap(session: Session, nodes: Sequence[Node]) -> None:
    """Notes shared memory that is in swap: the page table has nothing of it, as of pages that were never touched, so it was not read."""
    shared = [node for node in nodes if node.use.mapping.shared and shared_data(session.target, node) is None]
    there = [(node.start, min(node.use.swapped_bytes or 0, node.end - node.start)) for node in shared]
    lacking = [(start, size_bytes) for start, size_bytes in there if size_bytes]
    if lacking:
        what = say("%s of shared memory is in swap and was not read", Size(sum(size_bytes for _, size_bytes in lacking)))
        hint = "blocks that only it references count as leaked: --read-swap reads it, and can end the process; or retry with less in swap"
        session.problem(problems.IN_SWAP, "0x%x" % lacking[0][0], what, hint)


def tell_unread(session: Session, unread_bytes: int, unread_at: int) -> None:
    """Notes memory that could not be read."""
    if unread_bytes:
        what = say("%s of used blocks, stacks or data could not be read", Size(unread_bytes))
        hint = "blocks that only they reference count as leaked"
        session.problem(problems.ROOTS_UNREAD, "0x%x" % unread_at, what, hint)
