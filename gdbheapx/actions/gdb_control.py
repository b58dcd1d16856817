"""Hold a process by gdb, look at its threads, and call a function in it."""

import os
import re
import signal
import time
from typing import Dict, List, Optional, Sequence, Tuple

from gdbheapx.common import problems
from gdbheapx.common.budget import NEVER
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.hints import hint_about
from gdbheapx.common.problems import GDB_FAILED
from gdbheapx.inferior.arch import Calling
from gdbheapx.inferior.base import CallOutcome, Frame, Module, StoppedThread
from gdbheapx.inferior.gdb import inferior as gdb_inferior
from gdbheapx.inferior.gdb.inferior import GdbError
from gdbheapx.inferior.gdb.target import OWN_FAULTS, GdbSettings, GdbSignals, GdbTarget, execute_gdb, try_gdb
from gdbheapx.inferior.live import procfs, tracer
from gdbheapx.inferior.live.keeper import Priority
from gdbheapx.inferior.live.tracer import CallWatchdog, DeferredSignals, SignalMask, end_with_parent
from gdbheapx.kernel.common import watchdog

AT_BASE = 7
"""Entry of the auxiliary vector (getauxval(3)): where the dynamic linker is loaded."""
AT_ENTRY = 9
"""The program's first instruction."""
TRIAL, TRIAL_S = 48271, 5.0
ROOM = 1024
"""Bytes below the red zone, for good measure."""


class GdbControl:
    """A process that gdb holds stopped, looks at and changes."""

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
        """The process was sent a SIGINT, which a call took for itself: it gets it at the detach."""
        self._linker_at: Optional[int] = None
        """An address in the dynamic linker's code, if gdb was given its unwinding tables for as long as it is attached."""
        self._signals = GdbSignals(self.ours)
        self._priority = Priority()
        self._harmless: Optional[int] = None
        """A function that touches nothing."""
        self.calling = "a call"
        """What is called, for sentences."""
        self.is_dead = False
        """It has ended in a call."""

    def prepare(self) -> None:
        """While the process still runs: the unwinding tables of everything that is loaded.

        Not those of the dynamic linker: a gdb that has them when it attaches writes breakpoints into its code.
        """
        if not self.ours:
            return
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)  # gdb's chatter about where the process stands; answers have a descriptor of their own
        os.close(nowhere)
        try_gdb("set sysroot /nonexistent")
        linker = self._find_linker()
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
        with GdbSettings({"debug-file-directory": ""}):
            self.target.add_symbol_file(path, base, debug_info=False, is_main=is_main)

    def _find_linker(self) -> Optional[Module]:
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
        self._began, limit_s = time.monotonic(), self.target.max_stop_s
        if limit_s is not None:  # reads and walks end when it has stood still for so long
            self._until_s = self._began + limit_s
            self.target.still.begin(self._until_s, limit_s)
        self._priority.ask()
        try:
            execute_gdb("attach %d" % self.pid)
        except HeapxError as error:
            try_gdb("detach")
            watchdog.end_hold_off()
            self._priority.give_back()
            holder = procfs.find_process_tracer(self.pid)
            hint: Optional[str] = "see " + hint_about("process", str(self.pid), "doctor")
            if holder is None and os.path.exists("/proc/%d" % self.pid):
                hint = procfs.why_not_permitted(self.pid).hint
            raise HeapxError("gdb cannot attach to process %d: %s" % (self.pid, error.message), hint, code=GDB_FAILED)
        self.attached = True
        self.target.gdb_holds(True)

    def commit(self) -> None:
        """Stop cutting off reads: a write or call has begun and is brought to its end."""
        self.target.still.end()

    @property
    def is_late(self) -> bool:
        """True after --max-stop: nothing more is begun."""
        return time.monotonic() > self._until_s

    @property
    def is_cut(self) -> bool:
        """True after --max-stop while reads are cut off."""
        return self.ours and self.target.still.is_over

    def spare(self) -> None:
        """No thread is killed by its seccomp filter for running on. Where another debugger holds it, `problems` has a warning."""
        for lwp in procfs.list_thread_ids(self.pid) if self.ours else ():
            tracer.spare_traced_thread(lwp)

    def let_go(self) -> None:
        """Let the process run on, if this tool stopped it. Harmless when called twice."""
        self.commit()
        if not self.attached:
            return
        self.attached = False
        if self.ours:
            if not self._ours_pending:
                try_gdb("handle SIGINT nostop noprint pass")
            self._ours_pending = False
            self.spare()
            try:
                try_gdb("detach")
            finally:
                if self._linker_at is not None:
                    try_gdb("remove-symbol-file -a %d" % self._linker_at)
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
            watchdog.end_hold_off()
        self._signals.put_back()

    # ------------------------------------------------------------------------------------------------ looks

    def threads(self) -> List[StoppedThread]:
        """Every thread with its frames."""
        standings = self._list_stopped_threads()
        linker = self._find_linker() if self.ours and self._linker_at is None else None
        path = self.target.module_file(linker) if linker is not None else None
        if linker is None or path is None:
            return standings
        name = next((mapping.name for mapping in self.target.mappings() if mapping.start <= linker.base < mapping.end), None)
        code = [range(one.start, one.end) for one in self.target.mappings() if one.executable and name and one.name == name]
        frames = (frame.pc for thread in standings for frame in thread.frames)
        self._linker_at = next((pc for pc in frames if any(pc in span for span in code)), None)
        if self._linker_at is None:
            return standings
        self._add_tables(path, linker.base)
        return self._list_stopped_threads()

    def _list_stopped_threads(self) -> List[StoppedThread]:
        shown = self.target.arch.in_system_call
        stacks = gdb_inferior.read_stacks(self.target.still.check, shown.number if shown is not None else None)
        names = {thread.lwp: procfs.thread_name(self.pid, thread.lwp) or thread.name for thread in stacks}
        own = (thread for thread in stacks if not procfs.is_kernel_worker(self.pid, thread.lwp, names[thread.lwp]))  # it runs no code here
        return [thread._replace(name=names[thread.lwp], system_call=self._system_call(thread)) for thread in own]

    def _system_call(self, thread: StoppedThread) -> Optional[int]:
        asked, shown = thread.system_call, self.target.arch.in_system_call
        if asked is None or shown is None or asked >= 1 << 63 or asked == 0xFFFFFFFF:
            return None
        return asked if shown.shows(thread.pc, self.target.read_prefix) else None

    def function_span(self, module: Module, frame: Frame) -> Optional[Tuple[int, int]]:
        """Start and end of the frame's function, by the symbol tables of its object; None if these do not say."""
        symbol = self.target.module_symbol(module, frame.name) if frame.name else None
        size = self.target.symbol_bytes(symbol) if symbol is not None else None
        if symbol is None or not size or not symbol.address <= frame.pc <= symbol.address + size:
            return None
        return symbol.address, symbol.address + size

    def disassemble(self, start: int, end: int) -> Optional[List[str]]:
        """The instructions of a range; None if gdb cannot."""
        return gdb_inferior.disassemble_range(start, end)

    # ------------------------------------------------------------------------------------------------ changes

    @property
    def machine(self) -> Calling:
        """Return what a call needs on this machine, or raise Refusal if calls were never tried on it."""
        return self.target.arch.to_call()

    @property
    def entry(self) -> Optional[int]:
        """The program's first instruction, which no thread reaches again."""
        return self.target.auxv().get(AT_ENTRY)

    def breakpoints(self) -> List[int]:
        """Addresses among which are all where gdb writes one while the process runs, its own included."""
        table = try_gdb("maintenance info breakpoints") or ""
        return sorted({int(address, 16) for address in re.findall(r"\b0x[0-9a-f]+", table)})

    def switch(self, lwp: int) -> None:
        """Select a thread; HeapxError if it is gone."""
        gdb_inferior.select_thread(lwp)

    def probe(self, lwp: int) -> Optional[str]:
        """Return why registers cannot be written and restored, or None; a bit of a vector register is flipped and flipped back."""
        self.switch(lwp)
        name, field = self.machine.vector
        halves, kept = "$%s.%s" % (name, field), self._read_kept_registers(lwp)
        try:
            before = gdb_inferior.read_vector_register(halves)
            gdb_inferior.write_vector(halves, before ^ 1)
            gdb_inferior.flush_registers()
            changed = gdb_inferior.read_vector_register(halves)
            gdb_inferior.write_vector(halves, before)
            gdb_inferior.flush_registers()
            after = gdb_inferior.read_vector_register(halves)
        except (GdbError, ValueError) as error:
            return " ".join(str(error).split()) or "gdb gives no reason"
        finally:
            self._set_back(lwp, kept)
        if changed != before ^ 1:
            return "a bit written to %s did not arrive" % name
        return None if after == before else "cannot restore %s" % name

    def write(self, address: int, data: bytes) -> None:
        """Write memory; HeapxError if it cannot be."""
        try:
            gdb_inferior.write_inferior_memory(address, data)
        except GdbError as error:
            raise HeapxError("cannot write memory at 0x%x: %s" % (address, error), code=GDB_FAILED)
        if self.target.read_prefix(address, len(data)) != data:
            raise HeapxError("a write to memory at 0x%x did not arrive" % address, code=GDB_FAILED)

    def against(self, thread: StoppedThread) -> Optional[str]:
        """Return why no call may be made on this thread now, by its registers, or None."""
        machine, shown = self.machine, self.target.arch.in_system_call
        if machine.against is None or shown is None:
            return None
        self.switch(thread.lwp)
        words = gdb_inferior.read_registers(machine.general)
        reason = machine.against(words, lambda number: tracer.register_set(thread.lwp, number))
        ends = self.ours and tracer.find_danger(thread.lwp) is not None  # its wait ends with EINTR
        waits_on = thread.in_system_call and not ends
        if reason is None and waits_on:
            reason = shown.against(words, thread.pc, self.target.read_prefix)
        return None if reason is None else "%s %s" % (thread.who, reason)

    def _read_kept_registers(self, lwp: int) -> Tuple[int, bytes]:
        """Return a register set and its contents for non-general registers; empty contents if gdb alone keeps them."""
        sets = ((number, tracer.register_set(lwp, number)) for number in self.machine.kept_sets)
        return next(((number, data) for number, data in sets if data), (0, b""))

    def _set_back(self, lwp: int, kept: Tuple[int, bytes]) -> bool:
        """Have it so again, whatever gdb has left; whether that was necessary."""
        number, data = kept
        if not data or self.is_dead or tracer.register_set(lwp, number) == data:
            return False
        tracer.set_register_set(lwp, number, data)
        gdb_inferior.flush_registers()
        return True

    # ------------------------------------------------------------------------------------------------ calls

    def call(self, lwp: int, address: int, arguments: Sequence[int], text: Optional[bytes], bound_s: float) -> CallOutcome:
        """Call a function by gdb, on one thread; `text` is put on its stack and its address is the first argument.

        No other thread runs meanwhile. A call that takes longer than bound_s is not broken off, which would leave its locks
        held: the other threads are let run, and it gets as long again.
        """
        self.switch(lwp)
        with DeferredSignals(), GdbSettings(self._for_call(bound_s)), SignalMask(lwp):
            before, kept = gdb_inferior.read_registers(self.machine.general), self._read_kept_registers(lwp)
            low, place = self._put_text(gdb_inferior.read_register("sp"), text)
            began = time.monotonic()
            guard = self._make_watchdog(bound_s)
            heard = gdb_inferior.StopSignals()
            heard.listen()
            try:
                if place is not None:
                    gdb_inferior.set_register(self.machine.sp, low)
                words = ([place] if place is not None else []) + list(arguments)
                types = ", ".join(["unsigned long"] * len(words))
                given = ", ".join("0x%xUL" % word for word in words)
                value = gdb_inferior.evaluate_integer("((int (*) (%s)) 0x%xUL) (%s)" % (types, address, given))
                outcome = CallOutcome(value, _elapsed_ms(began), None)
            except (GdbError, KeyboardInterrupt) as error:
                guard.cancel()
                self._check_there()
                outcome = self._recover_call(lwp, " ".join(str(error).split()), heard.names, began, bound_s)
            finally:
                heard.close()
                guard.cancel()
                if place is not None and not self.is_dead:
                    gdb_inferior.set_register(self.machine.sp, before[self.machine.sp])
            wrong = self._put_back(lwp, before, kept)
            self._swallow_sigint(guard)
        if wrong and outcome.trouble is None:
            return outcome._replace(trouble="gdb did not restore %s; gdbheapx restored it afterwards" % ", ".join(wrong))
        return outcome

    def trial(self, lwp: int, address: int, by_registers: bool = False) -> Optional[str]:
        """Call labs() at `address`, which touches nothing; return why the call does not come back as it should, or None.

        A call by gdb also makes gdb's own small mark now, before anything is measured: a breakpoint in longjmp guards each call, and the
        kernel makes a private copy of the page of code that it is written to.
        """
        self._harmless = address
        made = self.call_by_registers(lwp, address, [TRIAL], None, TRIAL_S) if by_registers else None
        outcome = made or self.call(lwp, address, [TRIAL], None, TRIAL_S)
        if outcome.trouble is None and outcome.returned != TRIAL:
            return "a test call of labs(%d) returned %s" % (TRIAL, outcome.returned)
        return outcome.trouble

    def _check_there(self) -> None:
        """HeapxError with the signal where the process has ended in the call."""
        how = gdb_inferior.explain_end()
        if how is not None:
            self.is_dead = True
            what = "process %d died during %s: %s" % (self.pid, self.calling, how)
            raise HeapxError(what, "look for its core, and report it: a call must not end a process", code=problems.PROCESS_ENDED)

    def _for_call(self, bound_s: float) -> Dict[str, str]:
        bound = str(max(1, int(bound_s)))
        return {
            "language": "c",
            "scheduler-locking": "on",
            "unwindonsignal": "on" if gdb_inferior.unwinds_failed_calls() else "off",
            "unwind-on-timeout": "off",
            "unwind-on-terminating-exception": "off",
            "direct-call-timeout": bound,
            "indirect-call-timeout": bound,
        }

    def _put_text(self, sp: int, text: Optional[bytes]) -> Tuple[int, Optional[int]]:
        """Put text below the red zone; (a stack pointer below it, its address)."""
        if text is None:
            return sp, None
        red_zone = self.target.arch.red_zone_bytes
        place = (sp - red_zone - ROOM - len(text)) & -64
        self.write(place, text)
        return place - red_zone, place

    def _recover_call(self, lwp: int, why: str, heard: Sequence[str], began: float, bound_s: float) -> CallOutcome:
        """A call did not come back: let it end with all threads running; what cannot end is taken off the stack."""
        fault, is_late = next((name for name in heard if name in OWN_FAULTS), None), _elapsed_ms(began) >= 1000 * bound_s
        late = "it took longer than %g s" % bound_s if is_late else "it was interrupted by a SIGINT"
        self._owed_sigint = self._owed_sigint or "SIGINT" in heard and not is_late
        if gdb_inferior.find_call_in_progress() is None:
            try_gdb("queue-signal 0")
            trouble = "%s in the call" % fault if fault is not None else late if "SIGINT" in heard else why
            return CallOutcome(None, _elapsed_ms(began), trouble, finished=False)
        if fault is None:
            try_gdb("set scheduler-locking off")
            self._run_on(lwp, bound_s)
            if gdb_inferior.find_call_in_progress() is None:
                return CallOutcome(None, _elapsed_ms(began), "%s and completed when the other threads were allowed to run" % late)
            fault, why = self._describe_fault(), "%s, and did not complete with the other threads running either" % late
        self._drop_call()
        return CallOutcome(None, _elapsed_ms(began), "%s in the call" % fault if fault is not None else why, finished=False)

    def _describe_fault(self) -> Optional[str]:
        """The fault that stopped the selected thread."""
        text = try_gdb("info program") or ""
        return next((name for name in OWN_FAULTS if name in text), None)

    def _drop_call(self) -> None:
        """Take the call off the stack and set the registers back; the signal that ended it is not handed on.

        gdb's `return` does that, but not where the innermost frame is an inlined function's. So the thread is first put where it
        would be if it had just entered the function that touches nothing, called from where the call was made.
        """
        made, size, machine = gdb_inferior.find_call_in_progress(), self.machine.return_bytes, self.machine
        if made is not None:
            pc, sp = made
            is_left = not size or self.target.read_prefix(sp - size, size) == pc.to_bytes(size, "little")
            if self._harmless is not None and is_left:
                returns = [(machine.link, pc)] if machine.link else []
                for name, value in (*machine.entering, *returns, (machine.pc, self._harmless), (machine.sp, sp - size)):
                    gdb_inferior.set_register(name, value)
            gdb_inferior.leave_function()
        try_gdb("queue-signal 0")

    def _put_back(self, lwp: int, before: Dict[str, int], kept: Tuple[int, bytes]) -> List[str]:
        """The registers as they were, and nothing of the call on the stack; which general ones gdb had left otherwise."""
        self.switch(lwp)
        if gdb_inferior.find_call_in_progress() is not None:
            return []  # still inside, and told so
        now, machine = gdb_inferior.read_registers(self.machine.general), self.machine
        wrong = [name for name in now if (now[name] ^ before[name]) & ~(machine.passing_flags if name == machine.flags else 0)]
        for name in wrong:
            gdb_inferior.set_register(name, before[name])
        self._set_back(lwp, kept)
        return wrong

    def _make_watchdog(self, bound_s: float) -> CallWatchdog:
        try_gdb("handle SIGINT stop print nopass")
        return CallWatchdog(self.pid, bound_s)

    def _swallow_sigint(self, guard: CallWatchdog) -> None:
        """The watchdog's SIGINT may have come too late for the call: it must not reach the program."""
        waiting = int(procfs.read_process_status(self.pid).get("ShdPnd", "0") or "0", 16) if guard.fired else 0
        if waiting & 2:
            try_gdb("handle SIGINT stop print nopass")
            self.spare()
            with GdbSettings({"scheduler-locking": "on"}):
                try_gdb("stepi")
        if guard.fired:
            try_gdb("queue-signal 0")  # the thread that stopped with it would be handed it at the detach
            self._ours_pending = True
        elif self.ours:
            try_gdb("handle SIGINT nostop noprint pass")

    def call_by_registers(self, lwp: int, address: int, arguments: Sequence[int], text: Optional[bytes], bound_s: float) -> CallOutcome:
        """Call by general registers alone, from a thread in a system call; vector registers keep what the function leaves."""
        self.switch(lwp)
        machine, red_zone = self.machine, self.target.arch.red_zone_bytes
        saved, kept = gdb_inferior.read_registers(machine.general), self._read_kept_registers(lwp)
        low, place = self._put_text(saved[machine.sp], text)
        stack = ((low if place is not None else saved[machine.sp] - red_zone - ROOM) & -machine.stack_align) - machine.return_bytes
        end = self.entry or saved[machine.pc]
        if machine.return_bytes:
            self.write(stack, end.to_bytes(machine.return_bytes, "little"))
        words = ([place] if place is not None else []) + list(arguments)
        began = time.monotonic()
        with DeferredSignals(), GdbSettings({"scheduler-locking": "on", "language": "c"}), SignalMask(lwp):
            meeting = gdb_inferior.set_hardware_breakpoint(end)
            try:
                rest = ((machine.sp, stack), (machine.pc, address), *([(machine.link, end)] if machine.link else []))
                for name, value in (*zip(machine.arguments, words), *rest, *machine.entering):
                    gdb_inferior.set_register(name, value)
                outcome = self._come_back(lwp, (end, stack + machine.return_bytes), began, bound_s)
            except GdbError as error:
                outcome = CallOutcome(None, _elapsed_ms(began), error.message, finished=False)
            finally:
                meeting.delete()
                if not self.is_dead:
                    self.switch(lwp)
                    for name, value in saved.items():
                        gdb_inferior.set_register(name, value)
                    self._set_back(lwp, kept)
            if outcome.trouble is not None:
                try_gdb("queue-signal 0")
        return outcome

    def _come_back(self, lwp: int, place: Tuple[int, int], began: float, bound_s: float) -> CallOutcome:
        """Let a call run until it is back at this pc and sp; with the other threads running too where it does not come."""
        stopped = ""
        for locking in ("on", "off"):
            try_gdb("set scheduler-locking %s" % locking)
            signals, is_late, error = self._run_on(lwp, bound_s)
            if (gdb_inferior.read_register("pc"), gdb_inferior.read_register("sp")) == place:
                if stopped:
                    return CallOutcome(None, _elapsed_ms(began), "%s and completed when the other threads were allowed to run" % stopped)
                return CallOutcome(signed_int(gdb_inferior.read_register(self.machine.result)), _elapsed_ms(began), None)
            fault = next((name for name in signals if name in OWN_FAULTS), None)
            if fault is not None or error is not None:
                return CallOutcome(None, _elapsed_ms(began), "%s in the call" % fault if fault is not None else error, finished=False)
            by_whom = "it was interrupted by a SIGINT" if "SIGINT" in signals else "it was stopped"
            stopped = stopped or ("it took longer than %g s" % bound_s if is_late else by_whom)
        trouble = "%s, and did not complete with the other threads running either" % stopped
        return CallOutcome(None, _elapsed_ms(began), trouble, finished=False)

    def _run_on(self, lwp: int, bound_s: float) -> Tuple[Sequence[str], bool, Optional[str]]:
        """Let the process run for so long at most; a SIGINT that is not the watchdog's is owed to it.

        Returns the names of the signals that stopped it, whether its time was up, and what gdb said where it could not let it run.
        """
        self.spare()
        heard, guard, error = gdb_inferior.StopSignals(), self._make_watchdog(bound_s), None
        heard.listen()
        try:
            gdb_inferior.continue_process()
        except (GdbError, KeyboardInterrupt) as problem:
            error = " ".join(str(problem).split()) or "it was interrupted"
        finally:
            heard.close()
            guard.cancel()
        self._check_there()
        self._swallow_sigint(guard)
        self._owed_sigint = self._owed_sigint or "SIGINT" in heard.names and not guard.fired
        self.switch(lwp)
        return heard.names, guard.fired, error


def _elapsed_ms(began: float) -> float:
    return round((time.monotonic() - began) * 1000, 3)


def signed_int(value: int) -> int:
    """The C int in a 64-bit register."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
