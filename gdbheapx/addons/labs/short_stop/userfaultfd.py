"""A userfaultfd of another process, held here and not there: one of its threads makes it, in a stop of less than a millisecond.

With it this process watches what the other one writes to its memory, without a stop. Everything that could do harm is asked before the
first byte is changed. What then happens ends by itself at whatever point it is cut off (injector.py).
"""

import array
import fcntl
import gc
import marshal
import os
import re
import resource
import signal
import socket
import struct
from functools import cache
from typing import Any, Callable, List, Optional, Tuple

from gdbheapx.actions import preflight
from gdbheapx.addons.labs.short_stop import find_injecting, injector
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.problems import NO_SHORT_STOP, ProblemCode
from gdbheapx.inferior.arch import native_architecture
from gdbheapx.inferior.base import Mapping, Target
from gdbheapx.inferior.live import keeper, procfs, seccomp
from gdbheapx.kernel.common import watchdog

ASYNC, UNPOPULATED = 1 << 15, 1 << 13
"""UFFD_FEATURE_WP_ASYNC, which lets a write go on by itself, and UFFD_FEATURE_WP_UNPOPULATED (linux/userfaultfd.h, Linux 6.7)."""
API, API_VERSION = 0xC018AA3F, 0xAA
PAGEMAP_SCAN, SCAN_BYTES = 0xC0606610, 96
MOST_HUGE_BYTES = 32 << 20
"""A page table of huge pages that are written to meanwhile is split, and stays so."""
SOMEBODYS = re.compile(rb"^VmFlags:.* (um|uw|ui)\b", re.MULTILINE)
SHADOW_STACK = re.compile(rb"^VmFlags:.* ss\b", re.MULTILINE)
HUGE = re.compile(rb"^AnonHugePages: +(\d+) kB", re.MULTILINE)
RING = "anon_inode:[io_uring]"
PIECE_BYTES = 1 << 20
SECONDS = 10.0
"""For the helper, which takes a few milliseconds."""
REHEARSALS = 2
AS_TODAY = "omit --short-stop, which pauses the process while its memory is copied"


def take_descriptor(pid: int, accepts_split: bool = False) -> Tuple[int, float, bool]:
    """Take a userfaultfd of the process. Return the descriptor here (closed by exec, not blocking, without UFFDIO_API), the ms for which
    the process was stopped, and whether threads of it are under seccomp filters. HeapxError says what is in the way. `accepts_split`: its
    huge pages may become small ones where it writes to them meanwhile."""
    prepared = require_injection(pid, accepts_split)
    with watchdog.held_off():
        ours, helpers = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        child = _fork_bare()
        if not child:
            try:
                gc.disable()
                keeper.detach_keeper(helpers.fileno())
                signal.signal(signal.SIGPIPE, signal.SIG_IGN)
                _rehearse_take()
                _serve_requests(helpers, prepared)
            finally:
                os._exit(0)
        helpers.close()
        try:
            said, descriptor = _receive_request(ours)
            if descriptor is None and not prepared.is_filtered:
                os.kill(child, signal.SIGKILL)  # if it has not ended by itself
        finally:
            ours.close()
            try:
                status = os.waitpid(child, 0)[1]
            except ChildProcessError:
                status = 0
    if descriptor is None:
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
            raise make_no_injection_error("it takes longer than %g s to stop its threads and have one make the call" % injector.KILLED_S)
        raise HeapxError(said[0], said[1], code=ProblemCode.of(said[2]))
    os.set_inheritable(descriptor, False)
    return descriptor, said[0], prepared.is_filtered


def _fork_bare() -> int:
    """os.fork, of a process that may have threads: the child takes none of their locks."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return os.fork()


def _rehearse_take() -> None:
    """Rehearse all of it in the helper on a child of its own: memory that was shared since the fork is copied now, not while a process
    waits. Errors here are ignored, because the real attempt reports them.
    """
    reading, writing = os.pipe()
    child = _fork_bare()
    if not child:
        os.close(writing)
        try:
            os.read(reading, 1)  # it ends with the helper
        finally:
            os._exit(0)
    try:
        for _ in range(REHEARSALS):
            os.close(injector.inject_calls(_prepare_injection(child, False))[0])
    except HeapxError:
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reading)
    os.close(writing)


def _serve_requests(helpers: socket.socket, prepared: injector.Prepared) -> None:
    """Serve requests in the helper, which survives if the tool is killed."""
    try:
        descriptor, stopped_ms = injector.inject_calls(prepared)
        told: List[Any] = [stopped_ms]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
    except HeapxError as error:
        told, rights = [error.message, error.hint, str(error.code)], []
    except Exception as error:
        told, rights = ["%s: %s" % (type(error).__name__, error), AS_TODAY, str(NO_SHORT_STOP)], []
    helpers.sendmsg([marshal.dumps(told, keeper.FORM)], rights)


def _receive_request(ours: socket.socket) -> Tuple[List[Any], Optional[int]]:
    ours.settimeout(SECONDS)
    rights = array.array("i", [-1])
    try:
        data, ancillary, _, _ = ours.recvmsg(1 << 16, socket.CMSG_SPACE(rights.itemsize), socket.MSG_CMSG_CLOEXEC)
    except OSError:
        data, ancillary = b"", []
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            rights = array.array("i")
            rights.frombytes(content[: rights.itemsize])
            return marshal.loads(data), rights[0]
    if not data:
        return ["the helper that stops the process has ended", AS_TODAY, str(NO_SHORT_STOP)], None
    return marshal.loads(data), None


def make_no_injection_error(what: str, hint: str = AS_TODAY) -> HeapxError:
    """Return the error that says why the process is copied in its stop."""
    return HeapxError(what, hint, code=NO_SHORT_STOP)


def check_injection(target: Target, accepts_split: bool = False) -> None:
    """HeapxError where something is in the way of that; the process is only looked at."""
    if target.kind != "live" or not target.pid:
        raise make_no_injection_error("only a process of this machine has short stops", "omit --short-stop")
    require_injection(target.pid, accepts_split)


def require_injection(pid: int, accepts_split: bool = False) -> injector.Prepared:
    """Check everything that can be checked while the process runs, and return the input of the injection."""
    procfs.check_alive(pid)
    machine, header = native_architecture(), procfs.executable_header(pid)
    injecting = find_injecting()
    if injecting is None or machine.system_calls is None:
        raise make_no_injection_error("short stops are not known of %s" % machine.name)
    if procfs.proc_entry_number(pid) != pid:
        raise make_no_injection_error("the main thread of process %d has ended" % pid)
    if header is None or header.arch.name != machine.name:
        raise make_no_injection_error("process %d is no program of %s" % (pid, machine.name))
    what = find_lacking_injection()
    if what:
        raise make_no_injection_error(what)
    if procfs.read_process_status(pid).get("State", "").startswith(("T", "t")):
        raise make_no_injection_error("process %d is stopped" % pid, "kill -CONT %d, or %s" % (pid, AS_TODAY))
    try:
        preflight.vfork_child(pid)
        preflight.require_writable(pid)
    except HeapxError as error:
        raise HeapxError(error.message, error.hint, code=NO_SHORT_STOP)
    is_filtered = _is_filtered(pid)
    _ask_memory(pid, accepts_split)
    _ask_descriptors(pid)
    return _prepare_injection(pid, is_filtered)


def _prepare_injection(pid: int, is_filtered: bool) -> injector.Prepared:
    injecting, mappings = find_injecting(), procfs.read_process_maps(pid)
    assert injecting is not None
    code = _find_code(pid, mappings, [injecting.call_and_return])
    back = _find_code(pid, mappings, injecting.come_back)
    if code is None or back is None:
        raise make_no_injection_error(
            "process %d has no code that makes a system call and returns, or none that ends a signal handler" % pid
        )
    return injector.Prepared(pid, code, back, mappings, is_filtered)


def _is_filtered(pid: int) -> bool:
    """Threads are under seccomp filters, which can be read and set aside for the two system calls."""
    modes = [seccomp.read_seccomp_rules(lwp).mode for lwp in procfs.list_thread_ids(pid)]
    if all(mode == seccomp.DISABLED for mode in modes):
        return False
    if seccomp.may_fetch():
        return True
    raise make_no_injection_error(
        "process %d is under seccomp filters, which may kill it for userfaultfd; setting them aside needs CAP_SYS_ADMIN and no filter here"
        % pid,
        "run gdbheapx as root outside the container, or " + AS_TODAY,
    )


def _ask_memory(pid: int, accepts_split: bool) -> None:
    text = procfs.slurp_file("/proc/%d/smaps" % pid) or b""
    if SOMEBODYS.search(text):
        raise make_no_injection_error("process %d has memory under a userfaultfd already" % pid)
    if SHADOW_STACK.search(text):
        raise make_no_injection_error("process %d has a shadow stack, which forbids a return without a call" % pid)
    huge_bytes = sum(int(found.group(1)) for found in HUGE.finditer(text)) << 10
    if huge_bytes > MOST_HUGE_BYTES and not accepts_split:
        what = "process %d has %d MiB in huge pages: writes during the copy would split them for a while"
        raise make_no_injection_error(what % (pid, huge_bytes >> 20), "accept that with --accept-thp-split, or " + AS_TODAY)


def _ask_descriptors(pid: int) -> None:
    """Check that one more descriptor has room, and that only the process's own threads may open one meanwhile, or write to its memory.
    Processes of other users, for which the kernel does not show that, do not count: a process that shares a table has seldom changed its
    user since.
    """
    for other in (int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != pid):
        shown = procfs.proc_entry_number(other)  # of a main thread that has ended neither is told
        for what, kind in (("descriptors", injector.KCMP_FILES), ("memory", injector.KCMP_VM)):
            if injector.is_same_resource(pid, shown, kind):
                raise make_no_injection_error(
                    "process %d has its %s in common with process %d, which runs on meanwhile" % (pid, what, other)
                )
    folder, used = "/proc/%d/fd" % pid, set()
    for name in os.listdir(folder):
        used.add(int(name))
        try:
            if os.readlink("%s/%s" % (folder, name)) == RING:
                raise make_no_injection_error("process %d uses io_uring, for which the kernel may open files while all threads stand" % pid)
        except OSError:
            pass
    limit = resource.prlimit(pid, resource.RLIMIT_NOFILE)[0]
    lowest = next(number for number in range(len(used) + 1) if number not in used)
    if limit != resource.RLIM_INFINITY and lowest >= limit:
        raise make_no_injection_error("process %d has all %d descriptors open that it may have" % (pid, limit))


def _find_code(pid: int, mappings: List[Mapping], patterns: Any) -> Optional[int]:
    """Return the address of the first of these codes in the executable mappings that the process does not share; the C library's and the
    kernel's own objects come first. None if there is none.
    """
    places = [one for one in mappings if one.executable and one.readable and not one.writable and not one.shared]
    places.sort(key=lambda one: (not one.name.startswith("[vdso"), "libc" not in one.name, one.end - one.start))
    with open("/proc/%d/mem" % pid, "rb", buffering=0) as memory:
        for place in places:
            for start in range(place.start, place.end, PIECE_BYTES):
                try:
                    data = os.pread(memory.fileno(), min(PIECE_BYTES + 16, place.end - start), start)
                except OSError:
                    break
                for pattern in patterns:
                    at = data.find(pattern)
                    if at >= 0:
                        return start + at
    return None


@cache
def find_lacking_injection() -> Optional[str]:
    """Describe the feature that the kernel lacks, or forbids this process; None if it is all there."""
    return in_child(_try_injection, "this process is not allowed to try userfaultfd on itself (seccomp)")


def in_child(tried: Callable[[], Optional[str]], killed: str) -> Optional[str]:
    """Return the result of `tried` in a child process, or `killed` if a seccomp filter kills the child for it."""
    reading, writing = os.pipe()
    child = _fork_bare()
    if not child:
        try:
            os.write(writing, (tried() or "-").encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as told:
        text = told.read().decode()
    try:
        os.waitpid(child, 0)
    except ChildProcessError:
        pass
    if not text:
        return killed
    return None if text == "-" else text


def _try_injection() -> Optional[str]:
    """On this process: each part of it."""
    try:
        made = injector.system_call("userfaultfd", injector.FLAGS)
        fcntl.ioctl(made, API, struct.pack("QQQ", API_VERSION, ASYNC | UNPOPULATED, 0))
    except OSError as error:
        return "this kernel has no userfaultfd with asynchronous write protection (Linux 6.7), or does not permit it: %s" % os.strerror(
            error.errno or 0
        )
    try:
        with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
            fcntl.ioctl(pagemap, PAGEMAP_SCAN, struct.pack("QQ", SCAN_BYTES, 0).ljust(SCAN_BYTES, b"\0"))
    except OSError as error:
        return "this kernel does not scan page tables (PAGEMAP_SCAN, Linux 6.7): %s" % os.strerror(error.errno or 0)
    try:
        injector.system_call("pidfd_getfd", os.pidfd_open(os.getpid(), 0), made, 0)
        if not injector.is_same_resource(os.getpid(), os.getpid(), injector.KCMP_FILES):
            return "this kernel does not show which processes share descriptors (kcmp)"
    except (OSError, AttributeError) as error:
        return "descriptors of other processes cannot be taken over here (pidfd_getfd): %s" % error
    return None
