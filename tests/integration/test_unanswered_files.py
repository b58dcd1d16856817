"""Files of a target on a FUSE mount, whose daemon answers or does not, also the process's own: nobody but an abandoned child waits for it."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Callable, Iterator, Tuple

import pytest

from gdbheapx.common import apart, files
from tests.support.processes import READY_SECONDS, Process, Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # mounts a file system: no image may

DAEMON = r"""
import ctypes, os, struct, sys
point, hangs = sys.argv[1], int(sys.argv[2])
fuse = os.open("/dev/fuse", os.O_RDWR)
data = b"fd=%d,rootmode=40000,user_id=0,group_id=0" % fuse
if ctypes.CDLL(None, use_errno=True).mount(b"x", os.fsencode(point), b"fuse", 6, data):
    sys.exit("cannot mount: %s" % os.strerror(ctypes.get_errno()))
print("up", flush=True)
def attr(node):
    mode = 0o40755 if node == 1 else 0o100644
    return struct.pack("=6Q10I", node, 0 if node == 1 else 7, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
while True:
    request = os.read(fuse, 1 << 20)
    _, code, unique, node, _, _, pid, _ = struct.unpack_from("=IIQQIIII", request)
    if code == hangs:
        print(pid, flush=True)
        continue
    error, answer = 0, b""
    if code == 26:
        answer = struct.pack("=4IHHIIHHI7I", 7, 31, 0, 0, 0, 0, 4096, 0, 0, 0, 0, *[0] * 7)
    elif code == 1:
        error = 0 if request[40:42] == b"f\0" else -2
        answer = b"" if error else struct.pack("=4QII", 2, 0, 0, 0, 0, 0) + attr(2)
    elif code == 3:
        answer = struct.pack("=QII", 0, 0, 0) + attr(node)
    elif code in (14, 27):
        answer = struct.pack("=QII", 1, 0, 0)
    elif code == 15:
        answer = b"content"
    elif code in (2, 36, 42):
        continue
    elif code not in (18, 25, 29):
        error = -38
    os.write(fuse, struct.pack("=IiQ", 16 + len(answer), error, unique) + answer)
"""
LOOKUP, READ, NEVER = 1, 15, 0


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], "subprocess.Popen[str]"]]:
    """A function that mounts the folder `m` with a daemon that leaves one kind of request unanswered."""
    if os.geteuid() or not os.access("/dev/fuse", os.W_OK):
        pytest.skip("needs root and /dev/fuse")
    files.reader.cache_clear()
    (tmp_path / "m").mkdir()
    daemons = []

    def serve(hangs: int) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", DAEMON, str(tmp_path / "m"), str(hangs)]
        daemons.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        assert daemons[0].stdout is not None and daemons[0].stderr is not None
        if daemons[0].stdout.readline() != "up\n":
            pytest.skip(daemons[0].stderr.read())
        return daemons[0]

    yield serve
    for daemon in daemons:
        daemon.kill()  # which ends the connection, and whoever waits for it
        daemon.communicate(timeout=60)
    subprocess.run(["umount", "-l", str(tmp_path / "m")], capture_output=True)


def test_a_file_of_fuse_is_read_by_a_child(served: Callable[[int], "subprocess.Popen[str]"], tmp_path: Path) -> None:
    """A daemon that answers: its file is there, as a copy."""
    served(NEVER)
    descriptor = files.open_regular(files.in_tree("", str(tmp_path / "m" / "f")))
    assert os.read(descriptor, 99) == b"content"
    os.close(descriptor)


@pytest.mark.parametrize("hangs", [LOOKUP, READ])
def test_a_file_that_does_not_answer_is_not_waited_for(
    served: Callable[[int], "subprocess.Popen[str]"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: int
) -> None:
    """Neither its name nor its content: the request came from another process than this one, also by a link on the way."""
    daemon = served(hangs)
    (tmp_path / "link").symlink_to("m/f")
    monkeypatch.setattr(apart, "EACH_S", 0.3)
    with pytest.raises(OSError) as caught:
        files.open_regular(files.in_tree("", str(tmp_path / "link")))
    assert caught.value.errno == errno.ETIMEDOUT
    assert daemon.stdout is not None and int(daemon.stdout.readline()) != os.getpid()


FUSE_SUPPORTED = os.geteuid() == 0 and os.path.exists("/dev/fuse")


@pytest.fixture
def silent(stage: Stage) -> Process:
    """The program, serving as an ordinary user."""
    if not FUSE_SUPPORTED:
        pytest.skip("only root can mount for another user, where there is a /dev/fuse")
    folder = stage.folder()
    mount = folder / "mount"
    mount.mkdir()
    process = stage.spawn([str(stage.builder.build("fuse_mapped")), str(folder / "record"), str(mount)], folder, None, folder / "record")
    assert process.popen.stdout
    said = process.popen.stdout.readline()
    if said == b"no mount\n":
        pytest.skip("this machine lets nobody mount FUSE")
    assert said == b"mounted\n", process.stderr_path.read_text()
    return process


@pytest.mark.parametrize("words", [("arenas",), ("leaks",), ("report", "--deep")], ids=lambda words: words[0])
def test_no_page_is_asked_for(silent: Process, words: Tuple[str, ...]) -> None:
    """The answer is partial and says so; the server has seen no read."""
    outcome = heapx(silent.target("live"), *words, "--json", seconds=READY_SECONDS)
    envelope = outcome.envelope
    assert outcome.code == 4 and "mapped-file-unread" in [problem["code"] for problem in envelope["problems"]]
    assert silent.record() == b""
