"""Reading of one core by a separate program, on any machine: its exit code, output and last message."""

import os
import signal
import subprocess
import tempfile
import time
from typing import IO, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import child_python
from gdbheapx.addons.views.fleet import documents
from gdbheapx.snapshot import container

POLL_SECONDS = 0.02
GRACE_SECONDS = 30.0
"""What a look may take beyond twice its limit before it is ended: opening a core is not part of the limit."""
MOST_ERROR = 8192
State = Optional[Tuple[int, Optional[int]]]
"""Size and time of a core; None where it cannot be seen. Of what lies at a URL the time may be unknown."""


class Child(NamedTuple):
    """A look that runs."""

    process: "subprocess.Popen[bytes]"
    out: IO[bytes]
    err: IO[bytes]
    began: float


class ChildExit(NamedTuple):
    """Output of a child that is over."""

    code: int
    content: bytes
    said: str
    """The last line on standard error."""


def read_core_state(path: str) -> State:
    """The core as it is now."""
    if container.is_url(path):
        return container.read_url_state(path)
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns


def report_words(max_seconds: Optional[float]) -> List[str]:
    """The command of a look."""
    return ["report", "--json", "--no-deep", *(["--max-seconds", "%g" % max_seconds] if max_seconds is not None else [])]


def compute_time_limit(max_seconds: Optional[float]) -> Optional[float]:
    """Return the seconds after which a child is killed; None without --max-seconds."""
    return None if max_seconds is None else 2 * max_seconds + GRACE_SECONDS


def start_child(words: Sequence[str], core: str, asks: Sequence[str]) -> Child:
    """Start the look; `words` are options of the program, `asks` the command. The program itself distinguishes a snapshot from a core."""
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    process = child_python.start_gdbheapx([*words, core, *asks], stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
    return Child(process, out, err, time.monotonic())


def has_child_ended(child: Child, seconds: Optional[float]) -> bool:
    """Return True if the child is over; a child beyond its limit is killed."""
    if child.process.poll() is None and seconds is not None and time.monotonic() - child.began > seconds:
        _kill_group(child)
    return child.process.poll() is not None


def collect_child(child: Child) -> ChildExit:
    """Return the output of a child that is over, and close its files."""
    child.out.seek(0)
    content = child.out.read(documents.MOST_BYTES + 1)
    child.err.seek(max(0, os.fstat(child.err.fileno()).st_size - MOST_ERROR))
    said = child.err.read().decode("utf-8", "replace").strip().split("\n")[-1].replace("gdbheapx: ", "", 1)
    end_child(child)
    return ChildExit(child.process.returncode, content, said)


def end_child(child: Child) -> None:
    """End it, whether it is over or not."""
    _kill_group(child)
    child.out.close()
    child.err.close()


def _kill_group(child: Child) -> None:
    """Kill the child and the gdb that it may have started."""
    try:
        os.killpg(child.process.pid, signal.SIGKILL)
    except OSError:
        pass  # it has ended
    child.process.wait()
