"""Check the preconditions of any change in a process (each refusal is one sentence), and measure its memory before and after."""

import os
import time
from typing import TYPE_CHECKING, Any, Callable, Optional, Set

from gdbheapx import problems
from gdbheapx.actions.seccomp import Sandbox
from gdbheapx.allocators.plan import Change
from gdbheapx.allocators.returning import Measure
from gdbheapx.errors import HeapxError, Refusal
from gdbheapx.inferior.base import Target
from gdbheapx.inferior.live import procfs
from gdbheapx.inferior.live.tracer import UNSTOPPABLE
from gdbheapx.problems import GDB_MISSING, NOT_CONFIRMED, NOT_LIVE
from gdbheapx.session import Session

if TYPE_CHECKING:
    from gdbheapx.inferior.gdb.target import GdbTarget

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
    """The process's memory may be written, and not only read: gdb that may not is refused each time it tries, while all stands still."""
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
    if parent and _shares_memory(pid, parent):
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


def _shares_memory(pid: int, parent: int) -> bool:
    if not _find_unstoppable(parent):
        return False
    mine, theirs = procfs.slurp_file("/proc/%d/maps" % pid), procfs.slurp_file("/proc/%d/maps" % parent)
    return bool(mine) and mine == theirs


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
    """Anonymous, Rss and Swap of /proc/PID/smaps_rollup (Linux 4.14), which counts pages; VmRSS of status lags behind."""
    text = (procfs.slurp_file("/proc/%d/smaps_rollup" % pid) or b"").decode("ascii", "replace")
    sizes = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name in MEASURED and value.split()[:1] and value.split()[0].isdigit():
            sizes[name] = int(value.split()[0]) * 1024
    return Measure(*(sizes.get(name) for name in MEASURED))
