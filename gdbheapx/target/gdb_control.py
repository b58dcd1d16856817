"""gdb's power over a process: attach and detach, frames of every thread, registers, calls. Only gdbheapx/actions/ asks for any of it.

Everything that is set in gdb for a call is set back after it. What a call leaves behind in the process is told by its outcome.
"""

import os
import signal
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

import gdb

from gdbheapx.errors import HeapxError
from gdbheapx.target import procfs
from gdbheapx.target.base import Module
from gdbheapx.target.call_guard import Mask, Undisturbed, Watchdog, end_with_parent
from gdbheapx.target.gdb_settings import OWN_FAULTS, Settings, Signals
from gdbheapx.target.gdb_target import GdbTarget, execute, number, quiet
from gdbheapx.target.standing import Frame, Outcome, Ran, Standing

MAX_FRAMES = 4096
"""Deeper stacks count as not unwound to their end."""
GENERAL = ("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rip", "eflags", "orig_rax")
ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
TRIAL, TRIAL_S = 48271, 5.0
AT_BASE, AT_ENTRY = 7, 9
"""Entries of the auxiliary vector (getauxval(3))."""
RESUME = 1 << 16
"""RF of eflags, which the processor clears by itself."""
RED_ZONE, ROOM = 128, 1024
"""Bytes below the stack pointer that a function may use without moving it, and more, for good measure."""


# ---------------------------------------------------------------------------------------------------- attach and detach


class Control:
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
        self._ours_pending = False
        """A SIGINT of the watchdog may still wait in gdb: none is handed on at the detach."""
        self._harmless: Optional[int] = None
        """A function that touches nothing."""
        self._owed_sigint = False
        """Somebody sent the process a SIGINT, which a call took for itself: it gets it at the detach."""
        self._linker_at: Optional[int] = None
        """An address in the dynamic linker's code, if gdb was given its unwinding tables for as long as it is attached."""
        self._signals = Signals(self.ours)

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
                self._add_tables(path, module.base)

    def _add_tables(self, path: str, base: int) -> None:
        """Give gdb the unwinding tables of an object, and keep it from debug information of it that lies elsewhere."""
        with Settings({"debug-file-directory": ""}):
            self.target.add_symbol_file(path, base, debug_info=False)

    def _linker(self) -> Optional[Module]:
        """The dynamic linker: the object at AT_BASE."""
        base = self.target.auxv().get(AT_BASE)
        return next((one for one in self.target.modules() if base and one.base == base), None)

    def hold(self) -> None:
        """Stop the process, if it is not stopped already."""
        self._signals.keep()
        if not self.ours:
            self.attached = True
            return
        end_with_parent(signal.SIGTERM)  # SIGKILL in the middle of a call would leave the process there
        procfs.check_alive(self.pid)
        self._began = time.monotonic()
        try:
            execute("attach %d" % self.pid)
        except HeapxError as error:
            quiet("detach")
            holder = procfs.tracer(self.pid)
            if holder is None and os.path.exists("/proc/%d" % self.pid):
                raise HeapxError("gdb cannot attach to process %d: %s" % (self.pid, error.message), procfs.why_not_permitted(self.pid).hint)
            raise HeapxError("gdb cannot attach to process %d: %s" % (self.pid, error.message), "see `gdbheapx --pid %d doctor`" % self.pid)
        self.attached = True
        self.target.gdb_holds(True)

    def let_go(self) -> None:
        """Let the process run on, if this tool stopped it. Harmless when called twice."""
        if not self.attached:
            return
        self.attached = False
        if self.ours:
            if not self._ours_pending:
                quiet("handle SIGINT nostop noprint pass")
            self._ours_pending = False
            try:
                quiet("detach")
            finally:
                if self._linker_at is not None:
                    quiet("remove-symbol-file -a %d" % self._linker_at)
                    self._linker_at = None
                end_with_parent(signal.SIGKILL)
                self.stopped_ms += (time.monotonic() - self._began) * 1000
                self.target.gdb_holds(False)
            if self._owed_sigint:
                self._owed_sigint = False
                try:
                    os.kill(self.pid, signal.SIGINT)
                except ProcessLookupError:
                    pass  # it has ended meanwhile
        self._signals.put_back()

    # ------------------------------------------------------------------------------------------------ looking

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
        chosen, found = gdb.selected_thread(), []
        past_main = gdb.parameter("backtrace past-main")
        quiet("set backtrace past-main on")
        try:
            for thread in sorted(gdb.selected_inferior().threads(), key=lambda one: one.num):
                thread.switch()
                found.append(self._standing(thread))
        finally:
            quiet("set backtrace past-main %s" % ("on" if past_main else "off"))
            if chosen is not None and chosen.is_valid():
                chosen.switch()
        return found

    def _standing(self, thread: Any) -> Standing:
        frame = gdb.newest_frame()
        pc, sp = number(frame.read_register("pc")), number(frame.read_register("sp"))
        frames, whole = unwind(frame)
        lwp = thread.ptid[1]
        return Standing(lwp, procfs.thread_name(self.pid, lwp) or thread.name, pc, sp, self._system_call(frame, pc), frames, whole)

    def _system_call(self, frame: Any, pc: int) -> Optional[int]:
        try:
            asked = number(frame.read_register("orig_rax"))
        except (ValueError, gdb.error):
            return None
        is_one = asked < 1 << 63 and asked != 0xFFFFFFFF and self.target.read_prefix(pc - 2, 2) == b"\x0f\x05"
        return asked if is_one else None

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
        try:
            return [str(one["asm"]) for one in gdb.newest_frame().architecture().disassemble(start, end - 1)]
        except (gdb.error, gdb.MemoryError):
            return None

    # ------------------------------------------------------------------------------------------------ changing

    def switch(self, lwp: int) -> None:
        """Select a thread; HeapxError if it is gone."""
        for thread in gdb.selected_inferior().threads():
            if thread.ptid[1] == lwp:
                thread.switch()
                gdb.newest_frame().select()
                return
        raise HeapxError("thread %d has exited" % lwp)

    def probe(self, lwp: int) -> Optional[str]:
        """Why registers cannot be written and restored here; None if they can. A bit of xmm15 is flipped and flipped back."""
        self.switch(lwp)
        try:
            before = vector_register()
            write_vector(before ^ 1)
            flush_registers()
            changed = vector_register()
            write_vector(before)
            flush_registers()
            after = vector_register()
        except (gdb.error, ValueError) as error:
            return " ".join(str(error).split()) or "gdb gives no reason"
        if changed != before ^ 1:
            return "a bit written to xmm15 did not arrive"
        return None if after == before else "cannot restore xmm15"

    def write(self, address: int, data: bytes) -> None:
        """Write memory; HeapxError if it cannot be."""
        try:
            gdb.selected_inferior().write_memory(address, data)
        except (gdb.error, gdb.MemoryError) as error:
            raise HeapxError("cannot write memory at 0x%x: %s" % (address, error))
        if self.target.read_prefix(address, len(data)) != data:
            raise HeapxError("a write to memory at 0x%x did not arrive" % address)

    # ------------------------------------------------------------------------------------------------ calls

    def call(self, lwp: int, address: int, arguments: Sequence[int], text: Optional[bytes], alone: bool, bound_s: float) -> Outcome:
        """Call a function by gdb, on one thread; `text` is put on its stack and its address is the first argument.

        alone: no other thread runs meanwhile. A call that takes longer than bound_s is not broken off, which would leave locks
        behind it held: the other threads are let run, and it gets as long again.
        """
        self.switch(lwp)
        with Undisturbed(), Settings(self._for_call(alone, bound_s)), Mask(lwp):
            before = general_registers()
            low, place = self._put(number(gdb.newest_frame().read_register("sp")), text)
            began = time.monotonic()
            guard = self._guard(bound_s)
            heard: List[str] = []
            stops = lambda event: heard.append(getattr(event, "stop_signal", ""))  # noqa: E731  (it is disconnected below)
            gdb.events.stop.connect(stops)
            try:
                if place is not None:
                    set_register("rsp", low)
                words = ([place] if place is not None else []) + list(arguments)
                types = ", ".join(["unsigned long"] * len(words))
                given = ", ".join("0x%xUL" % word for word in words)
                value = gdb.parse_and_eval("((int (*) (%s)) 0x%xUL) (%s)" % (types, address, given))
                outcome = Outcome(int(value), _since(began), None)
            except (gdb.error, KeyboardInterrupt) as error:
                guard.cancel()
                outcome = self._recover(lwp, " ".join(str(error).split()), heard, began, bound_s)
            finally:
                gdb.events.stop.disconnect(stops)
                guard.cancel()
                if place is not None:
                    set_register("rsp", before["rsp"])
            wrong = self._put_back(lwp, before)
            self._swallow(guard)
        if wrong and outcome.trouble is None:
            return outcome._replace(trouble="gdb did not restore %s; gdbheapx restored it afterwards" % ", ".join(wrong))
        return outcome

    def trial(self, lwp: int, address: int, by_registers: bool = False) -> Optional[str]:
        """Why a call does not come back here as it should; None if it does. `address` is labs, which touches nothing.

        A call by gdb also makes gdb's own small mark now, before anything is measured: a breakpoint in longjmp guards each call, and the kernel
        makes a private copy of the page of code that it is written to.
        """
        self._harmless = address
        made = self.call_by_registers(lwp, address, [TRIAL], None, TRIAL_S) if by_registers else None
        outcome = made or self.call(lwp, address, [TRIAL], None, True, TRIAL_S)
        if outcome.trouble is None and outcome.returned != TRIAL:
            return "a test call of labs(%d) returned %s" % (TRIAL, outcome.returned)
        return outcome.trouble

    def _for_call(self, alone: bool, bound_s: float) -> Dict[str, str]:
        bound = str(max(1, int(bound_s)))
        return {
            "language": "c",
            "scheduler-locking": "on" if alone else "off",
            "unwindonsignal": "on" if unwinds_itself() else "off",
            "unwind-on-timeout": "off",
            "unwind-on-terminating-exception": "off",
            "direct-call-timeout": bound,
            "indirect-call-timeout": bound,
        }

    def _put(self, sp: int, text: Optional[bytes]) -> Tuple[int, Optional[int]]:
        """Put text below the red zone; (a stack pointer below it, its address)."""
        if text is None:
            return sp, None
        place = (sp - RED_ZONE - ROOM - len(text)) & -64
        self.write(place, text)
        return place - RED_ZONE, place

    def _recover(self, lwp: int, why: str, heard: Sequence[str], began: float, bound_s: float) -> Outcome:
        """A call did not come back: let it end with all threads running; what cannot end is taken off the stack."""
        fault, is_late = next((name for name in heard if name in OWN_FAULTS), None), _since(began) >= 1000 * bound_s
        late = "it took longer than %g s" % bound_s if is_late else "it was interrupted by a SIGINT"
        self._owed_sigint = self._owed_sigint or "SIGINT" in heard and not is_late
        if self._dummy() is None:
            quiet("queue-signal 0")
            return Outcome(None, _since(began), "%s in the call" % fault if fault is not None else late if "SIGINT" in heard else why, finished=False)
        if fault is None:
            quiet("set scheduler-locking off")
            self._run_on(lwp, bound_s)
            if self._dummy() is None:
                return Outcome(None, _since(began), "%s and completed when the other threads were allowed to run" % late)
            fault, why = self._fault(), "%s, and did not complete with the other threads running either" % late
        self._drop()
        return Outcome(None, _since(began), "%s in the call" % fault if fault is not None else why, finished=False)

    def _dummy(self) -> Any:
        """The frame that gdb's call was made from, if it is still on the selected thread's stack."""
        frame: Any = gdb.newest_frame()
        for _ in range(MAX_FRAMES):
            if frame is None or frame.type() == gdb.DUMMY_FRAME:
                return frame
            try:
                frame = frame.older()
            except gdb.error:
                return None
        return None

    def _fault(self) -> Optional[str]:
        """The fault that stopped the selected thread."""
        text = quiet("info program") or ""
        return next((name for name in OWN_FAULTS if name in text), None)

    def _drop(self) -> None:
        """Take the call off the stack and set the registers back; the signal that ended it is not handed on.

        gdb's `return` does that, but not where the innermost frame is an inlined function's. So the thread is first put where it
        would be if it had just entered the function that touches nothing, called from where the call was made.
        """
        dummy = self._dummy()
        if dummy is not None:
            pc, sp = number(dummy.pc()), number(dummy.read_register("sp"))
            if self._harmless is not None and self.target.read_prefix(sp - 8, 8) == pc.to_bytes(8, "little"):
                for name, value in (("orig_rax", -1), ("rip", self._harmless), ("rsp", sp - 8)):
                    set_register(name, value)
            gdb.newest_frame().select()
            quiet("with confirm off -- return")
        quiet("queue-signal 0")

    def _put_back(self, lwp: int, before: Dict[str, int]) -> List[str]:
        """The general registers as they were, and nothing of the call on the stack; which of them gdb had left otherwise."""
        self.switch(lwp)
        if self._dummy() is not None:
            return []  # still inside, and told so
        now = general_registers()
        wrong = [name for name in GENERAL if (now[name] ^ before[name]) & ~(RESUME if name == "eflags" else 0)]
        for name in wrong:
            set_register(name, before[name])
        return wrong

    def _guard(self, bound_s: float) -> Watchdog:
        """From now on a SIGINT stops the process and does not reach it."""
        quiet("handle SIGINT stop print nopass")
        return Watchdog(self.pid, bound_s)

    def _swallow(self, guard: Watchdog) -> None:
        """The watchdog's SIGINT may have come too late for the call: it must not reach the program."""
        if guard.fired and self.signal_masks()["ShdPnd"] & 2:
            quiet("handle SIGINT stop print nopass")
            with Settings({"scheduler-locking": "on"}):
                quiet("stepi")
        if guard.fired:
            quiet("queue-signal 0")  # the thread that stopped with it would be handed it at the detach
            self._ours_pending = True
        elif self.ours:
            quiet("handle SIGINT nostop noprint pass")

    def call_by_registers(self, lwp: int, address: int, arguments: Sequence[int], text: Optional[bytes], bound_s: float) -> Outcome:
        """The same with the general registers alone, from a thread in a system call: vector registers are left as the function leaves them."""
        self.switch(lwp)
        saved = general_registers()
        low, place = self._put(saved["rsp"], text)
        stack = ((low if place is not None else saved["rsp"] - RED_ZONE - ROOM) & -16) - 8
        end = self.target.auxv().get(AT_ENTRY) or saved["rip"]  # the program's first instruction, where nobody comes by any more
        self.write(stack, end.to_bytes(8, "little"))
        words = ([place] if place is not None else []) + list(arguments)
        began = time.monotonic()
        with Undisturbed(), Settings({"scheduler-locking": "on", "language": "c"}), Mask(lwp):
            meeting = hardware_breakpoint(end)
            try:
                for name, value in list(zip(ARGUMENTS, words)) + [("rax", 0), ("rsp", stack), ("rip", address), ("orig_rax", -1)]:
                    set_register(name, value)
                outcome = self._come_back(lwp, (end, stack + 8), began, bound_s)
            except gdb.error as error:
                outcome = Outcome(None, _since(began), " ".join(str(error).split()), finished=False)
            finally:
                meeting.delete()
                self.switch(lwp)
                for name in GENERAL:
                    set_register(name, saved[name])
            if outcome.trouble is not None:
                quiet("queue-signal 0")
        return outcome

    def _come_back(self, lwp: int, place: Tuple[int, int], began: float, bound_s: float) -> Outcome:
        """Let a call run until it is back at this pc and sp; with the other threads running too where it does not come."""
        stopped = ""
        for locking in ("on", "off"):
            quiet("set scheduler-locking %s" % locking)
            run = self._run_on(lwp, bound_s)
            frame = gdb.newest_frame()
            if (number(frame.read_register("pc")), number(frame.read_register("sp"))) == place:
                if stopped:
                    return Outcome(None, _since(began), "%s and completed when the other threads were allowed to run" % stopped)
                return Outcome(signed_int(number(frame.read_register("rax"))), _since(began), None)
            fault = next((name for name in run.signals if name in OWN_FAULTS), None)
            if fault is not None or run.error is not None:
                return Outcome(None, _since(began), "%s in the call" % fault if fault is not None else run.error, finished=False)
            by_whom = "it was interrupted by a SIGINT" if "SIGINT" in run.signals else "it was stopped"
            stopped = stopped or ("it took longer than %g s" % bound_s if run.late else by_whom)
        return Outcome(None, _since(began), "%s, and did not complete with the other threads running either" % stopped, finished=False)

    def _run_on(self, lwp: int, bound_s: float) -> Ran:
        """Let the process run for so long at most; a SIGINT that is not the watchdog's is owed to it."""
        signals: List[str] = []
        stops = lambda event: signals.append(getattr(event, "stop_signal", ""))  # noqa: E731  (it is disconnected below)
        guard, error = self._guard(bound_s), None
        gdb.events.stop.connect(stops)
        try:
            gdb.execute("continue", False, True)
        except (gdb.error, KeyboardInterrupt) as problem:
            error = " ".join(str(problem).split()) or "it was interrupted"
        finally:
            gdb.events.stop.disconnect(stops)
            guard.cancel()
        self._swallow(guard)
        self._owed_sigint = self._owed_sigint or "SIGINT" in signals and not guard.fired
        self.switch(lwp)
        return Ran(signals, guard.fired, error)

    def meet(self, addresses: Sequence[int], bound_s: float) -> Optional[int]:
        """Let the process run until a thread enters one of these functions; its lwp, or None if none did in time. HeapxError in gdb 10."""
        if unwinds_itself():
            raise HeapxError("this gdb (%s) ends calls in a way that is not safe at the entry of a function" % gdb.VERSION, "use gdb 11 or newer")
        points = [hardware_breakpoint(one) for one in addresses]
        guard, began = self._guard(bound_s), time.monotonic()
        try:
            with Settings({"scheduler-locking": "off"}):
                gdb.execute("continue", False, True)
        except gdb.error:
            pass
        finally:
            self._began += time.monotonic() - began  # it ran meanwhile
            guard.cancel()
            for one in points:
                one.delete()
            self._swallow(guard)
        self.target.gdb_holds(True)
        thread = gdb.selected_thread()
        at = number(gdb.newest_frame().read_register("pc")) if thread is not None else 0
        return int(thread.ptid[1]) if thread is not None and at in addresses else None


def _since(began: float) -> float:
    return round((time.monotonic() - began) * 1000, 3)


def signed_int(value: int) -> int:
    """The C int in a 64-bit register."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def general_registers() -> Dict[str, int]:
    """The selected thread's, as they are now."""
    frame = gdb.newest_frame()
    return {name: number(frame.read_register(name)) for name in GENERAL}


def set_register(name: str, value: int) -> None:
    """Write one general register of the selected thread; a value of 64 bits, signed or not.

    In an older frame a register is the place where it was saved, so the newest one is selected first each time: after a write to
    the stack pointer gdb selects the frame that has the id of the one before, and stale frames below can have it.
    """
    value &= 0xFFFFFFFFFFFFFFFF
    gdb.newest_frame().select()
    gdb.execute("set $%s = %d" % (name, value - (1 << 64) if value >> 63 else value), False, True)


def unwind(frame: Any) -> Tuple[List[Frame], bool]:
    """The frames from this one on, and whether the last one is the thread's first function."""
    found: List[Frame] = []
    while frame is not None and len(found) < MAX_FRAMES:
        try:
            found.append(Frame(number(frame.pc()), frame.name(), frame.type() == gdb.SIGTRAMP_FRAME))
            older = frame.older()
            reason = frame.unwind_stop_reason()
        except (gdb.error, ValueError):
            return found, False
        if older is None:
            return found, reason == gdb.FRAME_UNWIND_OUTERMOST
        frame = older
    return found, False


def hardware_breakpoint(address: int) -> Any:
    """One that writes nothing into the program's code."""
    kind = getattr(gdb, "BP_HARDWARE_BREAKPOINT", None)
    return Typed(address) if kind is None else gdb.Breakpoint("*0x%x" % address, kind, internal=True)


class Typed:
    """What stands for a gdb.Breakpoint in gdb 10, whose Python has none of this kind: one that is set as it is typed. It takes a number of the user's."""

    def __init__(self, address: int) -> None:
        execute("hbreak *0x%x" % address)
        self.number = number(gdb.parse_and_eval("$bpnum"))

    def delete(self) -> None:
        """It is not needed any more."""
        quiet("delete %d" % self.number)


def unwinds_itself() -> bool:
    """gdb 10 takes a call that a signal ended off the stack itself: it can hang when registers are written while one stands there.

    So its calls get no second chance with the other threads running.
    """
    return not hasattr(gdb, "BP_HARDWARE_BREAKPOINT")


def vector_register() -> int:
    """xmm15 of the selected thread as one integer."""
    halves = gdb.parse_and_eval("$xmm15.v2_int64")
    return (number(halves[1]) << 64) | number(halves[0])


def write_vector(value: int) -> None:
    """Write the lower half of the selected thread's xmm15: gdb errors where it cannot write the CPU's extended state."""
    lower = value & 0xFFFFFFFFFFFFFFFF
    gdb.execute("set $xmm15.v2_int64[0] = (long) 0x%xUL" % lower, False, True)


def flush_registers() -> None:
    """Have gdb read the registers anew."""
    if quiet("maint flush register-cache") is None:
        quiet("flushregs")
