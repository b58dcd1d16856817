"""A process behind a gdb stub (gdbserver, QEMU, rr): every byte comes through gdb, maps and auxv from what gdb prints."""

import re
import time
from typing import Callable, Dict, List, Optional

from gdbheapx.errors import HeapxError
from gdbheapx.inferior.base import BulkSource, CallSource, Identity, Mapping, Thread, utc
from gdbheapx.inferior.elf.file import Header, parse_header
from gdbheapx.inferior.elf.link_map import AT_PHDR
from gdbheapx.inferior.source import Source
from gdbheapx.problems import GDB_FAILED

MAPPING = re.compile(r"^\s*(0x[0-9a-f]+)\s+(0x[0-9a-f]+)\s+0x[0-9a-f]+\s+(0x[0-9a-f]+)(?:\s+([r-][w-][x-][ps-]))?(?:\s+(\S.*?))?\s*$")
AUXV = re.compile(r'^(\d+)\s+\S+\s.*?\s(0x[0-9a-f]+|\d+)(?:\s+".*")?\s*$')


class RemoteSource(Source):
    """Reads through two functions of gdb, so that this file needs no gdb."""

    kind = "remote"

    def __init__(self, pid: int, execute: Callable[[str], str], read: Callable[[int, int], bytes], sysroot: str = "") -> None:
        self.pid = pid
        self._execute = execute
        self._read = read
        self.sysroot = sysroot
        self._auxv = parse_auxv_text(self._try("info auxv"))
        header = first_header(self._auxv.get(AT_PHDR, 0), read)
        if header is None:
            raise HeapxError(
                "the remote stub does not provide the auxiliary vector, so gdbheapx cannot find the program's ELF header",
                "use gdbserver or a core of the process",
                code=GDB_FAILED,
            )
        Source.__init__(self, header)
        match = re.search(r"^exe = '(.*)'$", self._try("info proc exe"), re.MULTILINE)
        self.executable = match.group(1) if match else None

    def _try(self, command: str) -> str:
        try:
            return self._execute(command)
        except HeapxError:
            return ""

    def identity(self) -> Identity:
        return super().identity()._replace(time=utc(time.time()))

    def read_prefix(self, address: int, size_bytes: int) -> bytes:
        return self._read(address, size_bytes) if address >= 0 else b""

    def mappings(self) -> List[Mapping]:
        return parse_mappings_text(self._try("info proc mappings"))

    def auxv(self) -> Dict[int, int]:
        return self._auxv

    def threads(self) -> List[Thread]:
        return []

    def bulk_source(self) -> BulkSource:
        return CallSource(self._read)


def first_header(program_headers: int, read: Callable[[int, int], bytes]) -> Optional[Header]:
    """The ELF header in front of the program headers: right before them as every linker lays them out, else at the start of their page."""
    for start in (program_headers - 64, program_headers - 52, program_headers & ~0xFFF, program_headers & ~0xFFFF):
        header = parse_header(read(start, 64)) if program_headers and start >= 0 else None
        if header is not None and header.phoff == program_headers - start:
            return header
    return None


def parse_auxv_text(text: str) -> Dict[int, int]:
    """What `info auxv` prints."""
    values: Dict[int, int] = {}
    for line in text.splitlines():
        match = AUXV.match(line)
        if match:
            values[int(match.group(1))] = int(match.group(2), 0)
    return values


def parse_mappings_text(text: str) -> List[Mapping]:
    """What `info proc mappings` prints. Without the rights (gdb before 12) anonymous memory is taken as writable, a file's first mapping as
    not."""
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
