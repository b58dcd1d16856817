"""What lies outside the heaps: roots, and mappings that are nodes of the graph."""

import struct
from typing import Iterable, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.memory import kinds, shapes, stacks
from gdbheapx.analysis.memory.places import Places
from gdbheapx.inferior.base import Mapping, MappingUse, Module, Target, Thread
from gdbheapx.model import GUESS
from gdbheapx.ranges import Range, Ranges, subtract

LEAST_STATIC_BYTES = 256
"""Thread-local storage below the thread pointer where nothing tells how much it is: the C library's own is 128 to 144 bytes."""

DATA, THREAD_LOCAL, STACK, REGISTERS = "data", "thread-local", "stack", "registers"
STRONG_FIRST = (DATA, THREAD_LOCAL, STACK, REGISTERS)


class Root(NamedTuple):
    """Memory whose pointers hold blocks by themselves."""

    kind: str
    """DATA, THREAD_LOCAL, STACK or REGISTERS; registers without a thread are the control block of an ended one."""
    start: int
    """0 for registers."""
    end: int
    module: Optional[Module] = None
    thread: Optional[Thread] = None
    words: Sequence[int] = ()
    """Of registers."""
    exact: Sequence[int] = ()
    """Of them the stack pointer where it lies in a heap: the block that it lies in is the stack, and in use."""


class Node(NamedTuple):
    """A mapping that holds what points to blocks once something points to it."""

    start: int
    end: int
    use: MappingUse
    whose: Optional[str] = None
    """As `report` calls it, such as `JVM: Java heap`; None where its shape tells nothing for sure."""


class Regions(NamedTuple):
    """All of them."""

    roots: Sequence[Root]
    """Data and thread-local storage first, stacks and registers then."""
    nodes: Sequence[Node]
    """By address."""
    unknown_threads: Sequence[Thread]
    """Threads whose registers cannot be read: their stacks are roots as a whole."""


def find(target: Target, claims: Iterable[Range]) -> Regions:
    """Roots and nodes of a target. `claims`: what allocators hold."""
    return Finder(target, Ranges(claims)).find()


class Finder:
    """One look."""

    def __init__(self, target: Target, claims: Ranges) -> None:
        self._target, self._claims = target, claims
        memory = target.memory_use()
        self._uses = memory.mappings if memory is not None else [MappingUse(mapping, 0) for mapping in target.mappings()]
        self._places = Places(self._uses)
        self._stacks = stacks.find(self._places, target, self._read, True)
        self._here = shapes.present(target)
        self._roots: List[Root] = []
        self._nodes: List[Node] = []
        self._unknown: List[Thread] = []
        self._code = Ranges((start, end) for start, end, _ in target.image_ranges())
        arch = target.arch
        self._below = 0 if arch.storage.tcb_bytes is None else arch.pthread_bytes
        """How far below the thread pointer struct pthread begins."""
        self._static_bytes = max([self._below, *(-block.distance for block in target.static_blocks())]) or LEAST_STATIC_BYTES
        """How far below the thread pointer thread-local storage begins."""

    def _read(self, address: int, size_bytes: int) -> bytes:
        """Bytes of a few pages, if reading them brings none in."""
        present = self._target.present_ranges(address, address + size_bytes)
        if self._target.kind == "live" and sum(high - low for low, high in present) < size_bytes:
            return b""
        return self._target.read_prefix(address, size_bytes)

    def find(self) -> Regions:
        """All of it."""
        self._threads()
        self._ended()
        own = Ranges((root.start, root.end) for root in self._roots if root.kind != REGISTERS)
        images = self._images()
        dead = {place for place, owner in self._stacks.sorts.items() if owner in (stacks.LIVING, stacks.COROUTINES, *stacks.OF_ENDED)}
        for place, use in enumerate(self._uses):
            whole = [(use.mapping.start, use.mapping.end)]
            # of a living stack what is in use is a root already
            left = subtract(whole, self._stacks.parts(self._places, place)) if place in dead else whole
            for start, end in left if self._may_point(use) else ():
                for low, high in own.outside(start, end):
                    self._add(use, low, high, images)
        order = {kind: number for number, kind in enumerate(STRONG_FIRST)}
        self._roots.sort(key=lambda root: (order[root.kind], root.start))
        return Regions(self._roots, self._nodes, self._unknown)

    def _may_point(self, use: MappingUse) -> bool:
        mapping = use.mapping
        if not mapping.readable or mapping.name.startswith(kinds.OF_KERNEL) or kinds.is_device(use):
            return False
        if not mapping.writable and mapping.dumped_bytes is not None and self._is_blank(mapping):
            return False
        return mapping.writable or not (mapping.is_file or mapping.shared)

    def _is_blank(self, mapping: Mapping) -> bool:
        """Of a core: what nobody may write to and is not in the file, or the guard of a stack, of which gdb writes that it can be read."""
        if mapping.dumped_bytes and mapping.size_bytes <= stacks.MAX_USUAL_GUARD_BYTES:
            return not self._target.read_prefix(mapping.start, mapping.size_bytes).strip(b"\0")
        return mapping.dumped_bytes == 0

    def _images(self) -> Sequence[Tuple[int, int, Module]]:
        """Writable segments of all objects."""
        page = self._target.page_bytes
        segments = []
        for module in self._target.modules():
            for start, _, end in self._target.writable_segments(module):
                segments.append((start & -page, -(-end // page) * page, module))
        return sorted(segments, key=lambda segment: segment[:2])

    def _add(self, use: MappingUse, start: int, end: int, images: Sequence[Tuple[int, int, Module]]) -> None:
        """One part of a mapping: an object's data is a root, what is left of it a node."""
        for low, high in self._claims.outside(start, end):
            data = [(max(low, first), min(high, last), module) for first, last, module in images if first < high and last > low]
            for first, last, module in data:
                before = self._roots[-1] if self._roots else None
                if before is not None and (before.kind, before.module, before.end) == (DATA, module, first):  # one variable may lie in both
                    self._roots[-1] = before._replace(end=last)
                else:
                    self._roots.append(Root(DATA, first, last, module))
            for first, last in Ranges((first, last) for first, last, _ in data).outside(low, high):
                self._nodes.append(Node(first, last, use, self._whose(use, first, last)))

    def _whose(self, use: MappingUse, start: int, end: int) -> Optional[str]:
        """Of a runtime that is here; guesses are none."""
        place = self._places.at(start) if self._here and not use.mapping.name and not use.mapping.executable else None
        owner = shapes.by_shape(self._here, self._places, place, lambda: [(start, end)], self._read) if place is not None else None
        return owner.name if owner is not None and owner.sure != GUESS else None

    def _threads(self) -> None:
        """Stacks, registers and thread-local storage of every thread."""
        for thread in self._target.threads():
            words = [*self._target.register_words(thread), *self._dtv(thread.thread_pointer)]
            pointer = thread.stack_pointer or 0
            exact = [pointer] if self._is_claimed(pointer) else []
            self._roots.append(Root(REGISTERS, 0, 0, thread=thread, words=words, exact=exact))
            if thread.stack_pointer is None:
                self._unknown.append(thread)
            self._stack(thread)
            self._thread_local(thread)

    def _ended(self) -> None:
        """What ended threads keep whose stacks are still there. The C library frees a dtv, and the blocks of thread-local storage that
        it leads to, only when a new thread takes the stack or it is unmapped (nptl/allocatestack.c: get_cached_stack, __nptl_free_stacks),
        and a result stays until somebody joins the thread. Nothing else on such a stack is read again."""
        word = self._target.word_bytes
        for pointer in self._stacks.ended:
            data = self._read(pointer, stacks.top(pointer, self._target.arch) - pointer)
            words = struct.unpack("<%dQ" % (len(data) // word), data[: len(data) // word * word])
            self._roots.append(Root(REGISTERS, 0, 0, words=[*words, *self._dtv(pointer)]))

    def _dtv(self, thread_pointer: Optional[int]) -> List[int]:
        """What the thread's dtv is inside of: the pointer to it leads behind its first entry (elf/dl-tls.c: INSTALL_DTV)."""
        storage, word = self._target.arch.storage, self._target.word_bytes
        if not thread_pointer or not (storage.is_pthread or storage.tcb_bytes):
            return []
        data = self._read(thread_pointer + storage.dtv_words * word, word)
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

    def _stack(self, thread: Thread) -> None:
        """From the red zone up; all of its own stack where it runs on another."""
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
                self._roots.append(Root(kind, low, high, thread=thread))

    def _start_argument(self, pointer: int, start: int, end: int) -> int:
        """Where struct pthread has the argument: behind the start routine (nptl/descr.h); `end` if it has none that leads to a heap."""
        low, word = max(start, pointer - self._below), self._target.word_bytes
        data = self._read(low, min(end, low + self._target.arch.pthread_bytes) - low)
        words = struct.unpack("<%d%s" % (len(data) // word, "Q" if word == 8 else "I"), data[: len(data) // word * word])
        for place, (routine, argument) in enumerate(zip(words, words[1:])):
            if self._code.meets(routine, routine + 1) and self._is_claimed(argument):
                return low + (place + 1) * word
        return end

    def _static_start(self, pointer: int) -> int:
        return (pointer - self._static_bytes) & -64

    def _thread_local(self, thread: Thread) -> None:
        """Where the control block lies elsewhere, as that of the main thread does: what is near it."""
        pointer = thread.thread_pointer
        place = self._places.at(pointer)
        if not pointer or place is None or place in self._stacks.sorts or any(root.start <= pointer < root.end for root in self._roots):
            return
        mapping = self._uses[place].mapping
        low, high = max(mapping.start, self._static_start(pointer)), min(mapping.end, pointer + self._target.arch.pthread_bytes)
        for start, end in self._claims.outside(low, high):
            self._roots.append(Root(THREAD_LOCAL, start, end, thread=thread))
