"""Read a target with gdb's help: types and debug information, settings, and, where gdb holds the process, its registers."""

import os
import re
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

import gdb

from gdbheapx.common.budget import TooMuchWork
from gdbheapx.common.errors import HeapxError, UsageError
from gdbheapx.common.problems import GDB_FAILED, NO_TARGET, SECCOMP_SLEEP, WRONG_FILE, Diagnostic
from gdbheapx.common.units import count_noun
from gdbheapx.inferior.arch import Architecture
from gdbheapx.inferior.base import BulkSource, Module, Symbol, Thread, ThreadLocal, TypeSet
from gdbheapx.inferior.elf.dwarf import RawMember, RawType, TypeReader, TypeWalk, find_private_prefix
from gdbheapx.inferior.elf.link_map import AT_PHDR
from gdbheapx.inferior.live import procfs, tracer
from gdbheapx.inferior.live.source import LiveSource
from gdbheapx.inferior.source import CoreSource, Openable, RemoteSource, TargetSource
from gdbheapx.inferior.target import ElfTarget


class GdbRaw(RawType):
    """A gdb.Type."""

    def __init__(self, api: Any, kind: Any) -> None:
        self._api = api
        alias = ""
        while kind.code == api.TYPE_CODE_TYPEDEF:
            alias, kind = kind.name or alias, kind.target()
        self._type = kind
        self.name = getattr(kind, "tag", None) or alias
        self.size_bytes = int(kind.sizeof) if kind.code != api.TYPE_CODE_VOID else 0
        self.code = self._classify_type(kind)

    def _classify_type(self, kind: Any) -> str:
        api = self._api
        if kind.code in (api.TYPE_CODE_STRUCT, api.TYPE_CODE_UNION):
            return "struct"
        if kind.code == api.TYPE_CODE_PTR:
            inner = kind.target()
            while inner.code == api.TYPE_CODE_TYPEDEF:
                inner = inner.target()
            return "string" if inner.code in (api.TYPE_CODE_INT, api.TYPE_CODE_CHAR) and inner.unqualified().name == "char" else "pointer"
        if kind.code in (api.TYPE_CODE_INT, api.TYPE_CODE_CHAR):
            return "char" if kind.unqualified().name == "char" else "int" if is_signed_type(api, kind) else "uint"
        plain = {api.TYPE_CODE_ARRAY: "array", api.TYPE_CODE_ENUM: "enum", api.TYPE_CODE_BOOL: "bool", api.TYPE_CODE_FLT: "float"}
        return plain.get(kind.code, "other")

    def members(self) -> List[RawMember]:
        fields = [field for field in self._type.fields() if hasattr(field, "bitpos")]
        return [(field.name or "", field.bitpos // 8, bool(field.bitsize), GdbRaw(self._api, field.type)) for field in fields]

    def element(self) -> Tuple[RawType, int]:
        try:
            low, high = self._type.range()
        except (self._api.error, RuntimeError):  # a flexible array
            low, high = 0, -1
        return GdbRaw(self._api, self._type.target()), max(0, int(high) - int(low) + 1)

    def enumerators(self) -> Dict[str, int]:
        return {field.name: int(field.enumval) for field in self._type.fields()}


class GdbReader(TypeReader):
    """Reads types of the compilation unit of one symbol."""

    def __init__(self, api: Any, objfile: Any, block: Any) -> None:
        self._api, self._objfile, self._block = api, objfile, block
        self._unit: Optional[Dict[str, List[Any]]] = None

    def struct(self, name: str) -> Optional[RawType]:
        for symbol in self._of_unit().get(name, ()):
            if symbol.addr_class == self._api.SYMBOL_LOC_TYPEDEF:
                raw = GdbRaw(self._api, symbol.type)
                if raw.code == "enum" or (raw.code == "struct" and raw.members()):
                    return raw
        return None

    def variable(self, name: str) -> Optional[RawType]:
        for symbol in find_variable_symbols(self._objfile, name):
            is_own = symbol.symtab is not None and symbol.symtab.objfile == self._objfile
            if is_own and (symbol.is_variable or symbol.addr_class == self._api.SYMBOL_LOC_UNRESOLVED):
                return GdbRaw(self._api, symbol.type)
        return None

    def enum_with(self, enumerator: str) -> Optional[RawType]:
        for symbol in self._of_unit().get(enumerator, ()):
            if symbol.type is not None and symbol.type.strip_typedefs().code == self._api.TYPE_CODE_ENUM:
                return GdbRaw(self._api, symbol.type)
        return None

    def _of_unit(self) -> Dict[str, List[Any]]:
        """The symbols of the unit by name. gdb's own lookup goes on in all other units for a name that this one lacks."""
        if self._unit is None:
            self._unit = {}
            for block in (self._block, self._block.global_block):
                for symbol in block:
                    self._unit.setdefault(symbol.name, []).append(symbol)
        return self._unit


def find_variable_symbols(objfile: Any, name: str) -> List[Any]:
    """gdb's symbols of a variable of one object: its definition, or the declaration in a header of a unit that gdb has read.

    A declaration has the type and, by the symbol table, the address. Having gdb search for the definition (`info line`, `info
    variables`) makes it read every unit: a minute and gigabytes for a program of ordinary size.
    """
    return [symbol for symbol in (objfile.lookup_static_symbol(name), objfile.lookup_global_symbol(name)) if symbol is not None]


def is_signed_type(api: Any, kind: Any) -> bool:
    """True for signed integers and enums. Type.is_signed came with gdb 12."""
    if kind.code not in (api.TYPE_CODE_INT, api.TYPE_CODE_CHAR, api.TYPE_CODE_ENUM):
        return False
    if hasattr(kind, "is_signed"):
        return bool(kind.is_signed)
    return "unsigned" not in str(kind) and str(kind) not in ("char8_t", "char16_t", "char32_t", "bool", "_Bool")


NEEDED = re.compile(r"^(libc[.-]|libc_malloc_debug)")
"""Base names of the objects whose debug information is read by gdb for every answer; that of others by dwarf.py."""


REFERENCES = (gdb.TYPE_CODE_REF, getattr(gdb, "TYPE_CODE_RVALUE_REF", gdb.TYPE_CODE_REF))
ADDRESSES = (gdb.TYPE_CODE_PTR, gdb.TYPE_CODE_INT, gdb.TYPE_CODE_ENUM, gdb.TYPE_CODE_CHAR, gdb.TYPE_CODE_BOOL)
"""Types whose value may be an address."""


def execute_gdb(command: str) -> str:
    """Run a gdb command and give what it prints; gdb's error becomes a HeapxError with gdb's text."""
    try:
        return str(gdb.execute(command, False, True))
    except gdb.error as error:
        raise HeapxError(" ".join(str(error).split()), code=GDB_FAILED)


def try_gdb(command: str) -> Optional[str]:
    """Run a gdb command; None if this gdb does not know it or it fails."""
    try:
        return execute_gdb(command)
    except HeapxError:
        return None


def read_gdb_setting(name: str) -> Optional[str]:
    """A setting of gdb's in the words of `set`; None if this gdb lacks it."""
    try:
        value = gdb.parameter(name)
    except (RuntimeError, gdb.error):
        return None
    if isinstance(value, bool):  # 1 and 0 are numbers
        return "on" if value else "off"
    return "unlimited" if value is None else str(value)


def set_debug_directories(directories: Sequence[str], keep: bool) -> None:
    """Search these before gdb's own, or instead of them."""
    own = str(gdb.parameter("debug-file-directory") or "")
    try_gdb("set debug-file-directory %s" % ":".join(list(directories) + ([own] if keep and own else [])))


def read_gdb_version() -> str:
    """gdb's version without what the distribution adds, such as `13.1`."""
    match = re.search(r"\d+\.\d+(\.\d+)?", gdb.VERSION)
    return match.group(0) if match else str(gdb.VERSION)


def find_expression_address(expression: str) -> int:
    """The address that an expression of gdb's gives: a pointer's or number's value, the place of an array or function. gdb's error becomes
    a HeapxError with gdb's text; so does a value that is no address."""
    try:
        value = gdb.parse_and_eval(expression)
        if value.type.strip_typedefs().code in REFERENCES:
            value = value.referenced_value()
        kind = value.type.strip_typedefs().code
        if kind in (gdb.TYPE_CODE_ARRAY, gdb.TYPE_CODE_FUNC):
            value, kind = value.address, gdb.TYPE_CODE_PTR
            if value is None:
                raise HeapxError("it has no address: it is not in memory", code=GDB_FAILED)
        if kind in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
            raise HeapxError("it is of type %s, which is no address: &(...) has its place" % value.type, code=GDB_FAILED)
        if kind not in ADDRESSES:
            raise HeapxError("it is %s, which is no address" % ("void" if kind == gdb.TYPE_CODE_VOID else value.type), code=GDB_FAILED)
        result = unsigned_register(value) if kind == gdb.TYPE_CODE_PTR else int(value)
    except gdb.error as error:  # gdb.MemoryError is one
        raise HeapxError(" ".join(str(error).split()).rstrip("."), code=GDB_FAILED)
    except (OverflowError, ValueError):  # a number of more than 64 bits
        result = -1
    if not 0 <= result < 1 << 64:
        raise HeapxError("its value is no address", code=GDB_FAILED)
    return result


class NoTarget(HeapxError):
    """gdb has neither a process nor a core."""


class GdbTarget(ElfTarget):
    """A core, process or remote target, with debug information by gdb."""

    def __init__(self, source: TargetSource, held_by_gdb: bool = False, debug_info: bool = True) -> None:
        self._symbols: Dict[Tuple[str, int], Any] = {}
        self.held_by_gdb = held_by_gdb
        self._bad: List[Diagnostic] = []
        self._added: Set[int] = set()
        self.unwinding: Set[int] = set()
        """Bases of the objects whose own files gdb was given, for their unwinding tables."""
        self._bulk: Optional[BulkSource] = None
        self._openable = Openable()
        directories = str(gdb.parameter("debug-file-directory") or "").split(":")
        ElfTarget.__init__(self, source, directories if debug_info else (), debug_info)
        self._names.append(self._symbols)
        self.debugger_version = read_gdb_version()

    def forget(self) -> None:
        ElfTarget.forget(self)
        self._symbols.clear()
        self._register_words: Optional[Dict[int, List[int]]] = None
        self._names_by_lwp: Dict[int, Optional[str]] = {}

    def gdb_holds(self, holds: bool) -> None:
        """gdb itself has stopped the process, or let it go: what changes while it runs is read again, names and types are kept."""
        self.modules()  # as they were before
        self.held_by_gdb = holds
        self._bulk = None
        self.refresh()

    def add_symbols(self, is_needed: Callable[[Module], bool]) -> None:
        """Have gdb read the debug information of the wanted modules at their addresses, whether or not gdb has the process or core
        itself."""
        for module in self.modules():
            if module.base in self._added or not self._debug_info or not is_needed(module):
                continue
            self._added.add(module.base)
            path = self.debug_file(module.build_id)
            if module.build_id and is_loaded(module.build_id, path):
                continue
            path = path or self.module_file(module)
            if path:
                self.add_symbol_file(path, module.base)

    def add_symbol_file(self, path: str, base: int, debug_info: bool = True, is_main: bool = False) -> None:
        """Have gdb read this very file, for an object that is loaded at `base`; without `debug_info` only what unwinding takes. `is_main`:
        as the program's, of which gdb then knows the entry."""
        name = self._openable.name(path, debug_info)
        if name is not None:
            quoted = re.sub(r"([\s\"'\\])", r"\\\1", name)
            try_gdb("with confirm off -- %s %s -o %d" % ("symbol-file" if is_main else "add-symbol-file", quoted, base))

    def is_needed(self, module: Module) -> bool:
        """True for the objects that answers are made from and gdb reads: the C library, and a static executable."""
        if NEEDED.match(module.file_name):
            return True
        loaded = self.loaded_at(module.base)
        return module.is_executable and loaded is not None and not loaded.dynamic().get(1)  # DT_NEEDED

    def look_up_static(self, name: str) -> Sequence[Symbol]:
        plain = self.elf_symbols(name)
        homes = {symbol.module.base for symbol in plain}  # read debug information only where it turned out to be needed
        self.add_symbols(lambda module: module.base in homes or self.is_needed(module))
        by_address: Dict[int, Symbol] = {}
        for objfile in [other for other in gdb.objfiles() if self._may_define(other, homes)]:
            for candidate in find_variable_symbols(objfile, name):
                symbol = self._with_debug_info(name, candidate, objfile)
                if symbol is not None:
                    by_address.setdefault(symbol.address, symbol)
        known = {symbol.module.base for symbol in by_address.values()}
        symbols = list(by_address.values()) + [symbol for symbol in plain if symbol.module.base not in known]
        order = {module.base: place for place, module in enumerate(self.modules())}
        return sorted(symbols, key=lambda symbol: (order.get(symbol.module.base, len(order)), symbol.address))

    def _may_define(self, objfile: Any, homes: Set[int]) -> bool:
        """The object has the name in its symbol table, or has none to read: gdb searches a whole object's units for a name in vain."""
        same = [module for module in self.modules() if objfile.build_id and module.build_id == objfile.build_id]
        return not same or any(module.base in homes or not self.symbol_files(module) for module in same)

    def function(self, module: Module, name: str) -> Optional[Symbol]:
        return ElfTarget.function(self, module, name) or self._gdb_function(module, name)

    def _gdb_function(self, module: Module, name: str) -> Optional[Symbol]:
        """Look up a function by gdb's reading of debug information, which is slow in large programs."""
        plain = self.module_symbol(module, name)
        if plain is None:
            return None
        self.add_symbols(lambda other: other.base == module.base)
        for objfile in [other for other in gdb.objfiles() if self._may_define(other, {module.base})]:
            symbol = objfile.lookup_global_symbol(name)
            if symbol is not None and symbol.is_function and symbol.symtab is not None:
                self._symbols[(name, plain.address)] = symbol
                return plain._replace(source="debug-info")
        return None

    def _with_debug_info(self, name: str, symbol: Any, objfile: Any) -> Optional[Symbol]:
        if not symbol.is_variable and symbol.addr_class != gdb.SYMBOL_LOC_UNRESOLVED:
            return None
        try:
            address = int(symbol.value().address) & (1 << 8 * self.word_bytes) - 1
        except (gdb.error, TypeError):  # thread-local, or optimized away
            return None
        module = self.module_at(address)
        if module is None:
            return None
        if objfile.build_id and module.build_id and objfile.build_id != module.build_id:
            read = (objfile.filename, objfile.build_id, module.build_id)
            what = "gdb read %s with build-id %s, but the target has %s; gdbheapx does not use it" % read
            complaint = Diagnostic(WRONG_FILE, None, what, "point `set sysroot` or --sysroot to the file tree of the machine it ran on")
            if complaint not in self._bad:
                self._bad.append(complaint)
            return None
        self._symbols[(name, address)] = symbol
        return Symbol(name, address, module, "debug-info")

    def types(
        self,
        near: Symbol,
        structs: Sequence[str],
        variables: Sequence[str] = (),
        enumerators: Sequence[str] = (),
        prefix: Optional[str] = None,
    ) -> Optional[TypeSet]:
        known = self._symbols.get((near.name, near.address))
        if known is None or not known.is_valid():  # gdb has not read the unit anyway
            types = ElfTarget.types(self, near, structs, variables, enumerators, prefix)
            if types is not None:
                return types
        symbol = self._gdb_symbol(near)
        if symbol is None:
            return None
        reader = GdbReader(gdb, symbol.symtab.objfile, symbol.symtab.static_block())
        try:
            return TypeWalk(reader, find_private_prefix(near.name) if prefix is None else prefix).collect(structs, variables, enumerators)
        except TooMuchWork:
            return None

    def constant(self, name: str, near: Symbol) -> Optional[int]:
        if self._unit_reader(near.module, near.address) is not None:
            return ElfTarget.constant(self, name, near)
        symbol = self._gdb_symbol(near)
        variable = next((entry for entry in symbol.symtab.static_block() if entry.name == name), None) if symbol is not None else None
        if variable is None or variable.addr_class not in (gdb.SYMBOL_LOC_CONST, gdb.SYMBOL_LOC_CONST_BYTES):
            return None
        try:
            return int(variable.value())
        except gdb.error:
            return None

    def symbol_bytes(self, symbol: Symbol) -> Optional[int]:
        size_bytes = ElfTarget.symbol_bytes(self, symbol)
        if size_bytes is None and symbol.source == "debug-info":
            known = self._gdb_symbol(symbol)
            size_bytes = int(known.type.sizeof) if known is not None else None
        return size_bytes

    def _gdb_symbol(self, near: Symbol) -> Any:
        key = (near.name, near.address)
        if key not in self._symbols or not self._symbols[key].is_valid():
            self._symbols.pop(key, None)
            self._statics.pop(near.name, None)
            if self._gdb_function(near.module, near.name) is None:
                self.find_static(near.name)
        return self._symbols.get(key)

    def threads(self) -> Sequence[Thread]:
        if self._threads is None and self.held_by_gdb and self.kind != "core":
            self._names_by_lwp = {thread.lwp: thread.name for thread in self.source.threads()}
            threads = sorted(call_in_every_thread(self._read_thread), key=lambda thread: thread.lwp)  # gdb 16: newest first
            self._threads = [row for row in threads if not (self.pid and procfs.is_kernel_worker(self.pid, row.lwp, row.name))]
        return ElfTarget.threads(self)

    def _signature_bits(self) -> int:
        register = self.arch.gdb_signature
        if register is None or not self.held_by_gdb or self.kind == "core":
            return ElfTarget._signature_bits(self)
        try:
            return unsigned_register(gdb.newest_frame().read_register(register))
        except (gdb.error, ValueError):  # not on this CPU
            return 0

    def _read_thread(self, thread: Any) -> Thread:
        """The selected thread. Its pthread_t is its thread pointer where static blocks lie below; it is 0 without libthread_db."""
        register = self.arch.gdb_thread_pointer
        pointer, stack, pc = None, None, None
        try:
            frame = gdb.newest_frame()
            stack, pc = unsigned_register(frame.read_register("sp")), unsigned_register(frame.read_register("pc"))
            if register:
                pointer = unsigned_register(frame.read_register(register))
            elif self.arch.storage.tcb_bytes is None and hasattr(thread, "handle"):  # not gdb before 9
                pointer = int.from_bytes(thread.handle(), self.byte_order) or None
        except (gdb.error, ValueError):
            pass
        return Thread(thread.ptid[1], self._names_by_lwp.get(thread.ptid[1]) or thread.name, pointer, stack, pc)

    def register_words(self, thread: Thread) -> Sequence[int]:
        if not self.held_by_gdb or self.kind == "core":
            return ElfTarget.register_words(self, thread)
        if self._register_words is None:
            self._register_words = dict(call_in_every_thread(lambda selected: (selected.ptid[1], read_register_words(self.arch))))
        return self._register_words.get(thread.lwp, ())

    def thread_local(self, name: str, near: Symbol) -> Optional[ThreadLocal]:
        places = ElfTarget.thread_local(self, name, near)
        if places is not None or not self.held_by_gdb:
            return places
        owner = self._gdb_symbol(near)  # gdb's own way, where it has a libthread_db that matches
        symbol = owner.symtab.objfile.lookup_static_symbol(name) if owner is not None else None
        if symbol is None:
            return None

        def read_address(thread: Any) -> Tuple[int, Optional[int]]:
            try:
                return thread.ptid[1], int(symbol.value().address)
            except (gdb.error, TypeError):
                return thread.ptid[1], None

        addresses = dict(call_in_every_thread(read_address))
        unknown = {lwp: "libthread_db does not show where its variables are" for lwp, address in addresses.items() if address is None}
        return ThreadLocal(addresses, "libthread_db", unknown) if any(addresses.values()) else None

    def bulk_source(self) -> BulkSource:
        if self._bulk is None:
            self._bulk = self.source.bulk_source()
            if self.held_by_gdb and not callable(self._bulk):
                at = self.auxv().get(AT_PHDR, 0)
                mine = self.source.read_prefix(at, 56)
                theirs = read_memory(at, 56)  # empty where gdb, which wants to write as well, may not open what this may read
                if mine and theirs and mine != theirs:  # in a container with its own pids, for example, another process
                    self._bulk = read_memory
        return self._bulk

    def problems(self) -> List[Diagnostic]:
        return ElfTarget.problems(self) + self._bad + self._in_danger()

    def _in_danger(self) -> List[Diagnostic]:
        """Threads that the user's own stop endangers: what this tool stops, it also spares."""
        shown = self.arch.in_system_call
        if not (shown is not None and self.held_by_gdb and self.kind == "live" and self.pid and procfs.proc_entry_number(self.pid)):
            return []
        lwps = [lwp for lwp in procfs.list_thread_ids(self.pid) if tracer.find_danger(lwp) is not None]
        if not lwps:
            return []
        who = "thread %d" % lwps[0] if len(lwps) == 1 else "%s, thread %d first," % (count_noun(len(lwps), "thread"), lwps[0])
        what = "gdb stopped %s in a sleep, and its seccomp filter lacks restart_syscall, or cannot be read: it may kill as that runs on"
        hint = "before continue or detach: select each such thread and `set $%s = -4` (EINTR)%s; gdbheapx from the shell does so by itself"
        behind = " and `set $pc += %d`" % len(shown.instruction) if shown.is_rewound else ""
        return [Diagnostic(SECCOMP_SLEEP, None, what % who, hint % (shown.result, behind))]


def is_loaded(build_id: str, debug_file: Optional[str]) -> bool:
    """gdb has the object, with its separate debug file if there is one: that may have come after gdb looked for it."""
    known = [objfile for objfile in gdb.objfiles() if objfile.build_id == build_id]
    if not known or debug_file is None:
        return bool(known)
    real = os.path.realpath(debug_file)
    return any(objfile.owner is not None or os.path.realpath(objfile.filename or "") == real for objfile in known)


def unsigned_register(value: Any) -> int:
    """A register's value as an unsigned 64-bit integer; gdb types some as pointers, some as signed."""
    return int(value) & 0xFFFFFFFFFFFFFFFF


def read_register_words(arch: Architecture) -> List[int]:
    """Every word in the selected thread's general registers, in the order of `arch.registers`, and in its vector registers. A general
    register that gdb does not have by that name, or not as a number, is 0. Empty where gdb shows no frame."""
    try:
        frame = gdb.newest_frame()
    except gdb.error:
        return []
    words = []
    for name in arch.registers.names if arch.registers is not None else ():
        try:
            words.append(unsigned_register(frame.read_register(name)))
        except (gdb.error, ValueError):
            words.append(0)
    for names, fields, count in arch.gdb_vectors:
        for name in names:
            try:
                value = frame.read_register(name)
                for field in fields:
                    value = value[field]
                words += [unsigned_register(value[place]) for place in range(count)]
            except (gdb.error, ValueError, KeyError):  # not on this CPU
                break
    return words


def call_in_every_thread(look: Callable[[Any], Any]) -> List[Any]:
    """Return the results of `look` with each thread selected in turn; the user's selection is restored."""
    thread, frame, results = gdb.selected_thread(), None, []
    try:
        frame = gdb.selected_frame() if thread is not None else None
    except gdb.error:
        pass
    try:
        for other in sorted(gdb.selected_inferior().threads(), key=lambda other: other.num):
            other.switch()
            results.append(look(other))
    finally:
        if thread is not None and thread.is_valid():
            thread.switch()
            if frame is not None and frame.is_valid():
                frame.select()
    return results


def read_memory(address: int, size_bytes: int) -> bytes:
    """The readable prefix of a range as gdb reads it; gdb itself gives all or nothing, so halves are tried down to 4 KiB pages, then
    less."""
    try:
        return bytes(gdb.selected_inferior().read_memory(address, size_bytes))
    except (gdb.error, OverflowError):
        pass
    if size_bytes <= 1:
        return b""
    page_end = (address | 4095) + 1
    half = size_bytes // 2
    if address + size_bytes > page_end:
        half = max(page_end - address, half // 4096 * 4096 - address % 4096)
    first = read_memory(address, half)
    return first + read_memory(address + half, size_bytes - half) if len(first) == half else first


def read_connection() -> str:
    """Return how gdb is connected to the selected inferior: `core`, `native`, `remote`, ...; empty without a process."""
    inferior = gdb.selected_inferior()
    known = getattr(inferior, "connection", None)
    if known is not None:
        return str(known.type)
    for line in (try_gdb("info inferiors") or "").splitlines():  # gdb 10 has no such attribute
        match = re.match(r"\* +%d +.*?\d+ \((\S+?)( .*)?\)" % inferior.num, line)
        if match:
            return match.group(1)
    return "core" if read_core_path() else ("native" if inferior.pid else "")


def read_core_path() -> Optional[str]:
    """The core that gdb has opened."""
    match = re.search(r"Local core dump file:\s+`(.*)', file type", try_gdb("info files") or "")
    return match.group(1) if match else None


def open_selected_target() -> GdbTarget:
    """The process or core that gdb has selected."""
    inferior = gdb.selected_inferior()
    way = read_connection()
    sysroot = str(gdb.parameter("sysroot") or "")
    root = "" if sysroot.startswith("target:") else sysroot
    if way == "core" or (not inferior.pid and read_core_path()):
        path = read_core_path()
        if path is None:
            raise HeapxError("gdb does not show which core it has opened", "use gdbheapx --core FILE from a shell", code=GDB_FAILED)
        program = gdb.current_progspace().filename
        return GdbTarget(CoreSource(path, program, root), held_by_gdb=True)
    if not inferior.pid:
        raise NoTarget("no process or core", "attach PID, run the program, or core-file FILE", code=NO_TARGET)
    if way == "native":
        try:
            return GdbTarget(LiveSource(inferior.pid, root), held_by_gdb=True)
        except HeapxError:
            pass  # gdb can read it although this process may not: go through gdb
    return GdbTarget(RemoteSource(inferior.pid, execute_gdb, read_memory, root), held_by_gdb=True)


OWN_FAULTS = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGSYS")


class GdbSettings:
    """gdb settings for the length of a block; those that this gdb lacks are left out."""

    def __init__(self, values: Dict[str, str]) -> None:
        self._wanted = values
        self._before: Dict[str, str] = {}

    def __enter__(self) -> None:
        for name, value in self._wanted.items():
            before = read_gdb_setting(name)
            if before is not None:
                self._before[name] = before
                try_gdb("set %s %s" % (name, value))

    def __exit__(self, *error: object) -> None:
        for name, value in self._before.items():
            try_gdb("set %s %s" % (name, value))


class GdbSignals:
    """Signal handling of gdb while it holds the process; a gdb of the user's own gets its settings back."""

    def __init__(self, ours: bool) -> None:
        self._ours = ours
        self._before: Dict[str, Tuple[str, str, str]] = {}

    def keep(self) -> None:
        """No signal of the program stops it or is lost while gdb holds it; what a thread raises itself by a fault does stop it."""
        self._before = read_signal_table()
        try_gdb("handle all nostop noprint pass")
        # gdb's own, by which it stops threads: of signals that are not even printed it takes none for its own, and hands them on
        try_gdb("handle SIGSTOP print")
        for name in OWN_FAULTS:
            try_gdb("handle %s stop print pass" % name)
        try_gdb("handle SIGINT %s" % ("nostop noprint pass" if self._ours else "stop print nopass"))

    def put_back(self) -> None:
        """Restore the settings."""
        if self._ours:
            return
        now = read_signal_table()
        for name, actions in self._before.items():
            if now.get(name) != actions:
                try_gdb("handle %s %s %s %s" % ((name,) + actions))
        self._before = {}


def read_signal_table() -> Dict[str, Tuple[str, str, str]]:
    """Return how gdb handles each signal, in the words of `handle`."""
    table = {}
    for line in (try_gdb("info signals") or "").splitlines():
        words = line.split()
        if len(words) >= 4 and words[0].startswith("SIG") and all(word in ("Yes", "No") for word in words[1:4]):
            no = ["" if word == "Yes" else "no" for word in words[1:4]]
            table[words[0]] = (no[0] + "stop", no[1] + "print", no[2] + "pass")
    return table


READ_ONLY = {"may-call-functions": "off", "may-write-memory": "off"}
"""gdb takes no other setting of this kind while there is a process."""
LITERAL = re.compile(r"\"(\\.|[^\"\\])*\"|'(\\.|[^'\\])*'")
WRITES = re.compile(r"<<=|>>=|(?<![=!<>])=(?!=)|\+\+|--")
"""With these settings gdb refuses the program's variables only: registers and its own ($count++) would change."""
FUNCTION_OF_GDB = re.compile(r"\$[A-Za-z_]\w*\s*\(")
"""Python of other people's, or $_shell."""
HINT = "give a number, or an expression that only reads: $sp, &variable, obj->next"


def resolve_expression(expression: str) -> int:
    """The address. UsageError for what would change something, what needs a function of the program, and what gdb cannot evaluate."""
    code = LITERAL.sub("", expression)
    if WRITES.search(code):
        raise UsageError("%s would assign: it was not evaluated" % expression, HINT)
    if FUNCTION_OF_GDB.search(code):
        raise UsageError("%s calls a function of gdb's: it was not evaluated" % expression, HINT)
    try:
        with GdbSettings(READ_ONLY):
            if any(read_gdb_setting(name) not in (None, "off") for name in READ_ONLY):
                raise HeapxError("this gdb has no read-only mode for expressions", code=GDB_FAILED)
            return find_expression_address(expression)
    except HeapxError as error:
        raise UsageError("cannot evaluate %s: %s" % (expression, error.message), HINT)
