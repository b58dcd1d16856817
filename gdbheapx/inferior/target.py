"""A target read without gdb: a core or a process, and its ELF files. Everything but types and source-level debug information."""

from bisect import bisect_right
from collections import Counter
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple, Type

import gdbheapx.inferior.elf.file as elf
from gdbheapx.common.budget import NEVER, WORK, Still, TooMuchWork
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.files import in_tree
from gdbheapx.common.problems import NO_PROGRAM, OBJECTS_CUT, Diagnostic
from gdbheapx.common.ranges import RangeIndex, unite_ranges
from gdbheapx.inferior import base, core_file
from gdbheapx.inferior.elf.link_map import (
    AT_BASE,
    AT_PHDR,
    DT_NEEDED,
    STATIC_TLS,
    LinkMap,
    Loaded,
    NumberReader,
    TlsPlace,
    find_tls,
    find_tls_block,
    look_up_symbol,
)
from gdbheapx.inferior.source import (
    CoreSource,
    TargetSource,
    find_debug_package,
    find_downloaded,
    has_same_dynamic,
    has_same_headers,
    is_from_wheel,
    open_elf,
    read_page_bytes,
    read_release_name,
)

if TYPE_CHECKING:
    from gdbheapx.inferior.elf.dwarf import DwarfReader, DwarfUnits, VariableTypes
    from gdbheapx.inferior.elf.images import CallFrames
    from gdbheapx.inferior.live.stopper import Stopper

FUNCTIONS, VARIABLES = (elf.STT_FUNC,), (elf.STT_OBJECT, elf.STT_TLS)
LINKERS_OWN = ("malloc", "calloc", "realloc", "free")
"""What the dynamic linker exports for itself until the C library is there (dl-minimal.c, up to release 2.33): not the program's malloc."""
DEBUG_DIRECTORY = "/usr/lib/debug"
HIGHEST = (1 << 64) - 1
"""No address is higher."""
AT_SECURE = 23
"""Entry of the auxiliary vector (getauxval(3))."""
MOST_STATIC_BYTES = 1 << 20
"""From the thread pointer to thread-local storage that came with the thread."""
MOST_CONSTANT_BYTES = 64 << 20
"""Of one object, or segment of a file: more is not searched."""
MOST_THREAD_LOCAL_BYTES = 1 << 20

ASKED = (
    *("present_ranges", "touched_ranges", "data_ranges", "unwritten_ranges", "undumped_files", "lost_bytes", "page_table"),
    *("memory_use", "parent_pages", "read_parent", "huge_pages", "anonymous_use", "swap_room", "swapped_in_bytes", "swappable_ranges"),
    *("monotonic_ns", "environment_variable", "has_ended", "identity"),
)


def delegate_to_source(cls: Type["ElfTarget"]) -> Type["ElfTarget"]:
    """The class, with what the source alone knows asked of the source."""
    for name in ASKED:
        setattr(cls, name, property(attrgetter("source." + name)))
    return cls


@delegate_to_source
class ElfTarget(base.Target):
    """The part of a target that memory and ELF files give; GdbTarget adds gdb's reading of debug information."""

    held_by_gdb = False
    """The user's gdb has the process or core: it is stopped already, or never runs."""

    def __init__(self, source: TargetSource, debug_directories: Sequence[str] = (DEBUG_DIRECTORY,), debug_info: bool = True) -> None:
        self.source = source
        self._debug_info = debug_info
        self.kind = source.kind
        self.pid = source.pid
        self.executable = source.executable
        self.core_path = source.core_path
        self.word_bytes, self.little_endian, self.machine = source.word_bytes, source.little_endian, source.machine
        self.debug_directories = list(debug_directories)
        if source.sysroot and debug_directories:
            self.debug_directories.append(source.sysroot.rstrip("/") + DEBUG_DIRECTORY)
        self._elf_files: Dict[str, Optional[elf.ElfFile]] = {}
        self._tls: Dict[int, Optional[TlsPlace]] = {}
        self._call_frames: Dict[int, Optional[CallFrames]] = {}
        self._build_ids: Dict[Tuple[int, str], Optional[str]] = {}
        self._statics: Dict[str, Sequence[base.Symbol]] = {}
        self._dynamics: Dict[str, Optional[base.Symbol]] = {}
        self._dwarf_units: Optional[DwarfUnits] = None
        self._members: Dict[int, VariableTypes] = {}
        self._stopper: Optional[Stopper] = None
        self._filtered: Optional[List[int]] = None
        """Threads under seccomp filters before the first stop."""
        self._filters: Dict[int, List[bytes]] = {}
        self._registers: Optional[Stopper] = None
        """Who has the registers of a process that runs on, as they were."""
        self.max_stop_s: Optional[float] = None
        """Longest stop; None: as long as it takes."""
        self.still = source.still or Still()
        self._tls_offsets: Dict[Tuple[str, int, str], Optional[int]] = {}
        self._vtables: Dict[base.Module, Dict[int, base.ClassVtable]] = {}
        self._functions: Dict[Tuple[base.Module, bool], List[base.Function]] = {}
        self._type_names: Dict[base.Module, Dict[int, str]] = {}
        self._names: List[Dict[Any, Any]] = [self._statics, self._dynamics, self._tls]
        """What only other objects change."""
        self._foreseen_code: Optional[List[str]] = None
        """Where code was mapped just before a short stop: while that is so the same objects are loaded."""
        self.forget()

    def forget(self) -> None:
        """The target ran, or changed: drop what may be out of date."""
        self._drop_known(None, None, None)

    def _drop_known(self, auxv: Optional[Dict[int, int]], link_map: Optional[LinkMap], modules: Optional[List[base.Module]]) -> None:
        self.source.forget()
        WORK.begin()
        self._registers, self.is_kept = None, False
        self._auxv, self._link_map, self._modules = auxv, link_map, modules
        self._threads: Optional[Sequence[base.Thread]] = None
        self._damage: Optional[List[Diagnostic]] = None
        self._ignored_bits: Optional[int] = None
        self._mapped: Optional[RangeIndex] = None
        self._tls.clear()
        self._call_frames.clear()
        self._statics.clear()
        self._dynamics.clear()
        self.page_bytes = read_page_bytes(self.auxv())

    def auxv(self) -> Dict[int, int]:
        """The auxiliary vector."""
        if self._auxv is None:
            self._auxv = self.source.auxv()
        return self._auxv

    def ignores_environment(self) -> Optional[bool]:
        secure = self.auxv().get(AT_SECURE)
        return None if secure is None else bool(secure)

    def read_prefix(self, address: int, size_bytes: int) -> bytes:
        if not 0 <= address <= HIGHEST:  # what follows from a damaged pointer: below it, or behind the end of all addresses
            return b""
        return self.source.read_prefix(address & ~self.ignored_bits, size_bytes)

    @property
    def ignored_bits(self) -> int:
        if self._ignored_bits is None:
            self._ignored_bits = self.source.ignored_bits | self._signature_bits()
        return self._ignored_bits

    def bare(self, words: Sequence[int]) -> Sequence[int]:
        ignored = self.ignored_bits
        if not ignored or not any(word & ignored for word in words):
            return words
        if self._mapped is None:
            self._mapped = RangeIndex((mapping.start, mapping.end) for mapping in self.mappings())
        address, is_mapped = HIGHEST & ~ignored, self._mapped.meets
        return [word & address if word & ignored and is_mapped(word & address, (word & address) + 1) else word for word in words]

    def _signature_bits(self) -> int:
        """Read them from the threads, which a process has only while it is stopped."""
        stopper = self._stopper or self._registers
        if stopper is None or self.arch.signature_set is None:
            return 0
        told = (stopper.signature_bits(thread.lwp, self.source.header) for thread in self.source.threads())
        return next((bits for bits in told if bits), 0)

    def bulk_source(self) -> base.BulkSource:
        return self.source.bulk_source()

    def mappings(self) -> Sequence[base.Mapping]:
        return self.source.mappings()

    def maps_text(self) -> str:
        if isinstance(self.source, CoreSource):
            return core_file.format_maps(sorted({*self.mappings(), *self.code_mappings()}))
        return self.source.maps_text()

    def file_ranges(self) -> Sequence[Tuple[int, int]]:
        ranges = [(mapping.start, mapping.end) for mapping in self.mappings() if mapping.is_file]
        if isinstance(self.source, CoreSource):
            ranges += [loaded.span() for loaded in self.link_map().objects()]
        return unite_ranges(ranges)

    def code_mappings(self) -> Sequence[base.Mapping]:
        mappings = self.mappings()
        ends, page = [mapping.end for mapping in mappings], self.page_bytes
        code = {mapping for mapping in mappings if mapping.executable}
        if not isinstance(self.source, CoreSource):
            return sorted(code)
        for module in self.modules():
            loaded = self.loaded_at(module.base)
            for entry in loaded.program_headers() if loaded is not None else ():
                start, end = (module.base + entry.vaddr) & -page, -(-(module.base + entry.vaddr + entry.memsz) // page) * page
                place = bisect_right(ends, start)
                is_known = place < len(mappings) and mappings[place].start < end
                if entry.type == elf.PT_LOAD and entry.executable and not is_known:
                    file = self.source.core.file_at(start)
                    name = module.name if file is None else file.name
                    code.add(base.Mapping(start, end, True, False, True, False, name, 0, entry.offset & -page))
        return sorted(code)

    def image_ranges(self) -> Sequence[Tuple[int, int, base.Module]]:
        spans = [(*loaded.span(), module) for loaded, module in zip(self.link_map().objects(), self.modules())]
        return sorted(((start, end, module) for start, end, module in spans if start < end), key=lambda span: span[:2])

    def has_section(self, module: base.Module, name: str) -> Optional[bool]:
        files = self.symbol_files(module)
        return any(file.has_section(name) for file in files) if files else None

    def link_map(self) -> LinkMap:
        """The dynamic linker's list."""
        if self._link_map is None:
            self._link_map = LinkMap(self.source.read_prefix, self.source.header, self.auxv())
            self.source.add_missing(self._link_map)
        return self._link_map

    def modules(self) -> Sequence[base.Module]:
        if self._modules is None:
            modules: List[base.Module] = []
            for loaded in self.link_map().objects():
                key = (loaded.base, loaded.name or self.executable or "")
                if key not in self._build_ids:
                    self._build_ids[key] = loaded.build_id()
                link = self.source.program_link() if loaded.is_executable else None
                module = base.Module(key[1], loaded.base, loaded.is_executable, self._build_ids[key], None, link)
                has_debug_info = any(file.has_section(".debug_info") for file in self.symbol_files(module))
                modules.append(module._replace(has_debug_info=has_debug_info))
            self._modules = modules
        return self._modules

    def loaded_at(self, base: int) -> Optional[Loaded]:
        """The entry of the dynamic linker's list with this base."""
        return self.link_map().loaded_at(base)

    def module_at(self, address: int) -> Optional[base.Module]:
        """The module whose image holds `address`."""
        return next((module for start, end, module in self.image_ranges() if start <= address < end), None)

    def elf_file(self, path: str, build_id: Optional[str]) -> Optional[elf.ElfFile]:
        """The file at `path` if it is an ELF file with that build-id (any, if the target's is not known)."""
        if path not in self._elf_files:
            self._elf_files[path] = open_elf(path)
        file = self._elf_files[path]
        return file if file is not None and build_id in (None, file.build_id()) else None

    def debug_file(self, build_id: Optional[str]) -> Optional[str]:
        """The separate debug file with this build-id, below one of the debug directories."""
        if not build_id or len(build_id) < 4:
            return None
        root = self.source.sysroot.rstrip("/")
        for directory in self.debug_directories:
            path = "%s/%s" % (directory.rstrip("/"), elf.gnu_build_id_path(build_id))
            if root and path.startswith(root + "/"):  # links lead to places in the target's own tree
                path = in_tree(root, path[len(root) :])
            if self.elf_file(path, build_id) is not None:
                return path
        return find_downloaded(build_id) if self.debug_directories else None

    def module_file(self, module: base.Module) -> Optional[str]:
        """The module's own file here, also when it was deleted or replaced on disk since: by its build-id, else by what of it is in
        memory."""
        ways = [self.source.host_path(module.name)]
        ways.insert(1 if module.build_id else 0, self.source.file_in_memory(module.name) or "")
        for path in ways:
            file = self.elf_file(path, module.build_id) if path else None
            if file is not None and self.source.may_use(file) and (module.build_id or self._is_image(file, module)):
                return path
        return None

    def _is_image(self, file: elf.ElfFile, module: base.Module) -> bool:
        """The program headers and the dynamic section that memory itself has are the file's."""
        loaded, read = self.loaded_at(module.base), self.source.read_own
        shown = (has_same_headers(file, module.base, read), has_same_dynamic(file, module.base, read))
        if loaded is None or False in shown:
            return False
        return True in shown or self.source.takes_unproven(file, loaded.span()[0])

    def symbol_files(self, module: base.Module) -> List[elf.ElfFile]:
        """Files that may hold its full symbol table, the separate debug file first."""
        paths = [self.debug_file(module.build_id), self.module_file(module)]
        return [file for file in (self.elf_file(path, module.build_id) for path in paths if path) if file]

    def elf_symbols(self, name: str) -> List[base.Symbol]:
        """Every variable or function `name` in the symbol tables of all modules, exported or not."""
        return [symbol for module in self.modules() for symbol in self._in_module(module, name)]

    def _in_module(self, module: base.Module, name: str) -> List[base.Symbol]:
        values: Set[int] = set()
        for file in self.symbol_files(module):
            values.update(symbol.value for symbol in file.symbols(name) if symbol.type in (elf.STT_NOTYPE, elf.STT_OBJECT, elf.STT_FUNC))
        exported = self.exported(module, name)
        values.update([exported.address - module.base] if exported is not None else ())
        return [base.Symbol(name, module.base + value, module, "symbol") for value in sorted(values)]

    def module_symbol(self, module: base.Module, name: str) -> Optional[base.Symbol]:
        loaded = self.loaded_at(module.base)
        if loaded is None or not self.symbol_files(module):
            return base.Target.module_symbol(self, module, name)
        return next(iter(self._in_module(module, name)), None)

    def functions(self, module: base.Module, exported: bool = False) -> List[base.Function]:
        key = (module, exported)
        if key not in self._functions:
            tables = (file.every_symbol(types=FUNCTIONS) for file in (() if exported else self.symbol_files(module)))
            entries = self._all_symbols(module, FUNCTIONS) if exported else chain.from_iterable(tables)
            named = (
                (module.base + symbol.value, name, symbol) for name, symbol in entries if symbol.type == elf.STT_FUNC and symbol.size_bytes
            )
            self._functions[key] = sorted(
                {base.Function(start, start + symbol.size_bytes, name, symbol.local) for start, name, symbol in named}
            )
        return self._functions[key]

    def function_name(self, address: int) -> Optional[str]:
        module = self.module_at(address)
        if module is None:
            return None
        at = address - module.base
        name = next((name for file in self.symbol_files(module) for name in file.functions_at(at)), None)
        return "%s in %s" % (name, module.shown_name) if name else "%s+0x%x" % (module.shown_name, at)

    def _all_symbols(self, module: base.Module, types: Sequence[int] = ()) -> Iterator[Tuple[str, elf.ElfSymbol]]:
        """Yield the symbols of its tables and its exports, which stripped files keep; without its file those in memory."""
        for file in self.symbol_files(module):
            yield from file.every_symbol(True, types)
        loaded = self.loaded_at(module.base) if self._own_file(module) is None else None
        if loaded is not None and loaded.dynamic():
            yield from loaded.exported_symbols()

    def code(self, module: base.Module) -> Optional[base.ObjectCode]:
        from gdbheapx.inferior.elf import images  # few commands ask

        file = self._own_file(module)
        try:
            return images.read_code(file) if file is not None else None
        except TooMuchWork:
            return None

    def file_constants(self, module: base.Module) -> Iterator[Tuple[int, bytes]]:
        file = self._own_file(module)
        if file is None:
            return
        for entry in file.program_headers():
            if entry.type == elf.PT_LOAD and not entry.writable and not entry.executable:
                yield module.base + entry.vaddr, file.pread(entry.offset, min(entry.filesz, MOST_CONSTANT_BYTES))

    def exported_functions(self, module: base.Module) -> Iterator[str]:
        loaded = self.loaded_at(module.base)
        symbols = loaded.exported_symbols() if loaded is not None and loaded.dynamic() else iter(())
        return (name for name, symbol in symbols if symbol.type == elf.STT_FUNC)

    def types_of_functions(self, module: base.Module, addresses: Sequence[int]) -> List[Set[str]]:
        from gdbheapx.inferior.elf.demangle import demangle_rust_owner  # few commands name types of Rust

        types: Dict[int, Set[str]] = {address: set() for address in addresses}
        for file in self.symbol_files(module):
            for name, symbol in file.every_symbol(types=FUNCTIONS):
                address = module.base + symbol.value
                type_ = demangle_rust_owner(name) if address in types else None
                if type_ is not None:
                    types[address].add(type_)
        return [types[address] for address in addresses]

    def code_ranges(self, module: base.Module) -> List[Tuple[int, int]]:
        loaded = self.loaded_at(module.base)
        start, end = loaded.span() if loaded is not None else (0, 0)
        return [(mapping.start, mapping.end) for mapping in self.mappings() if mapping.executable and start <= mapping.start < end]

    def find_static(self, name: str) -> Sequence[base.Symbol]:
        if name not in self._statics:
            self._statics[name] = self.look_up_static(name)
        return self._statics[name]

    def look_up_static(self, name: str) -> Sequence[base.Symbol]:
        """find_static without its cache."""
        return self.elf_symbols(name)

    def types(
        self,
        near: base.Symbol,
        structs: Sequence[str],
        variables: Sequence[str] = (),
        enumerators: Sequence[str] = (),
        prefix: Optional[str] = None,
    ) -> Optional[base.TypeSet]:
        reader = self._unit_reader(near.module, near.address)
        if reader is None:
            return None
        from gdbheapx.inferior.elf.dwarf import TypeWalk, Unsupported, find_private_prefix

        try:
            return TypeWalk(reader, find_private_prefix(near.name) if prefix is None else prefix).collect(structs, variables, enumerators)
        except (Unsupported, RecursionError, TooMuchWork):  # a struct that is damaged may be a member of itself
            return None

    def _debug_information(self, module: base.Module) -> Optional[elf.ElfFile]:
        """The file that has the module's, if it is here and wanted."""
        files = self.symbol_files(module) if self._debug_info else ()
        return next((file for file in files if file.has_section(".debug_info")), None)

    def function(self, module: base.Module, name: str) -> Optional[base.Symbol]:
        plain = self.module_symbol(module, name)
        known = plain is not None and self._unit_reader(module, plain.address) is not None
        return plain._replace(source="debug-info") if plain is not None and known else None

    def constant(self, name: str, near: base.Symbol) -> Optional[int]:
        reader = self._unit_reader(near.module, near.address)
        return reader.constant(name) if reader is not None else None

    def _unit_reader(self, module: base.Module, address: int) -> "Optional[DwarfReader]":
        """Reads the unit whose code holds this address; None without debug information that is understood here."""
        file = self._debug_information(module)
        if file is None:
            return None
        if self._dwarf_units is None:
            from gdbheapx.inferior.elf.dwarf import DwarfUnits  # most targets need it not, and it takes time to import

            self._dwarf_units = DwarfUnits()
        return self._dwarf_units.reader(file, address - module.base)

    def threads(self) -> Sequence[base.Thread]:
        if self._threads is None:
            self._threads = self.source.threads() if self._stopper is None else self._held_threads(self._stopper)
        return self._threads

    def _held_threads(self, stopper: "Stopper") -> List[base.Thread]:
        threads = []
        for thread in self.source.threads():
            pc, sp, pointer = stopper.registers(thread.lwp, self.source.header)
            threads.append(base.Thread(thread.lwp, thread.name, pointer, sp, pc))
        return threads

    def register_words(self, thread: base.Thread) -> Sequence[int]:
        header, stopper = self.source.header, self._stopper or self._registers
        sets = self.source.register_sets(thread.lwp) if stopper is None else stopper.register_sets(thread.lwp, header)
        return elf.split_register_words(header, sets)

    def stop(self) -> bool:
        """Stop the process, for at most `max_stop_s`. False if other objects are loaded now than were seen before: what was found out by
        then is out of date."""
        from gdbheapx.inferior.live import seccomp
        from gdbheapx.inferior.live.stopper import NO_LIMIT_S, Stopper

        self.modules()  # as they were before
        if self._filtered is None:
            self._filtered = seccomp.list_filtered_threads(self.pid or 0)
        limit_s = NO_LIMIT_S if self.max_stop_s is None else self.max_stop_s
        self._stopper = Stopper(self.pid or 0, limit_s)
        self._stopper.stop()
        self.still.begin(self._stopper.until_s or NEVER, limit_s)
        self.source.stands_still(True)
        return self.refresh()

    def foresee(self) -> None:
        """Ask before a short stop for what would make it long."""
        self.source.foresee()
        self._foreseen_code = _label_code(self.source.maps_text())

    def keep(self, copy: base.CopiedMemory, take: Callable[[], None]) -> None:
        """Have take() copy the memory of a stopped process, and let it run on: it is read from there. Registers come first, as
        there may be no time for all memory."""
        stopper = self._stopper
        assert stopper is not None
        for thread in self.threads()[:1]:
            self.register_words(thread)  # those of all threads are asked for at once
        self._ignored_bits = self.ignored_bits  # as long as its threads tell
        self.source.keep(copy, take)
        self.let_go()
        self.still.end()
        self._registers, self.is_kept = stopper, True

    def keep_held(self, copy: base.CopiedMemory, held: base.EndedStop) -> bool:
        """Take over a stop and copy that are complete."""
        from gdbheapx.inferior.live.stopper import RecordedStop

        self.source.stands_still(False, held.ended)
        self.was_stopped(held.stopped_ms)
        maps = held.maps.decode("utf-8", "surrogateescape")
        is_same = self.refresh(maps, lambda: self.source.keep_held(copy, held.registers, held.maps, held.began_ns))
        recorded = self._registers = RecordedStop(self.pid or 0, held.registers)
        self._threads, self.is_kept = self._held_threads(recorded), True
        return is_same

    def refresh(self, maps: Optional[str] = None, keep: Callable[[], None] = lambda: None) -> bool:
        """Forget what changes while the process runs; names and types too, if other objects are loaded. False if they are. `maps`: if it is
        known already; keep() has it read from a copy, once all is forgotten."""
        before, kept = self.modules(), [(names, dict(names)) for names in self._names]
        foreseen, self._foreseen_code = self._foreseen_code, None
        if foreseen is not None and foreseen == _label_code(self.source.maps_text() if maps is None else maps):
            self._drop_known(self._auxv, self._link_map, self._modules)
        else:
            self.forget()
        keep()
        is_same = list(self.modules()) == list(before)
        for names, known in kept if is_same else ():
            names.update(known)
        return is_same

    def death(self) -> Optional[Diagnostic]:
        if not self.source.has_ended():
            return None
        self.held_by_caller = False
        self.let_go()  # who holds it learns how it ended
        return self.source.cause_of_death()

    def let_go(self) -> None:
        stopper = self._stopper
        if stopper is None or self.held_by_caller:
            return
        try:
            if not self.still.is_over:
                self.threads()
                self._record_filters(stopper)
        finally:  # it runs on, whatever cannot be read of it any more
            self._stopper = None
            stopper.let_go()
            self.source.stands_still(False, stopper.ended)
            self.still.end(stopper.is_over)
            self.was_stopped(stopper.stopped_ms or 0.0)

    def _record_filters(self, stopper: "Stopper") -> None:
        """Read the seccomp filters of threads, which only a stop shows, for advice that is given once the process runs on."""
        for lwp in () if self._filters or self._filtered is None else self._filtered:
            try:
                self._filters[lwp] = stopper.filters(lwp)
            except HeapxError:
                return

    @property
    def stands_still(self) -> bool:
        return self._stopper is not None or self.held_by_gdb

    @property
    def knows_filters(self) -> bool:
        return self.stands_still or bool(self._filters)

    def seccomp_filters(self, lwp: int) -> List[bytes]:
        """Return the filters of a thread of a stopped process, newest first, or raise HeapxError with the reason."""
        if self._stopper is not None:
            return self._stopper.filters(lwp)
        if lwp in self._filters:
            return self._filters[lwp]
        from gdbheapx.inferior.live import tracer

        return tracer.fetch_seccomp_filters(lwp)

    def was_stopped(self, took_ms: float) -> None:
        self.stops = (self.stops or 0) + 1
        self.stopped_ms = max(self.stopped_ms or 0.0, round(took_ms, 1))

    def names_ending(self, suffix: str, only: Optional[base.Module] = None) -> List[Tuple[str, base.Module]]:
        named = []
        for loaded, module in zip(self.link_map().objects(), self.modules()):
            if only is not None and module.base != only.base:
                continue
            names: Set[str] = set()
            for file in self.symbol_files(module):
                names.update(file.names_ending(suffix))
            if loaded.dynamic():
                names.update(loaded.names_ending(suffix))
            named += [(name, module) for name in sorted(names)]
        return named

    def names_starting(self, module: base.Module, start: str) -> List[str]:
        return sorted({name for file in self.symbol_files(module) for name in file.names_starting(start)})

    def _find_export(self, module: base.Module, name: str) -> Optional[elf.ElfSymbol]:
        loaded = self.loaded_at(module.base)
        return loaded.lookup(name.encode()) if loaded is not None and loaded.dynamic() else None

    def exported(self, module: base.Module, name: str) -> Optional[base.Symbol]:
        symbol = self._find_export(module, name)
        return (
            base.Symbol(name, module.base + symbol.value, module, "symbol") if symbol is not None and symbol.type != elf.STT_TLS else None
        )

    def _find_constants(self, module: base.Module) -> Tuple[List[Tuple[int, int]], bool]:
        """(place in its file, size_bytes) of its constants, else (address, size_bytes) of those in the core; and whether these are all."""
        file, loaded = self._own_file(module), self.loaded_at(module.base)
        if file is not None:
            spans = core_file.find_constant_spans(file)
            return spans, all(not size_bytes or file.pread(offset + size_bytes - 1, 1) for offset, size_bytes in spans)
        if not isinstance(self.source, CoreSource) or loaded is None:
            return [], False
        return core_file.find_dumped_constants(loaded.program_headers(), module.base, self.source.core.segments())

    def constant_data(self, module: base.Module) -> Iterator[bytes]:
        file, left = self._own_file(module), MOST_CONSTANT_BYTES
        for start, size_bytes in self._find_constants(module)[0]:
            size_bytes = min(size_bytes, left)
            left -= size_bytes
            for at in range(0, size_bytes, core_file.PIECE_BYTES):
                here = min(core_file.PIECE_BYTES + core_file.OVERLAP_BYTES, size_bytes - at)
                yield self.source.read_own(start + at, here) if file is None else file.pread(start + at, here)

    def has_all_constants(self, module: base.Module) -> bool:
        spans, is_whole = self._find_constants(module)
        return is_whole and 0 < sum(size_bytes for _, size_bytes in spans) <= MOST_CONSTANT_BYTES

    def thread_local_image(self, module: base.Module) -> bytes:
        file, loaded = self._own_file(module), self.loaded_at(module.base)
        if file is not None:
            own = next((header for header in file.program_headers() if header.type == elf.PT_TLS), None)
            return b"" if own is None else file.pread(own.offset, min(own.filesz, MOST_THREAD_LOCAL_BYTES))
        entry = loaded.tls_segment() if loaded is not None else None
        return b"" if entry is None else self.read_prefix(module.base + entry.vaddr, min(entry.filesz, MOST_THREAD_LOCAL_BYTES))

    def writable_segments(self, module: base.Module) -> Sequence[Tuple[int, int, int]]:
        loaded = self.loaded_at(module.base)
        if loaded is None:
            return ()
        headers = loaded.program_headers()
        return (
            core_file.find_writable_segments(headers, module.base)
            if headers
            else core_file.find_writable_mappings(self.mappings(), *loaded.span())
        )

    def thread_local_size(self, module: base.Module) -> int:
        loaded = self.loaded_at(module.base)
        entry = loaded.tls_segment() if loaded is not None else None
        return entry.memsz if entry is not None else 0

    def _own_file(self, module: base.Module) -> Optional[elf.ElfFile]:
        path = self.module_file(module)
        return self.elf_file(path, module.build_id) if path else None

    def variables(self, module: base.Module) -> List[Tuple[str, int, int, bool]]:
        from gdbheapx.inferior.elf.demangle import demangle_variable  # few commands name variables

        named = [entry for entry in self._all_symbols(module, VARIABLES) if entry[1].type in VARIABLES]
        return sorted({(demangle_variable(name), symbol.value, symbol.size_bytes, symbol.type == elf.STT_TLS) for name, symbol in named})

    def vtables(self, module: base.Module) -> Optional[Dict[int, base.ClassVtable]]:
        file = self._own_file(module)
        if file is None:
            return None
        if module not in self._vtables:
            from gdbheapx.inferior.elf import demangle, images  # few commands name classes

            try:
                by_address = images.find_raw_vtables(file, [other for other in self.symbol_files(module) if other.path != file.path])
            except TooMuchWork:
                by_address = {}
            self._vtables[module] = {at: (demangle.demangle_class(name), within) for at, (name, within) in by_address.items()}
        return self._vtables[module]

    def source_name(self, symbol: Optional[str]) -> Optional[str]:
        from gdbheapx.inferior.elf.demangle import demangle_variable  # few commands name functions of C++

        return demangle_variable(symbol) if symbol is not None else None

    def layout(self, module: base.Module, address: int) -> Optional[base.TypeLayout]:
        file = self._debug_information(module)
        if file is None:
            return None
        if module.base not in self._members:
            from gdbheapx.inferior.elf.dwarf import VariableTypes  # few commands name members

            self._members[module.base] = VariableTypes(file)
        return self._members[module.base].variable(address - module.base)

    def class_name(self, module: base.Module, address: int) -> Optional[str]:
        from gdbheapx.inferior.elf import demangle, images  # few commands name classes

        file = self._own_file(module)
        if file is not None:
            data = file.at(address - module.base, images.MOST_NAME_BYTES)
        else:
            data = b"" if self.kind == "live" else self.source.read_own(address, images.MOST_NAME_BYTES)
        mangled = images.parse_type_name(data) or self._exported_type_name(module, address)
        return demangle.demangle_class(mangled) if mangled else None

    def _exported_type_name(self, module: base.Module, address: int) -> Optional[str]:
        """Return an exported, mangled class name: a core may have .dynsym and not .rodata."""
        if module not in self._type_names:
            from gdbheapx.inferior.elf.images import TYPE_NAME  # few commands name classes

            named = [(symbol.value, name) for name, symbol in self._all_symbols(module) if name.startswith(TYPE_NAME)]
            self._type_names[module] = {module.base + value: name[len(TYPE_NAME) :] for value, name in named}
        return self._type_names[module].get(address)

    def thread_local_bytes(self, module: base.Module, name: str) -> Optional[int]:
        sizes = [symbol.size_bytes for symbol in self._thread_locals(name, module)]
        return max(sizes, default=None)

    def symbol_bytes(self, symbol: base.Symbol) -> Optional[int]:
        entries = [entry for file in self.symbol_files(symbol.module) for entry in file.symbols(symbol.name)]
        exported = self._find_export(symbol.module, symbol.name)
        entries += [exported] if exported is not None else []
        at = symbol.address - symbol.module.base
        return max((entry.size_bytes for entry in entries if entry.value == at), default=None)

    def thread_local(self, name: str, near: base.Symbol) -> Optional[base.ThreadLocal]:
        offset = self.tls_offset(name, near.module)
        return None if offset is None else self.thread_local_at(near.module, offset)

    def thread_local_at(self, module: base.Module, offset: int) -> Optional[base.ThreadLocal]:
        loaded = self.loaded_at(module.base)
        place = self.tls_place(loaded) if loaded is not None else None
        if loaded is None or place is None or not any(thread.thread_pointer for thread in self.threads()):
            return None  # cores may lack the register set with the thread pointer, as qemu-user's do
        return self._in_blocks(place, loaded.memory, offset)

    def calls(self, copy: base.StackCopy) -> Sequence[base.StackCall]:
        from gdbheapx.inferior.elf import images

        ranges = self.image_ranges()

        def find_row(address: int) -> Optional[images.UnwindRow]:
            module = next((module for start, end, module in ranges if start <= address < end), None)
            if module is None:
                return None
            if module.base not in self._call_frames:
                file = self._own_file(module)
                self._call_frames[module.base] = None if file is None else images.CallFrames(file)
            frames = self._call_frames[module.base]
            return None if frames is None else frames.row(address - module.base)

        return images.walk_calls(copy, find_row, self.arch)

    def static_blocks(self) -> Sequence[base.StaticBlock]:
        pointer = next((thread.thread_pointer for thread in self.threads() if thread.thread_pointer), None)
        blocks = []
        for module in self.modules() if pointer else ():
            loaded, size = self.loaded_at(module.base), self.thread_local_size(module)
            distance = loaded.static_distance() if loaded is not None and size else None
            place = self.tls_place(loaded) if loaded is not None and size and distance is None else None
            if place is not None and place[0] == STATIC_TLS:
                distance = place[1]
            elif loaded is not None and place is not None:
                block = find_tls_block(place, pointer, loaded.memory)[0]
                distance = block - (pointer or 0) if block is not None else None
            if distance and abs(distance) <= MOST_STATIC_BYTES:
                blocks.append(base.StaticBlock(distance, size, module))
        return blocks

    def beside_thread_pointer(self, distance: int) -> Optional[base.ThreadLocal]:
        return self._in_blocks((STATIC_TLS, distance), NumberReader(self.source.read_prefix, self.source.header), 0)

    def _in_blocks(self, place: TlsPlace, memory: NumberReader, offset: int) -> base.ThreadLocal:
        """The variable at this offset of each thread's block of thread-local storage.

        A living thread that was made by the system call alone has none, or its creator's. In a core a thread pointer of 0, or one that two
        threads have, is damage.
        """
        addresses: Dict[int, Optional[int]] = {}
        unknown: Dict[int, str] = {}
        times = Counter(thread.thread_pointer for thread in self.threads() if thread.thread_pointer)
        met: Set[Optional[int]] = {0}
        for thread in self.threads():
            pointer, block, why = thread.thread_pointer, None, None
            if self.kind != "live" and pointer and times[pointer] > 1:
                why = "another thread has the same thread pointer 0x%x" % pointer
            elif self.kind != "live" or pointer is None or pointer not in met:
                block, why = find_tls_block(place, pointer, memory)
            met.add(pointer)
            addresses[thread.lwp] = None if block is None else block + offset
            if why is not None:
                unknown[thread.lwp] = why
        return base.ThreadLocal(addresses, place[0], unknown)

    def tls_place(self, loaded: Loaded) -> Optional[TlsPlace]:
        """Return where the object's thread-local block lies."""
        if loaded.base not in self._tls:
            self._tls[loaded.base] = find_tls(loaded, lambda address: self._word_in_file(loaded, address))
        return self._tls[loaded.base]

    def _word_in_file(self, loaded: Loaded, address: int) -> Optional[int]:
        module = next((module for module in self.modules() if module.base == loaded.base), None)
        file = self._own_file(module) if module is not None else None
        return file.word_at(address) if file is not None else None

    def tls_offset(self, name: str, module: base.Module) -> Optional[int]:
        """Return the offset of the thread-local `name` in its object's block."""
        key = (name, module.base, module.name)
        if key not in self._tls_offsets:
            offsets = [symbol.value for symbol in self._thread_locals(name, module)]
            self._tls_offsets[key] = offsets[0] if offsets else None
        return self._tls_offsets[key]

    def _thread_locals(self, name: str, module: base.Module) -> List[elf.ElfSymbol]:
        """The thread-local variable `name` in the object's symbol tables; a stripped library may still export it."""
        symbols = [*(symbol for file in self.symbol_files(module) for symbol in file.symbols(name)), self._find_export(module, name)]
        return [symbol for symbol in symbols if symbol is not None and symbol.type == elf.STT_TLS]

    def prepare_thread_local(self, names: Sequence[str], near: base.Symbol) -> None:
        if any(self.tls_offset(name, near.module) is not None for name in names):
            self.prepare_thread_local_at(near.module)

    def prepare_thread_local_at(self, module: base.Module) -> None:
        loaded = self.loaded_at(module.base)
        if loaded is not None:
            self.tls_place(loaded)

    def dynamic_symbol(self, name: str) -> Optional[base.Symbol]:
        if name not in self._dynamics:
            bound = look_up_symbol(self.link_map().searched(), name)
            if bound is not None and name in LINKERS_OWN and bound[0].base == self.auxv().get(AT_BASE):
                starts = look_up_symbol(self.link_map().searched(), "__libc_start_main")
                is_linker_alone = starts is None or starts[0].base != bound[0].base  # not the C library as well
                bound = None if is_linker_alone else bound
            modules = (module for module in self.modules() if bound is not None and module.base == bound[0].base)
            module = next(modules, None)
            self._dynamics[name] = base.Symbol(name, bound[1], module, "symbol") if bound is not None and module is not None else None
        return self._dynamics[name]

    def debug_hint(self, module: base.Module, packages: base.Packages = ()) -> base.DebugHint:
        build_id, root = module.build_id, self.source.sysroot
        commands = []
        package = find_debug_package(root, packages)
        if self.kind == "core" and self.module_file(module) is None:
            commands.append("give the files of the machine that wrote the core: --sysroot DIR --debug-dir DIR/usr/lib/debug")
        elif package and self.kind == "live" and root.startswith("/proc/"):
            commands.append("in its container (%s): %s" % (read_release_name(root), package))
        elif package and root:
            commands.append("%s in the file tree below %s (%s)" % (package, root, read_release_name(root)))
        elif package:
            commands.append(package)
        if is_from_wheel(root, module.name):
            commands.append("PyPI's wheels have no debug files, and debuginfod does not serve them: build it with debug information")
        elif build_id:
            commands.append("debuginfod-find debuginfo %s (with DEBUGINFOD_URLS set)" % build_id)
        else:
            commands.append("install the debug symbols of the package that owns %s" % module.name)
        return " or ".join(commands), "%s/%s" % (DEBUG_DIRECTORY, elf.gnu_build_id_path(build_id)) if build_id else None

    def is_being_loaded(self) -> bool:
        linker, link_map = self.auxv().get(AT_BASE), self.link_map()
        program = link_map.objects()[:1]
        if not linker or not program or DT_NEEDED not in program[0].dynamic() or not link_map.complete or self.lost_bytes() != 0:
            return False
        spans = [program[0].span()] + [(mapping.start, mapping.end) for mapping in self.mappings() if mapping.start == linker]
        names = {mapping.name for mapping in self.mappings() if any(start <= mapping.start < end for start, end in spans)}
        return not any(mapping.executable and mapping.is_file and mapping.name not in names for mapping in self.mappings())

    def knows_objects(self) -> bool:
        return bool(self.link_map().objects()) and self.link_map().complete

    def problems(self) -> List[Diagnostic]:
        diagnostics = list(self.source.problems())
        if not self.link_map().objects():
            diagnostics.append(self._nothing_loaded())
        if not self.link_map().complete:
            what = "the dynamic linker's list of loaded objects is damaged or cut; later objects are missing"
            diagnostics.append(Diagnostic(OBJECTS_CUT, None, what, None))
        if self._damage is None:
            core = self.source.core if isinstance(self.source, CoreSource) else None
            known = None if core is None else core_file.find_damage(core, self.link_map().objects(), self.threads(), self.page_bytes)
            self._damage = known or []
        return diagnostics + self._damage

    def _nothing_loaded(self) -> Diagnostic:
        at = self.auxv().get(AT_PHDR)
        kind = "%s-endian %d-bit %s (%s)" % (self.byte_order, 8 * self.word_bytes, self.kind, self.machine)
        if not at:
            why = "it has no auxiliary vector, which would say where the program is"
            return Diagnostic(NO_PROGRAM, None, "no program found in this %s: %s" % (kind, why), None)
        hint = "give the program with --exe FILE" if self.kind == "core" else None
        return Diagnostic(NO_PROGRAM, at, "no program found in this %s: cannot read its program headers" % kind, hint)


def _label_code(maps: str) -> List[str]:
    return [line for line in maps.splitlines() if " r-xp " in line]


def open_elf_target(core: Optional[str] = None, pid: Optional[int] = None, **options: Any) -> ElfTarget:
    """A target without gdb, for tests and tools."""
    from gdbheapx.inferior.live.source import LiveSource

    make: Callable[..., TargetSource] = CoreSource if core is not None else LiveSource
    return ElfTarget(make(core if core is not None else pid, **options))
