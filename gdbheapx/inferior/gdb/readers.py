"""Read types by gdb.Type and memory by a gdb stub (gdbserver, QEMU, rr); gdb itself is passed in, so that tests need none."""

import re
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from gdbheapx.errors import HeapxError
from gdbheapx.inferior.base import BulkSource, CallSource, Identity, Mapping, Thread, format_utc
from gdbheapx.inferior.elf.file import ElfHeader, parse_header
from gdbheapx.inferior.elf.link_map import AT_PHDR
from gdbheapx.inferior.elf.types import RawMember, RawType, TypeReader
from gdbheapx.inferior.source import TargetSource
from gdbheapx.problems import GDB_FAILED


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
        return {api.TYPE_CODE_ARRAY: "array", api.TYPE_CODE_ENUM: "enum", api.TYPE_CODE_BOOL: "bool", api.TYPE_CODE_FLT: "float"}.get(
            kind.code, "other"
        )

    def members(self) -> List[RawMember]:
        fields = [field for field in self._type.fields() if hasattr(field, "bitpos")]
        return [RawMember(field.name or "", field.bitpos // 8, bool(field.bitsize), GdbRaw(self._api, field.type)) for field in fields]

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
        self._api = api
        self._objfile = objfile
        self._unit: Optional[Dict[str, List[Any]]] = None
        self._block = block

    def struct(self, name: str) -> Optional[RawType]:
        for symbol in self._of_unit().get(name, ()):
            if symbol.addr_class == self._api.SYMBOL_LOC_TYPEDEF:
                raw = GdbRaw(self._api, symbol.type)
                if raw.code == "enum" or (raw.code == "struct" and raw.members()):
                    return raw
        return None

    def variable(self, name: str) -> Optional[RawType]:
        for symbol in find_variable_symbols(self._objfile, name):
            if self._is_own(symbol) and (symbol.is_variable or symbol.addr_class == self._api.SYMBOL_LOC_UNRESOLVED):
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

    def _is_own(self, symbol: Any) -> bool:
        return symbol.symtab is not None and symbol.symtab.objfile == self._objfile


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


MAPPING = re.compile(r"^\s*(0x[0-9a-f]+)\s+(0x[0-9a-f]+)\s+0x[0-9a-f]+\s+(0x[0-9a-f]+)(?:\s+([r-][w-][x-][ps-]))?(?:\s+(\S.*?))?\s*$")
AUXV = re.compile(r'^(\d+)\s+\S+\s.*?\s(0x[0-9a-f]+|\d+)(?:\s+".*")?\s*$')


class RemoteSource(TargetSource):
    """Reads through two functions of gdb, so that this file needs no gdb."""

    kind = "remote"

    def __init__(self, pid: int, execute: Callable[[str], str], read: Callable[[int, int], bytes], sysroot: str = "") -> None:
        self.pid = pid
        self._execute = execute
        self._read = read
        self.sysroot = sysroot
        self._auxv = parse_auxv_text(self._run_command("info auxv"))
        header = find_first_header(self._auxv.get(AT_PHDR, 0), read)
        if header is None:
            raise HeapxError(
                "the remote stub does not provide the auxiliary vector, so gdbheapx cannot find the program's ELF header",
                "use gdbserver or a core of the process",
                code=GDB_FAILED,
            )
        TargetSource.__init__(self, header)
        match = re.search(r"^exe = '(.*)'$", self._run_command("info proc exe"), re.MULTILINE)
        self.executable = match.group(1) if match else None

    def _run_command(self, command: str) -> str:
        try:
            return self._execute(command)
        except HeapxError:
            return ""

    def identity(self) -> Identity:
        return super().identity()._replace(time=format_utc(time.time()))

    def read_prefix(self, address: int, size_bytes: int) -> bytes:
        return self._read(address, size_bytes) if address >= 0 else b""

    def mappings(self) -> List[Mapping]:
        return parse_mappings_text(self._run_command("info proc mappings"))

    def auxv(self) -> Dict[int, int]:
        return self._auxv

    def threads(self) -> List[Thread]:
        return []

    def bulk_source(self) -> BulkSource:
        return CallSource(self._read)


def find_first_header(program_headers: int, read: Callable[[int, int], bytes]) -> Optional[ElfHeader]:
    """The ELF header in front of the program headers: right before them as every linker lays them out, else at the start of their page."""
    for start in (program_headers - 64, program_headers - 52, program_headers & ~0xFFF, program_headers & ~0xFFFF):
        header = parse_header(read(start, 64)) if program_headers and start >= 0 else None
        if header is not None and header.phoff == program_headers - start:
            return header
    return None


def parse_auxv_text(text: str) -> Dict[int, int]:
    """Parse the output of `info auxv`."""
    values: Dict[int, int] = {}
    for line in text.splitlines():
        match = AUXV.match(line)
        if match:
            values[int(match.group(1))] = int(match.group(2), 0)
    return values


def parse_mappings_text(text: str) -> List[Mapping]:
    """Parse the output of `info proc mappings`. Without rights (gdb before 12) anonymous memory counts as writable, a file's first
    mapping as not."""
    mappings = []
    seen: Dict[str, int] = {}
    for line in text.splitlines():
        match = MAPPING.match(line)
        if not match:
            continue
        name = match.group(5) or ""
        rights: Optional[str] = match.group(4)
        seen[name] = seen.get(name, 0) + 1
        if rights is None:
            rights = "r--p" if name.startswith("/") and seen[name] <= 4 else "rw-p"
        mappings.append(
            Mapping(
                int(match.group(1), 16),
                int(match.group(2), 16),
                rights[0] == "r",
                rights[1] == "w",
                rights[2] == "x",
                rights[3] == "s",
                name,
                None,
            )
        )
    return sorted(mappings)
