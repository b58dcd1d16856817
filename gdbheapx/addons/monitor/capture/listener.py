"""The server of `capture --listen`: core_pattern names its socket, the kernel connects for each crash, and a child handles it.

A child is all that a crash can harm. What the kernel makes sure of for a handler that it starts is done here: the server and its children
leave no core themselves (the kernel would wait for the server, which waits for the kernel), nor does what they start.

The kernel connects (`@`: Linux 6.16, `@@`: 6.17) in the name of the process that crashed, and says so of it in its pidfd. By `@@` it asks
first who writes the core: it shall write, and wait, so that the core comes through the socket as it comes to a handler that the kernel
starts."""

import ctypes
import fcntl
import os
import re
import resource
import signal
import socket
import socketserver
import stat
import struct
import sys
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.monitor.capture.turn import PLACES, open_folder
from gdbheapx.app import runner
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.problems import CANNOT_LISTEN, NO_PROCESS, NOT_A_CORE, PROCESS_ENDED
from gdbheapx.inferior.live import procfs

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
        # as the kernel puts them into a core's name: not empty, `.` or `..`, and without `/` (fs/coredump.c: cn_esc_printf)
        escapes = {"": "!", ".": "!", "..": "!."}
        filled = {name: escapes.get(str(value), str(value).replace("/", "!")) for name, value in values.items()}
        return [re.sub("(?s)%(.?)", lambda match: filled.get(match[1], ""), word) for word in words]


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


REAP_S = 5.0
"""So often children that have ended are collected while nothing crashes."""
QUEUE = 4096
"""How many crashes may wait to be handled; net.core.somaxconn may allow fewer."""
MOST_PATH_BYTES = 107
PR_SET_DUMPABLE = 4
ENDING_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
PASSED = 3
"""The first descriptor that systemd passes (sd_listen_fds(3))."""
ANOTHER = "choose another with --listen SOCKET, such as /run/gdbheapx.sock"
Handle = Callable[[socket.socket], None]
Failed = Callable[[HeapxError], None]


class CaptureServer(socketserver.ForkingMixIn, socketserver.UnixStreamServer):
    """Listens from the moment it is made; the socket is there for as long as it is, or is systemd's."""

    max_children = PLACES
    request_queue_size = QUEUE

    def __init__(self, path: str, handle: Handle, failed: Failed) -> None:
        """HeapxError where it cannot listen there."""
        check_socket_path(path)
        super().__init__(path, socketserver.BaseRequestHandler, bind_and_activate=False)
        self._handle, self._failed = handle, failed
        passed = passed_socket(path)
        self._own: Optional[str] = path if passed is None else None
        if passed is not None:
            self.socket.close()
            self.socket = passed
            return
        try:
            self.server_bind()
            self.server_activate()
        except OSError as error:
            self.socket.close()
            raise make_listen_error(path, error.strerror or str(error))

    def server_bind(self) -> None:
        """Return a socket that only we, and the kernel, may connect to; it replaces one without a listener."""
        path = str(self.server_address)
        before = os.umask(0o177)
        try:
            if is_left(path):
                os.unlink(path)
            super().server_bind()
        finally:
            os.umask(before)

    def server_close(self) -> None:
        """Remove the socket, so that the kernel drops cores from now on; crashes that are being handled are handled to their end."""
        if self._own is not None:
            try:
                os.unlink(self._own)
            except OSError:
                pass
            self._own = None
        super().server_close()

    def get_request(self) -> Tuple[socket.socket, Any]:
        """Accept a connection. From here on no signal ends the server until a child has it: the base class would shut down the connection,
        which is the child's too, and the kernel would drop the core.
        """
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
            return super().get_request()
        except BaseException:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)
            raise

    def close_request(self, request: Any) -> None:
        """Close the connection, which is a child's by now or refused. A signal that came meanwhile ends the server here."""
        super().close_request(request)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Handle a connection in the child, without the listening socket: the kernel would otherwise go on connecting to it after the
        server has ended.
        """
        self.socket.close()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)
        self._handle(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the error in one line."""
        error = sys.exc_info()[1]
        if error is not None:
            self._failed(runner.make_internal_error(error, "gdbheapx capture"))


def serve_crashes(path: str, handle: Handle, failed: Failed, begun: Callable[[], object]) -> None:
    """Serve until a signal: `handle` gets each connection, in a child."""
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    except (OSError, ValueError) as error:
        hint = "start it without a limit on core files (LimitCORE=)"
        raise HeapxError("cannot set RLIMIT_CORE to 1: %s" % error, hint, code=CANNOT_LISTEN)
    with CaptureServer(path, handle, failed) as server:
        begun()
        try:
            server.serve_forever(REAP_S)
        except KeyboardInterrupt:
            pass


def check_socket_path(path: str) -> None:
    """HeapxError where core_pattern could not name this path, or others could put their socket there."""
    folder, name = os.path.split(path)
    if not name or os.path.realpath(folder) != folder or " " in path or len(os.fsencode(path)) > MOST_PATH_BYTES:
        raise make_listen_error(path, "core_pattern takes an absolute path of %d bytes without links, spaces and `..`" % MOST_PATH_BYTES)
    try:
        os.close(open_folder(folder, ANOTHER))
    except OSError as error:
        raise make_listen_error(path, error.strerror or str(error))


def make_listen_error(path: str, why: str) -> HeapxError:
    """The error."""
    return HeapxError("cannot listen at %s: %s" % (path, why), ANOTHER, code=CANNOT_LISTEN)


def is_left(path: str) -> bool:
    """A socket is there, of a server that has ended."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
            trial.connect(path)
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False


def passed_socket(path: str) -> Optional[socket.socket]:
    """The one that systemd listens at for us. HeapxError if it is another than what was asked for."""
    pid, count = os.environ.pop("LISTEN_PID", None), os.environ.pop("LISTEN_FDS", None)
    if pid != str(os.getpid()) or count != "1":
        return None
    os.set_inheritable(PASSED, False)
    try:
        passed = socket.socket(fileno=PASSED)
    except OSError as error:
        raise make_listen_error(path, "descriptor %d of systemd: %s" % (PASSED, error.strerror))
    if passed.getsockname() != path:
        raise make_listen_error(path, "systemd listens at %s" % (passed.getsockname(),))
    return passed
