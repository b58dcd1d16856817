"""A crash that comes by the socket that core_pattern names (`@`: Linux 6.16, `@@`: 6.17): which process it is, and that its core may come.

The kernel connects in the name of the process that crashed, and says so of it in its pidfd. By `@@` it asks first who writes the core: it
shall write, and wait, so that the core comes through the socket as it comes to a handler that the kernel starts.
"""

import fcntl
import os
import re
import socket
import struct
import time
from typing import Dict, List, NamedTuple, Sequence

from gdbheapx.errors import HeapxError
from gdbheapx.inferior.live import procfs
from gdbheapx.problems import NO_PROCESS, NOT_A_CORE, PROCESS_ENDED

SO_PEERPIDFD = 77
PIDFD_GET_INFO = 0xC048FF0B
INFO = struct.Struct("=Q12xI4xII28xI4x")
"""struct pidfd_info of 6.16 (include/uapi/linux/pidfd.h): what is known, tgid, uid and gid, what became of a core."""
INFO_PID, INFO_CREDS, INFO_COREDUMP = 1, 2, 16
COREDUMPED, COREDUMP_USER = 1, 4
WRITE, WAIT = 1, 8
"""COREDUMP_KERNEL and COREDUMP_WAIT (include/uapi/linux/coredump.h)."""
MESSAGE = struct.Struct("=IIQ")
"""struct coredump_req: its size, that of the answer, what the kernel can do; struct coredump_ack: its size, 0, what it shall do."""
MARKED = struct.Struct("=I")
"""What the kernel makes of the answer; 0: it does that."""
MOST_REQUEST_BYTES = 4096
MAGIC = b"\x7fELF"
FILLED = "PpugdstchefEF"
"""What stands for something behind % in a line of core_pattern (core(5)), and is filled in here as the kernel does."""
OWN_LIMIT = "1"
"""RLIMIT_CORE of what the kernel starts for a core, and of what capture starts: a crash of these leaves none, or there would be no end."""
GONE = "there is nothing left to read of it"
CONNECTS = "only the kernel connects to this socket, for a process that crashes: see gdbheapx capture --show-pattern"


class Crashed(NamedTuple):
    """A process that the kernel is about to write the core of."""

    pid: int
    uid: int
    gid: int
    dumpable: int
    """As in prctl(PR_GET_DUMPABLE): 1 for its user, 2 for root alone."""
    descriptor: int
    """Its pidfd."""

    def fill(self, words: Sequence[str], signal: int, unix_s: float) -> List[str]:
        """The words of a command as the kernel would fill them in. The name of the host is this one's, not that of a container."""
        fields = procfs.read_process_status(self.pid)
        comm = os.fsdecode(procfs.slurp_file("/proc/%d/comm" % self.pid) or b"")[:-1]
        exe = procfs.read_executable_path(self.pid) or "%s (path unknown)" % comm
        limit = core_limit(self.pid)
        os.set_inheritable(self.descriptor, True)
        values: Dict[str, object] = {"%": "%", "P": self.pid, "u": self.uid, "g": self.gid, "d": self.dumpable}
        values.update(s=signal, F=self.descriptor, t=int(unix_s), h=os.uname().nodename)
        values.update(e=comm, E=exe, f=os.path.basename(exe))
        values.update(p=(fields.get("NSpid") or str(self.pid)).split()[-1], c=2**64 - 1 if limit == "unlimited" else limit)
        filled = {name: escape_name(str(value)) for name, value in values.items()}
        return [re.sub("(?s)%(.?)", lambda match: filled.get(match[1], ""), word) for word in words]


def escape_name(text: str) -> str:
    """Return a value as the kernel puts it into a core's name: not empty, `.` or `..`, and without `/` (fs/coredump.c: cn_esc_printf)."""
    return {"": "!", ".": "!", "..": "!."}.get(text, text.replace("/", "!"))


def not_filled(words: Sequence[str]) -> List[str]:
    """List the letters in %-specifiers that the kernel fills in and fill_pattern_words() does not."""
    return sorted({found for word in words for found in re.findall("%%([^%s])" % FILLED, word.replace("%%", ""))})


def core_limit(pid: int) -> str:
    """RLIMIT_CORE of a process, in bytes; empty if it cannot be read."""
    found = re.search(rb"^Max core file size +(\w+)", procfs.slurp_file("/proc/%d/limits" % pid) or b"", re.MULTILINE)
    return found[1].decode() if found is not None else ""


def accept_crash_connection(connection: socket.socket, until: float) -> Crashed:
    """Return the process that crashed, after the request to the kernel to write the core, which comes next on the connection. HeapxError
    if the peer is not the kernel, or nothing comes before `until`, a moment of the monotonic clock.
    """
    crashed = _read_peer(connection)
    if core_limit(crashed.pid) == OWN_LIMIT:
        what = "process %d was started for another core (RLIMIT_CORE is 1): its own would start one more" % crashed.pid
        raise HeapxError(what, "see why that program crashes", code=NOT_A_CORE)
    connection.settimeout(max(until - time.monotonic(), 0.001))
    try:
        if connection.recv(len(MAGIC), socket.MSG_PEEK) != MAGIC:
            _send_answer(connection)
    except (OSError, struct.error) as error:
        what = "the kernel did not write a core of process %d: %s" % (crashed.pid, error)
        raise HeapxError(what, GONE, code=PROCESS_ENDED)
    connection.setblocking(True)
    return crashed


def _read_peer(connection: socket.socket) -> Crashed:
    info = bytearray(INFO.size)
    struct.pack_into("=Q", info, 0, INFO_PID | INFO_CREDS | INFO_COREDUMP)
    try:
        (descriptor,) = struct.unpack("=i", connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD, 4))
        fcntl.ioctl(descriptor, PIDFD_GET_INFO, info)
    except ProcessLookupError:
        raise HeapxError("the process that crashed was killed before its core was written", GONE, code=PROCESS_ENDED)
    except OSError as error:
        raise HeapxError("cannot determine who connected: %s" % error.strerror, CONNECTS, code=NO_PROCESS)
    known, pid, uid, gid, state = INFO.unpack(info)
    if not known & INFO_COREDUMP or not state & COREDUMPED:
        raise HeapxError("process %d connected, and it did not crash" % pid, CONNECTS, code=NO_PROCESS)
    return Crashed(pid, uid, gid, 1 if state & COREDUMP_USER else 2, descriptor)


def _send_answer(connection: socket.socket) -> None:
    """The kernel shall write the core, and wait until the connection ends."""
    size_bytes, _, _ = MESSAGE.unpack(_receive_exactly(connection, MESSAGE.size))
    _receive_exactly(connection, min(max(size_bytes - MESSAGE.size, 0), MOST_REQUEST_BYTES))
    connection.sendall(MESSAGE.pack(MESSAGE.size, 0, WRITE | WAIT))
    (mark,) = MARKED.unpack(_receive_exactly(connection, MARKED.size))
    if mark:
        raise OSError("it did not take the answer (%d)" % mark)


def _receive_exactly(connection: socket.socket, size_bytes: int) -> bytes:
    return connection.recv(size_bytes, socket.MSG_WAITALL) if size_bytes else b""
