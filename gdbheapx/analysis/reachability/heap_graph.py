"""Make the graph of blocks: its roots and nodes, whether it fits into memory, one read of everything, and what was not read."""

import functools
import struct
from array import array
from bisect import bisect_left, bisect_right
from itertools import compress
from typing import Annotated, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Protocol, Sequence, Set, Tuple

from gdbheapx.allocators.session import Session
from gdbheapx.analysis.memory import attribute, kinds, stacks
from gdbheapx.analysis.memory.kinds import MappingPlaces
from gdbheapx.common import problems
from gdbheapx.common.budget import allowed_bytes
from gdbheapx.common.columns import BYTES, IF_ANY, TEXT, Column
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import GUESS
from gdbheapx.common.problems import NOT_IN_SNAPSHOT, OUT_OF_MEMORY, Severity
from gdbheapx.common.ranges import Range, RangeIndex, subtract_ranges, unite_ranges
from gdbheapx.common.units import SentenceSize, count_noun, make_sentence
from gdbheapx.inferior import base
from gdbheapx.inferior.base import Function, Mapping, MappingUse, Module, StackCall, StackCopy, StaticBlock, Target, Thread
from gdbheapx.kernel.blocks import graph as evidence
from gdbheapx.kernel.blocks.graph import FROM_MAPPING, LEAKED, NO_SLOT, Containers, Graph, GraphNumbers, GraphShape, Habit, NativeSum
from gdbheapx.kernel.blocks.signatures import Signer
from gdbheapx.kernel.blocks.stream import NativeBlocks

MOST_LOST_WORDS = 1 << 20
"""Of garbage, whose blocks are looked up one by one."""


class ManagedField(NamedTuple):
    """Field of a class, whose objects hold blocks by the words that they have there."""

    name: str
    """`org.rocksdb.ReadOptions.nativeHandle_`."""
    words: Sequence[int]
    """One for each object that is reachable, or whose memory a collection frees."""
    objects: Sequence[int]
    """Address of the object of each word."""
    object_count: int = 0
    """Objects that have a word in this field, garbage included."""
    garbage_objects: Optional[int] = None
    """Of these, unreachable ones whose memory no collection frees; None: reachability is unknown."""
    collectable_objects: Optional[int] = None
    """Of these, unreachable ones whose memory the next collection frees (a Cleaner, a finalizer). None: reachability is unknown."""
    other_words: Sequence[int] = ()
    """Words that objects have by another field, too, which live longer."""
    lost_words: Sequence[int] = ()
    """Of unreachable objects whose memory nothing frees."""
    find_path: Callable[[int], Optional[str]] = lambda address: None
    """Returns how the program reaches the object at an address: `Store.kept.elementData[3]`; None where that is unknown."""
    label: Optional[str] = None
    """Name of the field before such a path; None: `name`."""
    begins_only: bool = False
    """Words count only where a block begins: an array has any numbers."""

    def find_object(self, start: int, end: int) -> Optional[int]:
        """Return the first object whose word leads between two addresses, or None."""
        return next((self.objects[place] for place, word in enumerate(self.words) if start <= word < end), None)


class ManagedClass(NamedTuple):
    """Objects of one class in the heap of a runtime with a collector."""

    name: Annotated[str, Column("class", TEXT)]
    runtime: Annotated[str, Column("runtime", TEXT, goes=1)]
    objects: Annotated[int, Column("objects")]
    bytes: Annotated[int, Column("bytes", BYTES)]
    garbage_objects: Annotated[Optional[int], Column("garbage")]
    """Of these, unreachable ones; None: unknown."""
    garbage_bytes: Annotated[Optional[int], Column("of garbage", BYTES)]


class ManagedHeap(NamedTuple):
    """Heap of a runtime with a collector: its objects hold blocks by `fields` alone, and its other words hold nothing."""

    runtime: str
    """`Java`."""
    module: str
    """File name of the runtime's library: its own variables lead to all that its threads ever touched, and explain nothing. Empty if the
    runtime is a part of the program."""
    garbage_bytes: Optional[int]
    """Of unreachable objects; None: reachability is unknown."""
    fields: Sequence[ManagedField] = ()
    classes: Sequence[ManagedClass] = ()
    """Those with most bytes first; none where objects are not counted by class."""


class HeldByField(NamedTuple):
    """Blocks that the objects of a class hold by one field."""

    field: Annotated[str, Column("field", TEXT)]
    runtime: Annotated[str, Column("runtime", TEXT, goes=4)]
    objects: Annotated[int, Column("objects")]
    """With a word that leads to a block."""
    garbage_objects: Annotated[Optional[int], Column("garbage", goes=1)]
    """Of these, unreachable ones whose memory no collection frees; None: unknown."""
    collectable_objects: Annotated[Optional[int], Column("collectable", shown=IF_ANY, goes=2)]
    """Of these, unreachable ones whose memory the next collection frees; None: unknown."""
    blocks: Annotated[int, Column("blocks", goes=3)]
    """That all of them lead to directly."""
    bytes: Annotated[int, Column("bytes", BYTES)]
    garbage_bytes: Annotated[int, Column("of garbage", BYTES, shown=IF_ANY)]
    """Of blocks that only garbage holds: what else leads there, such as a library to its own memory, keeps them."""
    retained_bytes: Annotated[Optional[int], Column("retained", BYTES, shown=IF_ANY)]
    """What only this field keeps alive; None where owners were not looked for."""
    block_bytes: Annotated[Optional[int], Column("size", BYTES, shown=IF_ANY, goes=5)] = None
    """Of each block, where all have one size."""


def measure_fields(
    graph: Graph, blocks: int, heaps: Sequence[ManagedHeap], retained: Callable[[ManagedField], Optional[int]]
) -> List[HeldByField]:
    """Return a row for each field that leads to blocks, the largest first. `graph`: after mark(); `blocks`: how many it has; `retained`:
    what only a field keeps alive.
    """
    rows = []
    for runtime, field in ((heap.runtime, field) for heap in heaps for field in heap.fields):
        held = _find_blocks(graph, blocks, [*field.words, *field.other_words], field.begins_only)
        lost = _find_blocks(graph, blocks, field.lost_words[:MOST_LOST_WORDS], field.begins_only) - held
        if not held and not lost:
            continue
        sizes = [size for _, size in graph.blocks(sorted(held))]
        lost_sizes = [size for _, size in graph.blocks(sorted(lost))]
        all_sizes = {*sizes, *lost_sizes}
        row = HeldByField(
            field=field.name,
            runtime=runtime,
            objects=len(held) if field.begins_only else field.object_count,
            garbage_objects=field.garbage_objects,
            collectable_objects=field.collectable_objects,
            blocks=len(sizes) + len(lost_sizes),
            bytes=sum(sizes) + sum(lost_sizes),
            garbage_bytes=sum(size for block, size in zip(sorted(lost), lost_sizes) if graph.evidence(block) == LEAKED),
            retained_bytes=retained(field),
            block_bytes=all_sizes.pop() if len(all_sizes) == 1 else None,
        )
        rows.append(row)
    return sorted(rows, key=lambda held: (-max(held.bytes, held.retained_bytes or 0), held.field))


def _find_blocks(graph: Graph, blocks: int, words: Sequence[int], begins_only: bool) -> Set[int]:
    places = (graph.find(word) for word in set(words))
    return {place[0] for place in places if place is not None and place[0] < blocks and not (begins_only and place[1])}


LEAST_STATIC_BYTES = 256
"""Thread-local storage below the thread pointer where nothing shows how much it is: the C library's own is 128 to 144 bytes."""

DATA, THREAD_LOCAL, MANAGED, STACK, REGISTERS = "data", "thread-local", "managed", "stack", "registers"
STRONG_FIRST = (DATA, THREAD_LOCAL, MANAGED, STACK, REGISTERS)
STRONG = (DATA, THREAD_LOCAL, MANAGED)


class GraphRoot(NamedTuple):
    """Memory whose pointers hold blocks by themselves."""

    kind: str
    """DATA, THREAD_LOCAL, MANAGED, STACK or REGISTERS; registers without a thread are the control block of an ended one."""
    start: int
    """0 for registers and fields of managed objects."""
    end: int
    module: Optional[Module] = None
    thread: Optional[Thread] = None
    words: Sequence[int] = ()
    """Of registers."""
    exact: Sequence[int] = ()
    """Of them the stack pointer where it lies in a heap: the block that it lies in is the stack, and in use."""
    field: Optional[ManagedField] = None
    """Of MANAGED."""
    slot: int = NO_SLOT
    """Of one variable of the root its first pointer; slots count from the start of the whole root, as `start` and `end` are its."""


class GraphNode(NamedTuple):
    """A mapping that holds what points to blocks once something points to it."""

    start: int
    end: int
    use: MappingUse
    whose: Optional[str] = None
    """As `report` calls it, such as `JVM: Java heap`; None where its shape shows nothing for sure."""

    @property
    def resident_bytes(self) -> Optional[int]:
        """Return how much is resident; None where it is not known, or the node is no whole mapping."""
        is_whole = (self.start, self.end) == (self.use.mapping.start, self.use.mapping.end)
        return self.use.resident_bytes if is_whole and self.use.pss_bytes is not None else None


class Regions(NamedTuple):
    """Regions of memory that the graph is made of."""

    roots: Sequence[GraphRoot]
    """Data and thread-local storage first, stacks and registers then."""
    nodes: Sequence[GraphNode]
    """By address."""
    unknown_threads: Sequence[Thread]
    """Threads whose registers cannot be read: their stacks are roots as a whole."""
    managed: Sequence[ManagedHeap] = ()
    """Whose fields are roots."""


def find_regions(target: Target, claims: Iterable[Range], managed: Sequence[ManagedHeap] = ()) -> Regions:
    """Roots and nodes of a target. `claims`: what allocators hold, and the heaps of `managed`."""
    return RegionFinder(target, RangeIndex(claims)).find(managed)


class RegionFinder:
    """Finder of the regions of one target at one moment."""

    def __init__(self, target: Target, claims: RangeIndex) -> None:
        self._target, self._claims = target, claims
        memory = target.memory_use()
        self._uses = memory.mappings if memory is not None else [MappingUse(mapping, 0) for mapping in target.mappings()]
        self._places = MappingPlaces(self._uses)
        self._stacks = stacks.find_thread_stacks(self._places, target, self._read_present, True)
        self._here = attribute.find_present_runtimes(target)
        self._roots: List[GraphRoot] = []
        self._nodes: List[GraphNode] = []
        self._unknown: List[Thread] = []
        self._code = RangeIndex((start, end) for start, end, _ in target.image_ranges())
        arch = target.arch
        self._below = 0 if arch.storage.tcb_bytes is None else arch.pthread_bytes
        """How far below the thread pointer struct pthread begins."""
        self._static_bytes = max([self._below, *(-block.distance for block in target.static_blocks())]) or LEAST_STATIC_BYTES
        """How far below the thread pointer thread-local storage begins."""

    def _read_present(self, address: int, size_bytes: int) -> bytes:
        """Bytes of a few pages, if reading them brings none in."""
        present = self._target.present_ranges(address, address + size_bytes)
        if self._target.kind == "live" and sum(high - low for low, high in present) < size_bytes:
            return b""
        return self._target.read_prefix(address, size_bytes)

    def find(self, managed: Sequence[ManagedHeap] = ()) -> Regions:
        """Find all regions, with a root for each field by which managed objects hold blocks."""
        self._roots += [GraphRoot(MANAGED, 0, 0, field=field) for heap in managed for field in heap.fields]
        for thread in self._target.threads():
            self._add_thread(thread)
        self._add_ended_threads()
        own = RangeIndex((root.start, root.end) for root in self._roots if root.start < root.end)
        page, images = self._target.page_bytes, []
        for module in self._target.modules():
            for start, _, end in self._target.writable_segments(module):
                images.append((start & -page, -(-end // page) * page, module))
        images.sort(key=lambda segment: segment[:2])
        dead = {place for place, owner in self._stacks.sorts.items() if owner in (stacks.LIVING, stacks.COROUTINES, *stacks.OF_ENDED)}
        for place, use in enumerate(self._uses):
            whole = [(use.mapping.start, use.mapping.end)]
            # of a living stack what is in use is a root already
            left = subtract_ranges(whole, self._stacks.parts(self._places, place)) if place in dead else whole
            for start, end in left if self._may_point(use) else ():
                for low, high in own.outside(start, end):
                    self._add_part(use, low, high, images)
        order = {kind: number for number, kind in enumerate(STRONG_FIRST)}
        self._roots.sort(key=lambda root: (order[root.kind], root.start))
        return Regions(self._roots, self._nodes, self._unknown, managed)

    def _may_point(self, use: MappingUse) -> bool:
        mapping = use.mapping
        if not mapping.readable or mapping.name.startswith(kinds.OF_KERNEL) or kinds.is_device(use):
            return False
        if not mapping.writable and mapping.dumped_bytes is not None and self._is_blank(mapping):
            return False
        return mapping.writable or not (mapping.is_file or mapping.shared)

    def _is_blank(self, mapping: Mapping) -> bool:
        """Return True in a core for memory that is not writable and not in the file, or for the guard of a stack, which gdb records as
        readable.
        """
        if mapping.dumped_bytes and mapping.size_bytes <= stacks.MAX_USUAL_GUARD_BYTES:
            return not self._target.read_prefix(mapping.start, mapping.size_bytes).strip(b"\0")
        return mapping.dumped_bytes == 0

    def _add_part(self, use: MappingUse, start: int, end: int, images: Sequence[Tuple[int, int, Module]]) -> None:
        """Add one part of a mapping: an object's data is a root, the rest of it a node."""
        for low, high in self._claims.outside(start, end):
            data = [(max(low, first), min(high, last), module) for first, last, module in images if first < high and last > low]
            for first, last, module in data:
                before = self._roots[-1] if self._roots else None
                if before is not None and (before.kind, before.module, before.end) == (DATA, module, first):  # one variable may lie in both
                    self._roots[-1] = before._replace(end=last)
                else:
                    self._roots.append(GraphRoot(DATA, first, last, module))
            for first, last in RangeIndex((first, last) for first, last, _ in data).outside(low, high):
                self._nodes.append(GraphNode(first, last, use, self._find_runtime_owner(use, first, last)))

    def _find_runtime_owner(self, use: MappingUse, start: int, end: int) -> Optional[str]:
        """Return the name of the runtime that owns the range; None for guesses and without a runtime."""
        place = self._places.at(start) if self._here and not use.mapping.name and not use.mapping.executable else None
        if place is None:
            return None
        owner = attribute.find_owner_by_shape(self._here, self._places, place, lambda: [(start, end)], self._read_present)
        return owner.name if owner is not None and owner.sure != GUESS else None

    def _add_thread(self, thread: Thread) -> None:
        """Add the stack, registers and thread-local storage of a thread."""
        words = [*self._target.register_words(thread), *self._find_dtv(thread.thread_pointer)]
        pointer = thread.stack_pointer or 0
        exact = [pointer] if self._is_claimed(pointer) else []
        self._roots.append(GraphRoot(REGISTERS, 0, 0, thread=thread, words=words, exact=exact))
        if thread.stack_pointer is None:
            self._unknown.append(thread)
        self._add_stack(thread)
        self._add_thread_local(thread)

    def _add_ended_threads(self) -> None:
        """Add as roots the control blocks of ended threads whose stacks are still there. The C library frees a dtv, and the blocks of
        thread-local storage that it leads to, only when a new thread takes the stack or it is unmapped (nptl/allocatestack.c:
        get_cached_stack, __nptl_free_stacks), and a result stays until the thread is joined. Nothing else on such a stack is read again.
        """
        word = self._target.word_bytes
        for pointer in self._stacks.ended:
            data = self._read_present(pointer, stacks.find_stack_top(pointer, self._target.arch) - pointer)
            words = struct.unpack("<%dQ" % (len(data) // word), data[: len(data) // word * word])
            self._roots.append(GraphRoot(REGISTERS, 0, 0, words=[*words, *self._find_dtv(pointer)]))

    def _find_dtv(self, thread_pointer: Optional[int]) -> List[int]:
        """Return the start of the thread's dtv: the pointer to it skips its first entry (elf/dl-tls.c: INSTALL_DTV). Empty if there is
        none.
        """
        storage, word = self._target.arch.storage, self._target.word_bytes
        if not thread_pointer or not (storage.is_pthread or storage.tcb_bytes):
            return []
        data = self._read_present(thread_pointer + storage.dtv_words * word, word)
        dtv = int.from_bytes(data, "little") if len(data) == word else 0
        return [dtv - 2 * word] if dtv > 2 * word else []

    def _is_stack(self, place: Optional[int], thread: Thread) -> bool:
        """The thread runs on its stack there."""
        if place is None:
            return False
        room = (thread.thread_pointer or 0) - (thread.stack_pointer or 0)
        is_own = place == self._places.at(thread.thread_pointer) and 0 < room <= stacks.MAX_UNGUARDED_BYTES
        return place in self._stacks.sorts or (is_own and self._places.is_plain(place) and not self._is_claimed(thread.stack_pointer or 0))

    def _is_claimed(self, address: int) -> bool:
        return self._claims.meets(address, address + 1)

    def _add_stack(self, thread: Thread) -> None:
        """Add the stack from the red zone up; also the whole of the thread's own stack where it runs on another."""
        runs, block = self._places.at(thread.stack_pointer), self._places.at(thread.thread_pointer)
        if runs is not None and self._is_stack(runs, thread):
            pointer = thread.stack_pointer or 0
            start, end = self._stacks.bounds(self._places, runs, pointer)
            self._root_of_stack(thread, max(start, (pointer - self._target.arch.red_zone_bytes) & -self._target.word_bytes), end)
        if block is not None and block != runs and block in self._stacks.sorts:
            self._root_of_stack(thread, *self._stacks.bounds(self._places, block, thread.thread_pointer or 0))
        main = next((place for place, use in enumerate(self._uses) if use.mapping.name == stacks.MAIN), None)
        if thread.lwp == self._target.pid and main is not None and main != runs:
            self._root_of_stack(thread, self._uses[main].mapping.start, self._uses[main].mapping.end)

    def _root_of_stack(self, thread: Thread, start: int, end: int) -> None:
        """Its upper end is thread-local storage where the control block lies there; of that the argument of its start routine is a local
        variable of the outermost frame."""
        pointer = thread.thread_pointer or 0
        split = max(start, self._static_start(pointer)) if start <= pointer < end else end
        at = self._start_argument(pointer, split, end) if split < end else end
        word = self._target.word_bytes if at < end else 0
        for kind, low, high in ((STACK, start, split), (THREAD_LOCAL, split, at), (STACK, at, at + word), (THREAD_LOCAL, at + word, end)):
            if low < high:
                self._roots.append(GraphRoot(kind, low, high, thread=thread))

    def _start_argument(self, pointer: int, start: int, end: int) -> int:
        """Return the address of the argument in struct pthread: right after the start routine (nptl/descr.h); `end` if there is none that
        leads to a heap.
        """
        low, word = max(start, pointer - self._below), self._target.word_bytes
        data = self._read_present(low, min(end, low + self._target.arch.pthread_bytes) - low)
        words = struct.unpack("<%d%s" % (len(data) // word, "Q" if word == 8 else "I"), data[: len(data) // word * word])
        for place, (routine, argument) in enumerate(zip(words, words[1:])):
            if self._code.meets(routine, routine + 1) and self._is_claimed(argument):
                return low + (place + 1) * word
        return end

    def _static_start(self, pointer: int) -> int:
        return (pointer - self._static_bytes) & -64

    def _add_thread_local(self, thread: Thread) -> None:
        """Add the memory near a control block that is not on a stack, as that of the main thread."""
        pointer = thread.thread_pointer
        place = self._places.at(pointer)
        if not pointer or place is None or place in self._stacks.sorts or any(root.start <= pointer < root.end for root in self._roots):
            return
        mapping = self._uses[place].mapping
        low, high = max(mapping.start, self._static_start(pointer)), min(mapping.end, pointer + self._target.arch.pthread_bytes)
        for start, end in self._claims.outside(low, high):
            self._roots.append(GraphRoot(THREAD_LOCAL, start, end, thread=thread))


LEAKS_BYTES, OWNERS_BYTES = 25, 90
"""Of each block, at the peak; measured with up to 2 pointers in a block."""
SIGNED_BYTES, PINNED_BYTES = 4, 12
"""Of each block where there is no room for the graph: for a census; for the blocks that keep free memory."""


MOST_BYTES, MOST_OF_ALL, LEAST_BYTES = 256 << 10, 64 << 20, 4096
"""Kept of one stack, from its stack pointer up, and of all together."""
MOST_FUNCTION_LETTERS = 100
"""Of a function's name with its arguments, as the source has it; a longer one is shown as its symbol."""
FAR_BYTES = 1 << 30
"""Further from the stack pointer than that is another stack."""


def copy_stacks(target: Target, roots: Sequence[GraphRoot]) -> Dict[int, StackCopy]:
    """Copy the stack of each thread that runs on a stack that is a root, by lwp."""
    copies: Dict[int, StackCopy] = {}
    stacks = [root for root in roots if root.kind == STACK and root.thread is not None]
    most = max(LEAST_BYTES, min(MOST_BYTES, MOST_OF_ALL // max(1, len(stacks))))
    for root in stacks if target.arch.unwinding is not None else ():
        thread = root.thread
        pointer = thread.stack_pointer if thread is not None else None
        if thread is None or pointer is None or thread.pc is None or not root.start <= pointer < root.end:
            continue
        there = target.touched_ranges(pointer, min(root.end, pointer + most))
        if there and there[0][0] == pointer:
            data = target.read_prefix(pointer, there[0][1] - pointer)
            copies[thread.lwp] = StackCopy(pointer, thread.pc, target.register_words(thread), data)
    return copies


def find_module_at(target: Target, address: int) -> Optional[Module]:
    """The object whose image holds the address."""
    return next((module for start, end, module in target.image_ranges() if start <= address < end), None)


class NamedVariable(NamedTuple):
    """A variable of an object."""

    start: int
    end: int
    name: str


def find_variable_at(rows: Sequence[NamedVariable], address: int) -> Optional[NamedVariable]:
    """Return the one of these sorted variables that has the address."""
    place = bisect_left(rows, NamedVariable(address + 1, 0, "")) - 1
    return rows[place] if place >= 0 and address < rows[place].end else None


class SymbolSource(Protocol):
    """Source of names for places in memory."""

    def variable(self, module: Module, address: int) -> Optional[NamedVariable]:
        """The variable that has this address."""

    def in_stack(self, thread: Thread, address: int) -> Optional[str]:
        """`frame 3, work+0x12 in app`, or how far it is from the stack pointer."""

    def thread_local(self, thread: Thread, address: int) -> Optional[str]:
        """`t_cache+0x8 in app`; None where no object has a variable there."""


class TargetSymbols:
    """Symbols of a process or core; symbol tables are read on demand."""

    def __init__(self, target: Target, stacks: Dict[int, StackCopy], blocks: Sequence[StaticBlock]) -> None:
        self._target, self._stacks, self._blocks = target, stacks, blocks
        self._calls: Dict[int, Sequence[StackCall]] = {}
        self._functions: Dict[int, List[Function]] = {}
        self._named = functools.lru_cache(None)(self._name_function)
        """Many words lie in each call, and a program has a hundred thousand functions."""
        self._variables: Dict[int, List[NamedVariable]] = {}
        self._local: Dict[int, List[Tuple[str, int, int]]] = {}
        """Of thread-local storage, by the object's base: a symbol table is read once."""

    def _name_function(self, call: StackCall) -> Optional[str]:
        here = call.pc - call.is_return
        module = find_module_at(self._target, here)
        if module is None:
            return None
        if module.base not in self._functions:
            functions = self._target.functions(module, exported=True)
            self._functions[module.base] = sorted(functions, key=lambda row: (row.start, row.local, len(row.name)))
        rows = self._functions[module.base]
        place = bisect_right([row.start for row in rows], here) - 1
        while place > 0 and rows[place - 1].start == rows[place].start:
            place -= 1
        if place >= 0 and here < rows[place].end:
            symbol = rows[place].name
            written = self._target.source_name(symbol) or symbol
            shown = written if len(written) <= MOST_FUNCTION_LETTERS else symbol
            return "%s+0x%x in %s" % (shown, call.pc - rows[place].start, module.shown_name)
        return "%s+0x%x" % (module.shown_name, call.pc - module.base)

    def variable(self, module: Module, address: int) -> Optional[NamedVariable]:
        """See Symbols."""
        if module.base not in self._variables:
            variables: Dict[int, NamedVariable] = {}
            for name, value, size, is_local in self._target.variables(module):
                start = module.base + value
                if size and not is_local and (start not in variables or len(name) < len(variables[start].name)):
                    variables[start] = NamedVariable(start, start + size, name)
            self._variables[module.base] = sorted(variables.values())
        return find_variable_at(self._variables[module.base], address)

    def in_stack(self, thread: Thread, address: int) -> Optional[str]:
        """See Symbols; frame 0 is the innermost."""
        if thread.lwp not in self._calls:
            self._calls[thread.lwp] = self._target.calls(self._stacks[thread.lwp]) if thread.lwp in self._stacks else []
        for number, call in enumerate(self._calls[thread.lwp]):
            if address < call.end:
                name = self._named(call)
                return "frame %d%s" % (number, ", %s" % name if name else "")
        away = address - (thread.stack_pointer or 0)
        return None if thread.stack_pointer is None or abs(away) >= FAR_BYTES else "sp%s0x%x" % ("-" if away < 0 else "+", abs(away))

    def thread_local(self, thread: Thread, address: int) -> Optional[str]:
        """See Symbols."""
        away = address - (thread.thread_pointer or 0)
        block = next((static for static in self._blocks if static.distance <= away < static.distance + static.size_bytes), None)
        if block is None:
            return None
        place = away - block.distance
        if block.module.base not in self._local:
            rows = self._target.variables(block.module)
            self._local[block.module.base] = [(name, start, size) for name, start, size, is_local in rows if is_local]
        for name, start, size in self._local[block.module.base]:
            if start <= place < start + size:
                return "%s%s in %s" % (name, "+0x%x" % (place - start) if place > start else "", block.module.shown_name)
        return "%s, 0x%x bytes into its block" % (block.module.shown_name, place)


LITTLE_BYTES = 64 << 20
"""What takes less is tried at whatever place it is."""
MOST_BLOCKS = 500_000_000
"""Above this a graph's edges have no room for the numbers of its blocks (kernel/blocks/graph.h: ID_BITS)."""
SMALL_HEAP_BYTES = 2 << 30
"""Of a heap that is larger, or of a living process, the graph is made only where it is asked for."""


def is_small_heap(session: Session, asked: bool = False) -> bool:
    """A core, or a copy of a small process, with a heap of which the graph takes a second or two: it is looked at without being asked.
    `asked`: of any process."""
    if session.target.kind != "core" and not (asked or session.is_copied_whole):
        return False
    return sum(claim.end - claim.start for heap in session.heaps.all() for claim in heap.claims()) <= SMALL_HEAP_BYTES


def _measure_need(session: Session, each_bytes: int) -> Tuple[int, int, int]:
    """Return the blocks in use, as the walks over the heaps have counted them, or as a snapshot has them; the bytes that they take, and
    the bytes allowed.
    """
    if session.target.has_memory:
        count = sum(row.used_chunks for heap in session.heaps.all() for row in heap.histogram())
    else:
        reach: Optional[Reach] = session.shared(REACH)
        count = reach.numbers.blocks if reach is not None else 0
    return count, count * each_bytes, allowed_bytes() - session.copied_bytes


def check_fit(session: Session, each_bytes: int) -> Optional[Tuple[int, int]]:
    """Return None if the graph fits; else the bytes that it would take, and the bytes allowed."""
    count, needed, allowed = _measure_need(session, each_bytes)
    return (needed, allowed) if needed > allowed or count > MOST_BLOCKS else None


def check_least(session: Session, each_bytes: int) -> None:
    """HeapxError where not even what does without the graph fits, before it begins: the kernel would end it without a word."""
    _, needed, allowed = _measure_need(session, each_bytes)
    if needed > max(allowed, LITTLE_BYTES):
        what = "this takes about %s of memory, even without a graph, and this process may use %s"
        raise _refuse_size(what, (needed, allowed), "chunks --histogram")


def check_owners_fit(session: Session, each_bytes: int = OWNERS_BYTES, lighter: str = "leaks") -> None:
    """HeapxError where the owners of so many blocks cannot be found here, or a graph with so many bytes for each block does not fit.
    `lighter`: the command that takes less.
    """
    lacking = check_fit(session, each_bytes)
    if lacking is not None:
        raise _refuse_size("this takes about %s of memory, and this process may use %s", lacking, lighter)


def _refuse_size(what: str, sizes: Tuple[int, int], lighter: str) -> HeapxError:
    hint = "run it where there is more memory; `%s` takes less" % hint_command(lighter)
    return HeapxError(make_sentence(what, *map(SentenceSize, sizes)), hint, code=OUT_OF_MEMORY)


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


def open_block_source(target: Target) -> base.BulkSource:
    """Return the source from which blocks are read: unwritten memory reads as zeros. Allocators' own structures are not read so: missing
    bytes are missing there.
    """
    bulk, ranges = target.bulk_source(), target.unwritten_ranges()
    if not isinstance(bulk, base.FileSource) or not ranges:
        return bulk
    blank = [base.Segment(start, end - start, base.NOWHERE) for start, end in ranges]
    return base.FileSource(bulk.path, tuple(sorted([*bulk.segments, *blank])))


def report_unwritten(session: Session, graph: Graph) -> None:
    """Notes how much of the blocks in use it is."""
    count, missing, first = graph.numbers().blocks, 0, 0
    for start, end in session.target.unwritten_ranges():
        low, high = _first_block(graph, count, start), _first_block(graph, count, end)
        addresses, sizes = graph.columns(array("I", range(max(low - 1, 0), high)))
        here = sum(max(0, min(end, address + size) - max(start, address)) for address, size in zip(addresses, sizes))
        first = first or (start if here else 0)
        missing += here
    if missing:
        text = "%s of blocks in use are not in the core: never written to, or excluded by the program; they count as zeros"
        what = make_sentence(text, SentenceSize(missing))
        session.problem(problems.NOT_DUMPED, "0x%x" % first, what, partial=False)


def _first_block(graph: Graph, count: int, address: int) -> int:
    """The id of the first block at the address or after it."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if graph.blocks([middle])[0][0] < address else (low, middle)
    return low


class KeptReads(NamedTuple):
    """Data that a snapshot has in place of memory."""

    symbols: SymbolSource
    """Roots are split into variables already."""
    weak: Optional[Sequence[Tuple[int, int]]]
    """(node, evidence) that a second look has found; None: there was none."""
    fields: Sequence[HeldByField] = ()


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
    kept: Optional[KeptReads] = None
    """Of a snapshot."""

    @property
    def roots_from(self) -> int:
        """The first node that is a root."""
        return self.numbers.blocks + len(self.regions.nodes)

    @property
    def weak(self) -> Tuple[int, int]:
        """Roots that are stacks and registers."""
        strong = sum(root.kind in STRONG for root in self.regions.roots)
        return self.roots_from + strong, self.roots_from + len(self.regions.roots)

    def mapping(self, node: int) -> Optional[GraphNode]:
        """The mapping that the node is."""
        place = node - self.numbers.blocks
        return self.regions.nodes[place] if 0 <= place < len(self.regions.nodes) else None

    def root(self, node: int) -> Optional[GraphRoot]:
        """The root that the node is."""
        place = node - self.roots_from
        return self.regions.roots[place] if 0 <= place < len(self.regions.roots) else None


def find_containers(reach: Reach) -> Containers:
    """Find blocks that are linked with each other, while the roots of the graph are not split."""
    data = sum(root.kind == DATA for root in reach.regions.roots)
    return reach.graph.containers(reach.roots_from + data, reach.weak[0])


class RuntimePools(NamedTuple):
    """Blocks that a runtime has made of memory of its own, and that memory."""

    blocks: Sequence[Iterator[NativeBlocks]] = ()
    taken: Sequence[Tuple[int, int]] = ()
    unit_bytes: int = 16
    """They begin at multiples of this."""
    instead: Sequence[int] = ()
    """Addresses of the heaps' blocks that some of them were cut from, sorted: those are left out."""
    managed: Sequence[ManagedHeap] = ()
    """Heaps of collectors in `taken`."""


NO_POOLS = RuntimePools()


def mark_graph(
    session: Session, again: Optional[bool], further: RuntimePools = NO_POOLS, made: Optional[Reach] = None, slots: bool = False
) -> Tuple[Reach, Sequence[NativeSum]]:
    """The graph with its marks. `again`: look once more, for weak pointers; None: on a core. `further`: what counts as blocks, too; `made`:
    the graph, of memory that is as it was then. `slots`: containers are to be found in it."""
    reach: Optional[Reach] = session.shared(REACH) or made
    if reach is not None and reach.kept is not None:
        weak = reach.kept.weak  # of the second look when the snapshot was taken
        if again and weak is None:
            hint = "omit --weak; or ask the process or its core"
            raise HeapxError("the snapshot was taken without the search for weak pointers", hint, code=NOT_IN_SNAPSHOT)
        sums = reach.graph.mark(reach.roots_from)
        return reach, sums if weak is None or again is False else reach.graph.set_evidence(weak)
    is_wanted = session.target.kind == "core" if again is None else again
    if reach is None:
        reach = resolve_graph(session, read_world(session, slots, further=further, owning=False), hold=is_wanted)
    sums = reach.graph.mark(reach.roots_from)
    if had_to_resume(session):
        sums = reach.graph.mark(reach.roots_from)
    elif is_wanted and sums[LEAKED].blocks and reach.word_bytes == 8 and session.target.can_read_on and not session.budget.expired():
        session.budget.progress.stage = "second pass: weak pointers (skip with --no-weak)"
        unknown = session.target.arch.ignorable_bits if session.target.kind != "live" else 0
        sums = reach.graph.look_again(find_held_ranges(session.target, reach), read_pointer_guard(session.target), ignorable_bits=unknown)
        had_to_resume(session)
        report_tags(session, reach.graph)
    if session.store is not None:
        seen = [rule for rule in WEAKEST if sums[rule].blocks]
        seen_weak = reach.graph.with_evidence(seen, 0, reach.numbers.blocks) if seen else []
        session.share(LOOKED_AGAIN, seen_weak if is_wanted and not session.budget.expired() else None)
    session.target.let_go()
    return reach, sums


def had_to_resume(session: Session) -> bool:
    """The process had to run on before the second pass was over: what the first one has read is an answer, and is worked out."""
    budget = session.budget
    if not budget.expired() or not budget.is_stop_over:
        return False
    session.target.let_go()
    what = "%s before the second pass, for weak pointers, was over: more may be held by them" % budget.reason
    session.problem(problems.STOP_LIMIT, None, what, budget.next_step)
    budget.go_on()
    return True


def find_held_ranges(target: Target, reach: Reach) -> List[Tuple[int, int]]:
    """Memory outside the heaps that counts: roots, and mappings that something points to."""
    roots = [part for root in reach.regions.roots if root.start < root.end for part in target.touched_ranges(root.start, root.end)]
    for place, node in enumerate(reach.regions.nodes):
        if reach.graph.evidence(reach.numbers.blocks + place) not in (FROM_MAPPING, LEAKED) and not is_blank(node):
            roots += find_node_parts(target, node)
    return roots


def read_pointer_guard(target: Target) -> Optional[Tuple[int, int]]:
    """Return the value with which this process's C library mangles pointers, and the number of bits by which it rotates them; None if it
    cannot be read. The guard is the same in all threads (nptl's tls.h: tcbhead_t.pointer_guard), or a variable.
    """
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


def exclude_blocks(stream: Iterator[NativeBlocks], gone: Sequence[int]) -> Iterator[NativeBlocks]:
    """The stream without the blocks at these addresses."""
    return _exclude_some(stream, gone) if gone else stream  # one of the native library stays so


def _exclude_some(stream: Iterator[NativeBlocks], gone: Sequence[int]) -> Iterator[NativeBlocks]:
    for blocks in stream:
        known = blocks.addresses
        if not len(known) or bisect_left(gone, min(known)) == bisect_right(gone, max(known)):
            yield blocks
            continue
        left = set(gone[bisect_left(gone, min(known)) : bisect_right(gone, max(known))])
        stays = [address not in left for address in known]
        columns: Tuple[array[int], ...] = tuple(array(column.typecode, compress(column, stays)) for column in blocks)
        yield NativeBlocks(*columns)


def find_mapped_ranges(target: Target, claims: RangeIndex) -> List[Tuple[int, int]]:
    """Return the parts of the claims that are memory of the process: damage may lead an allocator anywhere, and the index of blocks spans
    all of it.
    """
    return unite_ranges(part for mapping in target.mappings() for part in claims.within(mapping.start, mapping.end))


def read_world(
    session: Session,
    slots: bool,
    names: bool = False,
    signer: Optional[Signer] = None,
    further: RuntimePools = NO_POOLS,
    owning: bool = True,
) -> Reach:
    """Reads everything; the graph is still to be resolved. `signer`: what signs all blocks in this one read; `further`: what counts as
    blocks, too; `owning`: words that own nothing are distinguished, if slots are kept."""
    target, heaps = session.target, session.heaps.all()
    session.budget.progress.stage = "reading all blocks"
    claims = find_mapped_ranges(
        target, RangeIndex([*((claim.start, claim.end) for heap in heaps for claim in heap.claims()), *further.taken])
    )
    own = [part for heap in heaps for part in heap.own_data()]
    outside = find_regions(target, unite_ranges([*claims, *own]), further.managed)
    files = RangeIndex((start, end) for start, end, _ in target.image_ranges())
    no_code = [mapping for mapping in target.mappings() if mapping.readable and not mapping.executable]
    images = sorted((max(low, row.start), min(high, row.end)) for row in no_code for low, high in files.within(row.start, row.end))
    shape = GraphShape(
        heaps=subtract_ranges(claims, unite_ranges(own)),
        mappings=[(node.start, node.end) for node in outside.nodes],
        word_bytes=target.word_bytes,
        little_endian=target.little_endian,
        unit_bytes=min([further.unit_bytes, *(heap.shape.unit_bytes for heap in heaps)]) if heaps else 8,
        all_slots=slots,
        images=images,
        ignored_bits=target.ignored_bits,
    )
    # a process's pages that are not in memory would be brought in; of a core there are parts that only files have
    bulk, vtables = target.bulk_source(), None  # type: base.BulkSource, Optional[base.BulkSource]
    if isinstance(bulk, base.ProcessSource):
        vtables = bulk._replace(untouched_zero=tuple(images))
    elif target.kind == "core":
        vtables = target.read_prefix
    graph = session.kernel.graph(open_block_source(target), shape, session.budget, vtables)
    if signer is not None:
        graph.sign(signer)
    if owning:
        graph.note_unowning()
    own_places = [place for heap in heaps for place in heap.own_places()]
    graph.gather([*(exclude_blocks(heap.blocks(), further.instead) for heap in heaps), *further.blocks], own_places)
    session.budget.progress.stage = "reading all other memory"
    read_bytes, node_bytes = 0, sum(node.end - node.start for node in outside.nodes)
    session.budget.progress.measure(lambda: read_bytes, node_bytes + sum(root.end - root.start for root in outside.roots))
    for node in outside.nodes:
        if not is_blank(node):
            for low, high in find_node_parts(target, node):
                graph.scan(node.start, low, high)
        graph.end_node()
        read_bytes += node.end - node.start
    for root in outside.roots:
        if root.field is not None:
            graph.scan_words(root.field.words, is_placed=False)
        elif root.kind == REGISTERS:
            graph.scan_words(root.words, root.exact)
        else:
            for low, high in target.touched_ranges(root.start, root.end):
                graph.scan(root.start, low, high)
        graph.end_node()
        read_bytes += root.end - root.start
    graph.settle()
    kept, blocks = (copy_stacks(target, outside.roots), target.static_blocks()) if names else ({}, [])
    return Reach(graph, outside, graph.numbers(), (), shape.heaps, target.word_bytes, kept, blocks)


def resolve_graph(session: Session, read: Reach, hold: bool = False) -> Reach:
    """Everything is read: the rest needs no more of the process, unless it is to be held."""
    if not hold:
        session.target.let_go()
    session.budget.progress.stage = "following all pointers"
    was_read = session.budget.reason is None
    habits = read.graph.resolve()
    if hold and was_read and had_to_resume(session):
        habits = read.graph.resolve()
    check_time(session)
    reach = read._replace(numbers=read.graph.numbers(), habits=habits)
    report_unread(session, reach)
    report_unwritten(session, reach.graph)
    return reach


def report_unread(session: Session, reach: Reach) -> None:
    """Note what may hold blocks and was not read."""
    numbers, target = reach.numbers, session.target
    if numbers.unread_bytes:
        what = make_sentence("%s of used blocks, stacks or data could not be read", SentenceSize(numbers.unread_bytes))
        hint = "blocks that only they reference count as leaked"
        session.problem(problems.ROOTS_UNREAD, "0x%x" % numbers.unread_at, what, hint)
    # the page table has nothing of shared memory that is in swap, as of pages that were never touched
    shared = [node for node in reach.regions.nodes if node.use.mapping.shared and find_shared_data(target, node) is None]
    there = [(node.start, min(node.use.swapped_bytes or 0, node.end - node.start)) for node in shared]
    lacking = [(start, size_bytes) for start, size_bytes in there if size_bytes]
    if lacking:
        what = make_sentence("%s of shared memory is in swap and was not read", SentenceSize(sum(size_bytes for _, size_bytes in lacking)))
        hint = "blocks that only it references count as leaked: --read-swap reads it, and can end the process; or retry with less in swap"
        session.problem(problems.IN_SWAP, "0x%x" % lacking[0][0], what, hint)
    files = target.undumped_files()
    if files:  # the usual core leaves them out, and is whole in all else
        text = "%s of %s that the program may have written to, %s first, are not in this core"
        size = SentenceSize(sum(end - start for start, end, _ in files))
        what = make_sentence(text, size, count_noun(len(files), "mapped file"), files[0][2])
        hint = "blocks that only they reference count as leaked; for a core with them: echo 0x3f > /proc/PID/coredump_filter"
        session.problem(problems.FILES_NOT_DUMPED, "0x%x" % files[0][0], what, hint, partial=False)
    if reach.regions.unknown_threads:
        threads = count_noun(len(reach.regions.unknown_threads), "thread")
        text = "registers of %s could not be read: these stacks count as a whole" % threads
        session.problem(problems.REGISTERS_UNREAD, None, text, "blocks that only registers reference count as leaked", partial=True)


def is_blank(node: GraphNode) -> bool:
    """Zeros without a look at any page: of its whole mapping none is in memory or in swap, which every kernel shows."""
    use = node.use
    return use.mapping.is_untouched_zero and not use.mapping.is_hugetlb and use.resident_bytes == 0 and use.swapped_bytes == 0


def find_node_parts(target: Target, node: GraphNode) -> Sequence[Tuple[int, int]]:
    """Return the parts of a node that are read. Pages that were never touched are known to be zeros, and the reader skips them; but a
    smaller node may be a stack with guard pages inside (MADV_GUARD_INSTALL, Linux 6.13): there the page table is asked first.
    """
    is_plain = target.kind != "core" and node.use.mapping.is_untouched_zero and node.end - node.start > MOST_GUARDED_BYTES
    whole = [(node.start, node.end)]
    return find_shared_data(target, node) or (whole if is_plain else target.touched_ranges(node.start, node.end))


def find_shared_data(target: Target, node: GraphNode) -> Optional[Sequence[Tuple[int, int]]]:
    """Return all data of the file of shared memory that is partly in swap, if the user permits reading it; else None."""
    room = target.swap_room()
    if not node.use.mapping.shared or not node.use.swapped_bytes or room is None or not room.is_accepted:
        return None
    room.take_shared(node.use.swapped_bytes, target.page_bytes)
    return target.swappable_ranges(node.start, node.end)


def check_time(session: Session) -> None:
    """HeapxError where time has run out: a half of a graph says nothing."""
    if session.budget.expired():
        raise session.budget.cut("the graph was complete")


def report_tags(session: Session, graph: Graph) -> None:
    """Notes words that are pointers if the process has had the processor ignore some of their bits: only a living process shows that."""
    if graph.tagged_words:
        what = "%s lead%s to blocks without another reference, if the process uses tagged pointers: a %s does not say whether it does"
        hint = "ask the process while it runs; until then `maybe` counts the blocks behind them"
        words, verb = count_noun(graph.tagged_words, "word"), "s" if graph.tagged_words == 1 else ""
        kind = "core" if session.target.kind == "core" else "remote process"
        session.problem(problems.TAGS_UNKNOWN, None, what % (words, verb, kind), hint, partial=False)


def lacks_holders(session: Session) -> bool:
    """Something that may hold blocks was not read, or is damaged: what is called leaked then is so at most."""
    codes = (code for code in _list_codes(session) if code != NOTHING_UNKNOWN)
    return any(code.nature in (Severity.UNREAD, Severity.DAMAGE) or code in HOLDERS_UNREAD for code in codes)


def is_leak_unknown(session: Session, leaked: Optional[NativeSum] = None) -> bool:
    """Memory that holds most of what is in use was not read: what nothing else leads to may well be held. Or nothing was found leaked, and
    much has no reader: there may be any number of blocks in there."""
    codes = _list_codes(session)
    return any(code in LEAKS_UNKNOWN for code in codes) or (leaked is not None and not leaked.blocks and NOTHING_UNKNOWN in codes)


def _list_codes(session: Session) -> List[problems.ProblemCode]:
    return [problem.code for problem in session.problems] + [complaint.code for complaint in session.target.problems()]
