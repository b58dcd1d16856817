"""Which contradictions of a heap are told, and which are called a change under way.

Files: glibc/arenas.py, inferior/base.py, allocators/answers.py.
"""

from typing import Any, List, NamedTuple, Optional, Sequence, Set

import pytest

from gdbheapx.allocators import answers
from gdbheapx.glibc import codes
from gdbheapx.glibc.arenas import Context, report_arena, tell_unless_changing
from gdbheapx.inferior import base
from gdbheapx.inferior.base import Thread
from gdbheapx.problems import Diagnostic, ProblemCode

CODE, WAITING = 0x1000, 0x2000
"""Where the object's code lies, and what stands behind a system call there."""
GETPID, MUNMAP = 39, 11


class FakeArena(NamedTuple):
    """What is asked of an arena."""

    address: int
    state: Any
    title: str = "arena 0"


class FakeTarget:
    """A process of which each thread stands at one of these places, in a system call or not."""

    def __init__(self, kind: str, pcs: Sequence[int], system_call: int = GETPID) -> None:
        from gdbheapx.arch import architecture_named

        self.kind, self._pcs, self.arch, self._call = kind, pcs, architecture_named("i386:x86-64"), system_call

    def threads(self) -> List[Thread]:
        return [Thread(lwp, None, None, None, pc) for lwp, pc in enumerate(self._pcs, 1)]

    def code_ranges(self, module: Any) -> Sequence[Any]:
        return [(CODE, WAITING + 1)]

    def read_prefix(self, address: int, size: int) -> bytes:
        return b"\x0f\x05" if address == WAITING - 2 else b"\x90\x90"

    def register_words(self, thread: Thread) -> Sequence[int]:
        names = self.arch.registers.names  # type: ignore[union-attr]
        return [self._call if name == "orig_rax" else 0 for name in names]


def context_of(target: Any, told: List[ProblemCode]) -> Any:
    """A context that collects codes."""

    class Glibc(NamedTuple):
        module: Any = None

    def report(code: ProblemCode, address: Optional[int], what: str, hint: Optional[str]) -> None:
        told.append(code)

    return Context(target, Glibc(), None, None, None, report, None, tuple)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "pcs, system_call, running",
    [([CODE], GETPID, {1}), ([WAITING], GETPID, set()), ([WAITING], MUNMAP, {1}), ([WAITING], (1 << 64) - 1, {1}), ([0x9000, CODE], GETPID, {2})],
)
def test_who_runs_in_an_object(pcs: Sequence[int], system_call: int, running: Set[int]) -> None:
    """Not who waits in a system call, but for those that an allocator itself makes; not who has just come back from one."""
    target: Any = FakeTarget("live", pcs, system_call)
    assert base.find_running_threads(target, None) == running  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "kind, mutex, pcs, is_changing",
    [
        ("live", 0, [WAITING], False),
        ("live", 1, [WAITING], True),
        ("live", 0, [CODE], True),
        ("live", 0, [CODE, CODE], False),
        ("core", 1, [CODE], False),
    ],
)
def test_an_arena_in_the_middle_of_a_change(kind: str, mutex: int, pcs: Sequence[int], is_changing: bool) -> None:
    """Its mutex is held, or the only thread, which takes none, stands in malloc's object. A core tells what does not add up."""
    told: List[ProblemCode] = []
    arena: Any = FakeArena(0x5000, {"mutex": mutex})
    report_arena(context_of(FakeTarget(kind, pcs), told), arena, [Diagnostic(codes.CHUNK_SMALL, 0x5010, "too small", None)])
    assert told == [codes.ARENA_CHANGING if is_changing else codes.CHUNK_SMALL]


@pytest.mark.parametrize("kind, pcs, code", [("live", [CODE, WAITING], codes.MAPPED_CHANGING), ("live", [WAITING], codes.MAPPED_MISSING), ("core", [CODE], codes.MAPPED_MISSING)])
def test_what_no_mutex_guards(kind: str, pcs: Sequence[int], code: ProblemCode) -> None:
    """It may be changed by each thread that stands in malloc's object."""
    told: List[ProblemCode] = []
    complaint = Diagnostic(codes.MAPPED_MISSING, None, "one is missing", None)
    tell_unless_changing(context_of(FakeTarget(kind, pcs), told), [complaint], codes.MAPPED_CHANGING, "being made or freed")
    assert told == [code]


@pytest.mark.parametrize("pcs, code", [([CODE], codes.ARENA_CHANGING), ([WAITING], codes.CHUNK_SMALL)])
def test_allocators_without_a_lock_for_each_arena(pcs: Sequence[int], code: ProblemCode) -> None:
    """Damage is called a change while a thread stands in their object; what cannot be read stays what it is."""
    told: List[ProblemCode] = []
    target: Any = FakeTarget("live", pcs)
    report = answers.call_changing(target, None, codes.ARENA_CHANGING, context_of(target, told).report)  # type: ignore[arg-type]
    report(codes.CHUNK_SMALL, 1, "too small", None)
    report(codes.LIST_UNREAD, 1, "unread", None)
    assert told == [code, codes.LIST_UNREAD]
