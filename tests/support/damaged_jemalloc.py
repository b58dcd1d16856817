"""A kernel core of a program on jemalloc that is damaged and healed in place, and every command asked about it without gdb.

What lies where is found by the tool's own types on the undamaged core; what must be counted, by a walk of its own.
"""

import os
import struct
from array import array
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import kernel as kernels
from gdbheapx.common.budget import Budget
from gdbheapx.inferior.target import ElfTarget, open_elf_target
from gdbheapx.jemalloc import find
from gdbheapx.jemalloc.allocator import JemallocMalloc
from gdbheapx.jemalloc.entry import ALLOCATOR
from gdbheapx.layout.view import LayoutView
from tests.support.damaged import DamagedCore
from tests.support.heap_contexts import heap_context
from tests.support.tool import Asked

COMMANDS = (
    ("arenas",),
    ("pins",),
    ("chunks",),
    ("chunks", "--histogram"),
    ("bins",),
    ("tcache",),
    ("tickers",),
    ("decay",),
    ("malloc-stats",),
    ("tunables",),
    ("report",),
    ("profile",),
    ("doctor",),
    ("leaks",),
    ("owners",),
)
PAGE = 4096
PHDR = struct.Struct("<IIQQQQQQ")
PT_LOAD = 1

Row = Tuple[int, int, str, int]
"""(address, size_bytes, status, arena) of a block."""


class Extent(NamedTuple):
    """One edata_t, as the radix tree leads to it."""

    struct: int
    begin: int
    end: int
    arena: int
    is_slab: bool
    is_active: bool
    szind: int
    nfree: int

    @property
    def range(self) -> Tuple[int, int]:
        """Its addresses."""
        return self.begin, self.end


class Patient(DamagedCore):
    """One core."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.jemalloc = ALLOCATOR.find(self.target).located[0]
        self.types, self.geometry = self.jemalloc.types, self.jemalloc.geometry
        self.malloc = self.look(self.target, self.jemalloc)
        self.arenas = {arena.index: arena.address for arena in self.malloc.arena_list()}
        self.extents = list(self._walk())
        whole = self.ask("chunks")
        assert (whole.code, whole.line) == (0, None), whole
        self.blocks = rows_of(whole)
        self.bins = self.ask("bins").envelope["data"]["bins"]
        self.rows = arenas_of(self.ask("arenas"))

    def look(self, target: ElfTarget, jemalloc: find.Jemalloc, problems: Optional[List[Any]] = None) -> JemallocMalloc:
        """The model, with its problems kept in that list."""
        kept = problems if problems is not None else []
        return JemallocMalloc(jemalloc, heap_context(target, kernels.load_native_library(), Budget(), lambda *problem: kept.append(problem)))

    # ------------------------------------------------------------------------------------------------ what lies where

    def leaves(self) -> List[Tuple[int, int]]:
        """(the key bits above a leaf's own, address) of each leaf node."""
        return list(self._below(self.geometry.rtree_root, 0, 0))

    def _below(self, node: int, level: int, key: int) -> Iterator[Tuple[int, int]]:
        bits = self.geometry.rtree.levels[level]
        for number, word in enumerate(array("Q", self.target.read(node, 8 << bits))):
            if word and level + 2 == len(self.geometry.rtree.levels):
                yield key << bits | number, word
            elif word:
                yield from self._below(word, level + 1, key << bits | number)

    @property
    def leaf_pages(self) -> int:
        """Pages below one leaf node."""
        return 1 << self.geometry.rtree.levels[-1]

    @property
    def element_bytes(self) -> int:
        """A leaf element's size: of one word where it is compact."""
        return 8 if self.geometry.rtree.compact else 16

    @property
    def leaf_bytes(self) -> int:
        """A leaf node's size."""
        return self.element_bytes * self.leaf_pages

    def element(self, address: int) -> int:
        """Where the leaf element of that page lies."""
        number = address // PAGE
        return dict(self.leaves())[number // self.leaf_pages] + self.element_bytes * (number % self.leaf_pages)

    def _walk(self) -> Iterator[Extent]:
        fields, low = self.geometry.fields, (1 << self.geometry.leaf_low_bits) - 1
        seen = set()
        for _, node in self.leaves():
            for word in array("Q", self.target.read(node, self.leaf_bytes))[:: self.element_bytes // 8]:
                pointer = word & (1 << 48) - 1 & ~low
                if pointer and pointer not in seen:
                    seen.add(pointer)
                    view = self.view(self.geometry.extent_struct, pointer)
                    of = {name: field.of(view["e_bits"]) for name, field in fields.items()}
                    begin = view["e_addr"] & -PAGE
                    is_active = of["state"] == self.geometry.states.active
                    yield Extent(
                        pointer, begin, begin + (view["e_size_esn"] & -PAGE), of["arena"], of["slab"] == 1, is_active, of["szind"], of["nfree"]
                    )

    def view(self, name: str, address: int) -> LayoutView:
        """A struct as it is in the file now."""
        return self.malloc.context.view(name, address)

    def place(self, name: str, path: str) -> int:
        """Offset of a member."""
        member = self.types.place(name, path)
        return member.offset

    def symbol(self, name: str) -> int:
        """Address of a variable."""
        symbol = self.jemalloc.symbols.find(name)
        return symbol.address

    def slabs(self, arena: int) -> List[Extent]:
        """Slabs of an arena with free and with used regions, and nothing of them in a cache."""
        cached = set(self.malloc.tcaches().pointers)
        slabs = [one for one in self.extents if one.is_active and one.is_slab and one.arena == arena]
        nregs = [info.nregs for info in self.geometry.bins]
        return [one for one in slabs if 0 < one.nfree < nregs[one.szind] and not any(one.begin <= pointer < one.end for pointer in cached)]

    def larges(self, arena: int, pages: int) -> List[Extent]:
        """Large allocations of an arena that take at least so many pages, in no cache."""
        cached = set(self.malloc.tcaches().pointers)
        extents = [one for one in self.extents if one.is_active and not one.is_slab and one.arena == arena and one.end - one.begin >= pages * PAGE]
        return [one for one in extents if not any(one.begin <= pointer < one.end for pointer in cached)]

    def metadata(self) -> List[Tuple[str, int, int]]:
        """(kind, start, end) of all that is jemalloc's own."""
        context = self.malloc.context
        ranges = [("root", self.geometry.rtree_root, self.geometry.rtree_root + (8 << self.geometry.rtree.levels[0]))]
        ranges += [("leaf", node, node + self.leaf_bytes) for _, node in self.leaves()]
        for arena in self.malloc.arena_list():
            ranges.append(("arena", arena.address, arena.address + self.types.size_bytes("arena_s")))
            ranges += [("base", start, end) for start, end in context.list_base_blocks(arena)]
        pack, module = self.jemalloc.symbols.pack, self.jemalloc.module
        writable = [mapping for mapping in self.target.mappings() if mapping.writable]
        for offset, size in pack.symbols.values() if pack is not None else ():
            address = module.base + offset
            if any(mapping.start <= address < mapping.end for mapping in writable):
                ranges.append(("variable", address, address + (size or 8)))
        if pack is None:
            spans = [(begin, end) for begin, _, end in self.target.writable_segments(module)]
            both = [(max(one.start, begin), min(one.end, end)) for one in writable for begin, end in spans]
            ranges += [("variable", begin, end) for begin, end in both if begin < end]
        ranges += [("tsd", record.address, record.address + self.types.size_bytes("tsd_s")) for record in self.malloc.tsds().records if record.address]
        for cache in self.malloc.tcaches().caches:
            ranges.append(("tcache", cache.address, cache.address + self.types.size_bytes("tcache_s")))
            ranges += [("stack", stack.start, stack.start + 8 * stack.count) for stack in cache.stacks]
        return ranges

    # ------------------------------------------------------------------------------------------------ damage

    def put_field(self, extent: Extent, name: str, value: int) -> None:
        """Another value in one field of e_bits."""
        field, address = self.geometry.fields[name], extent.struct + self.place(self.geometry.extent_struct, "e_bits")
        mask = (1 << field.width) - 1 << field.shift
        self.put(address, self.get(address) & ~mask | value << field.shift)

    def cut(self, start: int, end: int) -> None:
        """These bytes are not in the core any more: the segment is split, by program headers at the end of the file."""
        head = os.pread(self._fd, 64, 0)
        at, count = struct.unpack_from("<Q", head, 32)[0], struct.unpack_from("<H", head, 56)[0]
        made = []
        for number in range(count):
            entry = PHDR.unpack(os.pread(self._fd, PHDR.size, at + number * PHDR.size))
            kind, flags, offset, address, _, file_bytes, memory_bytes, align = entry
            if kind != PT_LOAD or not (address < end and start < address + memory_bytes):
                made.append(entry)
                continue
            if start > address:
                made.append((kind, flags, offset, address, 0, min(file_bytes, start - address), start - address, align))
            if end < address + memory_bytes:
                made.append((kind, flags, offset + end - address, end, 0, max(0, file_bytes - (end - address)), address + memory_bytes - end, align))
        table = os.fstat(self._fd).st_size + 7 & ~7
        os.pwrite(self._fd, b"".join(PHDR.pack(*entry) for entry in made), table)
        self.write(32, struct.pack("<Q", table))
        self.write(56, struct.pack("<H", len(made)))

    def ask(self, *words: str, as_json: bool = True) -> Asked:
        """Of jemalloc alone."""
        return super().ask(*words, "--allocator", "jemalloc", as_json=as_json)

    def blocks_outside(self, *ranges: Tuple[int, int]) -> List[Row]:
        """The undamaged core's blocks that lie in none of these ranges, and those of metadata, which are on lists."""
        return [row for row in self.blocks if row[2] == "metadata" or not any(begin <= row[0] < end for begin, end in ranges)]


class Living(Patient):
    """The process that the core is of, at rest: its memory is damaged and healed instead."""

    def __init__(self, path: Path, pid: int) -> None:
        self._memory, self.pid = os.open("/proc/%d/mem" % pid, os.O_RDWR), pid
        super().__init__(path)

    def close(self) -> None:
        super().close()
        os.close(self._memory)

    def get(self, address: int, size: int = 8) -> int:
        return int.from_bytes(os.pread(self._memory, size, address), "little")

    def put(self, address: int, value: int, size: int = 8) -> None:
        self._undo.append((address, os.pread(self._memory, size, address)))
        os.pwrite(self._memory, (value & (1 << 8 * size) - 1).to_bytes(size, "little"), address)

    def heal(self) -> None:
        while self._undo:
            address, data = self._undo.pop()
            os.pwrite(self._memory, data, address)

    def _open(self) -> ElfTarget:
        return open_elf_target(pid=self.pid)


def rows_of(asked: Asked) -> List[Row]:
    """The blocks of a `chunks` answer."""
    return [(int(row["address"], 16), row["size_bytes"], row["status"], row["arena"]) for row in asked.envelope["data"]["chunks"]]


def arenas_of(asked: Asked) -> Dict[int, Dict[str, Any]]:
    """The rows of an `arenas` answer."""
    return {row["index"]: row for row in asked.envelope["data"]["arenas"]}


def sums(blocks: Sequence[Row], arena: int, status: str) -> Tuple[int, int]:
    """Count and bytes."""
    sizes = [size for _, size, its_status, its_arena in blocks if (its_status, its_arena) == (status, arena)]
    return len(sizes), sum(sizes)
