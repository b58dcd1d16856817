"""Thread-local storage without libthread_db: relocations of the object say where its block lies from the thread pointer."""

import struct
from typing import Callable, List, NamedTuple, Optional, Tuple

from gdbheapx.arch import Relocations
from gdbheapx.inferior.elf.link_map import Loaded, Numbers

DT_RELA, DT_RELASZ, DT_REL, DT_RELSZ, DT_PLTRELSZ, DT_PLTREL, DT_JMPREL = 7, 8, 17, 18, 2, 20, 23
MAX_RELOCATIONS = 64 << 20


class TlsPlace(NamedTuple):
    """Where one object's thread-local block lies in every thread; one of the two is set."""

    block_offset: Optional[int]
    """Block address minus thread pointer."""
    module_number: Optional[int]
    """Index in each thread's dtv."""

    @property
    def way(self) -> str:
        """As base.ThreadLocal tells it."""
        return "static-tls" if self.block_offset is not None else "dtv"


Original = Callable[[int], Optional[int]]
"""The word at an address of the object's file, as it was before ld.so relocated it; None if there is no such file here."""


def find(loaded: Loaded, original: Optional[Original] = None) -> Optional[TlsPlace]:
    """How to reach the object's block; None if its relocations and headers do not tell."""
    types = loaded.memory.header.arch.relocations
    if types is None or types.module is None:
        return None
    module: Optional[int] = None
    for slot, kind, symbol, addend in relocations(loaded, types):
        if kind == types.offset:
            if addend is None:  # it stood in the slot itself, and ld.so has written over it; with a symbol linkers leave 0 there
                addend = 0 if symbol else original(slot - loaded.base) if original is not None else None
            offset = None if addend is None else _block_offset(loaded, slot, symbol, addend)
            if offset is not None:
                return TlsPlace(offset, None)
        elif kind == types.module and module is None and _is_own(loaded, symbol):
            module = loaded.memory.word(slot) or None
    if module is None and loaded.is_executable:
        offset = local_exec_offset(loaded)
        return None if offset is None else TlsPlace(offset, None)
    return None if module is None else TlsPlace(None, module)


def _is_own(loaded: Loaded, symbol: int) -> bool:
    """The relocation is about the object's own block, not about a variable of another object."""
    entry = loaded.symbol_at(symbol) if symbol else None
    return not symbol or (entry is not None and entry[1].section != 0)


def _block_offset(loaded: Loaded, slot: int, symbol: int, addend: int) -> Optional[int]:
    """The slot holds block + symbol's value + addend, counted from the thread pointer."""
    value = loaded.memory.word(slot)
    if value is None:
        return None
    if symbol:
        entry = loaded.symbol_at(symbol)
        if entry is None or not entry[1].section:  # defined in another object
            return None
        addend += entry[1].value
    half = 1 << (8 * loaded.memory.word_bytes - 1)
    value = (value - addend) & (2 * half - 1)
    return value - 2 * half if value >= half else value


def relocations(loaded: Loaded, types: Relocations) -> List[Tuple[int, int, int, Optional[int]]]:
    """(address of the slot, type, symbol index, addend) of all relocations that ld.so applied to thread-local storage. No addend: it stood
    in the slot."""
    memory = loaded.memory
    dynamic = loaded.dynamic()
    tables = [(loaded.pointer(DT_RELA), dynamic.get(DT_RELASZ, 0), True), (loaded.pointer(DT_REL), dynamic.get(DT_RELSZ, 0), False)]
    tables.append((loaded.pointer(DT_JMPREL), dynamic.get(DT_PLTRELSZ, 0), dynamic.get(DT_PLTREL) == DT_RELA))
    found: List[Tuple[int, int, int, Optional[int]]] = []
    for table, size_bytes, has_addend in tables:
        if not table:
            continue
        wide = memory.word_bytes == 8
        form = memory.header.order + (("QQq" if wide else "IIi") if has_addend else ("QQ" if wide else "II"))
        step = struct.calcsize(form)
        data = memory.read(table, min(size_bytes, MAX_RELOCATIONS))
        mask, shift = (0xFFFFFFFF, 32) if wide else (0xFF, 8)
        for entry in struct.iter_unpack(form, data[: len(data) // step * step]):
            if entry[1] & mask in (types.module, types.offset):
                found.append((loaded.base + entry[0], entry[1] & mask, entry[1] >> shift, entry[2] if has_addend else None))
    return found


def local_exec_offset(loaded: Loaded) -> Optional[int]:
    """An executable's own block: the linker fixed its place, first below the thread pointer, or first above the TCB."""
    segment = loaded.tls_segment()
    if segment is None:
        return None
    align = max(segment.align, 1)
    tcb_bytes = loaded.memory.header.arch.storage.tcb_bytes
    if tcb_bytes is not None:
        return round_up(tcb_bytes, align) + (segment.vaddr & (align - 1))
    first = -segment.vaddr & (align - 1)
    return -(round_up(segment.memsz - first, align) + first)


class Block(NamedTuple):
    """One thread's block. Neither: the thread has none, because it never used the object's variables."""

    address: Optional[int]
    why_unknown: Optional[str]
    """In words, to stand behind `thread N: `; None: it is known."""


def block(place: TlsPlace, thread_pointer: Optional[int], memory: Numbers) -> Block:
    """One thread's block of an object. A thread pointer that is none makes it unknown."""
    word, highest, storage = memory.word_bytes, (1 << 8 * memory.word_bytes) - 1, memory.header.arch.storage
    if thread_pointer is None:
        return Block(None, "cannot read its registers")
    if not thread_pointer:
        return Block(None, "its thread pointer is 0")
    if storage.self_words is not None and memory.word(thread_pointer + storage.self_words * word) != thread_pointer:
        return Block(None, "its thread pointer 0x%x does not lead to a thread control block (which would point to itself)" % thread_pointer)
    if place.block_offset is not None:
        return Block((thread_pointer + place.block_offset) & highest, None)
    dtv_at = word * storage.dtv_words
    dtv = memory.word(thread_pointer + dtv_at)
    slots = memory.word(dtv - 2 * word) if dtv else None  # dtv[-1].counter
    if not dtv or slots is None:
        return Block(None, "cannot read its vector of thread-local blocks at 0x%x" % (dtv or thread_pointer + dtv_at))
    number = place.module_number or 0
    if number > slots:
        return Block(None, None)
    found = memory.word(dtv + 2 * word * number)
    if found is None:
        return Block(None, "cannot read its vector of thread-local blocks at 0x%x" % dtv)
    return Block(None if found in (0, highest) else found, None)


def round_up(value: int, align: int) -> int:
    """The next multiple of `align`."""
    return (value + align - 1) // align * align
