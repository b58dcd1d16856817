"""Calls in a process: within --max-stop either nothing was written or what was written is told; rounds of trim --every; which allocators are asked.

gdbheapx/actions/finisher.py: what is done with a thread that gdb has left in a call, by where it stands.

Files: actions/call.py, actions/calling.py, actions/preflight.py, allocators/plan.py, inferior/base.py, jemalloc/plan.py.
"""

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest

from gdbheapx.actions import call, calling, finisher, preflight
from gdbheapx.actions.calling import ForbiddenCode
from gdbheapx.actions.finisher import Before, Standby, kept_alive
from gdbheapx.allocators.plan import Held, Span, Suspect
from gdbheapx.common.errors import Busy, HeapxError, OutOfTime, Refusal, UnreadableMemory
from gdbheapx.inferior.arch import architecture_named
from gdbheapx.inferior.base import Frame, Mapping, Member, StoppedThread, StructType, TypeSet
from gdbheapx.inferior.live import tracer
from gdbheapx.jemalloc import plan

STACK = Mapping(0x7000000, 0x7800000, True, True, False, False, "", None)
TEXT = Mapping(0x400000, 0x500000, True, False, True, False, "/bin/server", None)
LOADER = Mapping(0x600000, 0x700000, True, False, True, False, "/lib64/ld-linux-x86-64.so.2", None)
MAPPINGS = [TEXT, LOADER, STACK]
MALLOC = Span(0x480000, 0x488000, "malloc")
PID, LWP = 100, 101


class Memory:
    """A target with a stack of given words."""

    arch = architecture_named("i386:x86-64")

    def __init__(self, words: Sequence[int] = (), code: bytes = b"\0\0\xe8\0\0\0\0") -> None:
        self.data = b"".join(word.to_bytes(8, "little") for word in words)
        self.code = code

    def mappings(self) -> List[Mapping]:
        return MAPPINGS

    def read_prefix(self, address: int, size_bytes: int) -> bytes:
        return self.data if address >= STACK.start else self.code


def inside(target: Optional[Memory] = None) -> ForbiddenCode:
    """Knows one span of malloc."""
    found: Any = target or Memory()
    return ForbiddenCode(found, [MALLOC])


def thread(pcs: Sequence[int], system_call: Optional[int] = 35, whole: bool = True, signal: Optional[int] = None, sp: int = 0x7700000) -> StoppedThread:
    """A thread with these frames."""
    frames = [Frame(pc, None, at == signal) for at, pc in enumerate(pcs)]
    return StoppedThread(LWP, "worker", pcs[0], sp, system_call, frames, whole)


def choose(one: StoppedThread, pointer: Optional[int] = 0x77F0000, only: bool = False) -> Tuple[Optional[StoppedThread], Sequence[str]]:
    """The choice among one thread."""
    return calling.choose_caller([one], inside(), MAPPINGS, [(LWP, pointer)], PID, lambda _: None, only)


def test_a_thread_in_a_system_call_is_chosen() -> None:
    """Outside malloc, on its own stack, in a system call: it may."""
    assert choose(thread([0x410000, 0x420000]))[0] is not None


@pytest.mark.parametrize(
    "one, pointer, word",
    [
        (thread([0x410000, 0x481000, 0x420000]), 0x77F0000, "inside malloc"),
        (thread([0x410000, 0x420000], signal=1), 0x77F0000, "signal"),
        (thread([0x610000, 0x420000]), 0x77F0000, "dynamic linker"),
        (thread([0x410000], sp=0x9000000), 0x77F0000, "in no mapping"),
        (thread([0x410000]), 0x9000000, "not its own"),
        (thread([0x410000]), None, "not its own"),
        (thread([0x410000], sp=0x77F8000), 0x77F0000, "not its own"),
        (thread([0x410000], sp=STACK.start + 4096), 0x77F0000, "left"),
        (thread([0x410000], system_call=None, whole=False), 0x77F0000, "cannot unwind"),
    ],
)
def test_these_threads_are_not_called_on(one: StoppedThread, pointer: Optional[int], word: str) -> None:
    """Each for its own reason, in one sentence that names the thread."""
    found = choose(one, pointer)
    assert found[0] is None
    assert len(found[1]) == 1
    assert word in found[1][0]
    assert "thread 101 (worker)" in found[1][0]


def test_general_registers_need_a_system_call() -> None:
    """A thread in the program's own code will not do where vector registers cannot be restored."""
    assert choose(thread([0x410000], system_call=None))[0] is not None
    assert choose(thread([0x410000], system_call=None), only=True)[0] is None


def test_a_return_address_behind_the_end_counts() -> None:
    """A call as a function's last instruction leaves the address behind it on the stack."""
    assert inside().why(thread([0x410000, MALLOC.end])) is not None
    assert inside().why(thread([0x410000, MALLOC.end + 1])) is None


@pytest.mark.parametrize("words, code, found", [([0x481005], b"\0\0\xe8\0\0\0\0", True), ([0x481005], bytes(7), False), ([0x410000], b"\0\0\xe8\0\0\0\0", False)])
def test_a_stack_that_cannot_be_unwound_is_searched(words: List[int], code: bytes, found: bool) -> None:
    """An address into malloc behind a call instruction counts; a number that only looks like one does not."""
    assert (inside(Memory(words, code)).why(thread([0x410000], whole=False)) is not None) == found


def test_every_lock_of_a_struct_is_found() -> None:
    """By value, in arrays and in nested structs; a struct without locks is passed over however long its array is."""
    types = TypeSet(
        {
            "malloc_mutex_s": StructType(112, {"lock": Member(64, 40, 1, "struct pthread")}),
            "leaf": StructType(8, {"child": Member(0, 8, 1, "pointer")}),
            "decay_s": StructType(200, {"mtx": Member(8, 112, 1, "struct malloc_mutex_s")}),
            "arena_s": StructType(
                10_000_000,
                {"rtree": Member(0, 8, 1_000_000, "struct leaf"), "decay": Member(9_000_000, 200, 2, "struct decay_s")},
            ),
        }
    )
    assert plan.find_mutexes(types, "arena_s") == [(9_000_072, "decay[0].mtx"), (9_000_272, "decay[1].mtx")]


def test_a_held_lock_names_its_holder() -> None:
    """By lwp where the lock tells; glibc's do not."""
    assert Held("ctl_mtx", LWP).sentence([thread([0x410000])]) == "thread 101 (worker) holds ctl_mtx"
    assert "an unknown thread" in Held("the lock of main_arena", None).sentence([])

FIRST = calling.Tries(1, [])


class Control:
    """Two threads, a byte of each that is 1. `writes`: how many come before the time is up."""

    pid = 77

    def __init__(self, writes: int) -> None:
        self._writes = writes
        self.written: List[int] = []
        self.is_committed = False
        self.target = SimpleNamespace(max_stop_s=0.5, read_prefix=lambda address, size_bytes: b"\1")

    @property
    def is_late(self) -> bool:
        return len(self.written) >= self._writes

    def commit(self) -> None:
        self.is_committed = True

    def threads(self) -> List[Any]:
        return [SimpleNamespace(lwp=lwp, name="worker", who="thread %d" % lwp) for lwp in (1, 2)]

    def write(self, address: int, data: bytes) -> None:
        assert self.is_committed, "a read after it may be cut off"
        self.written.append(address)


def made(writes: int) -> Any:
    """A cure of both."""
    found = calling.Cure.__new__(calling.Cure)
    wanted: Any = found
    wanted.control, wanted.only, wanted.done = Control(writes), None, {}
    wanted.inside = SimpleNamespace(why=lambda thread: None)
    wanted.sandbox = SimpleNamespace(against=lambda lwp, who: None)
    suspects = [Suspect(lwp, 0x1000 * lwp) for lwp in (1, 2)]
    wanted.plan = SimpleNamespace(look=lambda only: suspects, before=b"\1", after=b"\0", done="cured", byte="tickers", read=lambda: "report")
    return wanted


def test_nothing_is_written_when_the_time_is_up() -> None:
    """It is refused, with nothing done."""
    one = made(0)
    with pytest.raises(OutOfTime, match="nothing was changed"):
        one.now(FIRST)
    assert not one.control.written and not one.done


def test_who_was_cured_is_told() -> None:
    """The time is up after the first thread: the second has its turn in the next stop, and the first one's cure is no refusal."""
    one = made(1)
    with pytest.raises(Busy, match="--max-stop"):
        one.now(FIRST)
    assert one.control.written == [0x1000] and [row.cured for row in one.last(FIRST)] == [True, False]


def test_in_time_all_are_cured() -> None:
    """Both, in one stop."""
    one = made(9)
    assert [row.cured for row in one.now(FIRST)] == [True, True] and one.control.written == [0x1000, 0x2000]

OPTIONS = SimpleNamespace(every=0.0, above=1, times=2, pad=0)

DONE = SimpleNamespace(
    trouble=None,
    data={},
    predicted=SimpleNamespace(resident_bytes=1),
    before=SimpleNamespace(rss_bytes=2, anonymous_bytes=2),
    after=SimpleNamespace(rss_bytes=1, anonymous_bytes=1),
)


def rows_of(monkeypatch: pytest.MonkeyPatch, outcomes: List[Any], rows: List[Any], above: int = 1) -> None:
    """The rounds of a process that lives, with these outcomes."""

    def run(*_: Any) -> Any:
        outcome = outcomes.pop(0)
        if isinstance(outcome, HeapxError):
            raise outcome
        return outcome

    session: Any = SimpleNamespace(target=SimpleNamespace(pid=os.getpid()), budget=SimpleNamespace(expired=lambda: False))
    monkeypatch.setattr(preflight, "require_gdb", lambda *_: None)
    monkeypatch.setattr(call, "return_heap_memory", run)
    options = SimpleNamespace(**{**vars(OPTIONS), "above": above})
    for row in call.run_rounds(session, options, lambda: session):
        rows.append(row["message"])


@pytest.mark.parametrize("last", [Busy("a thread is inside malloc"), UnreadableMemory(0x1000)])
def test_refused_last(monkeypatch: pytest.MonkeyPatch, last: HeapxError) -> None:
    """Exit code 1 and the one line of the refusal, behind all rows."""
    rows: List[str] = []
    with pytest.raises(Refusal) as caught:
        rows_of(monkeypatch, [DONE, last], rows)
    assert rows == ["trimmed", last.line()]
    assert (caught.value.line(), caught.value.code, caught.value.exit_code) == (last.line(), last.code, 1)


def test_refused_and_then_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a trim that was done at its second try."""
    rows: List[str] = []
    rows_of(monkeypatch, [Busy("a thread is inside malloc"), DONE], rows)
    assert rows == ["a thread is inside malloc", "trimmed"]


def test_nothing_was_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the limit nothing is asked."""
    rows: List[str] = []
    rows_of(monkeypatch, [], rows, above=1 << 60)
    assert rows == ["below the limit"] * 2


def heap(name: str, owns: bool, command: Optional[str], is_owners: bool = False) -> Any:
    way = SimpleNamespace(command=command, is_owners=is_owners) if command else None
    return SimpleNamespace(info=SimpleNamespace(id=name, name=name, owns_malloc=owns), returning=way, kind=name)


class Asked:
    """A session with these heaps, the first of which is in use."""

    def __init__(self, *heaps: Any) -> None:
        self.heaps = SimpleNamespace(all=lambda: list(heaps), one=lambda: heaps[0])
        self.allocator_id: Optional[str] = None
        self.problems: List[Any] = []
        self.problem = lambda *told, partial: self.problems.append(told)

    def again(self) -> "Asked":
        self.allocator_id = None
        return self

BOTH = heap("je", True, "purge"), heap("tc", False, "purge")


def test_only_what_serves_is_asked() -> None:
    """A way that serves the owner of malloc alone is none beside another owner; where nothing is left, the owner is named."""
    own = heap("own", False, "trim", is_owners=True)
    assert [command for _, command in call.find_return_ways(Asked(*BOTH, own))] == ["purge", "purge"]  # type: ignore[arg-type]
    with pytest.raises(Refusal, match="never owns malloc here"):
        call.find_return_ways(Asked(heap("never", True, None), own))  # type: ignore[arg-type]


def test_one_refusal_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was done is told, with the refusal beside it; where nothing was done, it is refused."""

    def return_memory(session: Any, options: Any, command: str, portion: Any) -> Any:
        if session.allocator_id in options:
            raise Refusal("locked")
        return SimpleNamespace(data={"returned": 0})

    monkeypatch.setattr(call, "return_heap_memory", return_memory)
    session = Asked(*BOTH)
    assert [(name, way, done.data) for name, way, done in call.release_memory(session, ["je"])] == [("tc", "purge", {"returned": 0})]  # type: ignore[arg-type]
    assert [told[2] for told in session.problems] == ["locked"]
    with pytest.raises(Refusal, match="locked"):
        call.release_memory(Asked(*BOTH), ["je", "tc"])  # type: ignore[arg-type]

OWN, BASE = 0x7000, 0x8000


def ask(default: Optional[int], base: Dict[str, int], arena: int = 3) -> None:
    """The check for arena 3, whose base_t has these fields."""
    symbol = SimpleNamespace(address=default) if default is not None else None
    symbols = SimpleNamespace(find=lambda name: symbol if name == "ehooks_default_extent_hooks" else None)
    view = SimpleNamespace(get=lambda *names: next((base[name] for name in names if name in base), None))
    listed: Any = SimpleNamespace(index=3, read=lambda: {"base": BASE})
    context: Any = SimpleNamespace(symbols=symbols, view=lambda name, address: view)
    plan.check_extent_hooks(context, [listed], arena)


@pytest.mark.parametrize("name", ["ehooks.ptr", "extent_hooks"])
def test_of_jemalloc(name: str) -> None:
    """Its own do what is known."""
    ask(OWN, {name: OWN})


@pytest.mark.parametrize("default, base", [(None, {"ehooks.ptr": OWN}), (OWN, {}), (OWN, {"ehooks.ptr": 0})])
def test_unknown_is_refused(default: Optional[int], base: Dict[str, int]) -> None:
    """Neither a build whose default hooks have no name nor an arena whose hooks cannot be read is taken for harmless."""
    with pytest.raises(Refusal, match="cannot determine"):
        ask(default, base)


def test_of_the_program() -> None:
    """The arena is named."""
    with pytest.raises(Refusal, match="arena 3 uses custom extent hooks"):
        ask(OWN, {"ehooks.ptr": OWN + 8})


def test_other_arenas_do_not_matter() -> None:
    """Only those that are purged."""
    ask(OWN, {"ehooks.ptr": OWN + 8}, arena=2)

ENTRY, PC, SP, MASK = 0x401000, 0x7F0000001000, 0x7FFF00001000, 5


def finished(
    monkeypatch: pytest.MonkeyPatch, stops: List[Tuple[Optional[int], int, int]], is_called: bool = True, mask: int = 9, waiting: int = 0
) -> Tuple[List[Any], List[str]]:
    """What is asked of ptrace once the thread is seized, and what is set, where it stops like this: (signal, program counter, stack pointer)."""
    asked: List[Any] = []
    made: List[str] = []
    names = {tracer.PTRACE_CONT: "on", tracer.PTRACE_DETACH: "go", tracer.PTRACE_INTERRUPT: "stop", tracer.PTRACE_SEIZE: "seize"}
    one = Standby(os.getpid(), 7, [], [], ENTRY)
    one._before = Before([(1, b"before"), (2, b"vectors")], MASK, ())
    at: List[Tuple[int, int]] = []

    def call(request: int, lwp: int, address: int = 0, data: int = 0) -> int:
        if request in names:
            asked.append((names[request], data))
        return 0

    def stop() -> Optional[int]:
        number, *there = stops.pop(0)
        at.append((there[0], there[1]))
        return number

    monkeypatch.setattr(one, "_call_ptrace", call)
    monkeypatch.setattr(one, "_wait_stop", stop)
    monkeypatch.setattr(one, "_read_mask", lambda: mask)
    monkeypatch.setattr(one, "_set_mask", lambda mask: made.append("mask %d" % mask))
    monkeypatch.setattr(Standby, "_read_position", staticmethod(lambda words: [PC, SP] if words == b"before" else list(at[-1])))
    monkeypatch.setattr(tracer, "register_set", lambda lwp, number: b"now")
    monkeypatch.setattr(tracer, "set_register_set", lambda lwp, number, data: made.append(data.decode()))
    monkeypatch.setattr(tracer, "spare_traced_thread", lambda lwp: False)
    monkeypatch.setattr(finisher.procfs, "read_process_status", lambda lwp: {"SigPnd": "%x" % waiting})
    one.finish(is_called)
    assert asked[:2] == [("seize", 0), ("stop", 0)]
    return asked[2:], made

SET_BACK = ["before", "vectors", "mask %d" % MASK]


@pytest.mark.parametrize(("fault", "pc"), [(signal.SIGTRAP, ENTRY), (signal.SIGTRAP, ENTRY + 1), (signal.SIGSEGV, SP - 300), (signal.SIGTRAP, SP - 299)])
def test_a_call_comes_to_its_end(monkeypatch: pytest.MonkeyPatch, fault: int, pc: int) -> None:
    """It runs on until it returns, whatever signals come; then all is set back, and the fault is not handed on."""
    asked, made = finished(monkeypatch, [(0, PC + 900, SP - 4000), (signal.SIGUSR1, PC + 950, SP - 3000), (int(fault), pc, SP - 400)])
    assert asked == [("on", 0), ("on", signal.SIGUSR1), ("go", 0)] and made == SET_BACK


def test_a_fault_of_the_call_itself_is_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is handed on, and the process ends as it would have."""
    asked, made = finished(monkeypatch, [(0, PC + 900, SP - 4000), (signal.SIGSEGV, PC + 950, SP - 3000), (None, 0, 0)])
    assert asked == [("on", 0), ("on", signal.SIGSEGV)] and made == []


def test_no_call_had_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread stands where it was: half of its registers may be the call's already."""
    assert finished(monkeypatch, [(0, PC, SP)]) == ([("go", 0)], SET_BACK)


@pytest.mark.parametrize(("is_called", "sp", "mask"), [(False, SP - 64, 9), (True, SP + 64, 9), (True, SP - 64, MASK)])
def test_the_program_runs_already(monkeypatch: pytest.MonkeyPatch, is_called: bool, sp: int, mask: int) -> None:
    """Its registers are its own; only its mask is set back."""
    assert finished(monkeypatch, [(0, PC + 8, sp)], is_called, mask) == ([("go", 0)], ["mask %d" % MASK])


def test_a_fault_that_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a call which was over is taken away once the mask lets it in."""
    waiting = 1 << signal.SIGTRAP - 1
    assert finished(monkeypatch, [(0, PC, SP), (signal.SIGTRAP, PC, SP)], False, waiting=waiting) == ([("on", 0), ("go", 0)], SET_BACK)


def test_code_is_as_before() -> None:
    """What gdb has written over it is taken out: in code that nobody writes, and nowhere else."""
    page = os.sysconf("SC_PAGESIZE")
    code = [Mapping(page, 2 * page, True, False, True, False, "code", None), Mapping(4 * page, 5 * page, True, True, True, False, "jit", None)]
    assert Standby(os.getpid(), 7, [page + 5, 4 * page + 5, 9 * page], code, ENTRY)._breakpoints == [page + 5]


def allowed_from(least: int, written: List[int]) -> Any:
    """A stand-in for the kernel, which lets a process go no lower."""

    def write(path: str, data: bytes) -> bool:
        if int(data) < least:
            return False
        written.append(int(data))
        return True

    return write


@pytest.mark.parametrize(("before", "least", "reached"), [(0, -1000, -1000), (1000, 0, 0), (300, -17, -17), (0, 0, 0), (-1000, -1000, -1000)])
def test_the_lowest_that_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int, least: int, reached: int) -> None:
    """gdb is the last to be taken while it calls, as far as that is permitted, and as before then."""
    file, written = tmp_path / "oom_score_adj", []  # type: Path, List[int]
    file.write_text("%d\n" % before)
    monkeypatch.setattr(finisher, "_try_write", allowed_from(least, written))
    with kept_alive(str(file)):
        assert (written or [before])[-1] == reached and len(written) <= 11
    assert written[-1] == before


def test_without_that_file(tmp_path: Path) -> None:
    """Where it is not there, nothing is done."""
    with kept_alive(str(tmp_path / "none")):
        pass
    assert not list(tmp_path.iterdir())
