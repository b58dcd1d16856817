"""A process of jemalloc as bytes: arenas, tsds and thread caches of any release, with what must be read from them."""

from typing import Any, Dict, List, Optional, Sequence, Tuple

from gdbheapx.common.budget import Budget
from gdbheapx.common.problems import Diagnostic, ProblemCode
from gdbheapx.inferior.base import BytesSource, Mapping, Module, Symbol, Target, Thread, ThreadLocal, TypeSet
from gdbheapx.jemalloc import layouts
from gdbheapx.jemalloc.arenas import ArenaHandle, JemallocContext
from gdbheapx.jemalloc.layouts import BinLayout, JemallocGeometry
from gdbheapx.jemalloc.records import PublicNames
from gdbheapx.jemalloc.symbols import Jemalloc, JemallocSymbols
from gdbheapx.jemalloc.traces import ObjectTexts
from gdbheapx.kernel import load_native_library
from gdbheapx.kernel.common.in_ram import Ram
from gdbheapx.layout import pack

LIBRARY = Module("/lib/libjemalloc.so.2", 0x7F0000000000, False, "ab" * 20, False)
NBINS, NSIZES, NHBINS = 36, 232, 41
VERSIONS = ((5, 0, 1), (5, 1, 0), (5, 2, 1), (5, 3, 0), (5, 3, 1))
OLD = VERSIONS[:3]
"""Those with the ticker bug."""


def types_of(version: layouts.Version) -> TypeSet:
    """The types of a release: of 5.0.1 and 5.1.0 as their table has them, of the others as a pack of the same release."""
    if version < (5, 2, 0):
        return next(table.types for table in layouts.read_struct_tables() if table.version == version)
    return next(one.types for one in pack.shipped_packs() if (one.version_text or "").startswith("%d.%d.%d-" % version))


# ---------------------------------------------------------------------------------------------------- the process


class FakeMemory(Target):
    """Bytes, threads and a clock."""

    kind = "core"
    pid: Optional[int] = 100
    executable = "/bin/fake"
    core_path = "/tmp/fake"
    word_bytes, little_endian, page_bytes, machine = 8, True, 4096, "i386:x86-64"

    def __init__(self) -> None:
        self.pieces: Dict[int, bytearray] = {}
        self.threads_known: List[Thread] = []
        self.clock: Optional[int] = None
        self.code: List[Tuple[int, int]] = []

    def read_prefix(self, address: int, size_bytes: int) -> bytes:
        for start, data in self.pieces.items():
            if start <= address < start + len(data):
                return bytes(data[address - start : address - start + size_bytes])
        return b""

    def write(self, address: int, data: bytes) -> None:
        """Overwrite bytes."""
        if not data:
            return
        start, piece = next((start, piece) for start, piece in self.pieces.items() if start <= address < start + len(piece))
        piece[address - start : address - start + len(data)] = data

    def bulk_source(self) -> BytesSource:
        return BytesSource(tuple((start, bytes(data)) for start, data in sorted(self.pieces.items())))

    def mappings(self) -> Sequence[Mapping]:
        spans = [Mapping(start, start + len(data), True, True, False, False, "", None) for start, data in self.pieces.items()]
        spans += [Mapping(start, end, True, False, True, False, LIBRARY.name, None) for start, end in self.code]
        return sorted(spans)

    def modules(self) -> Sequence[Module]:
        return [LIBRARY]

    def find_static(self, name: str) -> Sequence[Symbol]:
        return []

    def struct(self, type_name: str, near: Symbol) -> None:
        return None

    def threads(self) -> Sequence[Thread]:
        return self.threads_known

    def thread_local(self, name: str, near: Symbol) -> None:
        return None

    def dynamic_symbol(self, name: str) -> None:
        return None

    def text_at(self, address: int, limit: int = 256) -> Optional[str]:
        data = self.read_prefix(address, limit)
        return data.split(b"\0")[0].decode() if b"\0" in data else None

    def monotonic_ns(self) -> Optional[int]:
        return self.clock


class FakeSymbols:
    """Variables by name."""

    by_structure = False
    module = LIBRARY
    option_names: Sequence[str] = ()
    read_variable = JemallocSymbols.read_variable

    def __init__(self, target: FakeMemory) -> None:
        self.target = target
        self.places: Dict[str, Tuple[int, int]] = {}
        self.constants: Dict[str, int] = {}
        self.local: Optional[ThreadLocal] = ThreadLocal({}, "static-tls")
        self.told = ObjectTexts(0, None, (), None, False)

    def find(self, name: str) -> Optional[Symbol]:
        return Symbol(name, self.places[name][0], LIBRARY, "symbol") if name in self.places else None

    def size_bytes(self, name: str) -> Optional[int]:
        return self.places[name][1] if name in self.places else None

    def find_thread_locals(self) -> Optional[ThreadLocal]:
        return self.local

    def constant(self, name: str) -> Optional[int]:
        return self.constants.get(name)

    def names(self, start: str) -> List[str]:
        return sorted(name for name in self.places if name.startswith(start))

    @property
    def public_names(self) -> PublicNames:
        return PublicNames("", "MALLOC_CONF")

    @property
    def texts(self) -> ObjectTexts:
        return self.told


class JemallocMemory:
    """A process that grows by what a test puts into it."""

    def __init__(self, version: layouts.Version, arenas: int = 3) -> None:
        self.version = version
        self.types = types_of(version)
        self.memory = FakeMemory()
        self.symbols = FakeSymbols(self.memory)
        self.problems: List[Diagnostic] = []
        self._next = 0x10000000
        self.geometry = self._geometry(arenas)
        self.states = {name: value for value, name in layouts.read_tsd_states(self.types, version).items()}
        symbols: Any = self.symbols
        jemalloc = Jemalloc(self.memory, symbols, self.types, version, self.geometry)
        kernel = load_native_library()
        self.context = JemallocContext(self.memory, jemalloc, kernel, self.memory.bulk_source(), Budget(), self.report, Ram(self.memory, kernel))
        self.arenas = [ArenaHandle(index, self.struct("arena_s"), "auto", self.context) for index in range(arenas)]
        self.variable("nhbins", NHBINS, 4)
        for name, value, size in (("tsd_booted", 1, 1), ("malloc_init_state", 0, 4), ("opt_percpu_arena", 2, 4), ("background_thread_enabled_state", 0, 1)):
            self.variable(name, value, size)
        if self.version < (5, 3, 1):
            short = layouts.has_short_ncached_max(self.types)
            self.variable("tcache_bin_info", self.bytes(b"".join((200 if i < NBINS else 20).to_bytes(2 if short else 4, "little") for i in range(NSIZES))))
        if self.types.first("tsd_s", "tsd_link.qre_next", "tcache.tsd_link.qre_next"):
            self.variable("tsd_nominal_tsds", 0)
        self.nominal: List[int] = []
        self.on_list: Dict[int, List[int]] = {}

    def _geometry(self, arenas: int) -> JemallocGeometry:
        sizes = layouts.compute_size_classes(16)
        bins = tuple(BinLayout(size, 65536, 65536 // size, 1) for size in sizes[:NBINS])
        fields, states = layouts.make_ebits_fields(self.version, NSIZES, 512), layouts.read_extent_states(self.types, self.version)
        shape = layouts.RtreeShape(48, (18, 18), True)
        return JemallocGeometry(8, True, 12, sizes, sizes[28:], bins, "extent_s", fields, states, 0, shape, 1, True, arenas, arenas, None, 4096, False)

    def report(self, code: ProblemCode, address: Optional[int], what: str, hint: Optional[str]) -> None:
        """What readers find wrong."""
        self.problems.append(Diagnostic(code, address, what, hint))

    # ------------------------------------------------------------------------------------------------ memory

    def room(self, size_bytes: int) -> int:
        """Zeroed memory of its own, with unmapped memory behind it."""
        address = self._next
        self.memory.pieces[address] = bytearray(size_bytes)
        self._next += -(-size_bytes // 4096) * 4096 + 4096
        return address

    def next_room(self, address: int) -> None:
        """Where the next room begins."""
        self._next = address

    def bytes(self, data: bytes) -> int:
        """These bytes somewhere."""
        address = self.room(len(data))
        self.memory.write(address, data)
        return address

    def struct(self, name: str) -> int:
        """A zeroed struct."""
        return self.room(self.types.size_bytes(name))

    def variable(self, name: str, value: int, size_bytes: int = 8) -> None:
        """A variable with a value."""
        self.symbols.places[name] = (self.bytes(value.to_bytes(size_bytes, "little")), size_bytes)

    def put(self, struct: str, address: int, **values: int) -> None:
        """Set members by path; `__` stands for a dot. Paths that this release lacks are an error."""
        for path, value in values.items():
            self.put_path(struct, address, path.replace("__", "."), value)

    def put_path(self, struct: str, address: int, path: str, value: int) -> None:
        """Set one member."""
        member = self.types.place(struct, path)
        assert member is not None, (struct, path)
        self.memory.write(address + member.offset, (value % (1 << 8 * member.size_bytes)).to_bytes(member.size_bytes, "little"))

    def offset(self, struct: str, path: str) -> int:
        """Where a member lies."""
        member = self.types.place(struct, path)
        assert member is not None, (struct, path)
        return member.offset

    # ------------------------------------------------------------------------------------------------ threads

    def thread(self, name: str, state: str, arena: Optional[int] = None, **members: int) -> int:
        """A thread with a tsd; gives the address of that. 5.2 on: nominal ones join tsd_nominal_tsds."""
        lwp = 100 + len(self.memory.threads_known)
        tsd = self.struct("tsd_s")
        stack = self.room(4096)
        self.memory.threads_known.append(Thread(lwp, name, tsd, stack, 0x400000))
        assert self.symbols.local is None or isinstance(self.symbols.local.addresses, dict)
        if self.symbols.local is not None:
            self.symbols.local.addresses[lwp] = tsd
        self.put("tsd_s", tsd, state=self.states[state])
        if arena is not None:
            self.put("tsd_s", tsd, arena=self.arenas[arena].address, iarena=self.arenas[0].address)
        self.put("tsd_s", tsd, **members)
        if state.startswith("nominal"):
            self.link_nominal(tsd)
        return tsd

    def link_nominal(self, tsd: int) -> None:
        """Append to tsd_nominal_tsds."""
        path = self.types.first("tsd_s", "tsd_link.qre_next", "tcache.tsd_link.qre_next")
        if path is None:
            return
        self.nominal.append(tsd)
        for place, following in zip(self.nominal, self.nominal[1:] + self.nominal[:1]):
            self.put_path("tsd_s", place, path, following)
        self.variable("tsd_nominal_tsds", self.nominal[0])

    def tickers(self, tsd: int, ticks: Sequence[int]) -> None:
        """arenas_tdata with these tickers, of 1,000 each."""
        size = self.types.size_bytes("arena_tdata_s")
        array = self.room(size * len(ticks))
        for index, tick in enumerate(ticks):
            self.put("arena_tdata_s", array + index * size, decay_ticker__tick=tick, decay_ticker__nticks=1000)
        self.put("tsd_s", tsd, arenas_tdata=array, narenas_tdata=len(ticks))

    # ------------------------------------------------------------------------------------------------ caches

    def own_cache(self, tsd: int, arena: int, held: Dict[int, Sequence[int]]) -> int:
        """Fill and link the cache of a thread; gives its address."""
        self.put("tsd_s", tsd, tcache_enabled=1)
        cache = tsd + self.offset("tsd_s", "tcache")
        slow = tsd + self.offset("tsd_s", "tcache_slow") if self.version >= (5, 3, 0) else 0
        self.fill(cache, slow, arena, held)
        return cache

    def explicit_cache(self, arena: int, held: Dict[int, Sequence[int]]) -> int:
        """As tcache.create makes it: on the heap."""
        slow = self.struct("tcache_slow_s") if self.version >= (5, 3, 0) else 0
        cache = self.struct("tcache_s")
        self.fill(cache, slow, arena, held)
        return cache

    def fill(self, cache: int, slow: int, arena: int, held: Dict[int, Sequence[int]]) -> None:
        """Stacks with these pointers by size class, and a place on the arena's list."""
        if slow:
            self._fill_descending(cache, held)
            self.put("tcache_slow_s", slow, arena=self.arenas[arena].address, tcache=cache)
            self.put("tcache_s", cache, tcache_slow=slow)
            element = slow + self.offset("tcache_slow_s", "cache_bin_array_descriptor")
            self.put("cache_bin_array_descriptor_s", element, bins=cache + self.offset("tcache_s", "bins"))
        else:
            self._fill_ascending(cache, held)
            self.put("tcache_s", cache, arena=self.arenas[arena].address)
            element = cache
            if self.version >= (5, 1, 0):
                element = cache + self.offset("tcache_s", "cache_bin_array_descriptor")
                places = {name: cache + self.offset("tcache_s", name) for name in ("bins_small", "bins_large")}
                self.put("cache_bin_array_descriptor_s", element, **places)
        self.on_list.setdefault(arena, []).append(element)
        self.link_caches(arena)

    def link_caches(self, arena: int) -> None:
        """Make the arena's circular list of self.on_list."""
        is_old = self.version < (5, 1, 0)
        members = self.on_list[arena]
        self.put_path("arena_s", self.arenas[arena].address, "tcache_ql.qlh_first" if is_old else "cache_bin_array_descriptor_ql.qlh_first", members[0])
        for place, following in zip(members, members[1:] + members[:1]):
            self.put("tcache_s" if is_old else "cache_bin_array_descriptor_s", place, link__qre_next=following)

    def _fill_ascending(self, cache: int, held: Dict[int, Sequence[int]]) -> None:
        room = self.room(8 * (200 * NBINS + 20 * (NHBINS - NBINS)))
        small, large = ("tbins_small", "tbins_large") if self.version < (5, 1, 0) else ("bins_small", "bins_large")
        top = room
        for szind in range(NHBINS):
            top += 8 * (200 if szind < NBINS else 20)
            pointers = held.get(szind, ())
            path = "%s[%d]" % ((small, szind) if szind < NBINS else (large, szind - NBINS))
            self.put_path("tcache_s", cache, path + ".avail", top)
            self.put_path("tcache_s", cache, path + ".ncached", len(pointers))
            self.memory.write(top - 8 * len(pointers), b"".join(one.to_bytes(8, "little") for one in pointers))

    def _fill_descending(self, cache: int, held: Dict[int, Sequence[int]]) -> None:
        room = self.room(8 * (200 * NBINS + 20 * (NHBINS - NBINS)))
        end = room
        for szind in range(NHBINS):
            most = 200 if szind < NBINS else 20
            end += 8 * most
            pointers = held.get(szind, ())
            path = "bins[%d]." % szind
            self.put_path("tcache_s", cache, path + "stack_head", end - 8 * len(pointers))
            self.put_path("tcache_s", cache, path + "low_bits_empty", end & 0xFFFF)
            self.put_path("tcache_s", cache, path + "low_bits_full", end - 8 * most & 0xFFFF)
            if self.version >= (5, 3, 1):
                self.put_path("tcache_s", cache, path + "bin_info.ncached_max", most)
            self.memory.write(end - 8 * len(pointers), b"".join(one.to_bytes(8, "little") for one in pointers))
