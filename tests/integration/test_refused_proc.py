"""A tool that may not do what is asked of it, or may not read /proc: refused at once, by the capability that really lacks, with nothing stopped.

Files of a target on a FUSE mount, whose daemon answers or does not, also the process's own: nobody but an abandoned child waits for it.
"""

import errno
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Iterator, List, Sequence, Tuple

import pytest

from gdbheapx.common import apart, files
from gdbheapx.inferior.live import procfs
from tests.support.busy import stretch
from tests.support.gdbserver import Server, remote_answers, resident_figures, without_resident
from tests.support.glibc import check_identity
from tests.support.paths import GDB, GDBINIT, ROOT
from tests.support.processes import READY_SECONDS, Process, Stage
from tests.support.tool import Outcome, heapx, run, tool_command
from tests.support.victims import check_free, refusal

pytestmark = pytest.mark.once  # the kernel's, which all images share

MOST_PTE_KB = 256
"""What reading one page in each mapping may add; a search of 2 GiB that was never touched adds 4 MB for each."""


def namespaces(*words: str) -> List[str]:
    """`unshare` with these; skips where that may not be done."""
    if not shutil.which("unshare") or subprocess.run(["unshare", *words, "true"], capture_output=True).returncode:
        pytest.skip("unshare %s is not permitted here" % " ".join(words))
    return ["unshare", *words, "sh", "-ec"]


@pytest.fixture
def refusing(folder: Path) -> Iterator[Any]:
    """Runs a command where opening these files of a process's /proc gives an error, whoever asks: a socket lies on each."""
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(folder / "socket"))

        def go(process: Process, files: Sequence[str], command: Sequence[str]) -> Outcome:
            lines = ["mount --make-rprivate /", *("mount --bind %s /proc/%d/%s" % (folder / "socket", process.pid, name) for name in files)]
            return run([*namespaces("-m"), "\n".join([*lines, "exec " + shlex.join(command)])])

        yield go


def vmpte_kb(process: Process) -> int:
    """Its page tables."""
    with open("/proc/%d/status" % process.pid) as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmPTE:"))


@pytest.mark.parametrize("files", [("pagemap",), ("pagemap", "smaps", "smaps_rollup")], ids=["pagemap", "pagemap and smaps"])
def test_what_is_in_ram_is_unknown(stage: Stage, live: str, refusing: Any, files: Sequence[str]) -> None:
    """Every other figure is as it was, mapped chunks are found; what is in RAM is null, and the answer is partial and says why."""
    process = stage.start("swapped")
    native = {words: heapx(process.target(live), *words.split(), "--json").data for words in ("arenas", "trim --dry-run", "chunks --histogram")}
    for words in native:
        outcome = refusing(process, files, [*tool_command(), *process.target(live), *words.split(), "--json"])
        envelope = outcome.envelope
        assert outcome.code == (4 if words != "chunks --histogram" else 0), outcome.stderr
        assert all(problem["code"] == "pagemap-unreadable" for problem in envelope["problems"])
        assert envelope["target"]["swapped_in_bytes"] is None
        if words == "arenas":
            check_identity(envelope["data"])
            assert envelope["data"]["mmapped"]["chunks"] >= 24
            assert set(resident_figures(envelope["data"])) <= {None}
        assert not words.startswith(("arenas", "chunks")) or without_resident(envelope["data"]) == without_resident(native[words])
    report = refusing(process, files, [*tool_command(), *process.target(live), "report", "--json"])
    assert report.code == 4 and report.envelope["data"]["verdict"]
    text = refusing(process, files, [*tool_command(), *process.target(live), "report"])
    assert text.code == 4 and b"Verdict" in text.stdout


@pytest.mark.parametrize("way", ["refused", "remote"])
def test_what_was_never_touched_is_not_searched(stage: Stage, live: str, refusing: Any, servers: List[Server], way: str) -> None:
    """Without pagemap nothing tells untouched memory: 4 GiB of it get no page tables by the search for mapped chunks, and one that it may hide is said."""
    process = stage.start("asleep")
    process.command(b"w")
    before = vmpte_kb(process)
    if way == "remote":
        (envelope,) = remote_answers(servers, process, ["chunks --histogram"])
    else:
        envelope = refusing(process, ("pagemap",), [*tool_command(), *process.target(live), "chunks", "--histogram", "--json"]).envelope
    assert vmpte_kb(process) - before <= MOST_PTE_KB
    used = sum(row["used_bytes"] for row in envelope["data"]["histogram"])
    assert used > 2 << 30 or any("would touch all memory" in str(problem["hint"]) for problem in envelope["problems"]), envelope["problems"]


def test_gdb_reads_what_proc_refuses(stage: Stage, live: str, refusing: Any, folder: Path) -> None:
    """A gdb that has attached reads by its own ways where /proc/PID/mem is refused: the same figures, what is in RAM null."""
    process = stage.start("swapped")
    native = heapx(process.target(live), "arenas", "--json").data
    answer = folder / "answer"
    words = ["-iex", "set auto-load no", "-p", str(process.pid), "-x", str(GDBINIT), "-ex", "heapx arenas --json -o %s" % answer]
    outcome = refusing(process, ("mem",), [GDB, "-nx", "-q", "-batch", *words])
    assert answer.exists(), outcome.stderr[-2000:]
    envelope = Outcome(0, answer.read_bytes(), "").envelope
    assert envelope["target"]["kind"] == "remote" and envelope["target"]["swapped_in_bytes"] is None
    assert without_resident(envelope["data"]) == without_resident(native)


def one_line(outcome: Outcome) -> str:
    """The error: exit code 1 and one line."""
    assert outcome.code == 1 and len(outcome.stderr.strip().splitlines()) == 1, (outcome.code, outcome.stderr[-1000:])
    return outcome.stderr


@pytest.mark.parametrize("words", [("arenas",), ("trim", "--yes")], ids=lambda words: words[0])
def test_proc_of_another_pid_namespace(stage: Stage, live: str, words: Sequence[str]) -> None:
    """The numbers in it mean other processes than those of system calls: refused at once, where it once asked for ever to stop a process that is not there."""
    process = stage.start("untouched")
    command = [*namespaces("--pid", "--fork"), shlex.join([*tool_command(), *process.target(live), *words])]
    assert "/proc here belongs to a different pid namespace" in one_line(run(command))
    assert process.popen.poll() is None


def test_a_process_that_the_own_proc_does_not_have(stage: Stage, live: str) -> None:
    """With its namespace's own /proc the command sees no such process, and says where numbers differ."""
    process = stage.start("untouched")
    command = [*namespaces("--pid", "--fork", "--mount-proc"), shlex.join([*tool_command(), *process.target(live), "arenas"])]
    assert "inside a container pids differ from those outside" in one_line(run(command))


def test_a_hidden_process(stage: Stage, live: str) -> None:
    """With hidepid another user's process is not in /proc: that is said, not that there is none."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("only root can be somebody else, with setpriv (util-linux)")
    process = stage.start("untouched")
    copy = stage.folder()  # the checkout may lie where only root can look
    copy.chmod(0o755)
    for name in ("gdbheapx", "commands"):
        shutil.copytree(ROOT / name, copy / name)
    tool = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-m", "gdbheapx", *process.target(live), "arenas"]
    lines = ["mount --make-rprivate /", "mount -t proc -o hidepid=2 proc /proc", "exec " + shlex.join(tool)]
    environment = {"HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(copy)}
    outcome = run([*namespaces("-m"), "\n".join(lines)], env=environment, cwd=Path("/"))
    assert "/proc hides it (hidepid)" in one_line(outcome)

LACKS = os.geteuid() != 0 or not shutil.which("setpriv")
needs_root = pytest.mark.skipif(LACKS, reason="root and setpriv are needed to give capabilities up")
UID = 61234
AS_OTHER = ["setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups"]
SOON_S = 20
"""The process used to stand still for 75 s."""


def of_another_user(stage: Stage) -> Process:
    """A heap that a trim returns much of, of a user who is not root."""
    folder, program = stage.folder(), stage.builder.build("trimmer")
    os.chown(folder, UID, UID)
    copy = folder / "trimmer"
    shutil.copy(program, copy)
    copy.chmod(0o755)
    return stage.spawn_ready([*AS_OTHER, str(copy), str(folder / "record"), "main"], folder, None, folder / "record")


def with_only(capabilities: List[str], process: Process, *words: str) -> List[str]:
    """The tool as root with these capabilities."""
    bounding = ",".join(["-all", *("+" + one for one in capabilities)])
    return ["setpriv", "--inh-caps=-all", "--bounding-set=" + bounding, *tool_command(), "--pid", str(process.pid), *words]


@needs_root
def test_trim_without_the_right_to_write(stage: Stage, live: str) -> None:
    """Who may read and not write is refused before anything is stopped, and told which capability lacks; the dry run says so too."""
    process = of_another_user(stage)
    began = time.monotonic()
    outcome = run(with_only(["sys_ptrace", "dac_read_search"], process, "trim", "--yes", "--json"))
    line = refusal(outcome)
    assert "CAP_DAC_OVERRIDE is missing" in line and "--user %d:%d" % (UID, UID) in line and "damage" not in line
    assert outcome.envelope["target"]["stopped_ms"] is None and time.monotonic() - began < stretch(SOON_S)
    dry = run(with_only(["sys_ptrace", "dac_read_search"], process, "trim", "--dry-run", "--json")).envelope
    assert "call-refused" in [one["code"] for one in dry["problems"]] and dry["data"]["predicted_bytes"] > 1 << 20
    check_free(process)
    assert run(with_only(["sys_ptrace", "dac_override", "sys_admin"], process, "trim", "--yes", "--json")).data["returned"] == 1
    process.command(b"t")


@needs_root
@pytest.mark.parametrize(
    "given, lacking",
    [(["sys_ptrace"], ["DAC_READ_SEARCH"]), (["dac_read_search"], ["SYS_PTRACE"]), (["dac_override"], ["SYS_PTRACE"]), ([], ["SYS_PTRACE", "DAC_READ_SEARCH"])],
)
def test_what_lacks_is_named(stage: Stage, live: str, given: List[str], lacking: List[str]) -> None:
    """Exactly the capabilities that are missing, as options of a container; or the program's own user, who needs none."""
    process = of_another_user(stage)
    line = refusal(run(with_only(given, process, "arenas")))
    assert " and ".join("CAP_" + one for one in lacking) + (" is" if len(lacking) == 1 else " are") + " missing" in line
    assert [word for word in line.replace(",", "").split() if word.startswith("--cap-add")] == ["--cap-add=" + one for one in lacking]
    assert "--user %d:%d" % (UID, UID) in line
    assert all("--cap-add=" + one.upper() not in line for one in given)
    check_free(process)


@needs_root
def test_who_is_not_root_is_told_what_root_needs(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The image runs as an ordinary user, and has no sudo: the options of a container, or the program's own user."""
    process = of_another_user(stage)
    monkeypatch.setattr(os, "geteuid", lambda: UID + 1)
    monkeypatch.setattr(procfs, "read_capabilities", lambda: 0)
    hint = procfs.why_not_permitted(process.pid).hint or ""
    assert "with sudo" in hint and "--user 0 --cap-add=SYS_PTRACE --cap-add=DAC_READ_SEARCH" in hint
    assert "--user %d:%d" % (UID, UID) in hint

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
