"""Which thread may make a call, and which stand inside an allocator, without gdb.

Files: actions/calling.py, inferior/base.py, jemalloc/plan.py.
"""

from typing import Any, List, Optional, Sequence, Tuple

import pytest

from gdbheapx.actions import calling
from gdbheapx.actions.calling import ForbiddenCode
from gdbheapx.allocators.plan import Held, Span
from gdbheapx.arch import architecture_named
from gdbheapx.inferior.base import Frame, Mapping, Member, StoppedThread, StructType, TypeSet
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
