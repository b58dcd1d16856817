"""gdbheapx/actions/preflight.py and inferior/live/tracer.py: what filters answer, by programs written here.

Files: glibc/plan.py, jemalloc/plan.py.
"""

import struct
from types import SimpleNamespace
from typing import Any, List, Optional, Sequence, Tuple

import pytest

from gdbheapx.actions import preflight as rules
from gdbheapx.allocators.plan import SystemCall
from gdbheapx.common.errors import HeapxError, Refusal
from gdbheapx.inferior import arch
from gdbheapx.inferior.live import seccomp
from gdbheapx.inferior.live.seccomp import ALLOW, ERRNO, KILL_PROCESS, KILL_THREAD, LOG, NOTIFY, TRACE, TRAP, SeccompRules

LOAD, RETURN, RETURN_A = 0x20, 0x06, 0x16
JEQ, JGE, JSET = 0x15, 0x35, 0x45
MADVISE = 28
PLAIN = (SystemCall("madvise", (None, None, 4)), SystemCall("mmap", may_fail=True))
Line = Tuple[int, int, int, int]


def program(*lines: Line) -> bytes:
    """(code, jump if true, jump if false, constant) each."""
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def one(number: int, action: int) -> bytes:
    """This action for one system call, else it is allowed."""
    return program((LOAD, 0, 0, 0), (JEQ, 0, 1, number), (RETURN, 0, 0, action), (RETURN, 0, 0, ALLOW))


def of_argument(place: int, jump: int, value: int, high: bool = False) -> bytes:
    """Kills where an argument meets the test."""
    offset = 16 + 8 * place + (4 if high else 0)
    return program((LOAD, 0, 0, offset), (jump, 0, 1, value), (RETURN, 0, 0, KILL_PROCESS), (RETURN, 0, 0, ALLOW))


def test_strictest_of_all_filters() -> None:
    """The kernel takes the strictest answer of all filters, whichever is newer."""
    order = [KILL_PROCESS, KILL_THREAD, TRAP, ERRNO | 1, NOTIFY, TRACE, LOG, ALLOW]
    for place, strict in enumerate(order):
        for mild in order[place:]:
            for filters in ([one(MADVISE, strict), one(MADVISE, mild)], [one(MADVISE, mild), one(MADVISE, strict)]):
                assert seccomp.compute_filter_answers(filters, MADVISE, ()) == {strict}
    assert seccomp.compute_filter_answers([], MADVISE, ()) == {ALLOW}


def test_unknown_arguments_take_both_ways() -> None:
    """A known argument decides; an unknown one may go either way."""
    assert seccomp.run_seccomp_program(of_argument(2, JEQ, 4), MADVISE, (None, None, 4)) == {KILL_PROCESS}
    assert seccomp.run_seccomp_program(of_argument(2, JEQ, 4), MADVISE, (None, None, 8)) == {ALLOW}
    assert seccomp.run_seccomp_program(of_argument(2, JEQ, 0, high=True), MADVISE, (None, None, 8)) == {KILL_PROCESS}
    for jump in (JEQ, JGE, JSET):
        assert seccomp.run_seccomp_program(of_argument(1, jump, 1 << 20), MADVISE, (None, None, 4)) == {KILL_PROCESS, ALLOW}
    assert seccomp.run_seccomp_program(of_argument(1, JSET, 0), MADVISE, ()) == {ALLOW}


@pytest.mark.parametrize(
    "lines",
    [
        [(LOAD, 0, 0, 0)],
        [(LOAD, 0, 0, 6), (RETURN, 0, 0, ALLOW)],
        [(LOAD, 0, 0, 8), (RETURN_A, 0, 0, 0)],
        [(0x00, 0, 0, 1), (0x34, 0, 0, 0), (RETURN, 0, 0, ALLOW)],
        [(0xFF, 0, 0, 1), (RETURN, 0, 0, ALLOW)],
    ],
    ids=["no end", "no such word", "answers by an address", "by zero", "no instruction"],
)
def test_what_is_not_understood(lines: Sequence[Line]) -> None:
    """No answer is made up."""
    with pytest.raises(HeapxError):
        seccomp.run_seccomp_program(program(*lines), MADVISE, ())


def test_bounded() -> None:
    """A program made to have 2^40 ways ends with an error, soon."""
    lines: List[Line] = []
    for bit in range(40):
        lines += [(LOAD, 0, 0, 16), (JSET, 0, 3, 1 << bit % 32), (0x60, 0, 0, 1), (0x04, 0, 0, 1 << bit % 32), (0x02, 0, 0, 1)]
    with pytest.raises(HeapxError):
        seccomp.run_seccomp_program(program(*lines, (RETURN, 0, 0, ALLOW)), MADVISE, ())


def sandbox(monkeypatch: Any, filters: Optional[Sequence[bytes]], mode: int = 2, accepted: bool = False) -> rules.Sandbox:
    """Of a process whose only thread is under these filters; None: nobody gives them."""

    def fetch(lwp: int) -> List[bytes]:
        if filters is None:
            raise HeapxError("not given")
        return list(filters)

    monkeypatch.setattr(seccomp, "may_fetch", lambda: True)
    monkeypatch.setattr(seccomp, "read_seccomp_rules", lambda lwp: SeccompRules(mode, 1))
    target: Any = SimpleNamespace(pid=1, knows_filters=True, seccomp_filters=fetch)
    return rules.Sandbox(target, PLAIN, "f(0)", accepted)


@pytest.mark.parametrize(
    "answer, forbids",
    [(ALLOW, False), (LOG, False), (TRACE, True), (NOTIFY, True), (ERRNO | 1, True), (ERRNO, True), (TRAP, True), (0, True)],
)
def test_judgement(monkeypatch: Any, answer: int, forbids: bool) -> None:
    """madvise must be made; mmap may fail, which it may not as if it had succeeded."""
    assert (sandbox(monkeypatch, [one(MADVISE, answer)]).against(7, "thread 7") is not None) == forbids
    about_mmap = sandbox(monkeypatch, [one(9, answer)]).against(7, "thread 7")
    assert (about_mmap is not None) == (forbids and answer not in (ERRNO | 1, TRACE))


def test_modes(monkeypatch: Any) -> None:
    """No seccomp: nothing is asked. Strict: forbidden whatever is accepted. Unknown filters: the user may accept them."""
    assert sandbox(monkeypatch, None, mode=0).against(7, "it") is None
    assert sandbox(monkeypatch, None, mode=1, accepted=True).against(7, "it") is not None
    unknown = sandbox(monkeypatch, None).against(7, "it")
    assert unknown is not None and rules.ACCEPT in unknown.hint
    assert sandbox(monkeypatch, None, accepted=True).against(7, "it") is None
    assert sandbox(monkeypatch, [one(MADVISE, 0)], accepted=True).against(7, "it") is not None, "what is known to kill is never accepted"
    with pytest.raises(Refusal):
        sandbox(monkeypatch, [one(MADVISE, 0)]).check([(7, "it"), (8, "other")])


def test_tried_in_a_child() -> None:
    """Here nothing forbids any of the calls that allocators make."""
    from gdbheapx.glibc.plan import Trim
    from gdbheapx.jemalloc.plan import SYSTEM_CALLS

    for calls in (Trim.system_calls, SYSTEM_CALLS):
        found = rules.try_syscalls(calls)
        assert sorted(found) == list(range(len(calls)))
        assert not [what for place, what in found.items() if what and not calls[place].may_fail]
        assert all(
            call.name in known.system_calls.numbers
            for call in calls
            for known in map(arch.architecture_named, arch.REGISTRY)
            if known.system_calls
        )
