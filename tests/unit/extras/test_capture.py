"""`capture` without a crash: names, what stays in the folder, whose turn it is, the core handed on, the line for core_pattern.

Files: extras/capture/command.py extras/capture/folder.py extras/capture/listener.py inferior/live/crashed.py inferior/live/dumped.py
"""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List

import pytest

from gdbheapx.errors import HeapxError
from gdbheapx.extras.capture import command, listener
from gdbheapx.extras.capture.folder import OURS, Folder
from gdbheapx.inferior.live import crashed, dumped
from gdbheapx.invocation import GlobalOptions, split
from gdbheapx.problems import CANNOT_LISTEN, CORE_DAMAGED, CUT, FILES_NOT_DUMPED, NO_PROCESS, NOT_A_CORE, PROCESS_ENDED, UNSAFE_PATH
from tests.support.tool import ROOT


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A new one."""
    return Folder(str(tmp_path / "to"), 0.0)


def test_a_name_is_safe_in_any_shell_and_is_recognised(folder: Folder) -> None:
    """The program's name is data."""
    for program in ("java", "../../etc/x", "a b;rm -rf *\n", "\udcff\x1b[2J", "", None, "n" * 400):
        path = Path(folder.name(7, program, 1e9))
        assert path.parent == Path(folder.path) and OURS.fullmatch(path.name), path
        assert len(path.name) < 100 and "gdbheapx-7-20010909T014640Z-crash-" in path.name


def test_the_newest_stay_by_number_and_by_bytes(folder: Folder) -> None:
    """Files of others, and links, are left alone; what a killed writer left behind goes."""
    paths = [Path(folder.name(number, "x", 1e9 + number)) for number in range(5)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes(100))
        os.utime(path, (1e9 + number, 1e9 + number))
    others = [Path(folder.path) / name for name in ("gdbheapx-1-20010909T014640Z-above.snap", "mine.snap", "core")]
    link = Path(folder.path) / "gdbheapx-9-20010909T014640Z-crash-l.snap"
    link.symlink_to(paths[4])
    for path in others:
        path.write_bytes(bytes(1000))
    left = paths[0].with_name(paths[0].name + ".123-0011aabb")
    left.write_bytes(b"half")
    assert sorted(folder.prune(4, 1 << 30)) == sorted(map(str, (left, paths[0])))
    assert folder.prune(4, 250) == [str(paths[2]), str(paths[1])]
    assert folder.prune(1, 0) == [str(paths[3])] and paths[4].exists(), "the newest stays"
    assert all(path.exists() for path in others) and link.is_symlink()


def test_one_at_a_time(folder: Folder) -> None:
    """The second waits for as long as it may, and gets its turn when the first is done."""
    began = time.monotonic()
    second = Folder(folder.path, began + 0.1)
    assert not second.is_ours and time.monotonic() - began >= 0.1
    folder.free()
    assert Folder(folder.path, 0.0).is_ours


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    """They could put links there."""
    tmp_path.chmod(0o777)
    with pytest.raises(HeapxError) as refused:
        Folder(str(tmp_path), 0.0)
    assert refused.value.code == UNSAFE_PATH
    with pytest.raises(HeapxError):
        Folder("/proc/nowhere", 0.0)


def head_of(data: bytes) -> dumped.Head:
    """What is read of it through a pipe."""
    ours, theirs = os.pipe()
    writer = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=theirs)
    os.close(theirs)
    assert writer.stdin
    writer.stdin.write(data)
    writer.stdin.close()
    head = dumped.read_head(os.getpid(), ours, time.monotonic() + 5)
    os.close(ours)
    writer.wait()
    return head


@pytest.mark.parametrize("data, code", [(b"", PROCESS_ENDED), (b"\x7fELF", PROCESS_ENDED), (bytes(5000), NOT_A_CORE), (Path(sys.executable).read_bytes()[:9000], NOT_A_CORE)])
def test_what_is_no_core_is_said_and_nothing_of_it_is_lost(data: bytes, code: str) -> None:
    """What was taken from the pipe can be handed on."""
    head = head_of(data)
    assert head.error is not None and head.error.code == code and head.descriptor == -1
    assert data.startswith(head.data) and len(head.data) == min(len(data), 64)


def test_nothing_comes() -> None:
    """It is not waited for without end."""
    ours, theirs = os.pipe()
    began = time.monotonic()
    head = dumped.read_head(os.getpid(), ours, began + 0.1)
    assert head.error is not None and head.data == b"" and 0.1 <= time.monotonic() - began < 2
    os.close(ours)
    os.close(theirs)


def test_a_process_that_lives_is_left_alone() -> None:
    """The kernel writes no core of it."""
    with pytest.raises(HeapxError) as refused:
        dumped.DumpedSource(os.getpid(), -1)
    assert refused.value.code == NO_PROCESS


def test_the_core_is_handed_on_to_the_byte(tmp_path: Path) -> None:
    """Also what was taken of it; a program that ends early, or cannot be started, harms nothing."""
    rest, out = os.urandom(3 << 20), tmp_path / "out"
    script = "import sys; from gdbheapx.extras.capture import command; print(command.pass_on(sys.argv[1:], b'first'))"

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
    command.log(line, str(path))
    command.log(line, str(path))
    assert path.read_text() == 2 * (line + "\n") and path.stat().st_mode & 0o777 == 0o600 and line.isascii()


def test_why_a_snapshot_is_partial() -> None:
    """That there was no time comes first; a note is no reason."""
    note, cut, damage = ({"code": code, "what": code} for code in (FILES_NOT_DUMPED, CUT, CORE_DAMAGED))
    assert command.lacking({"problems": [note, damage, cut]}) == CUT and command.lacking({"problems": [note, damage]}) == CORE_DAMAGED
    assert command.lacking({"problems": [note]}) is None and command.lacking({}) is None


def test_what_follows_pass_to_is_not_ours() -> None:
    """A program may have options that are called as ours are."""
    asked, rest = split(["capture", "7", "--pass-to", "/bin/x", "--pid", "9", "--core", "-h", "--json"])
    assert asked == GlobalOptions.from_words([]) and rest[-5:] == ["--pid", "9", "--core", "-h", "--json"]


def shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, now: str, **options: Any) -> List[str]:
    """What --show-pattern prints where core_pattern is `now`."""
    pattern = tmp_path / "pattern"
    pattern.write_text(now + "\n")
    modes = tmp_path / "modes"
    modes.write_text("file\npipe\nsocket\n" if options.pop("sockets", False) else "file\npipe\n")
    monkeypatch.setattr(command, "PATTERN", str(pattern))
    monkeypatch.setattr(command, "MODES", str(modes))
    monkeypatch.setattr(sys, "argv", ["/usr/bin/gdbheapx"])
    text = command.pattern_text(SimpleNamespace(**{"to": command.DEFAULT_FOLDER, "pass_to": None, "listen": None, **options}))
    assert pattern.read_text() == now + "\n"
    return text.splitlines()


def test_the_pattern_hands_on_to_what_was_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A handler that is there gets the core; ours is not put before itself; too long a line is said."""
    systemd = "|/usr/lib/systemd/systemd-coredump %P %u %g %s %t 9223372036854775808 %h"
    assert shown(monkeypatch, tmp_path, systemd)[0] == "sysctl -w 'kernel.core_pattern=|/usr/bin/gdbheapx capture %%P --pass-to %s'" % systemd[1:]
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
    one = crashed.Crashed(os.getpid(), 7, 8, 2, os.pidfd_open(os.getpid()) if hasattr(os, "pidfd_open") else 0)
    found = one.fill(words, 11, 1e9 + 0.5)
    limit = crashed.core_limit(os.getpid())
    assert found[:5] == [str(os.getpid()), "7", "8", "11", "1000000000"] and found[5] == "x%sx" % os.uname().nodename
    assert found[6] == "-c%s" % (2**64 - 1 if limit == "unlimited" else limit) and found[7:10] == ["2", str(one.descriptor), "%P"]
    assert found[10] == os.path.realpath(sys.executable).replace("/", "!") and found[13] == "" and len(found) == len(words)
    assert crashed.not_filled(words) == [] and crashed.not_filled(["%I%%C", "a%C"]) == ["C", "I"]


def test_who_did_not_crash_is_refused() -> None:
    """Also on a kernel that cannot say who connects."""
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(HeapxError) as refused:
        crashed.accept(ours, time.monotonic() + 1)
    assert refused.value.code == NO_PROCESS


@pytest.mark.parametrize("path", ["", "socket", "/", "%s/", "%s/a b", "%s/../socket", "%s/link/socket", "%s/" + 100 * "n", "/proc/none/socket"])
def test_paths_that_core_pattern_could_not_name_are_refused(tmp_path: Path, path: str) -> None:
    """Relative ones, with spaces, through links, too long."""
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(HeapxError) as refused:
        listener.check(path.replace("%s", str(tmp_path)))
    assert refused.value.code == CANNOT_LISTEN


def test_a_folder_where_others_could_put_their_socket_is_refused(tmp_path: Path) -> None:
    """They would be given the cores."""
    listener.check(str(tmp_path / "socket"))
    tmp_path.chmod(0o777)
    with pytest.raises(HeapxError) as unsafe:
        listener.check(str(tmp_path / "socket"))
    assert unsafe.value.code == UNSAFE_PATH
