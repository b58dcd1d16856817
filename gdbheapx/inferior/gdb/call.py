"""Running something in a process that gdb holds: registers and memory written, functions called. Only gdbheapx/actions/ asks for any of it.

Everything that is set in gdb for a call is set back after it. What a call leaves behind in the process is told by its outcome.
"""

import re
import time
from typing import Dict, List, Optional, Sequence, Tuple

from gdbheapx import problems
from gdbheapx.arch import Calling
from gdbheapx.errors import HeapxError
from gdbheapx.inferior.gdb import inferior as gdb_inferior
from gdbheapx.inferior.gdb.call_guard import Mask, Undisturbed, Watchdog
from gdbheapx.inferior.gdb.hold import Frames
from gdbheapx.inferior.gdb.inferior import GdbError
from gdbheapx.inferior.gdb.settings import OWN_FAULTS, Settings
from gdbheapx.inferior.gdb.target import GdbTarget, quiet
from gdbheapx.inferior.live import tracer
from gdbheapx.inferior.standing import Outcome, Ran, Standing
from gdbheapx.problems import GDB_FAILED

TRIAL, TRIAL_S = 48271, 5.0
AT_ENTRY = 9
"""Entry of the auxiliary vector (getauxval(3)): the program's first instruction."""
ROOM = 1024
"""Bytes below the red zone, for good measure."""


class Control(Frames):
    """A held process that is changed."""

    def __init__(self, target: GdbTarget) -> None:
        Frames.__init__(self, target)
        self._harmless: Optional[int] = None
        """A function that touches nothing."""
        self.calling = "a call"
        """What is called, for sentences."""
        self.is_dead = False
        """It has ended in a call."""

    @property
    def machine(self) -> Calling:
        """What a call needs here; Refusal where calls were never tried."""
        return self.target.arch.to_call()

    @property
    def entry(self) -> Optional[int]:
        """The program's first instruction, where nobody comes by any more."""
        return self.target.auxv().get(AT_ENTRY)

    def breakpoints(self) -> List[int]:
        """Addresses among which are all where gdb writes one while the process runs, its own included."""
        table = quiet("maintenance info breakpoints") or ""
        return sorted({int(address, 16) for address in re.findall(r"\b0x[0-9a-f]+", table)})

    def switch(self, lwp: int) -> None:
        """Select a thread; HeapxError if it is gone."""
        gdb_inferior.select(lwp)

    def probe(self, lwp: int) -> Optional[str]:
        """Why registers cannot be written and restored here; None if they can. A bit of a vector register is flipped and flipped back."""
        self.switch(lwp)
        name, field = self.machine.vector
        halves, kept = "$%s.%s" % (name, field), self._kept(lwp)
        try:
            before = gdb_inferior.vector_register(halves)
            gdb_inferior.write_vector(halves, before ^ 1)
            gdb_inferior.flush_registers()
            changed = gdb_inferior.vector_register(halves)
            gdb_inferior.write_vector(halves, before)
            gdb_inferior.flush_registers()
            after = gdb_inferior.vector_register(halves)
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
            gdb_inferior.write_memory(address, data)
        except GdbError as error:
            raise HeapxError("cannot write memory at 0x%x: %s" % (address, error), code=GDB_FAILED)
        if self.target.read_prefix(address, len(data)) != data:
            raise HeapxError("a write to memory at 0x%x did not arrive" % address, code=GDB_FAILED)

    def against(self, thread: Standing) -> Optional[str]:
        """Why no call may be made on this thread at this moment: what its registers show."""
        machine, shown = self.machine, self.target.arch.in_system_call
        if machine.against is None or shown is None:
            return None
        self.switch(thread.lwp)
        words = gdb_inferior.registers(machine.general)
        reason = machine.against(words, lambda number: tracer.register_set(thread.lwp, number))
        waits_on = thread.in_system_call and not (self.ours and tracer.is_in_danger(thread.lwp))  # otherwise its wait ends with EINTR
        if reason is None and waits_on:
            reason = shown.against(words, thread.pc, self.target.read_prefix)
        return None if reason is None else "%s %s" % (thread.who, reason)

    def _kept(self, lwp: int) -> Tuple[int, bytes]:
        """What the thread has in registers that are not general: a register set and its contents; without contents where gdb alone keeps
        them."""
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

    def call(self, lwp: int, address: int, arguments: Sequence[int], text: Optional[bytes], alone: bool, bound_s: float) -> Outcome:
        """Call a function by gdb, on one thread; `text` is put on its stack and its address is the first argument.

        alone: no other thread runs meanwhile. A call that takes longer than bound_s is not broken off, which would leave locks
        behind it held: the other threads are let run, and it gets as long again.
        """
        self.switch(lwp)
        with Undisturbed(), Settings(self._for_call(alone, bound_s)), Mask(lwp):
            before, kept = gdb_inferior.registers(self.machine.general), self._kept(lwp)
            if not alone:
                self.spare()
            low, place = self._put(gdb_inferior.register("sp"), text)
            began = time.monotonic()
            guard = self._guard(bound_s)
            heard = gdb_inferior.StopSignals()
            heard.listen()
            try:
                if place is not None:
                    gdb_inferior.set_register(self.machine.sp, low)
                words = ([place] if place is not None else []) + list(arguments)
                types = ", ".join(["unsigned long"] * len(words))
                given = ", ".join("0x%xUL" % word for word in words)
                value = gdb_inferior.evaluate("((int (*) (%s)) 0x%xUL) (%s)" % (types, address, given))
                outcome = Outcome(value, _since(began), None)
            except (GdbError, KeyboardInterrupt) as error:
                guard.cancel()
                self._check_there()
                outcome = self._recover(lwp, " ".join(str(error).split()), heard.names, began, bound_s)
            finally:
                heard.close()
                guard.cancel()
                if place is not None and not self.is_dead:
                    gdb_inferior.set_register(self.machine.sp, before[self.machine.sp])
            wrong = self._put_back(lwp, before, kept)
            self._swallow(guard)
        if wrong and outcome.trouble is None:
            return outcome._replace(trouble="gdb did not restore %s; gdbheapx restored it afterwards" % ", ".join(wrong))
        return outcome

    def trial(self, lwp: int, address: int, by_registers: bool = False) -> Optional[str]:
        """Why a call does not come back here as it should; None if it does. `address` is labs, which touches nothing.

        A call by gdb also makes gdb's own small mark now, before anything is measured: a breakpoint in longjmp guards each call, and the
        kernel makes a private copy of the page of code that it is written to.
        """
        self._harmless = address
        made = self.call_by_registers(lwp, address, [TRIAL], None, TRIAL_S) if by_registers else None
        outcome = made or self.call(lwp, address, [TRIAL], None, True, TRIAL_S)
        if outcome.trouble is None and outcome.returned != TRIAL:
            return "a test call of labs(%d) returned %s" % (TRIAL, outcome.returned)
        return outcome.trouble

    def _check_there(self) -> None:
        """HeapxError with the signal where the process has ended in the call."""
        how = gdb_inferior.how_it_ended()
        if how is not None:
            self.is_dead = True
            what = "process %d died during %s: %s" % (self.pid, self.calling, how)
            raise HeapxError(what, "look for its core, and report it: a call must not end a process", code=problems.PROCESS_ENDED)

    def _for_call(self, alone: bool, bound_s: float) -> Dict[str, str]:
        bound = str(max(1, int(bound_s)))
        return {
            "language": "c",
            "scheduler-locking": "on" if alone else "off",
            "unwindonsignal": "on" if gdb_inferior.unwinds_itself() else "off",
            "unwind-on-timeout": "off",
            "unwind-on-terminating-exception": "off",
            "direct-call-timeout": bound,
            "indirect-call-timeout": bound,
        }

    def _put(self, sp: int, text: Optional[bytes]) -> Tuple[int, Optional[int]]:
        """Put text below the red zone; (a stack pointer below it, its address)."""
        if text is None:
            return sp, None
        red_zone = self.target.arch.red_zone_bytes
        place = (sp - red_zone - ROOM - len(text)) & -64
        self.write(place, text)
        return place - red_zone, place

    def _recover(self, lwp: int, why: str, heard: Sequence[str], began: float, bound_s: float) -> Outcome:
        """A call did not come back: let it end with all threads running; what cannot end is taken off the stack."""
        fault, is_late = next((name for name in heard if name in OWN_FAULTS), None), _since(began) >= 1000 * bound_s
        late = "it took longer than %g s" % bound_s if is_late else "it was interrupted by a SIGINT"
        self._owed_sigint = self._owed_sigint or "SIGINT" in heard and not is_late
        if gdb_inferior.call_in_progress() is None:
            quiet("queue-signal 0")
            return Outcome(
                None, _since(began), "%s in the call" % fault if fault is not None else late if "SIGINT" in heard else why, finished=False
            )
        if fault is None:
            quiet("set scheduler-locking off")
            self._run_on(lwp, bound_s)
            if gdb_inferior.call_in_progress() is None:
                return Outcome(None, _since(began), "%s and completed when the other threads were allowed to run" % late)
            fault, why = self._fault(), "%s, and did not complete with the other threads running either" % late
        self._drop()
        return Outcome(None, _since(began), "%s in the call" % fault if fault is not None else why, finished=False)

    def _fault(self) -> Optional[str]:
        """The fault that stopped the selected thread."""
        text = quiet("info program") or ""
        return next((name for name in OWN_FAULTS if name in text), None)

    def _drop(self) -> None:
        """Take the call off the stack and set the registers back; the signal that ended it is not handed on.

        gdb's `return` does that, but not where the innermost frame is an inlined function's. So the thread is first put where it
        would be if it had just entered the function that touches nothing, called from where the call was made.
        """
        made, size, machine = gdb_inferior.call_in_progress(), self.machine.return_bytes, self.machine
        if made is not None:
            is_left = not size or self.target.read_prefix(made.sp - size, size) == made.pc.to_bytes(size, "little")
            if self._harmless is not None and is_left:
                returns = [(machine.link, made.pc)] if machine.link else []
                for name, value in (*machine.entering, *returns, (machine.pc, self._harmless), (machine.sp, made.sp - size)):
                    gdb_inferior.set_register(name, value)
            gdb_inferior.leave_function()
        quiet("queue-signal 0")

    def _put_back(self, lwp: int, before: Dict[str, int], kept: Tuple[int, bytes]) -> List[str]:
        """The registers as they were, and nothing of the call on the stack; which general ones gdb had left otherwise."""
        self.switch(lwp)
        if gdb_inferior.call_in_progress() is not None:
            return []  # still inside, and told so
        now, machine = gdb_inferior.registers(self.machine.general), self.machine
        wrong = [name for name in now if (now[name] ^ before[name]) & ~(machine.passing_flags if name == machine.flags else 0)]
        for name in wrong:
            gdb_inferior.set_register(name, before[name])
        self._set_back(lwp, kept)
        return wrong

    def _guard(self, bound_s: float) -> Watchdog:
        """From now on a SIGINT stops the process and does not reach it."""
        quiet("handle SIGINT stop print nopass")
        return Watchdog(self.pid, bound_s)

    def _swallow(self, guard: Watchdog) -> None:
        """The watchdog's SIGINT may have come too late for the call: it must not reach the program."""
        if guard.fired and self.signal_masks()["ShdPnd"] & 2:
            quiet("handle SIGINT stop print nopass")
            self.spare()
            with Settings({"scheduler-locking": "on"}):
                quiet("stepi")
        if guard.fired:
            quiet("queue-signal 0")  # the thread that stopped with it would be handed it at the detach
            self._ours_pending = True
        elif self.ours:
            quiet("handle SIGINT nostop noprint pass")

    def call_by_registers(self, lwp: int, address: int, arguments: Sequence[int], text: Optional[bytes], bound_s: float) -> Outcome:
        """The same with the general registers alone, from a thread in a system call: vector registers are left as the function leaves
        them."""
        self.switch(lwp)
        machine, red_zone = self.machine, self.target.arch.red_zone_bytes
        saved, kept = gdb_inferior.registers(machine.general), self._kept(lwp)
        low, place = self._put(saved[machine.sp], text)
        stack = ((low if place is not None else saved[machine.sp] - red_zone - ROOM) & -machine.stack_align) - machine.return_bytes
        end = self.entry or saved[machine.pc]
        if machine.return_bytes:
            self.write(stack, end.to_bytes(machine.return_bytes, "little"))
        words = ([place] if place is not None else []) + list(arguments)
        began = time.monotonic()
        with Undisturbed(), Settings({"scheduler-locking": "on", "language": "c"}), Mask(lwp):
            meeting = gdb_inferior.hardware_breakpoint(end)
            try:
                rest = ((machine.sp, stack), (machine.pc, address), *([(machine.link, end)] if machine.link else []))
                for name, value in (*zip(machine.arguments, words), *rest, *machine.entering):
                    gdb_inferior.set_register(name, value)
                outcome = self._come_back(lwp, (end, stack + machine.return_bytes), began, bound_s)
            except GdbError as error:
                outcome = Outcome(None, _since(began), error.message, finished=False)
            finally:
                meeting.delete()
                if not self.is_dead:
                    self.switch(lwp)
                    for name, value in saved.items():
                        gdb_inferior.set_register(name, value)
                    self._set_back(lwp, kept)
            if outcome.trouble is not None:
                quiet("queue-signal 0")
        return outcome

    def _come_back(self, lwp: int, place: Tuple[int, int], began: float, bound_s: float) -> Outcome:
        """Let a call run until it is back at this pc and sp; with the other threads running too where it does not come."""
        stopped = ""
        for locking in ("on", "off"):
            quiet("set scheduler-locking %s" % locking)
            run = self._run_on(lwp, bound_s)
            if (gdb_inferior.register("pc"), gdb_inferior.register("sp")) == place:
                if stopped:
                    return Outcome(None, _since(began), "%s and completed when the other threads were allowed to run" % stopped)
                return Outcome(signed_int(gdb_inferior.register(self.machine.result)), _since(began), None)
            fault = next((name for name in run.signals if name in OWN_FAULTS), None)
            if fault is not None or run.error is not None:
                return Outcome(None, _since(began), "%s in the call" % fault if fault is not None else run.error, finished=False)
            by_whom = "it was interrupted by a SIGINT" if "SIGINT" in run.signals else "it was stopped"
            stopped = stopped or ("it took longer than %g s" % bound_s if run.late else by_whom)
        return Outcome(None, _since(began), "%s, and did not complete with the other threads running either" % stopped, finished=False)

    def _run_on(self, lwp: int, bound_s: float) -> Ran:
        """Let the process run for so long at most; a SIGINT that is not the watchdog's is owed to it."""
        self.spare()
        heard, guard, error = gdb_inferior.StopSignals(), self._guard(bound_s), None
        heard.listen()
        try:
            gdb_inferior.run_on()
        except (GdbError, KeyboardInterrupt) as problem:
            error = " ".join(str(problem).split()) or "it was interrupted"
        finally:
            heard.close()
            guard.cancel()
        self._check_there()
        self._swallow(guard)
        self._owed_sigint = self._owed_sigint or "SIGINT" in heard.names and not guard.fired
        self.switch(lwp)
        return Ran(heard.names, guard.fired, error)

    def meet(self, addresses: Sequence[int], bound_s: float) -> Optional[int]:
        """Let the process run until a thread enters one of these functions; its lwp, or None if none did in time. HeapxError in gdb 10."""
        if gdb_inferior.unwinds_itself():
            raise HeapxError(
                "this gdb (%s) ends calls in a way that is not safe at the entry of a function" % gdb_inferior.whole_version(),
                "use gdb 11 or newer",
                code=GDB_FAILED,
            )
        self.spare()
        points = [gdb_inferior.hardware_breakpoint(point) for point in addresses]
        guard, began = self._guard(bound_s), time.monotonic()
        try:
            with Settings({"scheduler-locking": "off"}):
                gdb_inferior.run_on()
        except GdbError:
            pass
        finally:
            self._began += time.monotonic() - began  # it ran meanwhile
            guard.cancel()
            for point in points:
                point.delete()
            self._swallow(guard)
        self.limit()
        self.target.gdb_holds(True)
        lwp = gdb_inferior.selected()
        return lwp if lwp is not None and gdb_inferior.register("pc") in addresses else None


def _since(began: float) -> float:
    return round((time.monotonic() - began) * 1000, 3)


def signed_int(value: int) -> int:
    """The C int in a 64-bit register."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
