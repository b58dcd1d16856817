"""The dynamic linker's list of loaded objects, read from memory alone, and symbols looked up in it as ld.so does.

Thread-local storage without libthread_db: relocations of the object say where its block lies from the thread pointer.
"""

import struct
from typing import Callable, Dict, Iterator, List, Optional, Set, Tuple

import gdbheapx.inferior.elf.file as elf
from gdbheapx.common.budget import READ_SHIFT, WorkCounter, ends_with_work
from gdbheapx.inferior.arch import Relocations

AT_PHDR, AT_PHNUM, AT_BASE = 3, 5, 7
DT_NEEDED = 1
DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_DEBUG = 4, 5, 6, 10, 21
DT_GNU_HASH, DT_VERSYM = 0x6FFFFEF5, 0x6FFFFFF0
MAX_STRING_BYTES = 64 << 20
"""No table of exported names is longer."""
MOST_LINK_MAP_BYTES = 2048
"""Of the C library's struct link_map, 1,160 bytes in 2.36."""
PAGE_BYTES = 4096
MAX_OBJECTS = 20000
"""More entries than this in the lists of loaded objects is damage."""
MOST_CHAIN = 1 << 16
"""Of one bucket of a hash table."""
MAX_EXPORTED = 1 << 20

Read = Callable[[int, int], bytes]
"""read(address, size_bytes): the readable prefix of the range."""
DT_RELA, DT_RELASZ, DT_REL, DT_RELSZ, DT_PLTRELSZ, DT_PLTREL, DT_JMPREL = 7, 8, 17, 18, 2, 20, 23
MAX_RELOCATIONS = 64 << 20
READ_STEPS = 8
"""What a read of the target's memory costs."""
DT_VERDEF, DT_VERNEED = 0x6FFFFFFC, 0x6FFFFFFE
BEHIND_SYMBOLS = (DT_HASH, DT_STRTAB, DT_RELA, DT_REL, DT_JMPREL, DT_GNU_HASH, DT_VERSYM, DT_VERDEF, DT_VERNEED)
"""What linkers write after .dynsym, whose length no entry says: the nearest of them ends it."""


class NumberReader:
    """Numbers and strings out of a reader of bytes."""

    def __init__(self, read: Read, header: elf.ElfHeader) -> None:
        self.read = read
        self.header = header
        self.word_bytes = header.word_bytes
        self._order = header.byte_order

    def number(self, address: int, size_bytes: int) -> Optional[int]:
        """An unsigned integer; None if unreadable."""
        data = self.read(address, size_bytes)
        return int.from_bytes(data, self._order) if len(data) == size_bytes else None

    def word(self, address: int) -> Optional[int]:
        """A pointer-sized unsigned integer."""
        return self.number(address, self.word_bytes)

    def string(self, address: int, limit: int = 4096) -> Optional[bytes]:
        """The string that ends with a zero byte within `limit` bytes."""
        data = self.read(address, min(limit, 256))
        if data.find(b"\0") < 0 and limit > 256:
            data = self.read(address, limit)
        end = data.find(b"\0")
        return data[:end] if end >= 0 else None


class Loaded:
    """A loaded object as memory shows it."""

    def __init__(
        self,
        memory: NumberReader,
        name: str,
        base: int,
        dynamic: Optional[int],
        is_executable: bool,
        headers: Optional[List[elf.ProgramHeader]] = None,
    ) -> None:
        """`dynamic`: address of its dynamic section, 0 if it has none; None: program headers say where it is."""
        self.memory = memory
        self.node = 0
        """Address of its struct link_map; 0: in no list."""
        self.name = name
        """l_name: a path; empty for the executable."""
        self.base = base
        """l_addr."""
        self.is_executable = is_executable
        self._dynamic: Optional[Dict[int, int]] = None
        self._headers = headers
        self._work = WorkCounter(name or "the program")
        self.end = base
        """Where the image ends, if its headers do not say."""
        if dynamic is None:
            dynamic = next((base + entry.vaddr for entry in self.program_headers() if entry.type == elf.PT_DYNAMIC), 0)
        self._dynamic_at = dynamic

    def program_headers(self) -> List[elf.ProgramHeader]:
        """Return the program headers by the ELF header at the start of the image; empty if not in memory."""
        if self._headers is None:
            header = elf.parse_header(self.memory.read(self.base, 64))
            self._headers = []
            if header is not None:
                size_bytes = min(header.phnum, elf.MOST_SEGMENTS) * elf.program_header_bytes(header.word_bytes)
                raw = self.memory.read(self.base + header.phoff, size_bytes)
                self._headers = elf.parse_program_headers(header.order, header.word_bytes, raw)
        return self._headers

    def span(self) -> Tuple[int, int]:
        """First address and end of the image; if its headers are not in memory, what else is known of it, or (base, base)."""
        loads = [entry for entry in self.program_headers() if entry.type == elf.PT_LOAD]
        if not loads:
            return self.base, self.end
        return self.base + min(entry.vaddr for entry in loads), self.base + max(entry.vaddr + entry.memsz for entry in loads)

    def build_id(self) -> Optional[str]:
        """Return its build-id by the notes in memory."""
        for entry in [part for part in self.program_headers() if part.type == elf.PT_NOTE][: elf.MOST_NOTE_PARTS]:
            data = self.memory.read(self.base + entry.vaddr, min(entry.filesz, 4096))
            build_id = elf.find_build_id(elf.parse_notes(self.memory.header.order, data, entry.align))
            if build_id:
                return build_id
        return None

    def tls_segment(self) -> Optional[elf.ProgramHeader]:
        """PT_TLS."""
        return next((entry for entry in self.program_headers() if entry.type == elf.PT_TLS), None)

    def static_distance(self) -> Optional[int]:
        """Return what its block's address is from any thread pointer, as the C library's own link map says; 0: the block does not come with
        the thread (dlopen); None: the map does not say.

        The fields are found by their contents, which are PT_TLS's: GNU's (include/link.h, 2.3 to 2.41) has l_tls_initimage,
        l_tls_initimage_size, l_tls_blocksize, l_tls_align, l_tls_firstbyte_offset and l_tls_offset one after the other, the other
        C library's (libc.h: struct tls_module) image, len, size, align and offset.
        """
        entry, word = self.tls_segment(), self.memory.word_bytes
        if entry is None or not self.node:
            return None
        order, values = self.memory.header.byte_order, (self.base + entry.vaddr, entry.filesz, entry.memsz, entry.align)
        wanted, rest = b"".join((value & (1 << 8 * word) - 1).to_bytes(word, order) for value in values), b""
        for size in sorted({min(PAGE_BYTES - self.node % PAGE_BYTES, MOST_LINK_MAP_BYTES), MOST_LINK_MAP_BYTES}):
            if len(rest) < 2 * word:  # the next page may be something else's
                data = self.memory.read(self.node, size)
                at = data.find(wanted)
                rest = data[at + 4 * word : at + 6 * word] if at >= 0 else b""
        if len(rest) < 2 * word:
            return None
        first, offset = (int.from_bytes(rest[place : place + word], order, signed=True) for place in (0, word))
        if first != entry.vaddr & max(entry.align - 1, 0):
            offset = first  # of struct tls_module
        storage = self.memory.header.arch.storage
        return max(offset, 0) if storage.tcb_bytes is not None else -max(offset, 0)

    def dynamic(self) -> Dict[int, int]:
        """Tag -> value of the dynamic section; of repeated tags the first."""
        if self._dynamic is None:
            self._dynamic = {}
            at, word = self._dynamic_at, self.memory.word_bytes
            data = self.memory.read(at, 128 * 2 * word) if at else b""
            for place in range(0, len(data) - 2 * word + 1, 2 * word):
                order = self.memory._order
                tag = int.from_bytes(data[place : place + word], order)
                if tag == 0:
                    break
                self._dynamic.setdefault(tag, int.from_bytes(data[place + word : place + 2 * word], order))
        return self._dynamic

    def pointer(self, tag: int) -> Optional[int]:
        """The address a dynamic entry holds. ld.so relocates it in place on most machines; where it does not, the base is added."""
        value = self.dynamic().get(tag)
        if not value:
            return None
        start, end = self.span()
        inside = start <= value < end if end > start else value >= self.base
        return value if inside else value + self.base

    def symbol_at(self, index: int) -> Optional[Tuple[int, elf.ElfSymbol]]:
        """(offset of its name, symbol) of one entry of .dynsym."""
        table, size = self.pointer(DT_SYMTAB), elf.symbol_bytes(self.memory.word_bytes)
        data = self.memory.read(table + index * size, size) if table else b""
        return elf.parse_symbol(self.memory.header.order, self.memory.word_bytes, data) if len(data) == size else None

    def lookup(self, name: bytes) -> Optional[elf.ElfSymbol]:
        """The exported, defined symbol of that name; the default version where there are several."""
        strings = self.pointer(DT_STRTAB)
        hidden: Optional[elf.ElfSymbol] = None
        for index in self._iterate_candidates(name) if strings else ():
            entry = self.symbol_at(index)
            if entry is None or not entry[1].section or self.memory.string((strings or 0) + entry[0], len(name) + 1) != name:
                continue
            versions = self.pointer(DT_VERSYM)
            if versions and (self.memory.number(versions + 2 * index, 2) or 0) & 0x8000:
                hidden = hidden or entry[1]
                continue
            return entry[1]
        return hidden

    @ends_with_work
    def names_ending(self, ending: str) -> Iterator[str]:
        """Yield exported, defined names that end so, after at most MOST_PREFIX_BYTES."""
        suffix, strings = ending.encode() + b"\0", self.pointer(DT_STRTAB)
        text = self.memory.read(strings, min(self.dynamic().get(DT_STRSZ, 0), MAX_STRING_BYTES)) if strings else b""
        for at in elf.find_substrings(text, suffix, self._work):
            for start in elf.find_name_starts(text, at):
                self._work.spend(READ_STEPS)
                name = text[start : at + len(suffix) - 1]
                if self.lookup(name) is not None:
                    yield name.decode("ascii", "replace")

    @ends_with_work
    def exported_symbols(self) -> Iterator[Tuple[str, elf.ElfSymbol]]:
        """(name, symbol) of every defined one in .dynsym, as far as table and names are in memory: kernels dump the first page of a file,
        and all of it where coredump_filter says so."""
        table, strings, size = self.pointer(DT_SYMTAB), self.pointer(DT_STRTAB), elf.symbol_bytes(self.memory.word_bytes)
        if not table or not strings:
            return
        text = self.memory.read(strings, min(self.dynamic().get(DT_STRSZ, 0), MAX_STRING_BYTES))
        behind = [place for place in (self.pointer(tag) for tag in BEHIND_SYMBOLS) if place and place > table]
        data = self.memory.read(table, min(min(behind) - table, MAX_EXPORTED * size)) if text and behind else b""
        letters = elf.count_letters(text, self._work.name)
        for at in range(0, len(data) // size * size, size):
            name_at, symbol = elf.parse_symbol(self.memory.header.order, self.memory.word_bytes, data[at : at + size])
            name = elf.read_c_string(text, name_at)
            self._work.spend(1 + (len(name) >> READ_SHIFT))
            letters.spend(len(name) >> elf.LETTERS_SHIFT)
            if symbol.section and name and name.isprintable():
                yield name, symbol

    @ends_with_work
    def _iterate_candidates(self, name: bytes) -> Iterator[int]:
        """Indexes in .dynsym whose hash fits."""
        gnu = self.pointer(DT_GNU_HASH)
        if gnu is not None:
            yield from find_gnu_candidates(self.memory, gnu, name, self._work)
            return
        table = self.pointer(DT_HASH)
        buckets = self.memory.number(table, 4) if table else None
        count = self.memory.number(table + 4, 4) if table else None
        if not table or not buckets or not count:
            return
        index = self.memory.number(table + 8 + 4 * (sysv_hash(name) % buckets), 4)
        for _ in range(min(count, MOST_CHAIN)):
            if not index:
                return
            self._work.spend(READ_STEPS)
            yield index
            index = self.memory.number(table + 8 + 4 * (buckets + index), 4)


class LinkMap:
    """List of the loaded objects of a process, in the dynamic linker's order."""

    def __init__(self, read: Read, header: elf.ElfHeader, auxv: Dict[int, int]) -> None:
        self.memory = NumberReader(read, header)
        self._auxv = auxv
        self._loaded: Optional[List[Loaded]] = None
        self.complete = True
        """False if the list could not be followed to its end."""
        self._by_base: Dict[int, Loaded] = {}
        self._nodes = 0
        """Entries of its lists that were read."""
        self._loader_place: Optional[int] = None
        """Place of ld.so in its own list, if it was started as the program, with the program's name as its argument."""

    def objects(self) -> List[Loaded]:
        """The executable first; without a readable list the executable alone."""
        if self._loaded is None:
            executable = self._make_executable()
            self._loaded = [executable] if executable else []
            if executable:
                self._follow_list(executable)
        return self._loaded

    def loaded_at(self, base: int) -> Optional[Loaded]:
        """The object with this load bias."""
        objects = self.objects()
        if len(self._by_base) != len(objects):
            self._by_base = {loaded.base: loaded for loaded in reversed(objects)}
        return self._by_base.get(base)

    def searched(self) -> List[Loaded]:
        """The objects in the order in which names are looked up: ld.so that was started as the program comes where its list has it. (Up to
        2.31 it exports a malloc of its own, which is not used.)"""
        objects, place = self.objects(), self._loader_place
        return objects if place is None else [*objects[1:place], objects[0], *objects[place:]]

    def add(self, name: str, base: int, end: int = 0, is_executable: bool = False) -> None:
        """An object that is known from elsewhere; where the list could not be followed. Its headers say where its dynamic section is, if
        they can be read, else `end` where it ends."""
        loaded = self.objects()
        if not any(known.base == base for known in loaded):
            loaded.append(Loaded(self.memory, "" if is_executable else name, base, None, is_executable))
            loaded[-1].end = max(end, base)

    def _make_executable(self) -> Optional[Loaded]:
        at, count = self._auxv.get(AT_PHDR), self._auxv.get(AT_PHNUM)
        if not at or not count:
            return None
        word = self.memory.word_bytes
        data = self.memory.read(at, min(count, 4096) * elf.program_header_bytes(word))
        headers = elf.parse_program_headers(self.memory.header.order, word, data)
        base = None
        for entry in headers:
            if entry.type == elf.PT_PHDR:
                base = at - entry.vaddr
            elif entry.type == elf.PT_LOAD and base is None and entry.offset == 0:
                base = at - entry.vaddr - (64 if word == 8 else 52)
        if base is None:
            return None
        return Loaded(self.memory, "", base & (1 << 8 * word) - 1, None, True, headers)

    def _follow_list(self, executable: Loaded) -> None:
        debug = executable.dynamic().get(DT_DEBUG)
        is_loader = not debug
        if is_loader:  # ld.so run as a program: it exports its own r_debug
            symbol = executable.lookup(b"_r_debug") if executable.dynamic() else None
            debug = executable.base + symbol.value if symbol else None
        word = self.memory.word_bytes
        seen: Set[int] = set()
        while debug and debug not in seen and len(seen) < 64:  # r_map of every namespace
            seen.add(debug)
            head = self.memory.word(debug + word)
            if head is None:
                self.complete = False
                return
            self._follow_chain(head, executable, is_loader)
            if is_loader and self._loader_place is None:
                self._loader_place = len(self._loaded or ())
            version = self.memory.number(debug, 4) or 0  # from 2 on r_next follows the classic five fields
            debug = (self.memory.word(debug + 5 * word) or 0) if version >= 2 else 0

    def _follow_chain(self, node: int, executable: Loaded, is_loader: bool) -> None:
        word = self.memory.word_bytes
        seen: Set[int] = set()
        loaded = self._loaded if self._loaded is not None else []
        bases = {other.base for other in loaded}
        while node:
            data = self.memory.read(node, 4 * word)
            if len(data) < 4 * word or node in seen or self._nodes >= MAX_OBJECTS:
                self.complete = False
                return
            seen.add(node)
            self._nodes += 1
            order = self.memory._order
            words = (data[i * word : (i + 1) * word] for i in range(4))
            base, name_at, dynamic, following = (int.from_bytes(part, order) for part in words)
            name = self.memory.string(name_at) if name_at else b""
            text = (name or b"").decode("utf-8", "surrogateescape")
            if base == executable.base and (not text or dynamic == executable._dynamic_at):
                # already there; a second namespace repeats ld.so, which is dropped below
                executable.node = executable.node or node
                if is_loader and self._loader_place is None:
                    self._loader_place = len(loaded)
            elif "/" in text and base not in bases:
                bases.add(base)
                loaded.append(Loaded(self.memory, text, base, dynamic, False))
                loaded[-1].node = node
            node = following


def look_up_symbol(objects: List[Loaded], name: str) -> Optional[Tuple[Loaded, int]]:
    """Return the object and address that the dynamic linker binds to: the first in the order of loading.

    None also where an object before it has a table of names that is neither in memory nor in a file here: it may be there."""
    for loaded in objects:
        symbol = loaded.lookup(name.encode()) if loaded.dynamic() else None
        if symbol is not None:
            return loaded, loaded.base + symbol.value
        table = loaded.pointer(DT_SYMTAB)
        if table is not None and not loaded.memory.read(table, 1):
            return None
    return None


def find_gnu_candidates(memory: NumberReader, table: int, name: bytes, work: WorkCounter) -> Iterator[int]:
    """Indexes in .dynsym whose hash in DT_GNU_HASH equals the name's, its lowest bit aside."""
    head = [memory.number(table + 4 * i, 4) for i in range(4)]
    buckets, first, bloom = head[0], head[1], head[2]
    if not buckets or first is None or bloom is None:
        return
    value = gnu_hash(name)
    at = table + 16 + bloom * memory.word_bytes
    index = memory.number(at + 4 * (value % buckets), 4) or 0
    chain = at + 4 * buckets
    for _ in range(MOST_CHAIN):
        if index < first:
            return
        work.spend(READ_STEPS)
        hashed = memory.number(chain + 4 * (index - first), 4)
        if hashed is None:
            return
        if hashed | 1 == value | 1:
            yield index
        if hashed & 1:
            return
        index += 1


def gnu_hash(name: bytes) -> int:
    """Bernstein's hash, as DT_GNU_HASH uses it."""
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def sysv_hash(name: bytes) -> int:
    """The hash of DT_HASH."""
    value = 0
    for byte in name:
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return value


STATIC_TLS, DTV = "static-tls", "dtv"
TlsPlace = Tuple[str, int]
"""Place of an object's thread-local block in every thread, by its way as in ThreadLocal: the block's address minus the thread pointer, or
the index in each thread's dtv."""
Original = Callable[[int], Optional[int]]
"""The word at an address of the object's file, as it was before ld.so relocated it; None if there is no such file here."""


def find_tls(loaded: Loaded, original: Optional[Original] = None) -> Optional[TlsPlace]:
    """Return how to reach the object's thread-local block; None if relocations and headers do not say."""
    types = loaded.memory.header.arch.relocations
    if types is None or types.module is None:
        return None
    module: Optional[int] = None
    half = 1 << (8 * loaded.memory.word_bytes - 1)
    for slot, kind, symbol, addend in find_tls_relocations(loaded, types):
        if kind == types.module and module is not None:
            continue
        entry = loaded.symbol_at(symbol) if symbol else None
        if symbol and (entry is None or not entry[1].section):  # about a variable of another object
            continue
        value = loaded.memory.word(slot)
        if kind == types.module:
            module = value or None
            continue
        if addend is None:  # it stood in the slot itself, and ld.so has written over it; with a symbol linkers leave 0 there
            addend = 0 if symbol else original(slot - loaded.base) if original is not None else None
        if addend is not None and value is not None:  # block + symbol's value + addend, counted from the thread pointer
            offset = (value - addend - (entry[1].value if entry is not None else 0)) & (2 * half - 1)
            return STATIC_TLS, offset - 2 * half if offset >= half else offset
    if module is None and loaded.is_executable:
        local = local_exec_offset(loaded)
        return None if local is None else (STATIC_TLS, local)
    return None if module is None else (DTV, module)


def find_tls_relocations(loaded: Loaded, types: Relocations) -> List[Tuple[int, int, int, Optional[int]]]:
    """(address of the slot, type, symbol index, addend) of all relocations that ld.so applied to thread-local storage. No addend: it stood
    in the slot."""
    memory = loaded.memory
    dynamic = loaded.dynamic()
    tables = [(loaded.pointer(DT_RELA), dynamic.get(DT_RELASZ, 0), True), (loaded.pointer(DT_REL), dynamic.get(DT_RELSZ, 0), False)]
    tables.append((loaded.pointer(DT_JMPREL), dynamic.get(DT_PLTRELSZ, 0), dynamic.get(DT_PLTREL) == DT_RELA))
    entries: List[Tuple[int, int, int, Optional[int]]] = []
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
                entries.append((loaded.base + entry[0], entry[1] & mask, entry[1] >> shift, entry[2] if has_addend else None))
    return entries


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


TlsBlock = Tuple[Optional[int], Optional[str]]
"""Address of a thread's block, and why that is not known, as text after `thread N: `. Neither: the thread never used its variables."""


def find_tls_block(place: TlsPlace, thread_pointer: Optional[int], memory: NumberReader) -> TlsBlock:
    """Return a thread's block of an object; an invalid thread pointer makes it unknown."""
    word, highest, storage = memory.word_bytes, (1 << 8 * memory.word_bytes) - 1, memory.header.arch.storage
    if thread_pointer is None:
        return None, "cannot read its registers"
    if not thread_pointer:
        return None, "its thread pointer is 0"
    is_repeated = storage.self_words is None or memory.word(thread_pointer + storage.self_words * word) == thread_pointer
    # every C library has it at the block's begin, where the machine's ABI wants it; their vectors of blocks differ
    way, number = place
    if not is_repeated and (way == DTV or memory.word(thread_pointer) != thread_pointer):
        why = "its thread pointer 0x%x is not that of a thread control block (its first word is not its own address)"
        return None, why % thread_pointer
    if way == STATIC_TLS:
        return (thread_pointer + number) & highest, None
    dtv_at = word * storage.dtv_words
    dtv = memory.word(thread_pointer + dtv_at)
    slots = memory.word(dtv - 2 * word) if dtv else None  # dtv[-1].counter
    if not dtv or slots is None:
        return None, "cannot read its vector of thread-local blocks at 0x%x" % (dtv or thread_pointer + dtv_at)
    if number > slots:
        return None, None
    address = memory.word(dtv + 2 * word * number)
    if address is None:
        return None, "cannot read its vector of thread-local blocks at 0x%x" % dtv
    return None if address in (0, highest) else address, None


def round_up(value: int, align: int) -> int:
    """The next multiple of `align`."""
    return (value + align - 1) // align * align
