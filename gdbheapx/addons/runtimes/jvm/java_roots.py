"""Roots of the Java heap: what the JVM itself holds, by OopStorages, class loaders, JNI handles, threads and frames.

HotSpot: gc/shared/oopStorage.cpp, oopStorageSet.cpp, classfile/classLoaderData.cpp, runtime/jniHandles.cpp, javaThread.cpp. What is weak is
left out. Not read: the HandleArea of threads (objects that the VM's own code holds for the moment), words that native code hides.

Java threads and the frames of their stacks: which words of a compiled frame are objects at a call, by the oop map of its code.

HotSpot: runtime/frame.cpp, cpu/*/frame_*.inline.hpp, memory/heap.cpp, compiler/oopMap.cpp, runtime/javaCalls.hpp. Words of a compiled frame
would call dead variables alive: a loop that has been compiled while it ran (OSR) leaves those of `main` on the stack for good.
"""

import sys
from array import array
from bisect import bisect_left
from itertools import islice
from struct import pack, unpack_from
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.addons.runtimes.jvm.java_classes import JavaClass, list_object_fields
from gdbheapx.addons.runtimes.jvm.java_heap import (
    MOST_NAME_BYTES,
    JavaHeap,
    JavaShape,
    VmTables,
    escape_java_name,
    list_java_thread_addresses,
)
from gdbheapx.common.ranges import Range
from gdbheapx.common.units import count_noun

MOST_STACK_BYTES = 64 << 20
MOST_FRAMES = 1 << 15
MOST_CODE_HEAPS, MOST_HOPS = 16, 1 << 12
MOST_MAPS, MOST_IN_REGISTERS = 1 << 16, 512
MOST_CONSTANT_BYTES = 1 << 20
FREE_SEGMENT, MOST_SEGMENT_BITS = 0xFF, 16
LEAST_LONG, BITS_OF_BYTE, MOST_BYTES_OF_NUMBER = 192, 6, 5
"""Of UNSIGNED5: a byte below ends a number."""
NO_ZERO_BYTES = 21
"""The release since which the bytes of a number are one more (utilities/unsigned5.hpp)."""
CALLS_BEING_RESOLVED = ("resolve", "wrong_method", "ic_miss")
"""Stubs that hold the arguments of a call which the map of the caller no longer has."""


class JavaThread(NamedTuple):
    """A thread that the JVM knows as one that may run Java code."""

    address: int
    """Of the JavaThread."""
    name: Optional[str]
    """By Thread.name."""
    lwp: Optional[int]
    state: Optional[str]
    """In HotSpot's words: `in_native`, `blocked`, `in_Java`."""
    stack_begin: int
    """Lowest address of its stack."""
    stack_end: int


class OopDecoder:
    """Decode words into addresses where an object may begin."""

    def __init__(self, shape: JavaShape, reserved: Sequence[Range]) -> None:
        self.shape = shape
        self._base, self._shift, self.is_narrow = shape.oop_base, shape.oop_shift, shape.oop_bytes == 4
        self._begin = min((begin for begin, _ in reserved), default=0)
        self._end = max((end for _, end in reserved), default=0)
        self._alignment_bytes = max(shape.alignment_bytes, 8)

    def is_oop(self, word: Optional[int]) -> bool:
        """Return True for the address of a place where an object may begin."""
        return word is not None and self._begin <= word < self._end and word % self._alignment_bytes == 0

    def decode_narrow(self, half: int) -> int:
        """Return the address of a compressed reference; 0 for null."""
        return self._base + (half << self._shift) if half else 0

    def select_oops(self, words: Sequence[int]) -> List[int]:
        """Return addresses that words may refer to, or their halves where references are compressed: stacks and registers hold both."""
        oops = [word for word in words if self._begin <= word < self._end]
        if self.is_narrow:
            first, last = (self._begin - self._base) >> self._shift, (self._end - self._base) >> self._shift
            halves = [word & 0xFFFFFFFF for word in words if first <= word & 0xFFFFFFFF < last]
            halves += [word >> 32 for word in words if first <= word >> 32 < last]
            oops += [self.decode_narrow(half) for half in halves]
        return [oop for oop in oops if self.is_oop(oop)]


class CompiledCode(NamedTuple):
    """Code that HotSpot has made: of a method, a stub or the interpreter (CodeBlob)."""

    address: int
    name: str
    """`nmethod`, `native nmethod`, `Interpreter`, or the name of a stub."""
    begin: int
    """First instruction."""
    frame_bytes: int
    map_set: int

    @property
    def is_method(self) -> bool:
        """Return True for a method's code, whose frames have oop maps at all calls."""
        return self.name in ("nmethod", "native nmethod")


FrameOop = Tuple[Optional[int], bool]
"""Offset from the frame's stack pointer (None: in a register), and whether it is a compressed reference."""


class CodeCacheIndex:
    """The code that an address lies in, and its oop maps."""

    def __init__(self, tables: VmTables) -> None:
        self._tables = tables
        self._calls: Dict[int, Tuple[Optional[CompiledCode], Optional[Sequence[FrameOop]]]] = {}
        self._heaps = self._list_heaps()
        registers = tables.constant_value("ConcreteRegisterImpl::number_of_registers")
        self._first_slot = -1 if registers is None else (registers + 7) & ~7  # VMRegImpl::stack0
        self._slot_bytes = tables.constant_value("VMRegImpl::stack_slot_size") or 4
        names = ("oop_value", "narrowoop_value", "type_mask_in_place", "register_shift")
        numbers = [tables.constant_value("OopMapValue::" + name) for name in names]
        self._oop, self._narrow_oop, self._kind_mask, self._kind_bits = (number or 0 for number in numbers)
        if None in numbers:
            self._first_slot = -1

    def look_up(self, pc: int) -> Tuple[Optional[CompiledCode], Optional[Sequence[FrameOop]]]:
        """Return the code that a call returns to, and where its frame holds objects then; None for either if unknown."""
        if pc not in self._calls:
            code = self._find_code(pc)
            self._calls[pc] = (code, self._read_map(code, pc) if code is not None else None)
        return self._calls[pc]

    def find_original_pc(self, code: CompiledCode, sp: int) -> Optional[int]:
        """Return the address that a call of a method would return to, had it not been deoptimised: its frame keeps it."""
        offset = self._tables.field_offset("nmethod", "_orig_pc_offset")
        slot = self._tables.read_i4(code.address + offset) if offset is not None else None
        return self._tables.read_word(sp + slot) if slot is not None and 0 < slot < code.frame_bytes else None

    def list_constants(self, code: CompiledCode) -> Sequence[int]:
        """Return the words that a method's code has for objects it names."""
        tables = self._tables
        data, bounds = code.address, [tables.field_offset("nmethod", field) for field in ("_oops_offset", "_metadata_offset")]
        if None in bounds:  # since 24 they are in memory of their own
            data = tables.field_word(code.address, "CodeBlob", "_mutable_data") or 0
            bounds = [tables.field_offset("CodeBlob", field) for field in ("_relocation_size", "_mutable_data_size")]
        begin, end = (tables.read_u4(code.address + bound) or 0 if bound is not None else 0 for bound in bounds)
        return tables.read_words(data + (begin + 7 & ~7), (end - begin) // 8) if data and 0 < begin < end < MOST_CONSTANT_BYTES else ()

    def _list_heaps(self) -> List[Tuple[int, int, int, int]]:
        """Return begin and end of each code heap, its table of segments, and log2 of a segment."""
        tables, heaps = self._tables, []
        array, bits_at = tables.static_word("CodeCache", "_heaps"), tables.field_offset("CodeHeap", "_log2_segment_size")
        begin = tables.field_word(array or 0, "GrowableArray<int>", "_data")
        memory, segments = tables.field_offset("CodeHeap", "_memory"), tables.field_offset("CodeHeap", "_segmap")
        if not array or not begin or memory is None or segments is None or bits_at is None:
            return []
        for heap in tables.read_words(begin, min(tables.read_u4(array) or 0, MOST_CODE_HEAPS)):
            low, table = (tables.field_word(heap + space, "VirtualSpace", "_low") for space in (memory, segments))
            high, bits = tables.field_word(heap + memory, "VirtualSpace", "_high"), tables.read_u4(heap + bits_at)
            if low and high and table and bits is not None and bits <= MOST_SEGMENT_BITS:
                heaps.append((low, high, table, bits))
        return heaps

    def _find_code(self, pc: int) -> Optional[CompiledCode]:
        tables = self._tables
        low, segments, bits = next(((low, table, bits) for low, high, table, bits in self._heaps if low <= pc < high), (0, 0, 0))
        segment = (pc - low) >> bits
        for _ in range(MOST_HOPS if low else 0):  # a segment's byte is the way back to the block's first, 0 there
            byte = tables.read_prefix(segments + segment, 1)
            if not byte or byte[0] == FREE_SEGMENT or byte[0] > segment:
                return None
            if not byte[0]:
                return self._read_code(low + (segment << bits) + (tables.size_bytes("HeapBlock") or 16), pc)
            segment -= byte[0]
        return None

    def _read_code(self, address: int, pc: int) -> Optional[CompiledCode]:
        tables = self._tables
        name = tables.text_at(tables.field_word(address, "CodeBlob", "_name") or 0)
        begin = tables.field_word(address, "CodeBlob", "_code_begin")
        if begin is None:  # since 24 an offset
            offset = tables.field_offset("CodeBlob", "_code_offset")
            begin = address + (tables.read_u4(address + offset) or 0) if offset is not None else None
        frame = tables.field_offset("CodeBlob", "_frame_size")
        words = tables.read_i4(address + frame) if frame is not None else None
        if name is None or begin is None or words is None or not address < begin <= pc:
            return None
        return CompiledCode(address, name, begin, 8 * words, tables.field_word(address, "CodeBlob", "_oop_maps") or 0)

    def _read_map(self, code: CompiledCode, pc: int) -> Optional[Sequence[FrameOop]]:
        """Read the ImmutableOopMap of a return address: numbers that have a register and a kind, in the least bits."""
        tables, count = self._tables, self._tables.read_u4(code.map_set) if code.map_set else None
        head, pair = tables.size_bytes("ImmutableOopMapSet"), tables.size_bytes("ImmutableOopMapPair")
        size = tables.size_bytes("ImmutableOopMap")
        if count is None or head is None or pair != 8 or size is None or self._first_slot < 0:
            return None
        pairs = tables.read_words(code.map_set + head, min(count, MOST_MAPS))  # offset of the pc, and of its map, in four bytes each
        places = [word & 0xFFFFFFFF for word in pairs]  # ascending
        index = bisect_left(places, pc - code.begin)
        if index == len(places) or places[index] != pc - code.begin:
            return None
        address = code.map_set + head + count * pair + (pairs[index] >> 32)
        length = tables.read_u4(address)
        if length is None or length > max(code.frame_bytes, 0) // self._slot_bytes + MOST_IN_REGISTERS:
            return None
        numbers = iter(self._read_numbers(address + size, 2 * length))
        oops = []
        for number in islice(numbers, length):
            kind, slot = number & self._kind_mask, (number >> self._kind_bits) - self._first_slot
            if kind in (self._oop, self._narrow_oop):
                oops.append((slot * self._slot_bytes if slot >= 0 else None, kind == self._narrow_oop))
            elif next(numbers, None) is None:  # the register that a stub has saved, or the base of a pointer into an object
                return None
        return oops

    def _read_numbers(self, address: int, most: int) -> List[int]:
        excess = 1 if self._tables.major >= NO_ZERO_BYTES else 0
        numbers, number, place = [], 0, 0
        for byte in self._tables.read_prefix(address, most * MOST_BYTES_OF_NUMBER):
            if byte < excess:
                break
            number += byte - excess << BITS_OF_BYTE * place
            place += 1
            if byte - excess < LEAST_LONG or place == MOST_BYTES_OF_NUMBER:
                numbers.append(number & 0xFFFFFFFF)
                number = place = 0
        return numbers


class JavaStack:
    """Words of a thread's stack from an address up."""

    def __init__(self, tables: VmTables, begin: int, end: int) -> None:
        data = tables.read_prefix(begin, min(end - begin, MOST_STACK_BYTES))
        self.begin, self.words = begin, array("Q", data[: len(data) // 8 * 8])
        if tables.target.little_endian != (sys.byteorder == "little"):
            self.words.byteswap()
        self.end = begin + 8 * len(self.words)

    def word_at(self, address: int) -> int:
        """Return the word at an address; 0 outside."""
        return self.words[(address - self.begin) // 8] if self.begin <= address <= self.end - 8 and address % 8 == 0 else 0

    def cut_words(self, begin: int, end: int) -> Sequence[int]:
        """Return the words of a range."""
        return self.words[max(begin - self.begin, 0) // 8 : max(min(end, self.end) - self.begin, 0) // 8]


class FrameRoots:
    """References that the frames of a thread hold."""

    def __init__(self) -> None:
        self.oops: List[int] = []
        """By oop maps."""
        self.words = array("Q")
        """Of interpreted frames, stubs, and all that could not be decoded."""
        self.wrappers: List[int] = []
        """JavaCallWrappers: native code called Java code there."""
        self.codes: Dict[int, CompiledCode] = {}
        """Methods that have a frame."""
        self.is_whole = False
        """True if the walk came to the first frame."""


class FrameWalker:
    """Walk over the frames of a thread that is not in Java code, from where it left it (JavaFrameAnchor)."""

    def __init__(self, tables: VmTables, index: CodeCacheIndex, decoder: OopDecoder) -> None:
        self._tables, self._index, self._decoder = tables, index, decoder
        self._entry_return = tables.static_word("StubRoutines", "_call_stub_return_address")
        self._wrapper_offset = 8 * (tables.constant_value("frame::entry_frame_call_wrapper_offset") or 0)
        self._sender_offset = 8 * (tables.constant_value("frame::interpreter_frame_sender_sp_offset") or -1)
        self._anchor_offset = tables.field_offset("JavaCallWrapper", "_anchor") or 0

    def read_anchor(self, anchor: int) -> Tuple[int, int, int]:
        """Return stack pointer, program counter and frame pointer of the last Java frame; a stack pointer of 0 if there is none."""
        fields = ("_last_Java_sp", "_last_Java_pc", "_last_Java_fp")
        sp, pc, fp = (self._tables.field_word(anchor, "JavaFrameAnchor", field) or 0 for field in fields)
        return sp, pc, fp

    def walk_frames(self, thread: JavaThread, stack: JavaStack, place: Tuple[int, int, int]) -> FrameRoots:
        """Walk from a stack pointer, program counter (0: before that) and frame pointer outwards."""
        roots, (sp, pc, fp) = FrameRoots(), place
        pc = pc or stack.word_at(sp - 8) or self._tables.read_word(sp - 8) or 0
        has_interpreted = is_resolving = False  # what the frame called
        for _ in range(MOST_FRAMES):
            if not stack.begin <= sp < stack.end:
                return roots
            if pc == self._entry_return and self._entry_return:
                wrapper = stack.word_at(fp + self._wrapper_offset)
                if not sp <= fp < stack.end or stack.word_at(wrapper) != thread.address:
                    break
                roots.wrappers.append(wrapper)
                roots.words.extend(stack.cut_words(sp, fp) if has_interpreted else ())  # parameters
                next_sp, pc, next_fp = self.read_anchor(wrapper + self._anchor_offset)
                roots.is_whole = not next_sp
                if roots.is_whole:
                    return roots
                pc, has_interpreted, is_resolving = pc or stack.word_at(next_sp - 8), False, False
                if next_sp <= fp:
                    break
            else:
                code, oops = self._index.look_up(pc)
                if code is None:
                    break
                if code.name == "Interpreter":
                    next_sp, next_fp = stack.word_at(fp + self._sender_offset), stack.word_at(fp)
                    if not sp <= fp or not fp + 16 <= next_sp <= stack.end:
                        break
                    pc = stack.word_at(fp + 8)
                    roots.words.extend(stack.cut_words(sp, next_sp))
                else:
                    next_sp = sp + code.frame_bytes
                    if not sp + 16 <= next_sp <= stack.end:
                        break
                    pc, next_fp = stack.word_at(next_sp - 8), stack.word_at(next_sp - 16)
                    if code.is_method and oops is None:
                        oops = self._index.look_up(self._index.find_original_pc(code, sp) or 0)[1]
                    if not code.is_method or oops is None or is_resolving:
                        roots.words.extend(stack.cut_words(sp, next_sp))
                    roots.oops += self._select_oops(stack, sp, fp, oops or ())
                    roots.codes.update({code.address: code} if code.is_method else {})
                has_interpreted, is_resolving = code.name == "Interpreter", code.name.startswith(CALLS_BEING_RESOLVED)
            sp, fp = next_sp, next_fp
        roots.words.extend(stack.cut_words(sp, stack.end))
        return roots

    def _select_oops(self, stack: JavaStack, sp: int, fp: int, places: Sequence[FrameOop]) -> List[int]:
        """Read what an oop map names. A register is the frame pointer, which the callee has saved: others are saved by stubs alone, all of
        whose words count."""
        oops = []
        for offset, is_narrow in places:
            word = fp if offset is None else stack.word_at(sp + offset & ~7)
            oops.append(self._decoder.decode_narrow(word >> 8 * ((offset or 0) & 4) & 0xFFFFFFFF) if is_narrow else word)
        return [oop for oop in oops if self._decoder.is_oop(oop)]


MOST_LOADERS, MOST_CHUNKS, MOST_BLOCKS, MOST_STORAGES, MOST_ARRAYS = 1 << 17, 1 << 20, 1 << 18, 64, 16
MOST_DATA_BYTES, MOST_STACKS_BYTES = 64 << 20, 1 << 30
CHUNK_WORDS, CHUNK_SIZE_AT, CHUNK_NEXT_AT = 32, 256, 264
"""ClassLoaderData::ChunkedHandleList::Chunk: handles, how many there are (4 bytes), the next chunk."""
STORAGE_ARRAY_AT, ARRAY_COUNT_AT, ARRAY_BLOCKS_AT = 8, 8, 24
WEAK = "Weak"
"""In the names of storages that are no roots: `JNI Weak`, `JVMTI Tag Weak OopStorage`."""
LEAST_STORAGES = 3
"""Of a release that has OopStorageSet (15). Before it, Universe and SystemDictionary keep their objects in variables of libjvm.so."""
BLOCK_WORDS, BLOCK_MASK_AT, BLOCK_OWNER_AT = 64, 512, 520
"""OopStorage::Block: its owner word proves the layout."""
HANDLES_OF_BLOCK, POP_FRAME_LINK_AFTER_NEXT = 32, 16
HANDLES_AT, RECEIVER_AT = 8, 24
"""Of JavaCallWrapper {thread, handles, method, receiver, anchor, ...}."""
LOCK_STACK = (("JavaThread", "_lock_stack"), ("LockStack", "_top"), ("LockStack", "_base[0]"))
MOST_THREAD_BYTES = 1 << 14
STATES = ("new", "in_native", "in_vm", "in_Java", "blocked")
"""JavaThreadState, with `_thread_` before; in between, `_trans` follows."""
QUIET_STATES = ("new", "in_native", "blocked")
JAVA_STATES = ("in_Java", "in_Java_trans", None)


class JavaRoots(NamedTuple):
    """Addresses where objects should begin: who marks checks each against the objects of the walk."""

    strong: Sequence[int]
    """Held for certain, by all but the frames that have no oop map."""
    from_stacks: Sequence[int]
    """In doubt: words of interpreted frames, stubs, threads that ran, registers and JavaThreads alone refer to them, and may be stale."""
    loader_handles: Dict[int, Sequence[int]]
    """By ClassLoaderData: what its class loader holds, once an instance of one of its classes, or a key of `loader_keys`, is marked. As
    strong roots they would keep dead plugins."""
    loader_keys: Dict[int, int]
    """Mirror of a class, or class loader -> ClassLoaderData."""
    threads: Sequence[Tuple[Optional[str], Sequence[int]]]
    """Name of each thread, and what its frames refer to."""
    problems: Sequence[str]


def find_java_roots(tables: VmTables, shape: JavaShape, heap: JavaHeap, classes: Sequence[JavaClass]) -> JavaRoots:
    """Find all roots of a core, or of a process that is stopped."""
    decoder, problems = OopDecoder(shape, heap.reserved), []
    (strong, by_loader, loader_keys), storages = read_loader_handles(tables, decoder, classes), list_oop_storages(tables)
    for storage, name in storages.items():
        strong += () if WEAK in name else read_oop_storage(tables, storage)
    if len(storages) < LEAST_STORAGES:
        for begin, data in read_module_data(tables):  # variables of libjvm.so that look like objects
            strong += tables.read_words(begin, len(data) // 8)
    finder = ThreadRootFinder(tables, decoder)
    threads = [(thread.name, finder.add_thread(thread)) for thread in list_java_threads(tables, decoder, classes)]
    strong += finder.strong
    for code in finder.codes.values():  # what the code of methods names that have a frame
        strong += finder.index.list_constants(code)
    if not heap.reserved:
        problems.append("references of this collector are not read: which objects are reachable is unknown")
    if not storages:
        problems.append("the JVM's global references (OopStorage) were not found")
    if heap.is_collecting:
        problems.append("a collection was under way: there may be two copies of an object")
    if finder.running:
        problems.append("%s ran: words of their stacks and registers count as references" % count_noun(finder.running, "Java thread"))
    if finder.undecoded:
        problems.append("stacks of %s could not be decoded in full: their words count" % count_noun(finder.undecoded, "Java thread"))
    sure = {word for word in strong if decoder.is_oop(word)}
    doubted = array("Q", sorted(set(finder.doubted) - sure))
    return JavaRoots(array("Q", sorted(sure)), doubted, by_loader, loader_keys, threads, problems)


class ThreadRootFinder:
    """Collect the roots of threads: fields, JNI handles, frames.

    Oop maps hold at calls. Of a thread that is in Java code all words of the stack count, and its registers, those of vectors included (C2
    spills to them): without registers objects in use were garbage. A thread in the VM has words of the VM's own frames, then Java's frames.
    """

    def __init__(self, tables: VmTables, decoder: OopDecoder) -> None:
        self._tables, self._decoder, self.index = tables, decoder, CodeCacheIndex(tables)
        self._walker = FrameWalker(tables, self.index, decoder)
        self._natives = {thread.lwp: thread for thread in tables.target.threads()}
        self._blocks: Set[int] = set()
        self.codes: Dict[int, CompiledCode] = {}
        """Methods that have a frame."""
        self._left_bytes = MOST_STACKS_BYTES
        self.strong: List[int] = []
        self.doubted = array("Q")
        self.running = self.undecoded = 0
        """Threads in Java code or the VM; threads that have frames which could not be read or decoded."""

    def add_thread(self, thread: JavaThread) -> Sequence[int]:
        """Add all that one thread holds; return what its frames refer to."""
        tables = self._tables
        self.strong += read_thread_fields(tables, thread.address)
        self.strong += read_handle_blocks(tables, read_thread_word(tables, thread.address, "_active_handles") or 0, self._blocks)
        self.doubted.extend(self._decoder.select_oops(read_thread_words(tables, thread.address)))
        roots = self._walk_stack(thread)
        doubted = array("Q", self._decoder.select_oops(roots.words))
        self.strong += roots.oops
        self.doubted.extend(doubted)
        self.codes.update(roots.codes)
        for wrapper in roots.wrappers:  # handles of outer native frames are here, not in `_active_handles`
            self.strong += read_handle_blocks(tables, tables.read_word(wrapper + HANDLES_AT) or 0, self._blocks)
            self.strong += tables.read_words(wrapper + RECEIVER_AT, 1)
        return doubted + array("Q", roots.oops)

    def _walk_stack(self, thread: JavaThread) -> FrameRoots:
        anchor, native = self._tables.field_offset("JavaThread", "_anchor"), self._natives.get(thread.lwp or 0)
        place = self._walker.read_anchor(thread.address + anchor) if anchor is not None else (0, 0, 0)
        is_quiet = thread.state in QUIET_STATES
        has_frames = thread.state not in JAVA_STATES and thread.stack_begin <= place[0] < thread.stack_end and place[0] % 8 == 0
        if is_quiet and not has_frames:
            return FrameRoots()
        low = place[0]
        if not is_quiet:
            pointer = native.stack_pointer if native is not None else None
            low = pointer // 8 * 8 if pointer is not None else 0
            if not thread.stack_begin <= low < thread.stack_end:  # the first readable address
                mappings = self._tables.target.mappings()
                starts = [mapping.start for mapping in mappings if mapping.readable and mapping.start < thread.stack_end <= mapping.end]
                low = max([thread.stack_begin, *starts]) // 8 * 8
            low = min(low, place[0]) if has_frames else low
        stack = JavaStack(self._tables, low, thread.stack_end if self._left_bytes > 0 else low)
        self._left_bytes -= 8 * len(stack.words)
        roots = self._walker.walk_frames(thread, stack, place) if has_frames else FrameRoots()
        if not roots.is_whole:
            roots.wrappers.extend(set(find_call_wrappers(self._tables, thread, stack)) - set(roots.wrappers))
        if not is_quiet:
            roots.words.extend(stack.cut_words(low, place[0]) if has_frames else stack.words)
            roots.words.extend(self._tables.target.register_words(native) if native is not None else ())
        self.running += 0 if is_quiet else 1
        self.undecoded += 1 if stack.end < thread.stack_end or (has_frames and not roots.is_whole) else 0
        return roots


def find_call_wrappers(tables: VmTables, thread: JavaThread, stack: JavaStack) -> Iterator[int]:
    """Find JavaCallWrappers by their first words: the thread, and its block of handles."""
    top = tables.field_offset("JNIHandleBlock", "_top")
    for at, word in enumerate(stack.words if top is not None else ()):
        block = stack.words[at + 1] if word == thread.address and at + 1 < len(stack.words) else 0
        count = tables.read_u4(block + (top or 0)) if block and block % 8 == 0 else None
        if count is not None and count <= HANDLES_OF_BLOCK:
            yield stack.begin + 8 * at


def list_java_threads(tables: VmTables, decoder: OopDecoder, classes: Sequence[JavaClass]) -> Sequence[JavaThread]:
    """List the threads that may run Java code, with their names."""
    states = {tables.constant_value("_thread_%s%s" % (state, more)): state + more for state in STATES for more in ("", "_trans")}
    names = ThreadNameReader(tables, decoder, classes)
    threads = []
    for address in list_java_thread_addresses(tables):
        system = tables.field_word(address, "JavaThread", "_osthread") or tables.field_word(address, "Thread", "_osthread")
        lwp, state = tables.field_offset("OSThread", "_thread_id"), tables.field_offset("JavaThread", "_thread_state")
        base, size = (read_thread_word(tables, address, name) or 0 for name in ("_stack_base", "_stack_size"))
        state_number = tables.read_u4(address + state) if state is not None else None
        state_name = states.get(state_number) if state_number is not None else None
        lwp_number = tables.read_u4(system + lwp) if system and lwp is not None else None
        threads.append(JavaThread(address, names.read_name(address), lwp_number, state_name, base - min(size, base), base))
    return threads


def read_thread_word(tables: VmTables, thread: int, field: str) -> Optional[int]:
    """Return a word of a JavaThread, which releases have in different classes."""
    offset = tables.field_offset("JavaThread", field)
    offset = tables.field_offset("Thread", field) if offset is None else offset
    return tables.read_word(thread + offset) if offset is not None else None


class ThreadNameReader:
    """Read the names of Java threads out of their java.lang.Thread."""

    def __init__(self, tables: VmTables, decoder: OopDecoder, classes: Sequence[JavaClass]) -> None:
        self._tables, self._decoder = tables, decoder
        self._offsets: Dict[Tuple[str, str], int] = {}
        for java_class in classes:
            if java_class.name in ("java.lang.Thread", "java.lang.String"):
                for field in list_object_fields(tables, java_class.klass):
                    self._offsets.setdefault((java_class.name, field.name), field.offset)
        helper = next((java_class.layout_helper for java_class in classes if java_class.name == "byte[]"), 0)
        self._bytes_at = helper >> 16 & 0xFF

    def read_name(self, thread: int) -> Optional[str]:
        """Return a thread's name, escaped and shortened, or None."""
        word = read_thread_word(self._tables, thread, "_threadObj") or 0  # the java.lang.Thread up to JDK 13, then a handle
        text = self._follow_field(word if self._decoder.is_oop(word) else self._tables.read_word(word) or 0, "java.lang.Thread", "name")
        value, coder_at = self._follow_field(text, "java.lang.String", "value"), self._offsets.get(("java.lang.String", "coder"))
        length = self._tables.read_u4(value + self._decoder.shape.array_length_offset) if value else None
        coder = self._tables.read_prefix(text + coder_at, 1) if coder_at is not None and text else b""
        if length is None or not coder:
            return None
        data = self._tables.read_prefix(value + self._bytes_at, min(length, 2 * MOST_NAME_BYTES))
        return escape_java_name(data.decode("utf-16-le" if coder[0] else "latin-1", "replace").encode("utf-8", "replace"))

    def _follow_field(self, oop: int, owner: str, field: str) -> int:
        """Return the object that a field leads to; 0 if none."""
        offset = self._offsets.get((owner, field))
        if offset is None or not oop:
            return 0
        if self._decoder.is_narrow:
            return self._decoder.decode_narrow(self._tables.read_u4(oop + offset) or 0)
        return self._tables.read_word(oop + offset) or 0


def list_oop_storages(tables: VmTables) -> Dict[int, str]:
    """Return address and name of each OopStorage.

    Two are in the tables. From 15 on, all are in one array of libjvm.so's data: it is found by the word of one, the others by their names.
    """
    handles = [tables.static_word("JNIHandles", name) for name in ("_global_handles", "_weak_global_handles")]
    pattern, storages, arrays = pack("<Q", handles[0] or 0), {}, 0
    for _, data in read_module_data(tables):
        at = data.find(pattern) if handles[0] else -1
        while at >= 0 and arrays < MOST_ARRAYS:
            arrays += 1
            for step in (8, -8):
                for place in range(at + step, at + step * MOST_STORAGES, step):
                    word = unpack_from("<Q", data, place)[0] if 0 <= place <= len(data) - 8 else 0
                    name = read_storage_name(tables, word)
                    if name is None:
                        break
                    storages[word] = name
            at = data.find(pattern, at + 1)
    for address in handles:
        name = read_storage_name(tables, address or 0)
        if name is not None:
            storages[address or 0] = name
    return storages


def read_module_data(tables: VmTables) -> Iterator[Tuple[int, bytes]]:
    """Read the variables of libjvm.so: begin and bytes of each segment."""
    symbol = tables.target.dynamic_symbol("gHotSpotVMStructs")
    for begin, _, end in tables.target.writable_segments(symbol.module) if symbol is not None else ():
        yield begin, tables.read_prefix(begin, min(end - begin, MOST_DATA_BYTES))


def read_storage_name(tables: VmTables, storage: int) -> Optional[str]:
    """Return the name of an OopStorage, which its first word points to; None if it is none."""
    if not storage or storage % 8:
        return None
    name, blocks = tables.text_at(tables.read_word(storage) or 0), tables.read_word(storage + STORAGE_ARRAY_AT)
    count = tables.read_word(blocks + ARRAY_COUNT_AT) if blocks and blocks % 8 == 0 else None
    return name if name and count is not None and count <= MOST_BLOCKS else None


def read_oop_storage(tables: VmTables, storage: int) -> List[int]:
    """Return the objects of an OopStorage: those of its blocks whose bit is set."""
    blocks = tables.read_word(storage + STORAGE_ARRAY_AT) or 0
    oops: List[int] = []
    for block in dict.fromkeys(
        tables.read_words(blocks + ARRAY_BLOCKS_AT, min(tables.read_word(blocks + ARRAY_COUNT_AT) or 0, MOST_BLOCKS))
    ):
        words = tables.read_words(block, BLOCK_OWNER_AT // 8 + 1)
        if len(words) > BLOCK_WORDS + 1 and words[BLOCK_OWNER_AT // 8] == storage:
            mask = words[BLOCK_MASK_AT // 8]
            oops += [word for bit, word in enumerate(words[:BLOCK_WORDS]) if mask >> bit & 1]
    return oops


def read_handle_blocks(tables: VmTables, block: int, blocks: Set[int]) -> List[int]:
    """Return the objects of a chain of JNIHandleBlocks, and of those that PushLocalFrame has put away. `blocks`: those read before."""
    top, following = tables.field_offset("JNIHandleBlock", "_top"), tables.field_offset("JNIHandleBlock", "_next")
    handles = tables.field_offset("JNIHandleBlock", "_handles") or 0
    oops: List[int] = []
    waiting = [block]
    while waiting and len(blocks) < MOST_CHUNKS and top is not None and following is not None:
        block = waiting.pop()
        count = tables.read_u4(block + top) if block and block not in blocks else None
        blocks.add(block)
        if count is not None and count <= HANDLES_OF_BLOCK:
            oops += tables.read_words(block + handles, count)
            waiting += tables.read_words(block + following + POP_FRAME_LINK_AFTER_NEXT, 1)
            waiting += tables.read_words(block + following, 1) if count == HANDLES_OF_BLOCK else ()
    return oops


def read_thread_fields(tables: VmTables, thread: int) -> List[int]:
    """Return the objects that fields of a JavaThread hold: exceptions under way, results of calls, locks."""
    names = ("_exception_oop", "_vm_result", "_vm_result_oop", "_pending_async_exception", "_threadObj")
    oops = [read_thread_word(tables, thread, name) or 0 for name in names]
    oops.append(tables.field_word(thread, "ThreadShadow", "_pending_exception") or 0)
    stack, top, begin = (tables.field_offset(*place) for place in LOCK_STACK)
    if stack is not None and top is not None and begin is not None:  # `_top` counts from the thread
        size_bytes = (tables.read_u4(thread + stack + top) or 0) - stack - begin
        oops += tables.read_words(thread + stack + begin, min(max(size_bytes, 0), tables.size_bytes("LockStack") or 0) // 8)
    return oops


def read_thread_words(tables: VmTables, thread: int) -> Sequence[int]:
    """Return the words of a JavaThread. Its allocation buffer begins with an object that may be dead, and above the top of its lock stack
    objects stay that were locked: both are left out."""
    words = list(tables.read_words(thread, min(tables.size_bytes("JavaThread") or 0, MOST_THREAD_BYTES) // 8))
    for place, owner in (
        (tables.field_offset("Thread", "_tlab"), "ThreadLocalAllocBuffer"),
        (tables.field_offset(*LOCK_STACK[0]), "LockStack"),
    ):
        if place is not None:
            end = place + (tables.size_bytes(owner) or 0)
            words[place // 8 : end // 8] = [0] * len(words[place // 8 : end // 8])
    return words


def read_loader_handles(
    tables: VmTables, decoder: OopDecoder, classes: Sequence[JavaClass]
) -> Tuple[List[int], Dict[int, Sequence[int]], Dict[int, int]]:
    """Read what each ClassLoaderData holds: the boot loader's and those in the making are roots, others count once they are reached.

    Returns the roots, and `loader_handles` and `loader_keys` of JavaRoots.
    """
    strong: List[int] = []
    by_loader: Dict[int, Sequence[int]] = {}
    keys: Dict[int, int] = {}
    strong_loaders, chunks = set(), {0}
    klasses, following = tables.field_offset("ClassLoaderData", "_klasses"), tables.field_offset("ClassLoaderData", "_next")
    mirror = tables.field_offset("ClassLoaderData", "_has_class_mirror_holder", "_is_unsafe_anonymous", "_is_anonymous")
    loader = tables.field_offset("ClassLoaderData", "_class_loader")
    data = tables.static_word("ClassLoaderDataGraph", "_head")
    while data and klasses is not None and following is not None and loader is not None and len(by_loader) < MOST_LOADERS:
        if data in by_loader:
            break
        oops = by_loader[data] = [oop for oop in read_handle_chunks(tables, data + klasses - 8, chunks) if decoder.is_oop(oop)]
        is_kept = tables.read_u2(data + (mirror + 5) // 4 * 4) if mirror is not None else 1
        slot = tables.read_word(data + loader)
        if is_kept or not slot:  # _keep_alive
            strong.extend(oops)
            strong_loaders.add(data)
        elif mirror is not None and tables.read_prefix(data + mirror, 1) == b"\0":  # with one class alone, its mirror is the key
            keys[slot if decoder.is_oop(slot) else tables.read_word(slot) or 0] = data
        data = tables.read_word(data + following)
    for java_class in classes:
        if java_class.loader_data not in strong_loaders and decoder.is_oop(java_class.mirror):
            keys.setdefault(java_class.mirror or 0, java_class.loader_data)
    return strong, by_loader, keys


def read_handle_chunks(tables: VmTables, head: int, chunks: Set[int]) -> Iterator[int]:
    """Read a ChunkedHandleList. `chunks`: those read before."""
    chunk = tables.read_word(head)
    while chunk and chunk not in chunks and len(chunks) < MOST_CHUNKS:
        chunks.add(chunk)
        count = tables.read_u4(chunk + CHUNK_SIZE_AT)
        if count is None or count > CHUNK_WORDS:
            return
        yield from tables.read_words(chunk, count)
        chunk = tables.read_word(chunk + CHUNK_NEXT_AT)
