"""The server of `capture --listen`: core_pattern names its socket, the kernel connects for each crash, and a child handles it.

A child is all that a crash can harm. What the kernel makes sure of for a handler that it starts is done here: the server and its children
leave no core themselves (the kernel would wait for the server, which waits for the kernel), nor does what they start.
"""

import ctypes
import os
import resource
import signal
import socket
import socketserver
import stat
import sys
from typing import Any, Callable, Optional, Tuple

from gdbheapx import runner
from gdbheapx.addons.monitor.capture.turn import PLACES, open_folder
from gdbheapx.errors import HeapxError
from gdbheapx.problems import CANNOT_LISTEN

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
