"""Decide whether a thread may make the system calls of a call: by its seccomp filters, or by trying them in a child under the same
filters.
"""

import ctypes
import errno
import mmap
import os
import select
import signal
import time
import warnings
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import problems
from gdbheapx.allocators.plan import SystemCall
from gdbheapx.errors import HeapxError, Refusal
from gdbheapx.inferior.live import procfs, seccomp
from gdbheapx.inferior.live.seccomp import DISABLED, STRICT, SeccompRules
from gdbheapx.inferior.target import ElfTarget

KILLED, HUNG = "killed", "hung"
TRIAL_S = 2.0
PR_SET_DUMPABLE = 4
PAGE = mmap.PAGESIZE
DEADLY = {
    seccomp.KILL_PROCESS: "kills the process for %s",
    seccomp.KILL_THREAD: "kills the thread for %s",
    seccomp.TRAP: "raises SIGSYS for %s",
    seccomp.NOTIFY: "hands %s to another process, which may not answer",
}
ACCEPT = "--accept-seccomp"


class Objection(NamedTuple):
    """Reason why a thread may not be called on."""

    reason: str
    hint: str


class Sandbox:
    """The rules of every thread of one process, for these system calls. `shown`: the call that makes them."""

    def __init__(self, target: ElfTarget, calls: Sequence[SystemCall], shown: str, accepted: bool) -> None:
        self.pid, self.calls, self.shown, self.accepted = target.pid or 0, calls, shown, accepted
        self._target = target
        self._known: Dict[Tuple[bytes, ...], Optional[Objection]] = {}
        self._fetched: Dict[Tuple[int, SeccompRules], List[bytes]] = {}
        self._tried: Optional[Dict[int, str]] = None
        self._threads: Optional[List[Tuple[int, str]]] = None
        """All, if one of them is under seccomp."""

    def against(self, lwp: int, who: str) -> Optional[Objection]:
        """Return the objection to a call on this thread; None if there is none. While the process runs, facts that only its filters show
        are not asked for.
        """
        rules = seccomp.read_seccomp_rules(lwp)
        if rules.mode == DISABLED:
            return None
        if rules.mode == STRICT:
            reason = "%s is under strict seccomp: the kernel would kill it for %s" % (who, self.calls[0].name)
            return Objection(reason, "a thread in strict mode cannot return memory")
        if seccomp.may_fetch():
            return self._by_filters(lwp, rules, who) if self._target.knows_filters else None
        if self._is_as_here(rules):
            return self._by_trial(who)
        return self._make_unknown(who, "they can be read only with CAP_SYS_ADMIN and outside any seccomp filter")

    def check_all(self) -> None:
        """Refusal where something speaks against every thread that there was at first."""
        if self._threads is None:
            threads = threads_of(self.pid)
            self._threads = threads if any(seccomp.read_seccomp_rules(lwp).mode != DISABLED for lwp, _ in threads) else []
        self.check(self._threads)

    def check(self, threads: Sequence[Tuple[int, str]]) -> Dict[int, str]:
        """(lwp, how it is called): what speaks against each. Refusal where something speaks against every one."""
        objections = [(lwp, self.against(lwp, who)) for lwp, who in threads]
        against = {lwp: objection for lwp, objection in objections if objection is not None}
        if threads and len(against) == len(threads):
            first = against[threads[0][0]]
            raise Refusal(first.reason, first.hint, code=problems.SECCOMP)
        return {lwp: objection.reason for lwp, objection in against.items()}

    def _by_filters(self, lwp: int, rules: SeccompRules, who: str) -> Optional[Objection]:
        key = (lwp, rules)
        try:
            if key not in self._fetched or rules.filters is None:
                self._fetched[key] = self._target.seccomp_filters(lwp)
            filters = tuple(self._fetched[key])
            if filters not in self._known:
                self._known[filters] = self._judge_filters(filters)
        except HeapxError as error:
            return self._make_unknown(who, error.message)
        objection = self._known[filters]
        return None if objection is None else objection._replace(reason=objection.reason % who)

    def _judge_filters(self, filters: Sequence[bytes]) -> Optional[Objection]:
        """`%s` in its reason stands for the thread."""
        for call in self.calls:
            for answer in sorted(seccomp.compute_filter_answers(filters, seccomp.system_calls().numbers[call.name], call.arguments)):
                action, number = answer & 0xFFFF0000, answer & 0xFFFF
                if action in (seccomp.ALLOW, seccomp.LOG):
                    continue
                if action == seccomp.TRACE:  # gdb, which is the tracer, does not ask for these events
                    action, number = seccomp.ERRNO, errno.ENOSYS
                if action != seccomp.ERRNO:
                    return self._make_forbidden(call, DEADLY.get(action, DEADLY[seccomp.KILL_PROCESS]))
                if not call.may_fail or not number:
                    return self._make_forbidden(call, describe_filter_errno(number))
        return None

    def _make_forbidden(self, call: SystemCall, what: str) -> Objection:
        reason = "the seccomp filter of %%s %s, and %s may need that" % (what % call.name, self.shown.replace("%", "%%"))
        return Objection(reason, "restart the program with a filter that allows %s" % call.name)

    def _is_as_here(self, rules: SeccompRules) -> bool:
        """The thread is under the same filters as this process: those of one container, as many of them."""
        mine = seccomp.read_seccomp_rules(os.getpid())
        return (mine.mode, mine.filters) == (rules.mode, rules.filters) and rules.filters is not None and seccomp.same_container(self.pid)

    def _by_trial(self, who: str) -> Optional[Objection]:
        if self._tried is None:
            self._tried = try_syscalls(self.calls)
        for place, call in enumerate(self.calls):
            outcome = self._tried.get(place, HUNG)
            if outcome in (KILLED, HUNG) or outcome and not call.may_fail:
                what = {KILLED: DEADLY[seccomp.KILL_PROCESS], HUNG: DEADLY[seccomp.NOTIFY]}.get(outcome, "makes %%s fail (%s)" % outcome)
                objection = self._make_forbidden(call, what)
                return objection._replace(reason=objection.reason % who)
        return None

    def _make_unknown(self, who: str, why: str) -> Optional[Objection]:
        if self.accepted:
            return None
        names = " and ".join(dict.fromkeys(call.name for call in self.calls[:2]))
        reason = "%s is under seccomp filters that cannot be read here (%s): one that kills for %s would end the process"
        return Objection(reason % (who, why, names), "run it as root outside the container, or accept the risk with %s" % ACCEPT)


def describe_filter_errno(number: int) -> str:
    """Describe a filter that answers with this error; `%s` is replaced by the system call."""
    return "makes %%s fail (%s)" % os.strerror(number) if number else "leaves %s out as if it had succeeded"


def threads_of(pid: int) -> List[Tuple[int, str]]:
    """Every thread with its name, the main thread first."""
    lwps = sorted(procfs.list_thread_ids(pid), key=lambda lwp: (lwp != pid, lwp))
    return [(lwp, "thread %d (%s)" % (lwp, procfs.thread_name(pid, lwp) or "?")) for lwp in lwps]


# ---------------------------------------------------------------------------------------------------- in a child


def try_syscalls(calls: Sequence[SystemCall], seconds: float = TRIAL_S) -> Dict[int, str]:
    """Try each call in a child of this process and return its result by its place: empty if it was made, the error in words, KILLED or
    HUNG. Calls after one that killed or hung are missing.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of forks of a process with threads: this child only makes system calls
        child = os.fork()
    if not child:
        try:
            _try_out(calls, writing)
        finally:
            os._exit(0)
    os.close(writing)
    text, is_late, deadline = b"", False, time.monotonic() + seconds
    while True:
        if not select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
            is_late = True
            break
        piece = os.read(reading, 4096)
        if not piece:
            break
        text += piece
    os.close(reading)
    try:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    except OSError:
        pass  # gdb waits for every child of its own, and was quicker
    done = [int(word) for word in text.split()]
    outcomes = {place: os.strerror(number) if number else "" for place, number in enumerate(done)}
    if len(done) < len(calls):
        outcomes[len(done)] = HUNG if is_late else KILLED
    return outcomes


def _try_out(calls: Sequence[SystemCall], writing: int) -> None:
    """Make each call in the child on a page of its own; its errno goes into the pipe."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.signal(int(signal.SIGSYS), ctypes.c_void_p(0))
    libc.syscall.restype = ctypes.c_long
    page = mmap.mmap(-1, 2 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    for call in calls:
        words: List[Any] = [ctypes.c_long(word) for word in _choose_arguments(call, address)]
        ctypes.set_errno(0)
        returned = libc.syscall(ctypes.c_long(seccomp.system_calls().numbers[call.name]), *words)
        number = ctypes.get_errno() if returned == -1 else errno.EPERM if call.name == "brk" and not returned else 0
        is_own = call.name == "futex" and number == errno.EAGAIN  # a waiter that finds another word than it expects
        os.write(writing, b"%d\n" % (0 if is_own else number))


def _choose_arguments(call: SystemCall, address: int) -> Sequence[int]:
    """Return arguments with which the call does no harm."""
    given = [argument or 0 for argument in call.arguments] + [0] * 6
    zeros = address + PAGE // 2
    by_name: Dict[str, Sequence[int]] = {
        "madvise": (address, PAGE, given[2]),
        "munmap": (address + PAGE, PAGE),
        "mprotect": (address, PAGE, mmap.PROT_READ | mmap.PROT_WRITE),
        "mmap": (0, PAGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0),
        "futex": (address, given[1], 1, 0, 0, 0),
        "brk": (0,),
        "clock_gettime": (1, address),
        "nanosleep": (zeros, 0),
        "clock_nanosleep": (1, 0, zeros, 0),
    }
    return by_name.get(call.name, ())
