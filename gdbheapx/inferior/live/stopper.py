"""Have the keeper hold a process stopped, and read its registers and seccomp filters meanwhile."""

from typing import Any, Dict, List, Optional, Sequence

from gdbheapx.common.errors import HeapxError
from gdbheapx.common.problems import NO_ANSWER, SECCOMP, ProblemCode
from gdbheapx.inferior.elf.file import NT_PRSTATUS, ElfHeader, ThreadRegisters, decode_registers, signature_bits
from gdbheapx.inferior.live import keeper

NO_LIMIT_S = 1e6


class Stopper:
    """Holds every thread of a process between stop() and let_go(), for at most `limit_s`."""

    def __init__(self, pid: int, limit_s: float = NO_LIMIT_S) -> None:
        self.pid, self._limit_s = pid, limit_s
        self.held: Sequence[int] = ()
        """The stopped threads."""
        self.late: Sequence[int] = ()
        """Threads that could not be stopped in time."""
        self.until_s: Optional[float] = None
        """When it runs on at the latest, by the monotonic clock."""
        self.stopped_ms: Optional[float] = None
        self.is_over = False
        """It ran on because its time was up."""
        self.ended: Optional[int] = None
        """Status of wait(2), if the process ended while it was held."""
        self._keeper = keeper.the_keeper()
        self._sets: Dict[Any, Dict[int, List[bytes]]] = {}
        self._priority = keeper.make_stop_priority()

    def stop(self) -> None:
        """Stop all threads, also those that are being made meanwhile. On failure nothing stays held."""
        self._priority.ask()
        try:
            told = self._keeper.ask(keeper.STOP, self.pid, self._limit_s)
            if len(told) == 3:
                raise HeapxError(told[0], told[1], code=ProblemCode.of(told[2]))
        except BaseException as error:
            self._priority.give_back()
            if not isinstance(error, keeper.Lost):
                raise
            what = "the helper that stops process %d has ended" % self.pid
            raise HeapxError(what, "retry; if it persists, memory may be short here", code=NO_ANSWER)
        _, self.until_s, self.held, self.late = told

    def registers(self, lwp: int, header: ElfHeader) -> ThreadRegisters:
        """The registers of a held thread."""
        layout = header.arch.registers
        other = layout.pointer_set if layout is not None else None
        sets = self._read_register_sets(lwp, (NT_PRSTATUS, other) if other else (NT_PRSTATUS,))
        return decode_registers(header, sets[0] if sets else b"", sets[1] if other and sets else b"")

    def register_sets(self, lwp: int, header: ElfHeader) -> List[bytes]:
        """The contents of a held thread's general and vector registers."""
        return [data for data in self._read_register_sets(lwp, (NT_PRSTATUS, *header.arch.vector_sets)) if data]

    def signature_bits(self, lwp: int, header: ElfHeader) -> int:
        """Return the bits of pointers to data that may be a signature (Architecture.signature_set)."""
        number = header.arch.signature_set
        sets = self._read_register_sets(lwp, (number,)) if number is not None else []
        return signature_bits(header, sets[0]) if sets else 0

    def _read_register_sets(self, lwp: int, numbers: Sequence[int]) -> List[bytes]:
        """Return the register sets of a held thread; the sets of all threads are requested at once."""
        key = tuple(numbers)
        if key not in self._sets:
            try:
                self._sets[key] = self._keeper.ask(keeper.REGISTERS, list(numbers))[0]
            except keeper.Lost:
                self._sets[key] = {}
        return self._sets[key].get(lwp, [])

    def filters(self, lwp: int) -> List[bytes]:
        """The seccomp filters of a held thread. HeapxError says why they cannot be had."""
        try:
            told = self._keeper.ask(keeper.FILTERS, lwp)
        except keeper.Lost:
            told = ["the process is not stopped any more"]
        if told and isinstance(told[0], str):
            raise HeapxError(told[0], code=SECCOMP)
        return list(told)

    def let_go(self) -> None:
        """Let every thread run on. Harmless when called twice."""
        if self.until_s is None or self.stopped_ms is not None:
            return
        try:
            self.stopped_ms, self.is_over, self.ended = self._keeper.ask(keeper.GO)
        except keeper.Lost:
            self.is_over = True
        finally:
            self._priority.give_back()
            self.held = ()


class RecordedStop(Stopper):
    """Register sets recorded by a stop that is over. `sets`: by thread, the register sets by their numbers."""

    def __init__(self, pid: int, sets: Dict[int, Dict[int, bytes]]) -> None:
        self.pid, self._recorded = pid, sets

    def _read_register_sets(self, lwp: int, numbers: Sequence[int]) -> List[bytes]:
        return [self._recorded[lwp].get(number, b"") for number in numbers] if lwp in self._recorded else []


def wanted_sets(header: ElfHeader) -> List[int]:
    """The numbers of all that is asked for."""
    other = header.arch.registers.pointer_set if header.arch.registers is not None else None
    return [NT_PRSTATUS, *(number for number in (other, header.arch.signature_set) if number), *header.arch.vector_sets]
