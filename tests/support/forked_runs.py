"""Runs of the tool in forks of one interpreter that has imported it: a run has everything to itself but the imports, which cost a third of a second of
a CPU, thousands of times. tool.run() and whoever sets more than PATH and GDBHEAPX_* start an interpreter, as a shell does; so does
test_each_command.py each command.
"""

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Dict, List, Sequence, Tuple

from tests.support.paths import ROOT

UNLIKE = ("commands", "explore")
"""Folders whose modules declare something when they are imported, or import a package that takes long."""
MOST_BYTES = 1 << 20
"""Of the words and the environment of a run."""


class Forker:
    """The interpreter; it ends with the process that has the other end of its socket."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock, self.owner = threading.Lock(), os.getpid()
        with theirs:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],  # whose sys.path has ROOT, not the folder in which a run works
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    def run_words(self, words: Sequence[str], environment: Dict[str, str], seconds: float) -> Tuple[int, bytes, bytes]:
        """Exit code, standard output and standard error; subprocess.TimeoutExpired with both where it was killed."""
        pipes = [os.pipe() for _ in range(3)]
        request = json.dumps([list(words), environment, os.getcwd()]).encode()
        with self._lock:
            socket.send_fds(self._socket, [request], [writing for _, writing in pipes])
        got = [bytearray() for _ in pipes]
        deadline, is_late = time.monotonic() + seconds, False
        with selectors.DefaultSelector() as selector:
            for (reading, writing), data in zip(pipes, got):
                os.close(writing)
                selector.register(reading, selectors.EVENT_READ, data)
            while selector.get_map():
                ready = selector.select(None if is_late else max(0, deadline - time.monotonic()))
                if not ready and time.monotonic() >= deadline:
                    os.killpg(int(got[2].split()[0]), signal.SIGKILL)
                    is_late = True
                for key, _ in ready:
                    piece = os.read(key.fd, 1 << 16)
                    key.data.extend(piece)
                    if not piece:
                        selector.unregister(key.fd)
                        os.close(key.fd)
        out, errors = bytes(got[0]), bytes(got[1])
        if is_late:
            raise subprocess.TimeoutExpired(list(words), seconds, out, errors)
        return int(got[2].split()[1]), out, errors


def serve_runs(number: int) -> None:
    """Fork for each request that comes by this descriptor, until its other end is closed."""
    for path in sorted((ROOT / "gdbheapx").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if not {*UNLIKE}.intersection(parts) and parts[-1] not in ("__init__", "__main__", "gdbinit"):
            with contextlib.suppress(ModuleNotFoundError):  # some run inside gdb alone
                importlib.import_module(".".join(parts))
    gc.freeze()
    with socket.socket(fileno=number) as asked:
        while True:
            request, descriptors, _, _ = socket.recv_fds(asked, MOST_BYTES, 3)
            if not request:
                return
            if not os.fork():
                asked.close()
                _wait_for_run(*json.loads(request), *descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            while gone(os.P_ALL):
                pass


def gone(who: int) -> bool:
    """Whether a child was reaped that has ended."""
    try:
        return os.waitid(who, 0, os.WEXITED | os.WNOHANG) is not None
    except ChildProcessError:
        return False


def _wait_for_run(words: List[str], environment: Dict[str, str], folder: str, out: int, errors: int, told: int) -> None:
    """Run the tool in a child and tell its pid, then its exit code; the child returns, as the interpreter's main program."""
    pid = os.fork()
    if not pid:
        os.setsid()
        os.dup2(out, 1)
        os.dup2(errors, 2)
        for descriptor in (out, errors, told):
            os.close(descriptor)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = words
        from gdbheapx.__main__ import main

        sys.exit(main())
    os.close(out)
    os.close(errors)
    os.write(told, b"%d " % pid)
    os.write(told, b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)


if __name__ == "__main__":
    serve_runs(int(sys.argv[1]))
