"""Files that a target names, and files of answers: what is opened, and what is left.

Files: common/files.py, common/apart.py.
"""

import errno
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Callable, List

import pytest

from gdbheapx.command import output
from gdbheapx.common import apart, files
from gdbheapx.common.errors import HeapxError

LINE = b"36 35 98:0 / %s rw,noatime master:1 - %s /dev/root rw,errors=continue"
WAYS = {"openat2": files.open_of_target, "component by component": files.open_apart}


@pytest.fixture(params=sorted(WAYS))
def open_it(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[files.TargetPath], int]:
    """Each way to open a file of a target; the second as on a kernel without openat2, in a child."""

    def lacks(*given: object) -> int:
        raise OSError(errno.ENOSYS, "no such call")

    if request.param != "openat2":
        monkeypatch.setattr(files, "openat2", lacks)
        files.reader.cache_clear()  # whose child has it so, too
    return WAYS[request.param]


def name_of(descriptor: int) -> str:
    """The path behind a descriptor, which is closed."""
    name = os.readlink("/proc/self/fd/%d" % descriptor)
    os.close(descriptor)
    return name


def test_no_link_leads_out_of_the_tree(tmp_path: Path, open_it: Callable[[files.TargetPath], int]) -> None:
    """An absolute link is one in the tree, and `..` ends at its root: a file of the machine is not reached."""
    outside, tree = tmp_path / "secret", tmp_path / "tree"
    tree.mkdir()
    outside.write_text("x")
    (tree / "absolute").symlink_to(outside)
    (tree / "above").symlink_to("../secret")
    for name in ("/absolute", "/above", "/../secret"):
        with pytest.raises(FileNotFoundError):
            open_it(files.in_tree(str(tree), name))
    (tree / "secret").write_text("own")
    assert name_of(open_it(files.in_tree(str(tree), "/above"))) == str(tree / "secret")


def test_a_magic_link_leads_nowhere(open_it: Callable[[files.TargetPath], int]) -> None:
    """/proc/PID/root, exe and fd as a name that a target gave are no way to a file."""
    with open(__file__):
        for name in ("/proc/self/exe", "/proc/self/root" + __file__, "/proc/%d/fd/0" % os.getpid()):
            with pytest.raises(OSError):
                open_it(files.in_tree("", name))


def test_what_is_no_data_is_not_opened(tmp_path: Path, open_it: Callable[[files.TargetPath], int]) -> None:
    """A FIFO, a socket, a folder, a device, and files of procfs and sysfs: each is looked at only."""
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
    names = [str(tmp_path / "fifo"), str(tmp_path / "socket"), str(tmp_path), "/dev/null", "/proc/meminfo", "/sys/kernel/notes"]
    for name in [name for name in names if os.path.exists(name)]:
        with pytest.raises(OSError) as caught:
            open_it(files.in_tree("", name))
        assert caught.value.errno == errno.EINVAL, name


def test_a_link_that_changes_after_the_look_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is opened is what was looked at, whatever lies at the path by then: also for a path that the user gave."""
    path = tmp_path / "file"
    real = files.check_regular

    def check_and_swap(status: os.stat_result, name: str) -> None:
        real(status, name)
        path.unlink()
        path.symlink_to("/dev/null")

    monkeypatch.setattr(files, "check_regular", check_and_swap)
    for name in (str(path), files.in_tree("", str(path))):
        path.unlink(missing_ok=True)
        path.write_text("looked at")
        descriptor = files.open_regular(name)
        assert os.read(descriptor, 99) == b"looked at"
        os.close(descriptor)


def test_a_file_of_a_mount_that_may_not_answer_is_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file system is not known to answer: the child reads it, and its copy has the time of the file."""
    path = tmp_path / "file"
    path.write_bytes(b"content")
    monkeypatch.setattr(files, "LOCAL", frozenset())
    files.reader.cache_clear()
    descriptor = files.open_regular(files.in_tree("", str(path)))
    try:
        assert os.read(descriptor, 99) == b"content" and os.fstat(descriptor).st_ino != path.stat().st_ino
        assert os.fstat(descriptor).st_mtime_ns == path.stat().st_mtime_ns
    finally:
        os.close(descriptor)
    with pytest.raises(OSError):
        files.open_of_target(files.in_tree("", str(tmp_path)), is_folder=True)


def test_a_child_that_does_not_answer_is_abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question that is not answered costs its time; when all of it is spent nothing is asked any more."""
    asked: List[int] = []

    def start(open_file: apart.OpenFile) -> socket.socket:
        asked.append(1)
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        kept.append(its)
        return mine

    kept: List[socket.socket] = []
    monkeypatch.setattr(apart, "start_reader", start)
    monkeypatch.setattr(apart, "EACH_S", 0.01)
    monkeypatch.setattr(apart, "QUICK_S", 0.0)
    monkeypatch.setattr(apart, "ALL_S", 0.025)
    reader = apart.Reader(files.open_in_child)
    for _ in range(20):
        with pytest.raises(OSError) as caught:
            reader.ask(apart.FILE, "/etc/passwd", "/")
        assert caught.value.errno == errno.ETIMEDOUT
    assert 1 <= len(asked) <= 3
    for one in kept:
        one.close()


def test_the_child_has_none_of_our_descriptors() -> None:
    """A pipe of ours ends although a child waits; it ends by itself when nobody asks any more."""
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    asking = apart.start_reader(files.open_in_child)
    try:
        asking.send(b"\0".join((apart.TEXT, b"", b"/proc/self/comm")))
        assert asking.recv(99)[4:]
        os.close(writer)
        assert os.read(reader, 1) == b""
        assert asking.recv(1) == b""  # it was idle
    finally:
        asking.close()
        os.close(reader)


def test_more_files_than_descriptors(tmp_path: Path) -> None:
    """1,100 files with 32 descriptors: what was closed is opened again, and another file at its path is none."""
    program = (
        "import os, resource, sys\n"
        "from gdbheapx.common.files import RegularFile\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))\n"
        "paths = [os.path.join(sys.argv[1], str(n)) for n in range(1100)]\n"
        "for path in paths:\n"
        "    open(path, 'w').write(path)\n"
        "kept = [RegularFile(path) for path in paths]\n"
        "assert all(file.pread(999, 0).decode() == file.path for file in kept * 2)\n"
        "open(paths[0], 'w').write('x')\n"
        "try:\n    kept[0].pread(1, 0)\nexcept OSError:\n    print('another')\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, timeout=60).stdout == b"another\n"


@pytest.mark.parametrize("name", ["\x85".encode(), b"a\\040b", b"a\\012b", b"\\134", b"\xff\x0c"])
def test_a_mount_point_may_have_any_name(name: bytes) -> None:
    """Only a newline ends a line of the table; blanks, newlines and backslashes are octal."""
    table = b"\n".join((LINE % (b"/" + name, b"ext4"), LINE % (b"/x", b"fuse.a\\040b"), b"", b"damaged"))
    points = [mount.point for mount in files.parse_mounts(table)]
    decoded = name.replace(b"\\040", b" ").replace(b"\\012", b"\n").replace(b"\\134", b"\\")
    assert points == [os.fsdecode(b"/" + decoded), "/x"]
    assert [mount.kind for mount in files.parse_mounts(table)] == [b"ext4", b"fuse.a\\040b"]


def test_a_table_is_read_in_pieces(tmp_path: Path) -> None:
    """Thousands of mounts: lines that go over the end of a piece are whole."""
    path = tmp_path / "mountinfo"
    path.write_bytes(b"".join(b"%d 1 0:%d / /m%d rw - tmpfs none rw\n" % (n, n, n) for n in range(3000)))
    assert [mount.id for mount in files.read_mounts(str(path))] == list(range(3000))
    assert not list(files.read_mounts(str(tmp_path / "none")))


def test_an_overlay_of_another_user_namespace_is_not_known(tmp_path: Path) -> None:
    """It may lie over a FUSE mount of the user who made it."""
    (tmp_path / "ns").mkdir()
    (tmp_path / "ns" / "user").symlink_to("user:[1]")
    descriptor = os.open(tmp_path, files.HANDLE)
    with open("/proc/self/fdinfo/%d" % descriptor, "rb") as file:
        number = next(line.split()[1] for line in file if line.startswith(b"mnt_id"))
    for kind, expected in ((b"overlay", None), (b"ext4", b"ext4"), (b"fuse.x", b"fuse.x")):
        (tmp_path / "mountinfo").write_bytes(number + b" 1 0:1 / / rw - " + kind + b" none rw\n")
        assert files.kind_of(descriptor, str(tmp_path / "mountinfo")) == expected
    os.close(descriptor)


def test_a_link_that_changes_after_the_look_is_not_written_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may write to the folder puts a link there meanwhile: the new file takes its place, and what it leads to stays."""
    victim, path = tmp_path / "victim", tmp_path / "out"
    victim.write_text("kept")
    path.write_text("old")
    made = output.OutputFile(str(path))
    path.unlink()
    path.symlink_to(victim)
    made.finish(b"new")
    assert victim.read_text() == "kept" and path.read_text() == "new" and not path.is_symlink()


@pytest.mark.parametrize("is_named", [False, True])
def test_nothing_is_left_of_half_a_file(tmp_path: Path, is_named: bool) -> None:
    """Where writing fails, or the process is killed before the end (without a name), the folder is as it was."""
    path = tmp_path / "out"
    path.write_text("old")
    made = output.OutputFile(str(path), is_named=is_named)
    made.write("half")
    assert path.read_text() == "old"
    os.close(os.dup2(os.open("/dev/full", os.O_WRONLY), made.file.fileno()))
    with pytest.raises(output.CannotWrite):
        made.finish(b"x" * 100000)
    assert sorted(tmp_path.iterdir()) == [path] and path.read_text() == "old"


def test_links_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One's own lead on, relative, absolute and above; another user's do not, wherever on the way."""
    (tmp_path / "real").mkdir()
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "real" / "up").symlink_to("../real/../real/file")
    (tmp_path / "real" / "full").symlink_to(tmp_path / "folder" / "up")
    monkeypatch.chdir(tmp_path / "real")
    for name in ("up", "full", "../folder/up", str(tmp_path / "folder" / "full")):
        output.OutputFile(name).finish(name.encode())
        assert (tmp_path / "real" / "file").read_bytes() == name.encode() and stat.S_IMODE((tmp_path / "real" / "file").stat().st_mode) == 0o600
    owner = os.geteuid()
    monkeypatch.setattr(output.os, "geteuid", lambda: owner + 1)
    if owner == 0:
        os.chown(tmp_path / "folder", 12345, -1, follow_symlinks=False)
    with pytest.raises(HeapxError, match="symbolic link owned by another user"):
        output.OutputFile(str(tmp_path / "folder" / "file"))


def test_a_link_of_proc_is_written_to_where_it_leads(tmp_path: Path) -> None:
    """/dev/stdout of a shell's > FILE: the file that the shell opened, and no other in its place."""
    path = tmp_path / "out"
    with open(path, "w+") as file:
        before = os.fstat(file.fileno()).st_ino
        output.OutputFile("/proc/self/fd/%d" % file.fileno(), takes_any=True).finish(b"answer")
        assert path.read_bytes() == b"answer" and path.stat().st_ino == before
        with pytest.raises(HeapxError, match="not a regular file"):
            output.OutputFile("/proc/self/fd/%d" % file.fileno())


def test_memory_of_the_kernels_own_mount_is_not_copied() -> None:
    """No table has the mount of a memfd, which answers; a copy of it would bring in what is in swap."""
    descriptor = os.memfd_create("test")
    try:
        assert files.kind_of(descriptor, "/proc/self/mountinfo") == b"tmpfs"
    finally:
        os.close(descriptor)
