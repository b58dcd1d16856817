"""What stands in a process that gdb holds: every thread with its frames, the functions around them, signals that wait."""

from typing import Dict, List, Optional, Tuple

from gdbheapx.inferior.base import Module
from gdbheapx.inferior.gdb import inferior as gdb_inferior
from gdbheapx.inferior.gdb.hold import Hold
from gdbheapx.inferior.live import procfs
from gdbheapx.inferior.standing import Frame, Standing


class Frames(Hold):
    """A held process that is looked at."""

    def threads(self) -> List[Standing]:
        """Every thread with its frames."""
        found = self._standings()
        linker = self._linker() if self.ours and self._linker_at is None else None
        path = self.target.module_file(linker) if linker is not None else None
        if linker is None or path is None:
            return found
        name = next((one.name for one in self.target.mappings() if one.start <= linker.base < one.end), None)
        code = [range(one.start, one.end) for one in self.target.mappings() if one.executable and name and one.name == name]
        self._linker_at = next((frame.pc for thread in found for frame in thread.frames if any(frame.pc in span for span in code)), None)
        if self._linker_at is None:
            return found
        self._add_tables(path, linker.base)
        return self._standings()

    def _standings(self) -> List[Standing]:
        shown = self.target.arch.in_system_call
        stacks = gdb_inferior.stacks(self.target.still.check, shown.number if shown is not None else None)
        return [self._standing(lwp, name, found) for lwp, name, found in stacks]

    def _standing(self, lwp: int, name: Optional[str], found: gdb_inferior.Stack) -> Standing:
        name = procfs.thread_name(self.pid, lwp) or name
        return Standing(lwp, name, found.pc, found.sp, self._system_call(found), found.frames, found.whole)

    def _system_call(self, found: gdb_inferior.Stack) -> Optional[int]:
        asked, shown = found.asked, self.target.arch.in_system_call
        if asked is None or shown is None or asked >= 1 << 63 or asked == 0xFFFFFFFF:
            return None
        size = len(shown.instruction)
        return asked if self.target.read_prefix(found.pc - size, size) == shown.instruction else None

    def signal_masks(self) -> Dict[str, int]:
        """Signals that the process ignores (`SigIgn`) or that wait for the whole process (`ShdPnd`), as bits."""
        fields = procfs.status(self.pid)
        return {name: int(fields.get(name, "0") or "0", 16) for name in ("SigIgn", "ShdPnd")}

    def function_span(self, module: Module, frame: Frame) -> Optional[Tuple[int, int]]:
        """Start and end of the frame's function, by the symbol tables of its object; None if these do not tell."""
        symbol = self.target.module_symbol(module, frame.name) if frame.name else None
        size = self.target.symbol_bytes(symbol) if symbol is not None else None
        if symbol is None or not size or not symbol.address <= frame.pc <= symbol.address + size:
            return None
        return symbol.address, symbol.address + size

    def disassemble(self, start: int, end: int) -> Optional[List[str]]:
        """The instructions of a range; None if gdb cannot."""
        return gdb_inferior.disassembled(start, end)
