"""A whole process as bytes: main_arena, mp_, heaps, bins, fastbins and thread caches of any glibc release and geometry."""

import random
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.glibc import layouts
from gdbheapx.glibc.layouts import bin_index, make_geometry, min_large_size
from gdbheapx.inferior.base import BulkSource, BytesSource, Mapping, Module, StructType, Symbol, Target, Thread, ThreadLocal
from gdbheapx.kernel.glibc.records import STATUS_FAST, STATUS_FREE, STATUS_TCACHE, STATUS_TCACHE_STRUCT, STATUS_USED, Geometry
from gdbheapx.layout.view import Shape, Struct, lay_out_struct
from tests.support.builders.heap import Built, build, put

LIBC = Module("/lib/libc.so.6", 0, False, "ab" * 20, False)
FIRST_LWP = 100
KEY = 0x5A5A1234
"""tcache_key, from 2.34 on."""


class FakeTarget(Target):
    """Bytes and symbols from a test; no debug information, so layouts come from the tables."""

    kind = "core"
    pid = 1
    executable = "/bin/fake"
    core_path = "/tmp/fake"

    def __init__(self, geometry: Geometry, machine: str) -> None:
        self.word_bytes, self.little_endian, self.page_bytes, self.machine = geometry.word_bytes, geometry.little_endian, geometry.page_bytes, machine
        self.pieces: Dict[int, bytearray] = {}
        self.symbols: Dict[str, int] = {}
        self.locals: Dict[str, Dict[int, Optional[int]]] = {}

    def put_word(self, address: int, value: int) -> None:
        """Overwrite one word."""
        start, data = self._piece(address)
        word = self.word_bytes
        data[address - start : address - start + word] = (value % (1 << 8 * word)).to_bytes(word, "little" if self.little_endian else "big")

    def _piece(self, address: int) -> Tuple[int, bytearray]:
        return next((start, data) for start, data in self.pieces.items() if start <= address < start + len(data))

    def read_prefix(self, address: int, size_bytes: int) -> bytes:
        for start, data in self.pieces.items():
            if start <= address < start + len(data):
                return bytes(data[address - start : address - start + size_bytes])
        return b""

    def bulk_source(self) -> BulkSource:
        return BytesSource(tuple((start, bytes(data)) for start, data in sorted(self.pieces.items())))

    def mappings(self) -> Sequence[Mapping]:
        page = self.page_bytes
        spans = [(start & -page, -(-(start + len(data)) // page) * page) for start, data in self.pieces.items()]
        return [Mapping(start, end, True, True, False, False, "", None) for start, end in sorted(spans)]

    def modules(self) -> Sequence[Module]:
        return [LIBC]

    def find_static(self, name: str) -> Sequence[Symbol]:
        return [Symbol(name, self.symbols[name], LIBC, "symbol")] if name in self.symbols else []

    def threads(self) -> Sequence[Thread]:
        return [Thread(lwp, None, 1, None, None) for lwp in self.locals.get("thread_arena", {})]

    def thread_local(self, name: str, near: Symbol) -> Optional[ThreadLocal]:
        return ThreadLocal(self.locals[name], "static-tls") if name in self.locals else None

    def dynamic_symbol(self, name: str) -> Optional[Symbol]:
        return Symbol(name, self.symbols[name], LIBC, "symbol") if name in self.symbols else None

    def text_at(self, address: int, limit: int = 256) -> Optional[str]:
        return self.read_prefix(address, limit).split(b"\0")[0].decode()


class Fake(NamedTuple):
    """The process, and the heaps it was made of: one or more for each arena, oldest first."""

    target: FakeTarget
    geometry: Geometry
    arenas: List[List[Built]]


class GlibcMachine(NamedTuple):
    """A release on a machine."""

    version: Tuple[int, int]
    word_bytes: int
    alignment_bytes: int
    page_bytes: int
    little_endian: bool
    machine: str

    def __str__(self) -> str:
        return "%d.%d-%s" % (*self.version, self.machine)

    @property
    def geometry(self) -> Geometry:
        """Its geometry."""
        return make_geometry(self.word_bytes, self.alignment_bytes, self.page_bytes, self.little_endian)

    def size_of(self, struct: Struct) -> int:
        """sizeof by the tables."""
        return lay_out_struct(struct, self.version, Shape(self.word_bytes, self.alignment_bytes)).size_bytes

    @property
    def heap_max(self) -> int:
        """HEAP_MAX_SIZE."""
        return 64 << 20 if self.word_bytes == 8 else 1 << 20


RELEASES = ((2, 29), (2, 31), (2, 36), (2, 41), (2, 42), (2, 43))
MACHINES = (
    (8, 16, 4096, True, "i386:x86-64"),
    (4, 16, 4096, True, "i386"),
    (4, 8, 4096, True, "arm"),
    (8, 16, 65536, True, "aarch64"),
    (8, 16, 65536, False, "powerpc:common64"),
)
WORLDS = [GlibcMachine(version, *machine) for version in RELEASES for machine in MACHINES]
ON_X86_64 = {version: GlibcMachine(version, *MACHINES[0]) for version in RELEASES}
BY_TURNS = [GlibcMachine(version, *machine) for version, machine in zip(RELEASES, MACHINES)]
"""Each machine once."""


def make(world: GlibcMachine, seed: int = 1, threads: int = 3, chunks: int = 300) -> Fake:
    """Main arena in brk, `threads` thread arenas of two heaps each; lists, bins and caches filled from the chunks' statuses."""
    return _Maker(world, seed).make(threads, chunks)


class _Maker:
    def __init__(self, world: GlibcMachine, seed: int) -> None:
        self.world, self.geometry = world, world.geometry
        self.random = random.Random(seed)
        self.target = FakeTarget(self.geometry, world.machine)
        self.shape = Shape(world.word_bytes, world.alignment_bytes)
        high = world.word_bytes == 8
        self.data = 0x7F0000000000 if high else 0x60000000
        self.brk = 0x555500000000 if high else 0x08100000
        self.heaps = 0x7E0000000000 if high else 0x40000000

    def layout(self, struct: Struct) -> StructType:
        return lay_out_struct(struct, self.world.version, self.shape)

    def make(self, threads: int, chunks: int) -> Fake:
        state = self.layout(layouts.MALLOC_STATE)
        self.target.pieces[self.data] = bytearray(0x10000)
        main = self.data + 0x4000
        self.target.symbols = {"main_arena": main, "mp_": self.data + 0x2000, "__libc_version": self.data + 0x100, "__curbrk": self.data + 0x180}
        text = b"%d.%d\0" % self.world.version
        self.target.pieces[self.data][0x100 : 0x100 + len(text)] = text
        self.target.locals = {"tcache": {}, "thread_arena": {}}
        arenas = [[build(self.spec(chunks, True), self.geometry, "top", self.brk, self.random.randrange(1 << 30), self.top_bytes(chunks), True)]]
        self.place_main(arenas[0][0])
        addresses = [main]
        for number in range(threads):
            address, built = self.thread_arena(number, chunks, state.size_bytes)
            arenas.append(built)
            addresses.append(address)
        for index, address in enumerate(addresses):
            self.fill_state(address, addresses[(index + 1) % len(addresses)], arenas[index], index)
            self.fill_caches(index, address, arenas[index])
        return Fake(self.target, self.geometry, arenas)

    def top_bytes(self, chunks: int) -> int:
        return 4 * self.geometry.page_bytes + self.geometry.alignment_bytes * self.random.randrange(64)

    def spec(self, chunks: int, with_struct: bool) -> List[Tuple[int, int]]:
        """Random chunks; the first is the tcache struct, no two free neighbours, none free before top."""
        unit, small = self.geometry.alignment_bytes, self.geometry.min_chunk_bytes
        ranges: List[Tuple[int, int]] = []
        if with_struct and self.world.version >= (2, 26):
            need = self.world.size_of(layouts.TCACHE) + self.geometry.word_bytes
            ranges.append((STATUS_TCACHE_STRUCT, -(-need // unit) * unit))
        kinds = [STATUS_USED, STATUS_USED, STATUS_FREE] + [STATUS_TCACHE] * (self.world.version >= (2, 26)) + [STATUS_FAST] * (self.world.version < (2, 43))
        cached: Dict[int, int] = {}
        while len(ranges) < chunks:
            kind = self.random.choice(kinds)
            size = small + unit * self.random.randrange(60)
            if kind == STATUS_FAST:
                size = small + unit * self.random.randrange(4)
            if kind == STATUS_FREE:
                size = small + unit * self.random.randrange(60 if self.random.random() < 0.9 else 700)
                kind = STATUS_USED if ranges and ranges[-1][0] == STATUS_FREE else kind
            if kind == STATUS_TCACHE:
                cached[size] = cached.get(size, 0) + 1
                kind = kind if cached[size] <= 7 else STATUS_USED
            ranges.append((kind, size))
        return [*ranges, (STATUS_USED, small)]

    def place_main(self, built: Built) -> None:
        """The heap in brk, its end on a page by a larger top."""
        page = self.geometry.page_bytes
        end = -(-built.region.end // page) * page
        extra = end - built.region.end  # top takes all, on i386 with a size that is no multiple of the alignment
        data = bytearray(built.data + bytes(end - built.region.end))
        top = built.region.top - built.region.begin
        put(data, self.geometry, top + self.geometry.word_bytes, (built.expected.top_bytes + extra) | 1)
        start = built.region.begin & -page
        self.target.pieces[start] = bytearray(built.region.begin - start) + data
        self.main_end = built.region.end + extra

    def thread_arena(self, number: int, chunks: int, state_bytes: int) -> Tuple[int, List[Built]]:
        """Two heaps: the older with heap_info and malloc_state, ended by a fencepost; the newer with top."""
        info = self.layout(layouts.HEAP_INFO)
        older = self.heaps + 2 * number * self.world.heap_max
        newer = older + self.world.heap_max
        arena = older + info.size_bytes
        first = build(self.spec(chunks, True), self.geometry, "fence", arena + state_bytes, self.random.randrange(1 << 30), is_main=False)
        second = build(self.spec(chunks // 2, False), self.geometry, "top", newer + info.size_bytes, self.random.randrange(1 << 30), self.top_bytes(chunks), False)
        self.put_heap(older, arena, 0, first)
        self.put_heap(newer, arena, older, second)
        return arena, [first, second]

    def put_heap(self, address: int, arena: int, prev: int, built: Built) -> None:
        """heap_info and chunks; the heap's size is what the chunks fill, in whole pages: the last used chunk or top takes the rest."""
        info, page, word = self.layout(layouts.HEAP_INFO), self.geometry.page_bytes, self.geometry.word_bytes
        size = -(-(built.region.end - address) // page) * page
        data = bytearray(size)
        data[built.region.begin - address : built.region.end - address] = built.data
        for name, value in (("ar_ptr", arena), ("prev", prev), ("size", size), ("mprotect_size", size), ("pagesize", page)):
            if name in info.members:
                put(data, self.geometry, info.members[name].offset, value)
        slack = address + size - built.region.end
        if built.region.top:
            put(data, self.geometry, built.region.top - address + word, (built.expected.top_bytes + slack) | 1)
        else:
            self.move_fence(data, address, built, slack)
        self.target.pieces[address] = data

    def move_fence(self, data: bytearray, address: int, built: Built, slack: int) -> None:
        """Lengthen the last used chunk so that fencepost and terminator stand at the end of the heap."""
        unit, word = self.geometry.alignment_bytes, self.geometry.word_bytes
        chunk, size, _ = built.chunks[-1]
        grown = size + slack // unit * unit
        flags = data[chunk - address + word] if self.geometry.little_endian else data[chunk - address + 2 * word - 1]
        put(data, self.geometry, chunk - address + word, grown | flags & 5)
        fence = chunk - address + grown
        for offset in range(chunk - address + size, min(fence + 4 * word, len(data)), word):
            put(data, self.geometry, offset, 0)
        put(data, self.geometry, fence + word, 2 * word | 1)
        put(data, self.geometry, fence + 3 * word, 1)

    # ------------------------------------------------------------------------------------------------ lists

    def fill_state(self, address: int, following: int, heaps: List[Built], index: int) -> None:
        state, word = self.layout(layouts.MALLOC_STATE), self.geometry.word_bytes
        free: List[Tuple[int, int]] = []
        fast: Dict[int, List[int]] = {}
        for built in heaps:
            for chunk, size, status in built.chunks:
                if status == STATUS_FREE:
                    free.append((chunk, size))
                elif status == STATUS_FAST:
                    fast.setdefault((size >> (4 if word == 8 else 3)) - 2, []).append(chunk)
        self.fill_bins(address + state.members["bins"].offset, address + state.members["binmap"].offset, free)
        for number, members in fast.items():
            self.link(address + state.members["fastbinsY"].offset + number * word, members, 2 * word)
        top = heaps[-1].region.top
        system = self.main_end - self.brk if index == 0 else sum(len(self.piece_of(built)) for built in heaps)
        values = {"top": top, "next": following, "system_mem": system, "max_system_mem": system + self.geometry.page_bytes, "attached_threads": 1}
        for name, value in values.items():
            if name in state.members:
                self.target.put_word(address + state.members[name].offset, value)
        if index == 0:
            self.fill_par()

    def piece_of(self, built: Built) -> bytearray:
        return next(data for start, data in self.target.pieces.items() if start <= built.region.begin < start + len(data))

    def fill_par(self) -> None:
        par = self.layout(layouts.MALLOC_PAR)
        self.target.put_word(self.data + 0x180, self.main_end)
        values = {"sbrk_base": self.brk, "trim_threshold": 131072, "mmap_threshold": 131072, "n_mmaps_max": 65536, "arena_test": 8 if self.geometry.word_bytes == 8 else 2}
        values.update(tcache_count=7, tcache_bins=64, tcache_small_bins=64, tcache_max_bytes=1032, pagesize=self.geometry.page_bytes)
        for name, value in values.items():
            if name in par.members:
                member, data = par.members[name], self.target.pieces[self.data]
                at = 0x2000 + member.offset
                data[at : at + member.size_bytes] = value.to_bytes(member.size_bytes, "little" if self.geometry.little_endian else "big")

    def fill_bins(self, bins: int, binmap: int, free: List[Tuple[int, int]]) -> None:
        word, sizes = self.geometry.word_bytes, dict(free)
        members: Dict[int, List[int]] = {}
        for chunk, size in free:
            index = 1 if self.random.random() < 0.2 else bin_index(size, self.geometry)
            members.setdefault(index, []).append(chunk)
        assert min_large_size(self.geometry) <= 1024
        for index in sorted(members):
            if index > 1:
                start, data = self.target._piece(binmap)
                at = binmap - start + index // 32 * 4
                word_there = int.from_bytes(data[at : at + 4], "little" if self.geometry.little_endian else "big") | 1 << index % 32
                data[at : at + 4] = word_there.to_bytes(4, "little" if self.geometry.little_endian else "big")
            if index >= 64:
                self.sort_large(members[index], sizes)
        for index in range(1, 128):
            header = bins + 2 * (index - 1) * word - 2 * word
            ring = [header, *members.get(index, [])]
            for before, after in zip(ring, ring[1:] + ring[:1]):
                self.target.put_word(before + 2 * word, after)
                self.target.put_word(after + 3 * word, before)

    def sort_large(self, chunks: List[int], sizes: Dict[int, int]) -> None:
        """Largest first, the first of each size linked with those of the next sizes."""
        word = self.geometry.word_bytes
        chunks.sort(key=lambda chunk: -sizes[chunk])
        firsts = [chunk for at, chunk in enumerate(chunks) if not at or sizes[chunks[at - 1]] != sizes[chunk]]
        for at, chunk in enumerate(firsts):
            self.target.put_word(chunk + 4 * word, firsts[(at + 1) % len(firsts)])
            self.target.put_word(chunk + 5 * word, firsts[at - 1])

    def link(self, head: int, entries: List[int], offset: int) -> None:
        """A singly linked list, protected from 2.32 on (PROTECT_PTR)."""
        self.target.put_word(head, entries[0])
        for entry, after in zip(entries, [*entries[1:], 0]):
            place_of = entry + offset
            self.target.put_word(place_of, after ^ (place_of >> 12) if self.world.version >= (2, 32) else after)

    def fill_caches(self, index: int, arena: int, heaps: List[Built]) -> None:
        """One thread for each arena; its cache holds the arena's cached chunks."""
        word, tcache = self.geometry.word_bytes, self.layout(layouts.TCACHE)
        lwp, slots = FIRST_LWP + index, self.data + 0x8000 + index * 64
        self.target.locals["thread_arena"][lwp] = slots
        self.target.locals["tcache"][lwp] = slots + word
        self.target.put_word(slots, arena)
        struct = next((chunk + 2 * word for built in heaps for chunk, _, status in built.chunks if status == STATUS_TCACHE_STRUCT), 0)
        self.target.put_word(slots + word, struct)
        if not struct:
            return
        start, data = self.target._piece(struct)
        data[struct - start : struct - start + tcache.size_bytes] = bytes(tcache.size_bytes)
        lists: Dict[int, List[int]] = {}
        for built in heaps:
            for chunk, size, status in built.chunks:
                if status == STATUS_TCACHE:
                    lists.setdefault((size - self.geometry.min_chunk_bytes) // self.geometry.alignment_bytes, []).append(chunk + 2 * word)
        counter = tcache.members["num_slots" if "num_slots" in tcache.members else "counts"]
        for number in range(counter.count):
            members = lists.get(number, [])
            value = 7 - len(members) if "num_slots" in tcache.members else len(members)
            at = struct - start + counter.offset + number * counter.size_bytes
            data[at : at + counter.size_bytes] = value.to_bytes(counter.size_bytes, "little" if self.geometry.little_endian else "big")
            for member in members if self.world.version >= (2, 29) else ():
                self.target.put_word(member + word, struct if self.world.version < (2, 34) else KEY)
            if members:
                self.link(struct + tcache.members["entries"].offset + number * word, members, 0)
