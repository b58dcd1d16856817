"""Files that may not answer (FUSE, NFS, autofs) are opened and read by a child, which is abandoned when it does not.

A read that waits for a daemon cannot be ended by a signal, only by that daemon: who must not wait for it lets another process do so. The
child has none of our descriptors, so no lock, no pipe and no terminal waits with it; it is no one's to wait for, ends when it is idle, and
kills itself when it comes back too late.
"""

import errno
import os
import select
import signal
import socket
import threading
import time
import warnings
from typing import Callable, List, Optional, Tuple

EACH_S, ALL_S, WINDOW_S, QUICK_S = 2.0, 10.0, 60.0, 0.25
"""How long one answer is waited for, and all of them together in a window of time; quick ones do not count."""
IDLE_S = 1.0
MOST_TEXT = 1 << 16
FILE, FOLDER, TEXT = b"f", b"d", b"t"
OpenFile = Callable[[str, Optional[str], bool], int]
"""Opens (path, root of its tree or None, whether it is a folder) and returns a descriptor."""


class Reader:
    """The child that is asked at present."""

    def __init__(self, open_file: OpenFile) -> None:
        """Take what the child opens files and folders with."""
        self._opens = open_file
        self._lock = threading.Lock()
        self._socket: Optional[socket.socket] = None
        self._owner = 0
        """A process that was forked meanwhile has a child of its own."""
        self._since, self._waited_s = 0.0, 0.0

    def open_file(self, path: str, root: Optional[str], is_folder: bool) -> int:
        """Return what the child has opened. OSError as ask()."""
        return self.ask(FOLDER if is_folder else FILE, path, root)[1][0]

    def read_text(self, path: str) -> bytes:
        """Return the first bytes of a file. OSError as ask()."""
        return self.ask(TEXT, path, None)[0]

    def ask(self, kind: bytes, path: str, root: Optional[str]) -> Tuple[bytes, List[int]]:
        """Return the answer's text and descriptors. OSError as the child met it; ETIMEDOUT where it did not answer."""
        request = b"\0".join((kind, os.fsencode(root or ""), os.fsencode(path)))
        with self._lock:
            began = time.monotonic()
            if began - self._since > WINDOW_S:
                self._since, self._waited_s = began, 0.0
            if self._waited_s >= ALL_S:
                raise OSError(errno.ETIMEDOUT, "its file system does not answer", path)
            try:
                answer = self._exchange_once(request)
            finally:
                waited_s = time.monotonic() - began
                self._waited_s += waited_s if waited_s > QUICK_S else 0.0
        if answer is None:
            raise OSError(errno.ETIMEDOUT, "its file system does not answer", path)
        number = int.from_bytes(answer[0][:4], "little")
        if number:
            raise OSError(number, os.strerror(number), path)
        return answer[0][4:], answer[1]

    def _exchange_once(self, request: bytes) -> Optional[Tuple[bytes, List[int]]]:
        """Return the answer to a request, or None if there is none. A child that has ended meanwhile is replaced once."""
        for _ in range(2):
            if self._socket is None or self._owner != os.getpid():
                self._drop_child()
                self._socket, self._owner = start_reader(self._opens), os.getpid()
            try:
                self._socket.send(request)
                poll = select.poll()
                poll.register(self._socket, select.POLLIN)
                if not poll.poll(EACH_S * 1000):
                    self._drop_child()
                    return None
                data, descriptors, _, _ = socket.recv_fds(self._socket, MOST_TEXT + 4, 1, socket.MSG_CMSG_CLOEXEC)
                if data:
                    return data, descriptors
            except OSError:
                pass
            self._drop_child()
        return None

    def _drop_child(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def start_reader(open_file: OpenFile) -> socket.socket:
    """Start a child that no one has to wait for; what is said to it comes back as an answer."""
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, whose locks the child does not take
        middle = os.fork()
    if not middle:
        try:
            if not os.fork():
                serve_requests(its.detach(), open_file)
        finally:
            os._exit(0)
    its.close()
    try:
        os.waitpid(middle, 0)
    except ChildProcessError:  # gdb waits for all children
        pass
    return mine


def serve_requests(number: int, open_file: OpenFile) -> None:
    """Answer until no one asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for signum in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for name in os.listdir("/proc/self/fd"):
        if int(name) != number:
            try:
                os.close(int(name))
            except OSError:  # the listing's own
                pass
    its = socket.socket(fileno=number)
    poll = select.poll()
    poll.register(its, select.POLLIN)
    while poll.poll(IDLE_S * 1000):
        request = its.recv(MOST_TEXT)
        if not request:
            break
        signal.setitimer(signal.ITIMER_REAL, 2 * EACH_S)
        answer_request(its, request, open_file)
        signal.setitimer(signal.ITIMER_REAL, 0)


def answer_request(its: socket.socket, request: bytes, open_file: OpenFile) -> None:
    """Do one request, and say how it went."""
    kind, root, text = request.split(b"\0", 2)
    path, text_read, descriptors, number = os.fsdecode(text), b"", [], 0
    try:
        if kind == TEXT:
            with open(path, "rb", buffering=0) as file:
                text_read = file.read(MOST_TEXT) or b""
        else:
            descriptors = [open_file(path, os.fsdecode(root) or None, kind == FOLDER)]
    except OSError as error:
        number = error.errno or errno.EIO
    except Exception:
        number = errno.EIO
    socket.send_fds(its, [number.to_bytes(4, "little") + text_read], descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
