"""Every interpreter of a CPython is found, not only that of the thread that runs code.

Files: addons/runtimes/cpython/interpreter.py.
"""

from array import array
from types import SimpleNamespace
from typing import Any, Dict, List, Tuple

import pytest

from gdbheapx.addons.runtimes.cpython import interpreter

pytestmark = pytest.mark.once  # words, no process

RUNTIME, MAIN, SUB, OLDER = 0x600000, 0x601000, 0x700000, 0x710000
MAIN_STATE, SUB_STATE, OLDER_STATE = 0x602000, 0x720000, 0x730000
POINTERS = {MAIN_STATE: 0x7F0000001000, SUB_STATE: 0x7F0000002000, OLDER_STATE: 0x7F0000003000}


def make_state(state: int, owner: int, pointer: int) -> Dict[int, int]:
    """Words of struct _ts: prev, next, interp, and the thread in it."""
    return {state: 0, state + 8: 0, state + 16: owner, state + 80: pointer}


def read_interpreters(newest: int, running: int, threads: List[int], monkeypatch: pytest.MonkeyPatch) -> List[Tuple[int, List[int]]]:
    """Two sub-interpreters beside the main one: SUB leads to OLDER, that to MAIN. `newest`: what _PyRuntime has in front of the main one."""
    memory: Dict[int, int] = {SUB: OLDER, SUB + 16: SUB_STATE, OLDER: MAIN, OLDER + 16: OLDER_STATE, MAIN: 0, MAIN + 16: MAIN_STATE}
    for state, owner in ((MAIN_STATE, MAIN), (SUB_STATE, SUB), (OLDER_STATE, OLDER)):
        memory.update(make_state(state, owner, POINTERS[state]))
    memory.update({RUNTIME + 8: newest, RUNTIME + 16: MAIN, RUNTIME + 64: running})
    segment = array("Q", [memory.get(RUNTIME + 8 * place, 0) for place in range(0x1000)])

    def read_words(address: int, count: int) -> Tuple[int, ...]:
        return tuple(memory.get(address + 8 * place, 0) for place in range(count))

    target = SimpleNamespace(
        threads=lambda: [SimpleNamespace(thread_pointer=pointer) for pointer in threads], image_ranges=list, modules=list, words_in=lambda data: data
    )
    world = SimpleNamespace(target=target, words=read_words, read=lambda address, size: read_words(address, min(size, 512) // 8))
    values: Any = SimpleNamespace(world=world, types=SimpleNamespace(root=SimpleNamespace(type=0)))
    monkeypatch.setattr(interpreter, "find_module_at", lambda target, address: None)
    monkeypatch.setattr(interpreter, "_find_sys_modules", lambda values, data, owner: owner + 8 if owner in (MAIN, SUB, OLDER) else 0)
    return [(each.address, list(each.threads)) for each in interpreter.find_interpreters(values, [(RUNTIME, segment)])]


@pytest.mark.parametrize("running", [MAIN_STATE, SUB_STATE, 0])
def test_sub_interpreters_are_found(running: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The main one comes first, whatever runs now."""
    every = [(MAIN, [MAIN_STATE]), (OLDER, [OLDER_STATE]), (SUB, [SUB_STATE])]
    found = read_interpreters(SUB, running or MAIN_STATE, list(POINTERS.values()), monkeypatch)
    assert found[0] == every[0] and sorted(found) == sorted(every)


def test_only_states_of_threads_are_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without sub-interpreters has one; one that no thread of the C library belongs to is left out, unless there is no other."""
    assert read_interpreters(MAIN, MAIN_STATE, [POINTERS[MAIN_STATE]], monkeypatch) == [(MAIN, [MAIN_STATE])]
    assert read_interpreters(SUB, MAIN_STATE, [POINTERS[MAIN_STATE]], monkeypatch) == [(MAIN, [MAIN_STATE])]
    assert read_interpreters(SUB, MAIN_STATE, [], monkeypatch) == [(MAIN, [MAIN_STATE])]
