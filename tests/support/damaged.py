"""A kernel core that is damaged and healed in place, and asked about without gdb; what it is a core of is the subclass's."""

import os
from pathlib import Path
from typing import List, Tuple

from gdbheapx import command
from gdbheapx.app import runner
from gdbheapx.inferior.target import ElfTarget, open_elf_target
from tests.support.tool import Asked


class DamagedCore:
    """One core."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR)
        self._bytes = os.fstat(self._fd).st_size
        self._undo: List[Tuple[int, bytes]] = []
        command.load_commands()
        self.target: ElfTarget = open_elf_target(str(path))
        self.segments = [(one.address, one.address + one.size_bytes, one.file_offset) for one in self.target.bulk_source().segments]  # type: ignore[union-attr]

    def close(self) -> None:
        """The file is the caller's."""
        os.close(self._fd)

    def _offset(self, address: int) -> int:
        for start, end, offset in self.segments:
            if start <= address < end:
                return offset + address - start
        raise AssertionError("0x%x is not in the core" % address)

    def holds(self, address: int) -> bool:
        """The core has this byte."""
        return any(start <= address < end for start, end, _ in self.segments)

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
        os.ftruncate(self._fd, self._bytes)

    def _open(self) -> ElfTarget:
        return open_elf_target(str(self.path))

    def ask(self, *words: str, as_json: bool = True) -> Asked:
        """One command line on the core as it is now, through the runner that shell and gdb use."""
        out: List[str] = []
        host = runner.Host("gdbheapx", out.append, out.append, self._open, runner.Settings(traceback=True))
        ended = runner.run_command_line([*words, *(["--json"] if as_json else [])], host)
        return Asked(ended.code, "".join(out), ended.line)
