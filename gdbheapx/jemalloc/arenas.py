"""Read arena_t, base_t and mutexes: what every reader of a jemalloc needs."""

import os
import sys
from array import array
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common.budget import Budget
from gdbheapx.common.columns import add_values
from gdbheapx.common.errors import UnreadableMemory
from gdbheapx.common.problems import PartialSink
from gdbheapx.common.units import list_names
from gdbheapx.inferior.base import BulkSource, Mapping, Target, Thread, TypeSet
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.layouts import JemallocGeometry, resident_counts_muzzy
from gdbheapx.jemalloc.symbols import Jemalloc, JemallocSymbols
from gdbheapx.kernel.common.in_ram import Ram
from gdbheapx.kernel.common.library import Kernel
from gdbheapx.layout.view import LayoutView

MutexCounters = Dict[str, Optional[int]]
RUN_BYTES = 1 << 20
"""Longest read of several pieces at once."""


MOST_NAMED = 4
"""Threads that are named."""
FRAMES_BYTES = 1024
"""So much of a thread's stack is searched: the frames of a lock or a system call that jemalloc waits in."""
SYSTEM_OBJECTS = ("libc.", "libc-", "libpthread", "[vdso]")
"""How the names of what jemalloc calls begin; libpthread of older releases."""
CALLERS_BYTES = 4096
"""So much for who called jemalloc: what flushes a thread cache has arrays there."""
PAC = "pa_shard.pac."
EXTENT_STATES = ("dirty", "muzzy", "retained", "pinned")
UNUSED_STATES = ("dirty", "muzzy")
"""What a purge gives back."""
ACTIVE_PATHS = ("pa_shard.nactive", "nactive")


class JemallocContext(NamedTuple):
    """The state that every reader of one jemalloc shares: target, instance, native library, budget, error sink."""

    target: Target
    jemalloc: Jemalloc
    kernel: Kernel
    source: BulkSource
    budget: Budget
    report: PartialSink
    ram: Ram
    """Which pages are in RAM."""

    @property
    def types(self) -> TypeSet:
        """Its types."""
        return self.jemalloc.types

    @property
    def symbols(self) -> JemallocSymbols:
        """Its variables."""
        return self.jemalloc.symbols

    @property
    def geometry(self) -> JemallocGeometry:
        """Its constants."""
        return self.jemalloc.geometry

    def view(self, struct: str, address: int) -> LayoutView:
        """The struct at `address`. Unreadable if a byte of it is missing."""
        return self.jemalloc.view(struct, address)

    def read_array(self, struct: str, address: int, count: int) -> List[LayoutView]:
        """The structs from `address` on, read at once. Unreadable if a byte of them is missing."""
        size, little = self.types.size_bytes(struct), self.geometry.little_endian
        data = self.target.read(address, count * size)
        return [LayoutView(self.types, struct, address + at, data[at : at + size], little) for at in range(0, len(data), size)]

    def variable(self, name: str, size_bytes: int = 0, signed: bool = False) -> Optional[int]:
        """The integer in the variable `name` (a word unless size_bytes says otherwise); None if this build has none or it cannot be
        read."""
        return self.symbols.read_variable(name, size_bytes, signed)

    def find_threads_inside(self) -> Tuple[List[int], List[int]]:
        """Return the kernel ids of the threads that were inside jemalloc, and of those that may have been.

        Surely: their pc lies in the code of the object that holds this jemalloc, or the word that a leaf function returns to does, or they
        wait in libc, which it has called: for a lock that was free again, and they have not run since, or in a system call. Others have a
        return address into that code near the top of their stack.
        """
        mappings = self.target.mappings()
        base = self.jemalloc.module.base
        name = next(
            (mapping.name for mapping in mappings if mapping.start <= base < mapping.end), self.jemalloc.module.name
        )  # ld.so's path may have symlinks
        names = {name, self.jemalloc.module.name} - {""}
        code = [range(mapping.start, mapping.end) for mapping in mappings if mapping.executable and mapping.name in names]
        surely: List[int] = []
        maybe: List[int] = []
        for thread in self.target.threads():
            if thread.pc is not None and any(thread.pc in span for span in code):
                surely.append(thread.lwp)
                continue
            words = self._top_of_stack(thread)
            returns = [any(word in span for span in code) for word in words]
            if any(returns):
                (surely if returns[0] or self._waits_for_other(mappings, code, thread) else maybe).append(thread.lwp)
        return surely, maybe

    def explain_contradiction(self) -> Optional[str]:
        """Explain a contradiction between extents or with thread caches; no hint if no thread was inside and the target cannot be read
        again."""
        surely, maybe = self.find_threads_inside()
        who = surely or maybe
        is_core = self.target.kind == "core"
        if not who:
            return None if is_core else "retry to see whether it persists"
        is_sure = bool(surely) and not self.jemalloc.module.is_executable  # else the program's own code may be meant
        verb = ("were" if len(who) > 1 else "was") if is_sure else "may have been"
        inside_it = "%s %s inside jemalloc" % (list_names("thread", who, MOST_NAMED), verb)
        if is_core:
            return "%s when the core was written: this may be an unfinished change" % inside_it
        return "%s at that moment: retry to see whether it persists" % inside_it

    def read_arenas(self) -> "List[ArenaHandle]":
        """Every arena that exists; reports those that cannot be read or are not what they should be, and leaves them out."""
        geometry = self.geometry
        if self.jemalloc.is_partial:
            hides, hint = self.hides_dirty_pages(), "its counters, options without a place, threads and caches are null; %s"
            if hides is not False:
                hint %= "so are its dirty pages, as opt.hpa %s: some may be in no extent; %%s" % ("is on" if hides else "is unknown")
            what = "no known layout is that of jemalloc %s: only its extents are read" % self.jemalloc.version_name
            self.report(codes.LAYOUT_UNKNOWN, None, what, hint % "blocks in thread caches count as used")
        total, place = self.variable("narenas_total", 4), self.symbols.find("narenas_total")
        if total is not None and place is not None and total > geometry.narenas:
            what = "narenas_total is %d, more than jemalloc ever makes" % total
            self.report(codes.NARENAS_WRONG, place.address, what, "gdbheapx searches for arenas up to %d" % geometry.narenas)
        try:
            pointers = self.jemalloc.read_arena_pointers()
        except UnreadableMemory as problem:
            what = "cannot read jemalloc's array of arenas"
            self.report(codes.ARENAS_UNREADABLE, problem.address, what, "a core must include the bss of %s" % self.jemalloc.module.name)
            return []
        arenas = []
        for index, address in enumerate(pointers):
            if not address:
                continue  # not created, or destroyed
            kind: Optional[str] = "auto"
            if self.symbols.by_structure and geometry.manual_arena_base is None:
                kind = None if index else "auto"
            elif geometry.huge_arena is not None and index == geometry.huge_arena:
                kind = "huge"
            elif geometry.manual_arena_base is not None and index >= geometry.manual_arena_base:
                kind = "manual"
            arena = ArenaHandle(index, address, kind, self)
            try:
                view = arena.read()
            except UnreadableMemory as problem:
                arena.report_unreadable(problem)
                continue
            own = self.jemalloc.read_own_index(address)
            has_base = view.has("base") and self.types.place("base_s", "ind") is not None  # in the arena's block
            if own != index and (own is not None or has_base):
                says = "that says it is arena %d" % own if own is not None else "with an unreadable base: it is not an arena"
                self.report(codes.ARENA_WRONG, address, "arenas[%d] points to a struct %s" % (index, says), "its figures are missing here")
                continue
            arenas.append(arena)
        return arenas

    def hides_dirty_pages(self) -> Optional[bool]:
        """Dirty pages are in no extent, and nothing that is read of this build counts them: where no layout is known and the huge page
        allocator serves requests, which keeps what was freed in its page slabs (hpdata.c). None: not known whether it does."""
        if not self.jemalloc.is_partial:
            return False
        option = self.variable("opt_hpa", 1)
        return bool(option) if option in (0, 1) else None

    def report_missing_arenas(self, indexes: Iterable[int]) -> None:
        """Report arenas that have extents and no place in arenas[]: one is taken out only when it has none left (arena_i_destroy)."""
        try:
            pointers = self.jemalloc.read_arena_pointers()
        except UnreadableMemory:
            return  # was told
        for index in indexes:
            if index < len(pointers) and not pointers[index]:
                what = "extents belong to arena %d, but arenas[%d] is null" % (index, index)
                self.report(codes.ARENA_MISSING, None, what, "its counters are missing here")

    def list_unused_states(self) -> Sequence[str]:
        """List the EXTENT_STATES that extents of this build may have: none is `pinned` up to 5.3.1, nor where no layout is known."""
        return EXTENT_STATES if self.geometry.states.pinned is not None else EXTENT_STATES[:-1]

    def sum_held_bytes(self, listed: "Sequence[ArenaHandle]") -> Optional[int]:
        """Sum active and unused pages of all arenas by their own counters; None if one of them is unknown."""
        total = 0
        for arena in listed:
            try:
                view = arena.read()
            except UnreadableMemory:
                return None
            kept = add_values([view.count_pages(state) for state in ("active", *self.list_unused_states()) if state != "retained"])
            if kept is None:
                return None
            total += kept * self.geometry.page_bytes
        return total if listed else None

    def sum_writable_bytes(self) -> int:
        """Sum the mappings that could hold rtree nodes, which bounds a walk through damaged ones."""
        return sum(mapping.size_bytes for mapping in self.target.mappings() if mapping.readable and mapping.writable)

    def add_mapped_bytes(self, parts_bytes: Iterable[Optional[int]], signed: bool = False) -> Optional[int]:
        """The sum as jemalloc's size_t has it, or below 0 with `signed`; None if any part is None.

        With opt.san_guard_small an arena's pac_mapped falls below 0 (seen in 5.3.0): then it is right only as a part of a sum that wraps.
        """
        total, values = add_values(parts_bytes), 1 << 8 * self.geometry.word_bytes
        if total is None:
            return None
        return (total + values // 2) % values - values // 2 if signed else total % values

    def read_pieces(self, ranges: Iterable[Tuple[int, int]], gap_bytes: int = 4096) -> Dict[int, bytes]:
        """Bytes by address for every (address, size_bytes) that can be read whole; those closer than `gap_bytes` are read at once with what
        lies between them."""
        runs: List[List[Tuple[int, int]]] = []
        end = 0
        for address, size in sorted(set(ranges)):
            if runs and address - end <= gap_bytes and address + size - runs[-1][0][0] <= RUN_BYTES:
                runs[-1].append((address, size))
            else:
                runs.append([(address, size)])
            end = max(end, address + size)
        data_of: Dict[int, bytes] = {}
        for run in runs:
            start = run[0][0]
            data = self.target.read_prefix(start, max(address + size for address, size in run) - start)
            for address, size in run:
                part = data[address - start : address - start + size]
                if len(part) < size:  # a hole before it
                    part = self.target.read_prefix(address, size)
                if len(part) == size and len(part) >= len(data_of.get(address, b"")):
                    data_of[address] = part
        return data_of

    def read_views(self, struct: str, addresses: Iterable[int], gap_bytes: int = 4096) -> Dict[int, LayoutView]:
        """The structs at these addresses; those that cannot be read are missing."""
        size, order = self.types.size_bytes(struct), self.geometry.little_endian
        read = self.read_pieces(((address, size) for address in addresses), gap_bytes)
        return {address: LayoutView(self.types, struct, address, data, order) for address, data in read.items()}

    def unpack_pointers(self, data: bytes) -> "array[int]":
        """The target's pointers in these bytes."""
        values = array("Q" if self.geometry.word_bytes == 8 else "I", data)
        if self.geometry.little_endian != (sys.byteorder == "little"):
            values.byteswap()
        return values if values.typecode == "Q" else array("Q", values)

    def read_global_mutexes(self, background: Iterable[MutexCounters]) -> Dict[str, MutexCounters]:
        """The locks that are not an arena's. `background`: those of the background threads that run."""
        prof = self.variable("opt_prof", 1)
        locks = {}
        for key, name in GLOBAL_MUTEXES:
            if not name:
                if "edata_s" in self.types.structs:
                    locks[key] = find_largest_waits(background)
            elif key == "prof_thds_data" and "edata_s" not in self.types.structs:
                break  # 5.2 and older count no others
            else:
                is_idle, symbol = key.startswith("prof") and prof == 0, self.symbols.find(name)
                locks[key] = make_mutex_counters(0 if is_idle else None)
                if symbol is not None and not is_idle:
                    try:
                        locks[key] = read_mutex(self.view("malloc_mutex_s", symbol.address), "")
                    except (UnreadableMemory, KeyError):
                        pass
        return locks

    def read_base(self, view: LayoutView) -> Optional[LayoutView]:
        """base_s of an arena: its metadata's bookkeeping. None if it cannot be read."""
        try:
            return self.view("base_s", view["base"])
        except (UnreadableMemory, KeyError):
            return None

    def read_arena_memory(self, view: "ArenaView", base: Optional[LayoutView]) -> Dict[str, Optional[int]]:
        """Read bytes of an arena by its own counters: `base`, `internal`, `mapped`, `resident` without the HPA (arena_stats_merge)."""
        allocated, resident, mapped = (base.get(name) if base is not None else None for name in ("allocated", "resident", "mapped"))
        states = ("active", "dirty", *(["muzzy"] if resident_counts_muzzy(self.jemalloc.version) else []))
        in_ram = add_values([*map(view.count_pages, states), view.count_pages("pinned") or 0])
        in_ram_bytes = None if in_ram is None else in_ram * self.geometry.page_bytes
        return {
            "base": allocated,
            "internal": view.get("stats.internal"),
            "mapped": self.add_mapped_bytes([mapped, view.get("stats.pa_shard_stats.pac_stats.pac_mapped", "stats.mapped")], True),
            "resident": add_values([resident, in_ram_bytes]),
        }

    def list_base_blocks(self, arena: "ArenaHandle") -> List[Tuple[int, int]]:
        """Return (start, end) of the blocks of an arena's base, newest first (base_t.blocks); of a broken list those before, reported."""
        listed: List[Tuple[int, int]] = []
        base = self.read_base(arena.read())
        if base is None:
            what = "cannot read the base of arena %d" % arena.index
            self.report(codes.BASE_UNREADABLE, arena.address, what, "its metadata is missing here")
            return listed
        address, seen = base["blocks"], set()
        page, most_bytes = self.geometry.page_bytes, self.sum_writable_bytes()
        while address and len(listed) < MOST_BASE_BLOCKS:
            if address in seen or address % page:
                what = "the list of base blocks of arena %d is broken" % arena.index
                self.report(codes.BASE_BROKEN, address, what, "blocks after it are missing here")
                break
            seen.add(address)
            try:
                block = self.view("base_block_s", address)
            except UnreadableMemory:
                what = "cannot read a base block of arena %d" % arena.index
                self.report(codes.BASE_UNREADABLE, address, what, "blocks after it are missing here")
                break
            if block["size"] % page or not 0 < block["size"] <= most_bytes:
                what = "a base block of arena %d has size 0x%x" % (arena.index, block["size"])
                self.report(codes.BASE_BROKEN, address, what, "blocks after it are missing here")
                break
            listed.append((address, address + block["size"]))
            address = block["next"]
        return listed

    def _waits_for_other(self, mappings: Sequence[Mapping], code: Sequence[range], thread: Thread) -> bool:
        if not os.path.basename(_name_object(mappings, thread.pc or 0)).startswith(SYSTEM_OBJECTS):
            return False
        words = self._top_of_stack(thread, CALLERS_BYTES)
        names = ((word, _name_object(mappings, word)) for word in words)
        callers = [word for word, name in names if name and not os.path.basename(name).startswith(SYSTEM_OBJECTS)]
        are_own = [any(word in span for span in code) for word in callers]
        return are_own[:1] == [True] and not all(are_own)

    def _top_of_stack(self, thread: Thread, most_bytes: int = FRAMES_BYTES) -> List[int]:
        if thread.stack_pointer is None:
            return []
        start, end = thread.stack_pointer & -self.geometry.word_bytes, thread.thread_pointer or 0
        return self.target.words_in(self.target.read_prefix(start, min(most_bytes, end - start) if end > start else most_bytes))


class ArenaView(LayoutView):
    """arena_s as it was read, whatever its release calls what is in it."""

    def count_pages(self, state: str) -> Optional[int]:
        """Pages in the arena's extents of a state, one of EXTENT_STATES or `active`, by its own counters; None if this build has none."""
        paths = find_page_counters(self.types, state)
        return sum(self[path] for path in paths) if paths else None

    def find_decay_path(self, state: str) -> str:
        """Path of the decay state for `dirty` or `muzzy` pages."""
        return "decay_%s" % state if self.has("decay_%s" % state) else "%sdecay_%s" % (PAC, state)

    def read_decay_ms(self, state: str) -> Optional[int]:
        """decay.time_ms as a signed number: -1 never, 0 at once."""
        value = self.get(self.find_decay_path(state) + ".time_ms")
        if value is None:
            return None
        return value - (1 << 64) if value >= 1 << 63 else value

    def find_hpa_path(self) -> str:
        """Return the path of hpa_shard_t in arena_s, with its dot."""
        return "pa_shard.hpa." if self.has("pa_shard.hpa.mtx") else "pa_shard.hpa_shard."


def make_rows(columns: Dict[str, Optional[List[int]]], count: int) -> List[Dict[str, Optional[int]]]:
    """Columns as one dict for each of `count` rows; None where a column is missing or too short."""
    return [
        {name: values[at] if values is not None and at < len(values) else None for name, values in columns.items()} for at in range(count)
    ]


def add_lists(lists: Sequence[Optional[List[int]]]) -> Optional[List[int]]:
    """Element-wise sum of those that exist; None if there is none."""
    known = [values for values in lists if values is not None]
    return [sum(parts) for parts in zip(*known)] if known else None


def _name_object(mappings: Sequence[Mapping], address: int) -> str:
    """The file whose code is there; empty: none."""
    return next((mapping.name for mapping in mappings if mapping.executable and mapping.start <= address < mapping.end), "")


class ArenaHandle(NamedTuple):
    """An arena_t by its address. The struct has tens of kilobytes, so it is read when needed and not kept."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    address: int
    kind: Optional[str]
    """`auto`, `huge` (the one for allocations above opt.oversize_threshold) or `manual` (made by arenas.create); None where no variable
    shows it, except for arena 0."""
    context: JemallocContext

    def read(self) -> ArenaView:
        """arena_s as it is now. Unreadable if it cannot be read whole."""
        data = self.context.target.read(self.address, self.context.types.size_bytes("arena_s"))
        return ArenaView(self.context.types, "arena_s", self.address, data, self.context.geometry.little_endian)

    def report_unreadable(self, problem: UnreadableMemory) -> None:
        """Report that the struct cannot be read."""
        what = "cannot read arena %d at 0x%x" % (self.index, self.address)
        self.context.report(codes.ARENA_UNREADABLE, problem.address, what, "its figures are missing here")


def find_page_counters(types: TypeSet, state: str) -> Sequence[str]:
    """The counters in arena_s that count_pages() adds up; none if this build has none. extents_STATE.npages up to 5.2, from 5.3 those of
    both esets of pac.ecache_STATE."""
    if state == "active":
        active = types.first("arena_s", *ACTIVE_PATHS)
        return (active,) if active is not None else ()
    if types.place("arena_s", "extents_%s.npages" % state) is not None:
        return ("extents_%s.npages" % state,)
    first, guarded = ("%secache_%s.%s.npages" % (PAC, state, eset) for eset in ("eset", "guarded_eset"))
    if types.place("arena_s", first) is None:
        return ()
    return (first, guarded) if types.place("arena_s", guarded) is not None else (first,)


MOST_BASE_BLOCKS = 1 << 16
"""Blocks grow by size classes from 2 MiB: only there to end a broken list."""


MUTEX_COUNTERS = (
    ("num_ops", "n_lock_ops"),
    ("num_wait", "n_wait_times"),
    ("num_spin_acq", "n_spin_acquired"),
    ("num_owner_switch", "n_owner_switches"),
    ("total_wait_time", "tot_wait_time.ns"),
    ("max_wait_time", "max_wait_time.ns"),
    ("max_num_thds", "max_n_thds"),
)
"""Key of malloc_stats_print -> member. Times are nanoseconds.

jemalloc's own JSON shows other numbers under these keys but the first: stats.c, mutex_stats_emit, walks columns that include the rates and
does not skip them (5.1.0 to 5.3.1), so that num_wait is operations a second, num_spin_acq is num_wait, and so on. Its text is right.
"""
MUTEX_MAXIMA = ("max_wait_time", "max_num_thds")
"""Of several locks the largest counts, not the sum (mutex.h: malloc_mutex_prof_merge)."""

GLOBAL_MUTEXES = (
    ("background_thread", "background_thread_lock"),
    ("max_per_bg_thd", ""),
    ("ctl", "ctl_mtx"),
    ("prof", "bt2gctx_mtx"),
    ("prof_thds_data", "tdatas_mtx"),
    ("prof_dump", "prof_dump_mtx"),
    ("prof_recent_alloc", "prof_recent_alloc_mtx"),
    ("prof_recent_dump", "prof_recent_dump_mtx"),
    ("prof_stats", "prof_stats_mtx"),
)
"""Key -> variable; max_per_bg_thd is the largest over the background threads. mutex_prof.h: MUTEX_PROF_GLOBAL_MUTEXES."""

ARENA_MUTEXES = (
    ("large", ("large_mtx",)),
    ("extent_avail", ("pa_shard.edata_cache.mtx", "extent_avail_mtx")),
    ("extents_dirty", ("pa_shard.pac.ecache_dirty.mtx", "extents_dirty.mtx")),
    ("extents_muzzy", ("pa_shard.pac.ecache_muzzy.mtx", "extents_muzzy.mtx")),
    ("extents_retained", ("pa_shard.pac.ecache_retained.mtx", "extents_retained.mtx")),
    ("extents_pinned", ("pa_shard.pac.ecache_pinned.mtx",)),
    ("decay_dirty", ("pa_shard.pac.decay_dirty.mtx", "decay_dirty.mtx")),
    ("decay_muzzy", ("pa_shard.pac.decay_muzzy.mtx", "decay_muzzy.mtx")),
    ("base", ("base",)),
    ("tcache_list", ("tcache_ql_mtx", "cache_bin_array_descriptor_ql_mtx")),
)
"""Key -> path in arena_s, newest first; that of `base` lies in the arena's base_s. MUTEX_PROF_ARENA_MUTEXES."""
AFTER_5_3_1 = ("extents_pinned",)
HPA_MUTEXES = (("hpa_shard", "mtx"), ("hpa_shard_grow", "grow_mtx"), ("hpa_sec", ""))
"""From 5.3.0; counted only where an arena ever used huge pages."""


def make_mutex_counters(value: Optional[int] = 0) -> MutexCounters:
    """Make the counters of a lock that was never taken; with None those of an unknown one."""
    return {key: value for key, _ in MUTEX_COUNTERS}


def read_mutex(view: LayoutView, path: str) -> MutexCounters:
    """Read the counters of the lock at `path`; None for those that this build lacks."""
    return read_mutex_at(view, path + ".prof_data." if path else "prof_data.")


def read_mutex_at(view: LayoutView, start: str) -> MutexCounters:
    """Read the mutex_prof_data_t whose members' paths begin with `start`."""
    return {key: view.get(start + member) for key, member in MUTEX_COUNTERS}


def list_arena_mutexes(has_hpa: bool, has_pinned: bool) -> List[str]:
    """The keys of an arena's locks, in the order of mutex_prof_arena_ind_t."""
    return [key for key, _ in ARENA_MUTEXES if has_pinned or key not in AFTER_5_3_1] + ([key for key, _ in HPA_MUTEXES] if has_hpa else [])


def merge_mutexes(locks: Iterable[MutexCounters]) -> MutexCounters:
    """Merge the counters of several locks (malloc_mutex_prof_merge)."""
    rows = list(locks)
    if len(rows) == 1:
        return rows[0]
    sums: MutexCounters = {}
    for key, _ in MUTEX_COUNTERS:
        values = [row[key] for row in rows]
        known = [value for value in values if value is not None]
        sums[key] = None if len(known) < len(values) else max(known, default=0) if key in MUTEX_MAXIMA else sum(known)
    return sums


def find_largest_waits(locks: Iterable[MutexCounters]) -> MutexCounters:
    """The largest of each counter (malloc_mutex_prof_max_update)."""
    most = make_mutex_counters()
    for row in locks:
        for key, value in row.items():
            most[key] = None if value is None else max(most[key] or 0, value)
    return most


def read_arena_mutexes(view: ArenaView, base: Optional[LayoutView], sec: MutexCounters) -> Dict[str, MutexCounters]:
    """An arena's locks. `sec`: those of its small extent cache, merged."""
    locks = {}
    for key, paths in ARENA_MUTEXES:
        if key == "base":
            locks[key] = read_mutex(base, "mtx") if base is not None else read_mutex(view, "?")
        elif key not in AFTER_5_3_1 or view.has(paths[0]):
            locks[key] = read_mutex(view, view.types.first(view.struct, *paths) or "?")
    start = view.find_hpa_path()
    if view.has(start + "mtx"):
        used = view.get("pa_shard.ever_used_hpa")
        for key, path in HPA_MUTEXES:
            locks[key] = sec if not path else read_mutex(view, start + path) if used else make_mutex_counters()
    return locks
