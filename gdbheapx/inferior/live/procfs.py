"""Read /proc for a process of this machine."""

import os
import time
from typing import Dict, List, Optional, Tuple

from gdbheapx.common.errors import HeapxError
from gdbheapx.common.files import RegularFile, TargetPath
from gdbheapx.common.hints import hint_about
from gdbheapx.common.problems import ALREADY_TRACED, NO_PROCESS, NOT_PERMITTED, PROC_UNUSABLE, PROCESS_ENDED
from gdbheapx.inferior.base import Mapping
from gdbheapx.inferior.elf.file import ElfHeader, parse_auxv, parse_header

ARGUMENTS, ENVIRONMENT = 45, 47
"""Fields of /proc/PID/stat, from the name on: arg_start and env_start (proc_pid_stat(5)); the end of each follows."""


def slurp_file(path: str, bytes_at_once: int = 1 << 16) -> Optional[bytes]:
    """The contents of a small file; None if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # half the time of open(), and some are read while a process stands
    except OSError:
        return None
    try:
        parts: List[bytes] = []
        while True:
            part = os.read(descriptor, bytes_at_once)
            if not part:
                return b"".join(parts)
            parts.append(part)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def proc_entry_number(pid: int) -> int:
    """The number below /proc that shows the memory of this process: its own, or another thread's where the main thread has ended and others
    run. /proc/PID is empty then, and stays so."""
    if not is_over(pid, pid):
        return pid
    return next((lwp for lwp in list_thread_ids(pid) if not is_over(pid, lwp)), pid)


def parse_maps_line(line: str) -> Optional[Mapping]:
    """A line of maps, or the first line of a mapping in smaps; None if it is none."""
    fields = line.split(None, 5)
    if len(fields) < 5:
        return None
    start, _, end = fields[0].partition("-")
    rights = fields[1]
    name = fields[5].replace("\\012", "\n") if len(fields) > 5 else ""  # as the kernel writes a newline in a file name
    place = int(fields[2], 16), fields[3], int(fields[4])
    return Mapping(int(start, 16), int(end, 16), rights[0] == "r", rights[1] == "w", rights[2] == "x", rights[3] == "s", name, None, *place)


def parse_maps(text: str) -> List[Mapping]:
    """The lines of /proc/PID/maps. A name may hold any character but a newline, also those that splitlines takes for one."""
    return [mapping for mapping in map(parse_maps_line, text.split("\n")) if mapping is not None]


def read_process_maps(pid: int) -> List[Mapping]:
    """The mappings of a process, sorted by address."""
    data = slurp_file("/proc/%d/maps" % proc_entry_number(pid))
    return parse_maps(os.fsdecode(data)) if data else []


def read_process_auxv(pid: int, header: ElfHeader) -> Dict[int, int]:
    """The auxiliary vector."""
    return parse_auxv(header, slurp_file("/proc/%d/auxv" % proc_entry_number(pid)) or b"")


def read_executable_path(pid: int) -> Optional[str]:
    """The path of its program as the process itself sees it."""
    try:
        return os.readlink("/proc/%d/exe" % proc_entry_number(pid))
    except OSError:
        return None


def executable_header(pid: int) -> Optional[ElfHeader]:
    """The ELF header of its program."""
    try:
        return parse_header(RegularFile(TargetPath("/proc/%d/exe" % proc_entry_number(pid), None)).pread(64, 0))
    except OSError:
        return None


def read_process_status(pid: int) -> Dict[str, str]:
    """The fields of /proc/PID/status; empty if there is no such process."""
    text = (slurp_file("/proc/%d/status" % proc_entry_number(pid)) or b"").decode("utf-8", "replace")
    return {key: value.strip() for key, _, value in (line.partition(":") for line in text.split("\n")) if key}


def read_anonymous_use(pid: int) -> Optional[Tuple[int, int, int]]:
    """Return the bytes of anonymous memory in RAM and in swap, and the number of threads; None once it has ended.

    Takes no lock of the process.
    """
    fields, sizes = read_process_status(pid), (slurp_file("/proc/%d/statm" % proc_entry_number(pid)) or b"").split()
    if len(sizes) < 3 or fields.get("State", "X")[:1] in ("Z", "X"):
        return None
    rest_bytes = (int(sizes[1]) - int(sizes[2])) * os.sysconf("SC_PAGESIZE")  # before Linux 4.5: what is no file's
    swapped, threads = fields.get("VmSwap", "0").split()[0], fields.get("Threads", "")
    anonymous_bytes = int(fields["RssAnon"].split()[0]) * 1024 if "RssAnon" in fields else rest_bytes
    return anonymous_bytes, int(swapped) * 1024, int(threads) if threads.isdigit() else 1


def read_capabilities(pid: Optional[int] = None) -> int:
    """The effective capabilities of a process, of this one by default (capabilities(7)), as bits."""
    return int(read_process_status(os.getpid() if pid is None else pid).get("CapEff", "0"), 16)


def list_thread_ids(pid: int) -> List[int]:
    """Kernel ids of its threads, sorted; without a main thread that has ended."""
    try:
        lwps = sorted(int(name) for name in os.listdir("/proc/%d/task" % pid))
    except (OSError, ValueError):
        return []
    return [lwp for lwp in lwps if lwp != pid] if len(lwps) > 1 and is_over(pid, pid) else lwps


def thread_name(pid: int, lwp: int) -> Optional[str]:
    """comm of one thread."""
    data = slurp_file("/proc/%d/task/%d/comm" % (pid, lwp))
    return None if data is None else data.decode("utf-8", "replace").rstrip("\n")


KERNEL_WORKER_NAMES = ("iou-", "vhost-")
PF_IO_WORKER, PF_USER_WORKER = 0x10, 0x4000
"""Flags of a task (linux/sched.h), from Linux 5.12 and 6.4: io_uring and vhost make threads of the process that never leave the kernel."""


def is_kernel_worker(pid: int, lwp: int, name: Optional[str]) -> bool:
    """Return whether a thread of the process runs in the kernel alone (io_uring, vhost). It has no stack, no thread-local storage and no
    cache of an allocator, and its registers are a copy of its maker's. The flags alone do not suffice: older kernels have others there.
    """
    if name is None or not name.startswith(KERNEL_WORKER_NAMES):
        return False
    fields = (slurp_file("/proc/%d/task/%d/stat" % (pid, lwp)) or b"").rpartition(b")")[2].split()
    return len(fields) > 6 and bool(int(fields[6]) & (PF_IO_WORKER | PF_USER_WORKER))


def is_over(pid: int, lwp: int) -> bool:
    """The thread has ended: a zombie, as a main thread stays until all others have ended too."""
    return (slurp_file("/proc/%d/task/%d/stat" % (pid, lwp)) or b") X").rpartition(b")")[2].split()[:1] in ([b"Z"], [b"X"])


def root_prefix(pid: int) -> str:
    """Return the prefix for a path of the process so that this process opens the same file; empty if both see the same tree."""
    root = "/proc/%d/root" % proc_entry_number(pid)
    try:
        is_same = os.stat("/proc/%d/ns/mnt" % proc_entry_number(pid)).st_ino == os.stat("/proc/self/ns/mnt").st_ino
        return "" if is_same and os.readlink(root) == os.readlink("/proc/self/root") else root
    except OSError:
        return ""


def find_process_tracer(pid: int) -> Optional[Tuple[int, str]]:
    """Return (pid, name) of the debugger that holds the process; None if there is none."""
    tracer_pid = int(read_process_status(pid).get("TracerPid", "0") or 0)
    return (tracer_pid, thread_name(tracer_pid, tracer_pid) or "?") if tracer_pid else None


def check_numbers() -> None:
    """Raise if /proc counts processes otherwise than system calls do here: what is read would be another process than what is stopped."""
    try:
        own = os.readlink("/proc/self")
    except FileNotFoundError:
        what = "/proc is not mounted here, so gdbheapx cannot read any process"
        raise HeapxError(what, "mount it: mount -t proc proc /proc", code=PROC_UNUSABLE)
    except OSError:
        return
    if own != str(os.getpid()):
        what = "/proc here belongs to a different pid namespace than this command: its pids mean other processes"
        hint = "mount this namespace's own /proc (mount -t proc proc /proc), or run gdbheapx outside, with the pid seen there"
        raise HeapxError(what, hint, code=PROC_UNUSABLE)


def is_hidden(pid: int) -> bool:
    """Return True if there is such a process, and /proc does not show it (mount option hidepid=invisible). It is probed with signal 0,
    which is never delivered.
    """
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return not os.path.exists("/proc/%d" % pid)


def check_alive(pid: int) -> None:
    """Raise with the reason and the next step if there is no such process to look at."""
    check_numbers()
    fields = read_process_status(pid)
    if not fields and is_hidden(pid):
        what = "process %d belongs to another user, and /proc hides it (hidepid)" % pid
        raise HeapxError(what, "run the same command with sudo", code=NOT_PERMITTED)
    if not fields:
        hint = "list processes with: ps -e; inside a container pids differ from those outside"
        raise HeapxError("no such process: %d" % pid, hint, code=NO_PROCESS)
    who = "process %d (%s)" % (pid, fields.get("Name", "?"))
    if fields.get("State", "")[:1] in ("Z", "X"):
        what = "%s crashed or exited and is a zombie; it has no memory any more" % who
        raise HeapxError(what, "look for its core instead", code=PROCESS_ENDED)
    if fields.get("VmSize") is None:
        raise HeapxError("%s is a kernel thread or is exiting; it has no memory" % who, "give the pid of a program", code=NO_PROCESS)
    if int(fields.get("Tgid", pid)) != pid:
        whole = fields["Tgid"]
        raise HeapxError("%d is a thread of process %s" % (pid, whole), "use " + hint_about("process", whole, "report"), code=NO_PROCESS)
    holder = find_process_tracer(pid)
    if holder and holder[0] != os.getpid():
        what = "process %d is already traced by %s (pid %d)" % (pid, holder[1], holder[0])
        raise HeapxError(what, "detach that debugger first, or use heapx inside it", code=ALREADY_TRACED)


DAC_OVERRIDE, DAC_READ_SEARCH, SYS_PTRACE = 1, 2, 19


def why_not_permitted(pid: int, writing: bool = False) -> HeapxError:
    """Return the kernel's check that forbids reading (writing, stopping) the process, and the command to type. The checks are the mode of
    its files in /proc, which belong to its user; its user, group and capabilities (ptrace(2), "Ptrace access mode checking"); and Yama.
    """
    fields, mine = read_process_status(pid), read_process_status(os.getpid())
    user, capable = os.geteuid(), read_capabilities()
    what = "not permitted to %s process %d (%s)" % ("write the memory of" if writing else "read", pid, fields.get("Name", "?"))
    scope = (slurp_file("/proc/sys/kernel/yama/ptrace_scope") or b"").strip().decode()
    if scope == "3":
        cause = what + ": /proc/sys/kernel/yama/ptrace_scope is 3, which forbids attaching to any process"
        hint = "take a core instead (kill -ABRT ends the process) and use --core; ptrace_scope 3 cannot be changed until reboot"
        return HeapxError(cause, hint, code=NOT_PERMITTED)
    users, groups = fields.get("Uid", "").split()[:3], fields.get("Gid", "").split()[:3]
    try:
        owner = os.stat("/proc/%d/mem" % proc_entry_number(pid)).st_uid  # root, if it is not dumpable
    except OSError:
        owner = None
    is_other = any(int(uid) != user for uid in users) or any(int(gid) != os.getegid() for gid in groups)
    is_hidden = bool(users) and owner == 0 != int(users[1])
    has_more = bool(int(fields.get("CapPrm", "0"), 16) & ~int(mine.get("CapPrm", "0"), 16))
    trace = not capable >> SYS_PTRACE & 1
    file_right = None if owner in (None, user) or capable >> DAC_OVERRIDE & 1 else "DAC_OVERRIDE" if writing else "DAC_READ_SEARCH"
    if file_right == "DAC_READ_SEARCH" and capable >> DAC_READ_SEARCH & 1:
        file_right = None
    lacking = ["SYS_PTRACE"] if trace and (is_other or is_hidden or has_more) else []
    lacking += [file_right] if file_right else []
    if trace and not lacking and scope in ("1", "2"):
        cause = "%s: /proc/sys/kernel/yama/ptrace_scope is %s and CAP_SYS_PTRACE is missing" % (what, scope)
        hint = _hint_capabilities(["SYS_PTRACE"]) + ", or: sysctl kernel.yama.ptrace_scope=0"
        return HeapxError(cause, hint, code=NOT_PERMITTED)
    if not lacking:
        cause = "%s: a security module forbids it, or it lives in a user namespace in which this process has no CAP_SYS_PTRACE" % what
        return HeapxError(cause, "run gdbheapx on the host, with the pid seen there", code=NOT_PERMITTED)
    missing = " and ".join("CAP_" + capability for capability in lacking)
    verb = "is missing" if len(lacking) == 1 else "are missing"
    if is_hidden or has_more and not is_other:
        cause = "%s: it is set-uid, not dumpable or has more privileges than you, and %s %s" % (what, missing, verb)
        return HeapxError(cause, _hint_capabilities(lacking), code=NOT_PERMITTED)
    theirs = "uid %s" % users[1] if users and int(users[1]) != user else "gid %s" % groups[1] if groups else "another user"
    ours = "uid %d" % user if theirs.startswith("uid") else "gid %d" % os.getegid()
    as_user = ", or run it as that user: --user %s:%s" % (users[1], groups[1]) if users and groups and not has_more else ""
    cause = "%s: it runs as %s, you are %s, and %s %s" % (what, theirs, ours, missing, verb)
    return HeapxError(cause, _hint_capabilities(lacking) + as_user, code=NOT_PERMITTED)


def _hint_capabilities(lacking: List[str]) -> str:
    """Return how to get these capabilities."""
    added = " ".join("--cap-add=" + capability for capability in lacking)
    if os.geteuid():
        return "run the same command with sudo, in a container with --user 0 %s" % added
    return "in a container add %s" % added


def maps_text(pid: int) -> str:
    """/proc/PID/maps as it is."""
    return (slurp_file("/proc/%d/maps" % proc_entry_number(pid)) or b"").decode("utf-8", "surrogateescape")


def monotonic_ns(pid: int) -> Optional[int]:
    """CLOCK_MONOTONIC in the process's time namespace; None if that is another one than ours."""
    try:
        if os.readlink("/proc/%d/ns/time" % proc_entry_number(pid)) != os.readlink("/proc/self/ns/time"):
            return None
    except FileNotFoundError:
        pass  # Linux before 5.6 has one time for all
    except OSError:
        return None
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def uptime_s(pid: int) -> Optional[int]:
    """Return the seconds that it has run (starttime), or None."""
    fields = read_stat(proc_entry_number(pid))
    if len(fields) <= 19:
        return None
    return max(0, int(time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")))


def read_stat(number: int) -> List[bytes]:
    """Read the fields of /proc/PID/stat after the name: the first is the third of proc_pid_stat(5)."""
    return (slurp_file("/proc/%d/stat" % number) or b"").rpartition(b")")[2].split()


def find_words_range(pid: int, place: int) -> Optional[Tuple[int, int]]:
    """Return the range (start, end) of its memory with its ARGUMENTS, or with the ENVIRONMENT that it was started with; None if that may
    not be known. It has the content of /proc/PID/environ, which brings pages in from swap unannounced.
    """
    fields = read_stat(proc_entry_number(pid))
    start, end = (int(fields[place]), int(fields[place + 1])) if len(fields) > place + 1 else (0, 0)
    return (start, end) if start < end else None
