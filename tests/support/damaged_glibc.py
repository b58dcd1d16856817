"""A kernel core of a program on glibc that is damaged and healed in place, and asked about without gdb."""

import os
import struct
from pathlib import Path
from typing import Dict, List, Tuple

from gdbheapx import command, runner
from gdbheapx.glibc import detect
from gdbheapx.glibc.arenas import Glibc
from gdbheapx.inferior.target import ElfTarget, open_elf_target
from tests.support.tool import Asked

FS_BASE = 112 + 21 * 8
"""Of elf_prstatus on x86-64: where fs_base stands in the general registers."""
NT_PRSTATUS = 1


class Damaged:
    """A core of a program on glibc that is damaged and healed in place, and asked about without gdb."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR)
        self._undo: List[Tuple[int, bytes]] = []
        command.load_commands()
        self.target: ElfTarget = open_elf_target(str(path))
        self._segments = [(one.address, one.address + one.size_bytes, one.file_offset) for one in self.target.bulk_source().segments]  # type: ignore[union-attr]
        self.glibc: Glibc = detect.find(self.target)[0]
        self.fs_base = dict(self._thread_pointers())
        """lwp -> offset in the file."""

    def _thread_pointers(self) -> List[Tuple[int, int]]:
        """Each thread's NT_PRSTATUS: (lwp, offset of its fs_base in the file)."""
        found = []
        at, size, count = struct.unpack("<Q", os.pread(self._fd, 8, 32))[0], *struct.unpack("<HH", os.pread(self._fd, 4, 54))
        for number in range(count):
            kind, _, offset, _, _, length = struct.unpack("<IIQQQQ", os.pread(self._fd, 40, at + size * number))
            end = offset + length
            while kind == 4 and offset < end:  # PT_NOTE
                name, desc, note = struct.unpack("<III", os.pread(self._fd, 12, offset))
                start = offset + 12 + (name + 3 & ~3)
                if note == NT_PRSTATUS:
                    found.append((struct.unpack("<i", os.pread(self._fd, 4, start + 32))[0], start + FS_BASE))
                offset = start + (desc + 3 & ~3)
        return found

    def thread_local(self, name: str) -> Dict[int, int]:
        """lwp -> address of that thread's copy of one of malloc's own variables."""
        found = self.target.thread_local(name, self.glibc.main_arena)
        assert found is not None
        return {lwp: address for lwp, address in found.addresses.items() if address is not None}

    def _offset(self, address: int) -> int:
        return next(offset + address - start for start, end, offset in self._segments if start <= address < end)

    def holds(self, address: int) -> bool:
        """The core has this byte."""
        return any(start <= address < end for start, end, _ in self._segments)

    def get(self, address: int, size: int = 8) -> int:
        """An unsigned integer of the core."""
        return int.from_bytes(os.pread(self._fd, size, self._offset(address)), "little")

    def put(self, address: int, value: int, size: int = 8) -> None:
        """Another value instead."""
        self.write(self._offset(address), (value & (1 << 8 * size) - 1).to_bytes(size, "little"))

    def write(self, offset: int, data: bytes) -> None:
        """Other bytes in the file."""
        self._undo.append((offset, os.pread(self._fd, len(data), offset)))
        os.pwrite(self._fd, data, offset)

    def heal(self) -> None:
        """As it was."""
        while self._undo:
            offset, data = self._undo.pop()
            os.pwrite(self._fd, data, offset)

    def close(self) -> None:
        """The file is the caller's."""
        os.close(self._fd)

    def ask(self, *words: str) -> Asked:
        """One command line on the core as it is now, through the runner that shell and gdb use."""
        out: List[str] = []
        host = runner.Host("gdbheapx", out.append, out.append, lambda: open_elf_target(str(self.path)), runner.Settings(traceback=True))
        ended = runner.run([*words, "--json"], host)
        return Asked(ended.code, "".join(out), ended.line)
