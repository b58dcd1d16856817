"""A kernel core of a program on glibc that is damaged and healed in place, and asked about without gdb."""

import os
import struct
from pathlib import Path
from typing import Dict, List, Tuple

from gdbheapx.glibc import detect
from gdbheapx.glibc.arenas import Glibc
from tests.support.damaged import DamagedCore

FS_BASE = 112 + 21 * 8
"""Of elf_prstatus on x86-64: where fs_base stands in the general registers."""
NT_PRSTATUS = 1


class Damaged(DamagedCore):
    """A core of a program on glibc that is damaged and healed in place, and asked about without gdb."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.glibc: Glibc = detect.find_glibc_copies(self.target)[0]
        self.fs_base = dict(self._thread_pointers())
        """lwp -> offset in the file."""

    def _thread_pointers(self) -> List[Tuple[int, int]]:
        """Each thread's NT_PRSTATUS: (lwp, offset of its fs_base in the file)."""
        pointers = []
        at, size, count = struct.unpack("<Q", os.pread(self._fd, 8, 32))[0], *struct.unpack("<HH", os.pread(self._fd, 4, 54))
        for number in range(count):
            kind, _, offset, _, _, length = struct.unpack("<IIQQQQ", os.pread(self._fd, 40, at + size * number))
            end = offset + length
            while kind == 4 and offset < end:  # PT_NOTE
                name, desc, note = struct.unpack("<III", os.pread(self._fd, 12, offset))
                start = offset + 12 + (name + 3 & ~3)
                if note == NT_PRSTATUS:
                    pointers.append((struct.unpack("<i", os.pread(self._fd, 4, start + 32))[0], start + FS_BASE))
                offset = start + (desc + 3 & ~3)
        return pointers

    def thread_local(self, name: str) -> Dict[int, int]:
        """lwp -> address of that thread's copy of one of malloc's own variables."""
        variable = self.target.thread_local(name, self.glibc.main_arena)
        return {lwp: address for lwp, address in variable.addresses.items() if address is not None}
