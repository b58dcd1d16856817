"""A process that gdb holds stopped: attach and detach. Everything that is set in gdb meanwhile is set back.

call.py runs functions in it.

What stands in a process that gdb holds: every thread with its frames, the functions around them, signals that wait.
"""

import os
import signal
import time
from typing import Dict, List, Optional, Tuple

from gdbheapx.budget import NEVER
from gdbheapx.errors import HeapxError
from gdbheapx.hints import about
from gdbheapx.inferior.base import Module
from gdbheapx.inferior.gdb import inferior as gdb_inferior
from gdbheapx.inferior.gdb.call_guard import end_with_parent
from gdbheapx.inferior.gdb.settings import Settings, Signals
from gdbheapx.inferior.gdb.target import GdbTarget, execute, quiet
from gdbheapx.inferior.live import procfs, tracer
from gdbheapx.inferior.live.keeper import Priority
from gdbheapx.inferior.standing import Frame, Standing
from gdbheapx.kernel.common import watchdog
from gdbheapx.problems import GDB_FAILED

AT_BASE = 7
"""Entry of the auxiliary vector (getauxval(3)): where the dynamic linker is loaded."""


class Hold:
    """A process that gdb holds stopped."""

    def __init__(self, target: GdbTarget) -> None:
        self.target = target
        self.pid = target.pid or 0
        self.ours = not target.held_by_gdb
        """gdb was attached by this tool, and is detached by it."""
        self.attached = False
        self.stopped_ms = 0.0
        """How long the process was kept stopped so far."""
        self._began = 0.0
        self._until_s = NEVER
        """When nothing more may be begun, by the monotonic clock."""
        self._ours_pending = False
        """A SIGINT of the watchdog may still wait in gdb: none is handed on at the detach. A call says so."""
        self._owed_sigint = False
        """Somebody sent the process a SIGINT, which a call took for itself: it gets it at the detach."""
        self._linker_at: Optional[int] = None
        """An address in the dynamic linker's code, if gdb was given its unwinding tables for as long as it is attached."""
        self._signals = Signals(self.ours)
        self._priority = Priority()

    def prepare(self) -> None:
        """While the process still runs: the unwinding tables of everything that is loaded.

        Not those of the dynamic linker: a gdb that has them when it attaches writes breakpoints into its code.
        """
        if not self.ours:
            return
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)  # gdb's chatter about where the process stands; answers have a descriptor of their own
        os.close(nowhere)
        quiet("set sysroot /nonexistent")
        linker = self._linker()
        for module in self.target.modules():
            if module is linker:
                continue
            path = self.target.module_file(module) if module.base not in self.target.unwinding else None
            self.target.unwinding.add(module.base)
            if path is not None:
                self._add_tables(path, module.base, self._returns_to_entry and module.is_executable)

    @property
    def _returns_to_entry(self) -> bool:
        """gdb has calls return to the program's entry: where the return address is not on the stack, gdb does not return there either."""
        calling = self.target.arch.calling
        return calling is not None and bool(calling.link)

    def _add_tables(self, path: str, base: int, is_main: bool = False) -> None:
        """Give gdb the unwinding tables of an object, and keep it from debug information of it that lies elsewhere."""
        with Settings({"debug-file-directory": ""}):
            self.target.add_symbol_file(path, base, debug_info=False, is_main=is_main)

    def _linker(self) -> Optional[Module]:
        """The dynamic linker: the object at AT_BASE."""
        base = self.target.auxv().get(AT_BASE)
        return next((module for module in self.target.modules() if base and module.base == base), None)

    def hold(self) -> None:
        """Stop the process, if it is not stopped already."""
        self._signals.keep()
        if not self.ours:
            self.attached = True
            return
        end_with_parent(signal.SIGTERM)  # SIGKILL in the middle of a call would leave the process there
        procfs.check_alive(self.pid)
        watchdog.hold_off()
        self._began = time.monotonic()
        self.limit()
        self._priority.ask()
        try:
            execute("attach %d" % self.pid)
        except HeapxError as error:
            quiet("detach")
            watchdog.go_on()
            self._priority.give_back()
            holder = procfs.tracer(self.pid)
            if holder is None and os.path.exists("/proc/%d" % self.pid):
                raise HeapxError(
                    "gdb cannot attach to process %d: %s" % (self.pid, error.message),
                    procfs.why_not_permitted(self.pid).hint,
                    code=GDB_FAILED,
                )
            raise HeapxError(
                "gdb cannot attach to process %d: %s" % (self.pid, error.message),
                "see " + about("process", str(self.pid), "doctor"),
                code=GDB_FAILED,
            )
        self.attached = True
        self.target.gdb_holds(True)

    def limit(self) -> None:
        """Reads and walks end when it has stood still for --max-stop, counted from the attach; not where somebody else holds it."""
        limit_s = self.target.max_stop_s
        if self.ours and limit_s is not None:
            self._until_s = self._began + limit_s
            self.target.still.begin(self._until_s, limit_s)

    def commit(self) -> None:
        """From here on no read is cut off: something is written or called, and is brought to its end."""
        self.target.still.end()

    @property
    def is_late(self) -> bool:
        """It has stood still for --max-stop: nothing more is begun."""
        return time.monotonic() > self._until_s

    @property
    def is_cut(self) -> bool:
        """The same, and reads are cut off."""
        return self.ours and self.target.still.is_over

    def spare(self) -> None:
        """No thread is killed by its seccomp filter for running on. Where somebody else holds it, `problems` has told that one."""
        for lwp in procfs.threads(self.pid) if self.ours else ():
            tracer.spare(lwp)

    def let_go(self) -> None:
        """Let the process run on, if this tool stopped it. Harmless when called twice."""
        self.commit()
        if not self.attached:
            return
        self.attached = False
        if self.ours:
            if not self._ours_pending:
                quiet("handle SIGINT nostop noprint pass")
            self._ours_pending = False
            self.spare()
            try:
                quiet("detach")
            finally:
                if self._linker_at is not None:
                    quiet("remove-symbol-file -a %d" % self._linker_at)
                    self._linker_at = None
                end_with_parent(signal.SIGKILL)
                self._priority.give_back()
                took_ms = (time.monotonic() - self._began) * 1000
                self.stopped_ms += took_ms
                self.target.was_stopped(took_ms)
                self.target.gdb_holds(False)
            if self._owed_sigint:
                self._owed_sigint = False
                try:
                    os.kill(self.pid, signal.SIGINT)
                except ProcessLookupError:
                    pass  # it has ended meanwhile
            watchdog.go_on()
        self._signals.put_back()


class Frames(Hold):
    """A held process that is looked at."""

    def threads(self) -> List[Standing]:
        """Every thread with its frames."""
        standings = self._standings()
        linker = self._linker() if self.ours and self._linker_at is None else None
        path = self.target.module_file(linker) if linker is not None else None
        if linker is None or path is None:
            return standings
        name = next((mapping.name for mapping in self.target.mappings() if mapping.start <= linker.base < mapping.end), None)
        code = [
            range(mapping.start, mapping.end) for mapping in self.target.mappings() if mapping.executable and name and mapping.name == name
        ]
        self._linker_at = next(
            (frame.pc for thread in standings for frame in thread.frames if any(frame.pc in span for span in code)), None
        )
        if self._linker_at is None:
            return standings
        self._add_tables(path, linker.base)
        return self._standings()

    def _standings(self) -> List[Standing]:
        shown = self.target.arch.in_system_call
        stacks = gdb_inferior.stacks(self.target.still.check, shown.number if shown is not None else None)
        return [self._standing(lwp, name, stack) for lwp, name, stack in stacks]

    def _standing(self, lwp: int, name: Optional[str], stack: gdb_inferior.Stack) -> Standing:
        name = procfs.thread_name(self.pid, lwp) or name
        return Standing(lwp, name, stack.pc, stack.sp, self._system_call(stack), stack.frames, stack.whole)

    def _system_call(self, stack: gdb_inferior.Stack) -> Optional[int]:
        asked, shown = stack.asked, self.target.arch.in_system_call
        if asked is None or shown is None or asked >= 1 << 63 or asked == 0xFFFFFFFF:
            return None
        return asked if shown.shows(stack.pc, self.target.read_prefix) else None

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
