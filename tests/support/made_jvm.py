"""A JVM made by hand: its tables are dictionaries, and its memory words at addresses."""

from types import SimpleNamespace
from typing import Any, Dict, Iterable, Optional, Sequence, Tuple

from gdbheapx.addons.runtimes.jvm.java_heap import JavaShape, VmTables

HEAP, HEAP_END = 0xF0000000, 0xF8000000
"""Where the Java heap is reserved: with base 0 and shift 3 a compressed reference is the address / 8."""
SHAPE = JavaShape(0, 3, 4, 0, 0, 4, 8, 0, 8, 12, 16, 32, 28)
FIELDS = {
    "JavaThread": {"_anchor": 0x40, "_thread_state": 0x80, "_osthread": 0x88, "_stack_base": 0x90, "_stack_size": 0x98, "_threadObj": 0xA0, "_active_handles": 0xA8, "_lock_stack": 0xC0},
    "Thread": {"_tlab": 0x200},
    "LockStack": {"_top": 0, "_base[0]": 8},
    "OSThread": {"_thread_id": 0},
    "JavaFrameAnchor": {"_last_Java_sp": 0, "_last_Java_pc": 8, "_last_Java_fp": 16},
    "JavaCallWrapper": {"_anchor": 32},
    "JNIHandleBlock": {"_handles": 0, "_top": 256, "_next": 264},
    "ClassLoaderData": {"_klasses": 56, "_next": 112, "_class_loader": 8, "_has_class_mirror_holder": 33},
    "ThreadsList": {"_length": 0, "_threads": 8},
    "GrowableArray<int>": {"_data": 8},
    "VirtualSpace": {"_low": 0, "_high": 8},
    "CodeHeap": {"_memory": 0, "_segmap": 16, "_log2_segment_size": 32},
    "CodeBlob": {"_name": 0, "_code_begin": 8, "_frame_size": 16, "_oop_maps": 24},
    "nmethod": {"_orig_pc_offset": 32, "_oops_offset": 36, "_metadata_offset": 40},
}
SIZES = {"JavaThread": 0x300, "ThreadLocalAllocBuffer": 0x40, "LockStack": 72, "HeapBlock": 16, "ImmutableOopMapSet": 8, "ImmutableOopMapPair": 8, "ImmutableOopMap": 4}
CONSTANTS = {
    "_thread_in_native": 4,
    "_thread_in_vm": 6,
    "_thread_in_Java": 8,
    "ConcreteRegisterImpl::number_of_registers": 100,
    "VMRegImpl::stack_slot_size": 4,
    "OopMapValue::oop_value": 0,
    "OopMapValue::narrowoop_value": 1,
    "OopMapValue::type_mask_in_place": 3,
    "OopMapValue::register_shift": 2,
    "frame::entry_frame_call_wrapper_offset": -6,
    "frame::interpreter_frame_sender_sp_offset": -1,
}
STATICS = {
    ("ThreadsSMRSupport", "_java_thread_list"): 0x100,
    ("ClassLoaderDataGraph", "_head"): 0x108,
    ("JNIHandles", "_global_handles"): 0x110,
    ("JNIHandles", "_weak_global_handles"): 0x118,
    ("CodeCache", "_heaps"): 0x120,
    ("StubRoutines", "_call_stub_return_address"): 0x128,
}
"""Addresses of static fields."""
FIRST_SLOT = 104
"""Number of the first stack slot in oop maps."""


class MadeJvm(VmTables):
    """Tables of a JVM that was never run; `put` writes its memory."""

    def __init__(self, major: int = 17) -> None:
        self.bytes: Dict[int, int] = {}
        self.registers: Sequence[int] = ()
        self.natives: Sequence[Any] = ()
        self.target: Any = SimpleNamespace(
            read_prefix=self.read_memory, little_endian=True, byte_order="little", threads=lambda: self.natives,
            register_words=lambda thread: self.registers, mappings=lambda: (), dynamic_symbol=lambda name: SimpleNamespace(module=None),
            writable_segments=lambda module: [(0x100, 0x200, 0x200)],
        )
        self.major = major
        self._order, self._pages, self._flags = "<", {}, {}
        self.put_words(0x100, [0] * 32)

    def put_bytes(self, address: int, data: bytes) -> None:
        """Write bytes."""
        self.bytes.update(zip(range(address, address + len(data)), data))
        self._pages.clear()

    def put_words(self, address: int, words: Iterable[int]) -> None:
        """Write words."""
        self.put_bytes(address, b"".join(word.to_bytes(8, "little") for word in words))

    def put_static(self, owner: str, field: str, word: int) -> None:
        """Write a static field."""
        self.put_words(STATICS[owner, field], [word])

    def put_code(self, address: int, name: str, frame_bytes: int, maps: Sequence[Tuple[int, Sequence[Tuple[int, int]]]] = ()) -> int:
        """Write a CodeBlob into the code heap, with oop maps: (offset of the pc, [(register, kind)]); return where its instructions begin."""
        heap, table, first = 0x10000, 0x20000, 0x1000000
        if not self.read_word(heap):
            self.put_static("CodeCache", "_heaps", 0x9000)
            self.put_words(0x9000, [1, 0x9010, heap])
            self.put_words(heap, [first, first + 0x10000, table, table + 0x200, 7])
            self.put_bytes(table, bytes([0xFF] * 0x200))
        segment = (address - 16 - first) >> 7
        self.put_bytes(table + segment, bytes([0, 1, 2, 3]))
        self.put_bytes(address + 0x80, name.encode() + b"\0")
        self.put_words(address, [address + 0x80, address + 0x100, frame_bytes // 8, address + 0x180 if maps else 0, 0, 0])
        heads, bodies = b"", b""
        for pc, values in maps:
            heads += pc.to_bytes(4, "little") + len(bodies).to_bytes(4, "little")
            bodies += len(values).to_bytes(4, "little") + b"".join(self.pack_number(register << 2 | kind) for register, kind in values)
        self.put_bytes(address + 0x180, len(maps).to_bytes(4, "little") + bytes(4) + heads + bodies + bytes(64))
        return address + 0x100

    def pack_number(self, number: int) -> bytes:
        """Return a number as UNSIGNED5."""
        excess = 1 if self.major >= 21 else 0
        packed = b""
        while number >= 192 - excess:
            low = 192 - excess + (number - (192 - excess)) % 64
            packed, number = packed + bytes([low + excess]), (number - low) // 64
        return packed + bytes([number + excess])

    def put_thread(self, address: int, state: int, stack: Tuple[int, int], anchor: Sequence[int] = (0, 0, 0)) -> None:
        """Write the only JavaThread."""
        self.put_words(address, [0] * 0x60)
        self.put_words(address + 0x40, anchor)
        self.put_words(address + 0x80, [state, 0x8000, stack[1], stack[1] - stack[0]])
        self.put_words(0x8000, [77])
        self.put_static("ThreadsSMRSupport", "_java_thread_list", 0x8100)
        self.put_words(0x8100, [1, 0x8110, address])

    def read_memory(self, address: int, size_bytes: int) -> bytes:
        """Return the bytes up to the first that was never written."""
        data = bytearray()
        while len(data) < size_bytes and address + len(data) in self.bytes:
            data.append(self.bytes[address + len(data)])
        return bytes(data)

    def read_settled(self, address: int, size_bytes: int) -> bytes:
        """Return the readable bytes."""
        return self.read_memory(address, size_bytes)

    def field_offset(self, type_name: str, *fields: str) -> Optional[int]:
        """Return an offset of FIELDS."""
        return next((FIELDS[type_name][field] for field in fields if field in FIELDS.get(type_name, {})), None)

    def static_address(self, type_name: str, *fields: str) -> Optional[int]:
        """Return an address of STATICS."""
        return next((STATICS[type_name, field] for field in fields if (type_name, field) in STATICS), None)

    def size_bytes(self, type_name: str) -> Optional[int]:
        """Return a size of SIZES."""
        return SIZES.get(type_name)

    def constant_value(self, name: str) -> Optional[int]:
        """Return a number of CONSTANTS."""
        return CONSTANTS.get(name)
