"""Check the preconditions of any change in a process, each refusal in one sentence, and measure its memory before and after.

Whether a thread may make the system calls of a call is decided by its seccomp filters, or by trying them in a child under the same filters.
"""

import ctypes
import errno
import mmap
import os
import select
import signal
import time
import warnings
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.allocators.plan import Change, Measure, SystemCall
from gdbheapx.allocators.session import Session
from gdbheapx.common import problems
from gdbheapx.common.errors import HeapxError, Refusal
from gdbheapx.common.problems import GDB_MISSING, NOT_CONFIRMED, NOT_LIVE
from gdbheapx.inferior.base import Target
from gdbheapx.inferior.live import procfs, seccomp
from gdbheapx.inferior.live.seccomp import DISABLED, STRICT, SeccompRules
from gdbheapx.inferior.live.tracer import UNSTOPPABLE
from gdbheapx.inferior.target import ElfTarget

if TYPE_CHECKING:
    from gdbheapx.inferior.gdb.target import GdbTarget


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
        """`%s` in its reason is replaced by the thread."""
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
                    fails = "makes %%s fail (%s)" % os.strerror(number) if number else "leaves %s out as if it had succeeded"
                    return self._make_forbidden(call, fails)
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


def threads_of(pid: int) -> List[Tuple[int, str]]:
    """Every thread of the program with its name, the main thread first."""
    lwps = sorted(procfs.list_thread_ids(pid), key=lambda lwp: (lwp != pid, lwp))
    named = [(lwp, procfs.thread_name(pid, lwp)) for lwp in lwps]
    return [(lwp, "thread %d (%s)" % (lwp, name or "?")) for lwp, name in named if not procfs.is_kernel_worker(pid, lwp, name)]


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


MEASURED = ("Anonymous", "Rss", "Swap")
SIGSEGV, SIGTRAP = 11, 5
UNSTOPPABLE_LOOKS, UNSTOPPABLE_PAUSE_S = 20, 0.01
"""Who waits in the kernel at each of so many looks is not just waiting for a page."""
PERMISSIONS = (
    ("may-call-functions", "function calls are disabled in this gdb (may-call-functions)", "set may-call-functions on"),
    ("observer", "this gdb may not change the process (observer mode)", "set observer off"),
    ("may-write-registers", "this gdb may not write registers (may-write-registers)", "set may-write-registers on"),
    ("may-write-memory", "this gdb may not write memory (may-write-memory)", "set may-write-memory on"),
)


def require_live(session: Session, what: str, instead: str) -> "GdbTarget":
    """The target as one that can be changed: a process of this machine."""
    target = session.target
    if target.kind == "core":
        raise Refusal("a core cannot be %s: there is no process to call a function in" % what, instead, code=NOT_LIVE)
    require_gdb(target, what)
    if target.kind != "live" or not hasattr(target, "gdb_holds"):
        raise Refusal("a remote process cannot be %s from here" % what, "run gdbheapx on the machine where it runs", code=NOT_LIVE)
    if target.pid and procfs.proc_entry_number(target.pid) != target.pid:
        what = "its main thread has ended, and gdb attaches to no such process, so it cannot be %s" % what
        raise Refusal("process %d: %s" % (target.pid, what), "every command that only reads works")
    return target  # type: ignore[return-value]


def require_gdb(target: Target, what: str) -> None:
    """gdb reads it: what changes a process is gdb's work."""
    if target.kind == "live" and target.debugger_version is None:
        refused = "a process can be %s only by gdb, which is not in use here" % what
        raise Refusal(refused, "install gdb, and omit --gdb none", code=GDB_MISSING)


def require_permitted(is_call: bool) -> None:
    """gdb's own settings allow it."""
    from gdbheapx.inferior.gdb.target import read_gdb_setting  # there is no such module without gdb

    for name, what, hint in PERMISSIONS:
        wrong = read_gdb_setting(name) == ("on" if name == "observer" else "off")
        if wrong and (is_call or name != "may-call-functions"):
            raise Refusal(what, hint)


def check_beforehand(change: Change, is_accepted: bool) -> Sandbox:
    """Raise a Refusal if something forbids a change at any moment; called while the process runs, since it reads symbol tables and other
    files. The returned sandbox is checked again when all threads are stopped. `is_accepted`: --accept-seccomp.
    """
    if change.target.debugger_version is not None:
        require_permitted(change.is_call)
    if change.is_call:
        callable_here(change.target)
    require_writable(change.target.pid or 0)
    change.check()
    sandbox = Sandbox(change.target, change.system_calls, change.shown, is_accepted)
    if change.is_call:
        sandbox.check_all()
    return sandbox


def callable_here(target: Target) -> None:
    """Calls were tried on this kind of machine, and the process lets a call come back."""
    target.arch.to_call()
    fields = procfs.read_process_status(target.pid or 0)
    ignored = int(fields.get("SigIgn", "0") or "0", 16)
    for number, name in ((SIGSEGV, "SIGSEGV"), (SIGTRAP, "SIGTRAP")):
        if ignored >> number - 1 & 1:
            what = "the process ignores %s, which gdb needs to regain control after a call; the kernel would kill the process instead"
            raise Refusal(what % name, "--dry-run works here")
    if int(fields.get("ShdPnd", "0") or "0", 16) & 2:
        raise Refusal("a SIGINT is pending: the process is about to exit", "retry")


def require_writable(pid: int) -> None:
    """The process's memory may be written, and not only read: gdb that may not is refused each time it tries, while all is stopped."""
    try:
        os.close(os.open("/proc/%d/mem" % pid, os.O_RDWR | os.O_CLOEXEC))
    except PermissionError:
        why = procfs.why_not_permitted(pid, writing=True)
        raise Refusal(why.message, why.hint, code=problems.NOT_WRITABLE)
    except OSError:
        return  # it has ended: that is told elsewhere


def ensure_in_ram(target: Target, look: Callable[[], object]) -> None:
    """Bring in from swap the memory that will be read, and that a call then touches, if there is room. `look` reads all of that; where
    not everything in swap has room it is done now, while the process runs.
    """
    room = target.swap_room()
    if room is None or room.lacking() is None:
        return
    try:
        look()
    except HeapxError:
        pass  # of what changes meanwhile: it is looked at again when nothing does
    left_in_swap(target)


def left_in_swap(target: Target) -> None:
    """Refusal where a page was not read because it is in swap: a call would bring it in."""
    room = target.swap_room()
    if room is not None and room.refused:
        problem = next(iter(room.problems()))
        raise Refusal("%s; a call would do so as well" % problem.what, problem.hint, code=problem.code)


def vfork_child(pid: int) -> None:
    """The process must not live in its parent's memory, nor wait in vfork: a thread that waits there, or on a device, cannot be stopped at
    all."""
    fields = procfs.read_process_status(pid)
    parent = int(fields.get("PPid", "0") or 0)
    maps = [procfs.slurp_file("/proc/%d/maps" % one) for one in (pid, parent)] if parent and _find_unstoppable(parent) else []
    if maps and maps[0] and maps[0] == maps[1]:  # it lives in its parent's memory, which waits for it
        what = "process %d was just created by vfork and runs in the memory of process %d"
        raise Refusal(what % (pid, parent), "retry, or give the parent's pid")
    stuck = _find_unstoppable(pid)
    for _ in range(UNSTOPPABLE_LOOKS):
        if not stuck:
            return
        time.sleep(UNSTOPPABLE_PAUSE_S)
        stuck &= _find_unstoppable(pid)
    if stuck:
        who = (min(stuck), procfs.thread_name(pid, min(stuck)) or "?", UNSTOPPABLE)
        raise Refusal("thread %d (%s) %s" % who, "retry")


def _find_unstoppable(pid: int) -> Set[int]:
    """Threads in uninterruptible sleep: a debugger that attaches waits for them."""
    return {lwp for lwp in procfs.list_thread_ids(pid) if procfs.read_process_status(lwp).get("State", "").startswith("D")}


def require_confirmed(options: Any, question: str, otherwise: str = "--dry-run to predict the effect") -> None:
    """--yes, or a yes typed on the terminal itself: gdb's own question answers itself in batch. `otherwise`: what to do instead."""
    if options.yes:
        return
    answer: Optional[str] = None
    try:
        descriptor = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        what = "nothing was done: there is no terminal to ask for confirmation"
        raise Refusal(what, "add --yes, or " + otherwise, code=NOT_CONFIRMED)
    try:
        os.write(descriptor, ("%s [y/N] " % question).encode("utf-8", "replace"))
        answer = os.read(descriptor, 256).decode("utf-8", "replace").strip().lower()
    except OSError:
        pass
    finally:
        os.close(descriptor)
    if answer not in ("y", "yes"):
        raise Refusal("nothing was done: it was not confirmed", "answer y, or add --yes", code=NOT_CONFIRMED)


def measure_process(pid: int) -> Measure:
    """Anonymous, Rss and Swap of /proc/PID/smaps_rollup (Linux 4.14), which counts pages; VmRSS of status is late."""
    text = (procfs.slurp_file("/proc/%d/smaps_rollup" % pid) or b"").decode("ascii", "replace")
    sizes = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name in MEASURED and value.split()[:1] and value.split()[0].isdigit():
            sizes[name] = int(value.split()[0]) * 1024
    return Measure(*(sizes.get(name) for name in MEASURED))
