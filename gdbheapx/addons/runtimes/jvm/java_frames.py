"""Java threads and the frames of their stacks: which words of a compiled frame are objects at a call, by the oop map of its code.

HotSpot: runtime/frame.cpp, cpu/*/frame_*.inline.hpp, memory/heap.cpp, compiler/oopMap.cpp, runtime/javaCalls.hpp. Words of a compiled frame
would call dead variables alive: a loop that has been compiled while it ran (OSR) leaves those of `main` on the stack for good.
"""

import sys
from array import array
from bisect import bisect_left
from itertools import islice
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.runtimes.jvm.java_heap import JavaShape
from gdbheapx.addons.runtimes.jvm.vm_tables import VmTables
from gdbheapx.ranges import Range

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
