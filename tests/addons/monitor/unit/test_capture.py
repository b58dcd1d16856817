"""`capture` without a crash: names, what stays in the folder, whose turn it is, the core handed on, the line for core_pattern.

Files: common/files.py addons/monitor/capture/command.py addons/monitor/capture/turn.py addons/monitor/capture/listener.py addons/monitor/capture/dumped.py
"""

import ctypes
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterable, Iterator, List, Optional, Tuple

import pytest

from gdbheapx.addons.monitor.capture import command, dumped, listener
from gdbheapx.addons.monitor.capture import turn as turns
from gdbheapx.addons.monitor.capture.command import OURS, CaptureFolder
from gdbheapx.app.invocation import understand_words
from gdbheapx.common import problems
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.global_options import split_words
from tests.support.busy import stretch
from tests.support.tool import ROOT

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[CaptureFolder]:
    """A new one."""
    path = str(tmp_path / "to")
    descriptor = turns.open_folder(path, "", makes=True)
    yield CaptureFolder(path, descriptor)
    os.close(descriptor)


def test_a_name_is_safe_in_any_shell_and_is_recognised(folder: CaptureFolder) -> None:
    """The program's name is data."""
    for program in ("java", "../../etc/x", "a b;rm -rf *\n", "\udcff\x1b[2J", "", None, "n" * 400):
        name = folder.name(7, 1000, program, 1e9)
        assert "/" not in name and OURS.fullmatch(name), name
        assert len(name) < 100 and name.startswith("gdbheapx-7-20010909T014640Z-crash-u1000-")


def put(folder: CaptureFolder, crashes: Iterable[Tuple[int, str]], size_bytes: int = 100) -> List[str]:
    """Paths of a snapshot for each crash of a user's program, one a second."""
    paths = []
    for number, (uid, program) in enumerate(crashes):
        paths.append(os.path.join(folder.path, folder.name(number, uid, program, 1e9 + number)))
        Path(paths[-1]).write_bytes(bytes(size_bytes))
        os.utime(paths[-1], (1e9 + number, 1e9 + number))
    return paths


def test_the_newest_stay_by_number_and_by_bytes(folder: CaptureFolder) -> None:
    """Files of others, and links, are left alone; what a killed writer left behind goes."""
    paths = put(folder, 5 * [(0, "x")])
    others = [Path(folder.path) / name for name in ("gdbheapx-1-20010909T014640Z-above.snap", "mine.snap", "core")]
    link = Path(folder.path) / "gdbheapx-9-20010909T014640Z-crash-l.snap"
    link.symlink_to(paths[4])
    for path in others:
        path.write_bytes(bytes(1000))
    left = Path(paths[0] + ".123-0011aabb")
    left.write_bytes(b"half")
    assert sorted(folder.prune(4, 1 << 30)) == sorted([str(left), paths[0]])
    assert folder.prune(4, 250) == paths[1:3]
    assert folder.prune(1, 0) == [paths[3]] and os.path.exists(paths[4]), "the newest stays"
    assert all(path.exists() for path in others) and link.is_symlink()


def test_who_has_most_loses_first(folder: CaptureFolder) -> None:
    """Crashes of one user, whatever its programs are called, remove nothing of another; those of one program nothing of another one."""
    service, *many = put(folder, [(0, "service"), *((1000, "p%d" % number) for number in range(9))])
    coming = folder.name(10, 1000, "another", 1e9 + 10)
    assert folder.prune(10, 1 << 30, coming) == [many[0]], "the one that comes counts as its user's"
    assert folder.prune(4, 1 << 30, coming) == many[1:7] and folder.prune(4, 1 << 30) == []
    folder.prune(2, 1 << 30)
    assert os.path.exists(service)
    own = put(folder, [(5, "a"), (5, "b"), (5, "b"), (5, "b")])
    assert folder.prune(5, 1 << 30) == [own[1]]


def test_the_bytes_of_one_user_remove_nothing_of_another(folder: CaptureFolder) -> None:
    """One that is larger than --keep-bytes stays as the newest, until another one comes."""
    paths = put(folder, [(0, "service"), (0, "service")])
    large = Path(folder.path, folder.name(9, 1000, "x", 1e9))
    large.write_bytes(bytes(1000))
    assert folder.prune(10, 500) == []
    os.utime(large, (1e9 - 1, 1e9 - 1))
    assert folder.prune(10, 500) == [str(large)] and all(map(os.path.exists, paths))


def hold_places(path: Path, first: int, count: int) -> int:
    """The id of a process that has locked so many bytes of the file of turns."""
    (path / turns.TURNS).touch()
    ready, begun = os.pipe()
    pid = os.fork()
    if not pid:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        descriptor = os.open(path / turns.TURNS, os.O_RDWR)
        fcntl.lockf(descriptor, fcntl.LOCK_EX, count, first)
        os.write(begun, b"1")
        while True:
            signal.pause()
    os.read(ready, 1)
    os.close(ready)
    os.close(begun)
    return pid


@pytest.fixture
def holders() -> Iterator[List[int]]:
    """Ids of processes, which are ended."""
    pids: List[int] = []
    yield pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


USER, FIRST_OF_USER = 1000, 1 + turns.PLACES + 1000 * turns.PLACES_OF_USER


@pytest.mark.parametrize(
    "first, count, why",
    [
        (0, 1, "another capture was at work for 0.1 s"),
        (1, turns.PLACES, "16 crashes are being handled"),
        (1, turns.PLACES - 1, None),
        (FIRST_OF_USER, turns.PLACES_OF_USER, "5 crashes of user 1000 are being handled"),
        (FIRST_OF_USER, turns.PLACES_OF_USER - 1, None),
        (FIRST_OF_USER - turns.PLACES_OF_USER, turns.PLACES_OF_USER, None),
    ],
)
def test_one_is_at_work_and_few_wait(tmp_path: Path, holders: List[int], first: int, count: int, why: Optional[str]) -> None:
    """Only who has a place waits, and its turn comes when the other process has ended, or is done."""
    tmp_path.chmod(0o700)
    holders.append(hold_places(tmp_path, first, count))
    if why is not None:
        with pytest.raises(turns.NoTurn) as busy:
            turns.Turn(str(tmp_path), USER, 0.1)
        assert busy.value.message == why
        os.kill(holders[0], signal.SIGKILL)
        os.waitpid(holders.pop(), 0)
    turn = turns.Turn(str(tmp_path), USER, 30.0)
    assert os.listdir(turn.folder) == [turns.TURNS]
    turn.free()


def test_a_child_that_hangs_holds_up_nobody(tmp_path: Path, holders: List[int]) -> None:
    """It inherits descriptors, and no turn: that ends with the handler."""
    tmp_path.chmod(0o700)
    ready, begun = os.pipe()
    handler = os.fork()
    if not handler:
        turns.Turn(str(tmp_path), USER, 30.0)
        child = os.fork()
        while not child:
            signal.pause()
        os.write(begun, b"%d" % child)
        os._exit(0)
    os.waitpid(handler, 0)
    child = int(os.read(ready, 20))
    try:
        assert os.path.exists("/proc/%d" % child)
        turns.Turn(str(tmp_path), USER, 0.0).free()
    finally:
        os.kill(child, signal.SIGKILL)
    os.close(ready)
    os.close(begun)


HANDLER = "import sys; from gdbheapx.__main__ import main; code = main(); print(code, *(name for name in sys.modules if 'gdbheapx' in name), file=sys.stderr)"


def test_without_a_turn_nothing_is_imported_and_the_core_goes_on(tmp_path: Path, holders: List[int]) -> None:
    """Neither the command line nor what takes snapshots: one line is logged, and the program gets the core."""
    (tmp_path / "to").mkdir(0o700)
    holders.append(hold_places(tmp_path / "to", 1, turns.PLACES))
    core, out = os.urandom(3 << 20), tmp_path / "core"
    own = [str(os.getpid()), "--to", str(tmp_path / "to"), "--log=%s" % (tmp_path / "log"), "--pass-to", "/bin/sh", "-c", 'cat > "$0"', str(out)]
    done = subprocess.run([sys.executable, "-c", HANDLER, "capture", *own], input=core, capture_output=True, cwd=str(ROOT))
    code, *names = done.stderr.decode().split()
    assert code == "1" and "gdbheapx.addons.monitor.capture.turn" in names and not {"gdbheapx.app.cli", "gdbheapx.command", "gdbheapx.app.worker"} & set(names)
    line = json.loads((tmp_path / "log").read_text())
    assert (line["outcome"], line["why"], line["passed_code"]) == ("busy", "16 crashes are being handled", 0) and line["pid"] == os.getpid()
    assert out.read_bytes() == core and os.listdir(tmp_path / "to") == [turns.TURNS]


def test_what_is_opened_is_not_taken_for_standard_output() -> None:
    """The kernel starts a handler with standard input alone."""
    script = "from gdbheapx.common.files import open_standard; import os; open_standard(); made = os.pipe()[0]; os.write(2, b'%d' % made)"
    done = subprocess.run(["sh", "-c", 'exec "$0" -c "$1" <&- >&-', sys.executable, script], capture_output=True, cwd=str(ROOT))
    assert int(done.stderr) > 2


def test_memory_is_limited_from_the_first_byte_and_not_that_of_the_other_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the core is read; what --pass-to names has its own limit again."""
    out = tmp_path / "limits"
    script = "import resource; from gdbheapx.addons.monitor.capture import turn; turn.limit_memory(); print(resource.getrlimit(resource.RLIMIT_DATA)[0], flush=True)"
    script += "; turn.pass_on(['sh', '-c', 'ulimit -d > %s'], b'')" % out
    before = subprocess.run(["sh", "-c", "ulimit -H -d"], capture_output=True, text=True).stdout
    done = subprocess.run([sys.executable, "-c", script], stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=str(ROOT))
    assert 0 < int(done.stdout) <= turns.HANDLER_BYTES and out.read_text() == before


def test_a_child_that_does_not_end_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even SIGKILL ends one that waits for a file system: it is too slow, and has nothing of the core."""
    (tmp_path / "to").mkdir(0o700)
    turn = turns.Turn(str(tmp_path / "to"), USER, 0.2)
    killed, seen = [], tmp_path / "seen"
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    monkeypatch.setattr(command, "GRACE_S", 0.1)
    monkeypatch.setattr(command, "limit_process", lambda *given: None)

    def hang(invocation: Any) -> int:
        seen.write_text("%s %s" % (os.readlink("/proc/self/fd/0"), os.getcwd()))
        while True:
            signal.pause()

    invocation = understand_words(split_words([])[0], ["capture", "7", "--max-seconds", "0.2"])
    shell = SimpleNamespace(look=hang)
    head = SimpleNamespace(descriptor=-1)
    before = turns.begin_decision(7, {})
    folder = CaptureFolder(turn.path, turn.folder)
    after = command.run_snapshot_child(invocation, shell, head, before, turn.until_s, 1 << 30, folder, "x.snap")  # type: ignore[arg-type]
    monkeypatch.undo()
    until = time.monotonic() + 60
    while not (seen.exists() and seen.read_text()) and time.monotonic() < until:
        time.sleep(0.01)
    assert after.outcome == "too-slow" and len(killed) == 1 and killed[0][1] == signal.SIGKILL
    os.kill(*killed[0])
    os.waitpid(killed[0][0], 0)
    turn.free()
    assert seen.read_text() == "/dev/null %s" % turn.path


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    """They could put links there. The same holds for its parents, of which a sticky one like /tmp will do, and no part is a link."""
    inner = tmp_path / "inner"
    inner.mkdir(0o700)
    (tmp_path / "link").symlink_to(inner)
    os.close(turns.open_folder(str(inner), ""))
    for path, mode in ((tmp_path, 0o777), (inner, 0o777), (tmp_path, 0o1777)):
        before = path.stat().st_mode
        path.chmod(mode)
        with pytest.raises(HeapxError) as refused:
            turns.open_folder(str(path), "")
        assert refused.value.code == problems.UNSAFE_PATH
        if path == tmp_path and not mode & 0o1000:
            with pytest.raises(HeapxError):
                turns.Turn(str(inner), USER, 0.0)
        elif path == tmp_path:
            turns.Turn(str(inner), USER, 0.0).free()
        path.chmod(before)
    with pytest.raises(HeapxError) as unusable:
        turns.Turn(str(tmp_path / "link" / "to"), USER, 0.0)
    assert unusable.value.code == problems.CANNOT_WRITE and not (inner / "to").exists()
    with pytest.raises(HeapxError):
        turns.Turn("/proc/nowhere", USER, 0.0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_a_folder_below_anybody_elses_is_refused(tmp_path: Path) -> None:
    """Its owner could rename it, and put another one in its place."""
    inner = tmp_path / "alice" / "crashes"
    inner.mkdir(0o700, parents=True)
    os.chown(inner.parent, 1000, 1000)
    with pytest.raises(HeapxError) as refused:
        turns.open_folder(str(inner), "")
    assert refused.value.code == problems.UNSAFE_PATH


def test_what_is_removed_is_in_the_folder_that_was_opened(folder: CaptureFolder, tmp_path: Path) -> None:
    """Whatever lies at its path by then."""
    put(folder, 2 * [(0, "x")])
    os.rename(folder.path, tmp_path / "old")
    other = CaptureFolder(folder.path, turns.open_folder(folder.path, "", makes=True))
    put(other, 2 * [(0, "x")])
    assert len(folder.prune(1, 1 << 30)) == 1
    os.close(other.descriptor)
    assert len(os.listdir(other.path)) == 2 and len(os.listdir(tmp_path / "old")) == 1


def head_of(data: bytes) -> dumped.Head:
    """What is read of it through a pipe."""
    ours, theirs = os.pipe()
    writer = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=theirs)
    os.close(theirs)
    writer.stdin.write(data)
    writer.stdin.close()
    head = dumped.read_head(os.getpid(), ours, time.monotonic() + 5)
    os.close(ours)
    writer.wait()
    return head


@pytest.mark.parametrize(
    "data, code",
    [
        (b"", problems.PROCESS_ENDED),
        (b"\x7fELF", problems.PROCESS_ENDED),
        (bytes(5000), problems.NOT_A_CORE),
        (Path(sys.executable).read_bytes()[:9000], problems.NOT_A_CORE),
    ],
)
def test_what_is_no_core_is_said_and_nothing_of_it_is_lost(data: bytes, code: str) -> None:
    """What was taken from the pipe can be handed on."""
    head = head_of(data)
    assert head.error is not None and head.error.code == code and head.descriptor == -1
    assert data.startswith(bytes(head.data)) and len(head.data) == min(len(data), 64)


def test_nothing_comes() -> None:
    """It is not waited for without end."""
    ours, theirs = os.pipe()
    began = time.monotonic()
    head = dumped.read_head(os.getpid(), ours, began + 0.1)
    assert head.error is not None and head.data == b"" and 0.1 <= time.monotonic() - began < stretch(2)
    os.close(ours)
    os.close(theirs)


def test_a_process_that_lives_is_left_alone() -> None:
    """The kernel writes no core of it."""
    with pytest.raises(HeapxError) as refused:
        dumped.DumpedSource(os.getpid(), -1)
    assert refused.value.code == problems.NO_PROCESS


def test_the_core_is_handed_on_to_the_byte(tmp_path: Path) -> None:
    """Also what was taken of it; a program that ends early, or cannot be started, harms nothing."""
    rest, out = os.urandom(3 << 20), tmp_path / "out"
    script = "import sys; from gdbheapx.addons.monitor.capture import turn; print(turn.pass_on(sys.argv[1:], b'first'))"

    def passed(*words: str) -> str:
        done = subprocess.run([sys.executable, "-c", script, *words], input=rest, capture_output=True, cwd=str(ROOT))
        assert not done.stderr, done.stderr
        return done.stdout.decode().strip()

    assert passed("sh", "-c", 'cat > "$0"; exit 7', str(out)) == "7" and out.read_bytes() == b"first" + rest
    assert passed("true") == "0" and passed(str(tmp_path / "nothing")) == "None" and passed("sh", "-c", "kill -9 $$") == "-9"


def test_the_log_is_one_line_of_ascii_that_only_we_may_read(tmp_path: Path) -> None:
    """A name cannot end the line."""
    path = tmp_path / "log"
    line = json.dumps({"program": "a\nb\x1b\udcff"})
    turns.log_line(line, str(path))
    turns.log_line(line, str(path))
    assert path.read_text() == 2 * (line + "\n") and path.stat().st_mode & 0o777 == 0o600 and line.isascii()


def test_why_a_snapshot_is_partial() -> None:
    """That there was no time comes first; a note is a reason where there is no other."""
    note, cut, damage = ({"code": code, "what": code} for code in (problems.FILES_NOT_DUMPED, problems.CUT, problems.CORE_DAMAGED))
    for told, code in (([note, damage, cut], problems.CUT), ([note, damage], problems.CORE_DAMAGED), ([note], problems.FILES_NOT_DUMPED)):
        assert command.explain_partial({"problems": told}) == code
    assert command.explain_partial({}) == command.explain_partial({"problems": []}) != ""


def test_what_follows_pass_to_is_not_ours() -> None:
    """A program may have options that are called as ours are."""
    asked, rest = split_words(["capture", "7", "--pass-to", "/bin/x", "--pid", "9", "--core", "-h", "--json"])
    assert asked == split_words([])[0] and rest[-5:] == ["--pid", "9", "--core", "-h", "--json"]


def shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, now: str, **options: Any) -> List[str]:
    """What --show-pattern prints where core_pattern is `now`."""
    pattern = tmp_path / "pattern"
    pattern.write_text(now + "\n")
    modes = tmp_path / "modes"
    modes.write_text("file\npipe\nsocket\n" if options.pop("sockets", False) else "file\npipe\n")
    monkeypatch.setattr(command, "PATTERN", str(pattern))
    monkeypatch.setattr(command, "MODES", str(modes))
    monkeypatch.setattr(sys, "argv", ["/usr/bin/gdbheapx"])
    text = command.pattern_text(SimpleNamespace(**{"to": turns.DEFAULT_FOLDER, "pass_to": None, "listen": None, **options}))
    assert pattern.read_text() == now + "\n"
    return text.splitlines()


def test_the_pattern_hands_on_to_what_was_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A handler that is there gets the core; ours is not put before itself; too long a line is said."""
    systemd = "|/usr/lib/systemd/systemd-coredump %P %u %g %s %t 9223372036854775808 %h"
    assert shown(monkeypatch, tmp_path, systemd)[0] == "sysctl -w 'kernel.core_pattern=|/usr/bin/gdbheapx capture %%P --pass-to %s'" % systemd[1:]
    assert shown(monkeypatch, tmp_path, systemd)[1] == "sysctl -w kernel.core_pipe_limit=16"
    assert shown(monkeypatch, tmp_path, "core")[0] == "sysctl -w 'kernel.core_pattern=|/usr/bin/gdbheapx capture %P'"
    assert "no core file" in shown(monkeypatch, tmp_path, "core")[-1]
    ours = "|/usr/bin/gdbheapx capture %P --pass-to /bin/x"
    assert "--pass-to" not in shown(monkeypatch, tmp_path, ours)[0]
    assert "too long" in shown(monkeypatch, tmp_path, systemd, to="/a/rather/long/path/to/some/folder")[0]


def test_the_pattern_names_the_socket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The server's command comes first, with the handler that was there; without --listen only a line says that there is this form."""
    systemd = "|/usr/lib/systemd/systemd-coredump %P %u %g %s %t 9223372036854775808 %h"
    lines = shown(monkeypatch, tmp_path, systemd, listen="/run/gdbheapx.sock", sockets=True)
    assert lines[0].endswith(": /usr/bin/gdbheapx capture --listen /run/gdbheapx.sock --pass-to %s" % systemd[1:])
    assert lines[1] == "sysctl -w 'kernel.core_pattern=@@/run/gdbheapx.sock'" and len(lines) == 3
    assert "6.17" in shown(monkeypatch, tmp_path, systemd, listen="/run/gdbheapx.sock")[-1]
    assert "--listen" in shown(monkeypatch, tmp_path, systemd, sockets=True)[-1] and "--listen" not in "".join(shown(monkeypatch, tmp_path, systemd))


def test_words_are_filled_in_as_the_kernel_does() -> None:
    """What systemd-coredump and apport ask for; no space of a name makes two words."""
    words = ["%P", "%u", "%g", "%s", "%t", "x%hx", "-c%c", "%d", "%F", "%%P", "%E", "%p", "%e", "%"]
    one = listener.Crashed(os.getpid(), 7, 8, 2, os.pidfd_open(os.getpid()) if hasattr(os, "pidfd_open") else 0)
    found = one.fill(words, 11, 1e9 + 0.5)
    limit = listener.core_limit(os.getpid())
    assert found[:5] == [str(os.getpid()), "7", "8", "11", "1000000000"] and found[5] == "x%sx" % os.uname().nodename
    assert found[6] == "-c%s" % (2**64 - 1 if limit == "unlimited" else limit) and found[7:10] == ["2", str(one.descriptor), "%P"]
    assert found[10] == os.path.realpath(sys.executable).replace("/", "!") and found[13] == "" and len(found) == len(words)
    assert listener.not_filled(words) == [] and listener.not_filled(["%I%%C", "a%C"]) == ["C", "I"]


@pytest.mark.parametrize(
    "comm, filled",
    [(b"..", "!."), (b".", "!"), (b"", "!"), (b"a\nb", "a\nb"), (b"-x", "-x"), (b"a b", "a b"), (b"a/b", "a!b"), (b"../..", "..!.."), (b"\xff\\", "\udcff\\")],
)
def test_a_name_leads_out_of_no_folder(comm: bytes, filled: str) -> None:
    """As the kernel's own handler is given it for the same name (fs/coredump.c, and run on Linux 6.18)."""
    libc, before = ctypes.CDLL(None), Path("/proc/self/comm").read_bytes()[:-1]
    libc.prctl(PR_SET_NAME, comm, 0, 0, 0)
    try:
        one = listener.Crashed(os.getpid(), 0, 0, 1, 0)
        assert one.fill(["/cores/%e/core", "%e"], 11, 0) == ["/cores/%s/core" % filled, filled]
    finally:
        libc.prctl(PR_SET_NAME, before, 0, 0, 0)


def test_who_did_not_crash_is_refused() -> None:
    """Also on a kernel that cannot say who connects."""
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(HeapxError) as refused:
        listener.accept_crash_connection(ours, time.monotonic() + 1)
    assert refused.value.code == problems.NO_PROCESS


@pytest.mark.parametrize("path", ["", "socket", "/", "%s/", "%s/a b", "%s/../socket", "%s/link/socket", "%s/" + 100 * "n", "/proc/none/socket"])
def test_paths_that_core_pattern_could_not_name_are_refused(tmp_path: Path, path: str) -> None:
    """Relative ones, with spaces, through links, too long."""
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(HeapxError) as refused:
        listener.check_socket_path(path.replace("%s", str(tmp_path)))
    assert refused.value.code == problems.CANNOT_LISTEN


ENDED_AFTER_FORK = """
import os, signal, sys
from gdbheapx.addons.monitor.capture import listener
from gdbheapx.app.cli import heed_signals
heed_signals()
fork = os.fork
def fork_and_end():
    child = fork()
    if child:
        os.kill(os.getpid(), signal.SIGTERM)
    return child
os.fork = fork_and_end
def answer(connection):
    connection.sendall(connection.recv(1))
listener.serve_crashes(sys.argv[1], answer, lambda error: None, lambda: print("ready", flush=True))
"""


def test_a_server_that_is_ended_while_it_makes_a_child_leaves_that_its_connection(tmp_path: Path) -> None:
    """A crash that has come to a child is handled to its end, whenever the signal comes."""
    path = str(tmp_path / "socket")
    with subprocess.Popen([sys.executable, "-c", ENDED_AFTER_FORK, path], cwd=str(ROOT), stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None and server.stdout.readline() == b"ready\n"
            with socket.socket(socket.AF_UNIX) as crash:
                crash.settimeout(20)
                crash.connect(path)
                crash.sendall(b"x")
                assert crash.recv(1) == b"x"
            assert server.wait(20) == 0 and not os.path.exists(path)
        finally:
            server.kill()


def test_a_folder_where_others_could_put_their_socket_is_refused(tmp_path: Path) -> None:
    """They would be given the cores."""
    listener.check_socket_path(str(tmp_path / "socket"))
    tmp_path.chmod(0o777)
    with pytest.raises(HeapxError) as unsafe:
        listener.check_socket_path(str(tmp_path / "socket"))
    assert unsafe.value.code == problems.UNSAFE_PATH
