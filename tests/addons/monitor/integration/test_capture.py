"""`capture`: processes that crash while they allocate leave whole snapshots, which say what their cores say, to the byte; nothing is held up.

Files: addons/monitor/capture/command.py addons/monitor/capture/dumped.py addons/monitor/commands/capture.py
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterator, List

import pytest

from tests.support import crashes
from tests.support.busy import stretch
from tests.support.processes import Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # it sets core_pattern, which is the machine's: no image may
RATE = "200000000"


def words(folder: Path, *more: str) -> str:
    """The handler with its files in this folder."""
    return crashes.capture_words("--to", str(folder / "to"), "--log", str(folder / "log"), "--max-seconds", "60", *more)


@pytest.mark.slow
@pytest.mark.parametrize("number", (0, 3))
def test_a_crash_while_four_threads_allocate(stage: Stage, number: int) -> None:
    """By a fault and by abort(): the snapshot is there when the process is gone, and has what the core has that was handed on."""
    folder, process = stage.folder(), stage.start("crashing", "4", RATE)
    time.sleep(0.02 * number)  # it grows meanwhile: how far is what the rounds differ by
    core = folder / "core"
    how = ("byte", "s" if number % 2 else "a")
    crashes.crash(process, folder, how, words(folder, "--pass-to", "/bin/sh", "-c", "'cat > %s'" % core))
    (line,) = crashes.decided(folder)
    assert line["outcome"] in ("taken", "partial") and line["passed_code"] == 0, line
    assert (line["pid"], line["program"], line["threads"]) == (process.pid, "crashing", 5)
    assert process.popen.returncode == (-11 if number % 2 else -6)
    path = Path(line["path"])
    assert path.stat().st_size == line["size_bytes"] and path.stat().st_mode & 0o777 == 0o600
    crashes.same_as_core(line["path"], core, folder)


def test_a_living_process_or_another_core_is_refused(stage: Stage) -> None:
    """The handler is given the wrong process: nothing is written, the core goes on, and one line says why."""
    folder, process, other = stage.folder(), stage.start("crashing", "1", "1000000"), stage.start("crashing", "1", "1000000")
    core = folder / "core"
    crashes.crash(process, folder, ("byte", "s"), words(folder, "--pass-to", "/bin/sh", "-c", "'cat > %s'" % core).replace("$1", str(other.pid)))
    (line,) = crashes.decided(folder)
    assert line["outcome"] == "failed" and "not writing a core of process %d" % other.pid in line["why"] and line["passed_code"] == 0
    assert heapx(["--core", str(core)], "arenas", "--json").code in (0, 4) and other.popen.poll() is None


@pytest.mark.slow
def test_two_thousand_threads(stage: Stage) -> None:
    """Their registers come with the beginning of the core."""
    folder, process = stage.folder(), stage.start("crashing", "2000", "20000000")
    crashes.crash(process, folder, ("signal", "SIGABRT"), words(folder))
    (line,) = crashes.decided(folder)
    assert line["outcome"] in ("taken", "partial") and line["threads"] == 2001, line
    told = heapx(["--snapshot", line["path"]], "tcache", "--json").envelope["data"]["threads"]
    assert len(told) == 2001


@pytest.mark.parametrize(
    "more, outcome",
    [(("--max-seconds", "0.05"), "too-slow"), (("--max-memory", "1M"), "failed"), (("--to", "/proc/none"), "failed")],
)
def test_what_cannot_be_done_is_said_and_the_core_goes_on(stage: Stage, more: List[str], outcome: str) -> None:
    """No time, no memory, no folder: the dump waits no longer than was said, and no file is left."""
    folder, process = stage.folder(), stage.start("crashing", "4", RATE)
    size = folder / "size"
    began = time.monotonic()
    crashes.crash(process, folder, ("byte", "a"), words(folder, *more, "--pass-to", "/bin/sh", "-c", "'wc -c > %s'" % size))
    (line,) = crashes.decided(folder)
    assert line["outcome"] == outcome and line["why"] and line["path"] is None and line["passed_code"] == 0, line
    assert int(size.read_text()) > 1 << 20 and time.monotonic() - began < stretch(30)
    assert "Traceback" not in line["why"] and not list((folder / "to").glob("*.snap*"))


def test_two_at_once_take_turns(stage: Stage) -> None:
    """The second waits for its turn; both are taken."""
    first, second = stage.start("crashing", "2", RATE), stage.start("crashing", "2", RATE)
    folder, other = stage.folder(), stage.folder()
    handler = words(folder)
    with crashes.handled(folder, first.pid, handler):
        os.kill(first.pid, 11)
    with crashes.handled(other, second.pid, handler):
        os.kill(second.pid, 11)
    for process in (first, second):
        process.popen.wait(crashes.SECONDS)
    lines = crashes.decided(folder, 2)
    assert sorted(line["pid"] for line in lines) == sorted((first.pid, second.pid))
    assert {line["outcome"] for line in lines} <= {"taken", "partial"}, lines


def test_a_process_that_is_killed_meanwhile(stage: Stage) -> None:
    """SIGKILL ends a dump, and the memory with it: there is none or a whole one, and a line that says so."""
    folder, process = stage.folder(), stage.start("crashing", "4", RATE)
    time.sleep(0.5)
    with crashes.handled(folder, process.pid, words(folder)):
        os.kill(process.pid, 11)
    time.sleep(0.4)
    process.popen.kill()
    process.popen.wait(crashes.SECONDS)
    (line,) = crashes.decided(folder)
    assert line["outcome"] in ("failed", "taken", "partial")
    assert list((folder / "to").glob("*.snap*")) == ([Path(line["path"])] if line["path"] else [])


HOLDS = "import sys, time; kept = [{'id': number, 'text': str(number)} for number in range(5000)]; print('ready', flush=True); time.sleep(600)"
REDIS = ["redis-server", "--port", "0", "--unixsocket", "socket", "--save", "", "--crash-memcheck-enabled", "no"]
"""Its handler of SIGSEGV else writes patterns over all its memory, while jemalloc's thread runs, and may crash there once more
(debug.c: doFastMemoryTest)."""
SERVES = b"ready to accept connections"


@pytest.mark.slow
@pytest.mark.parametrize(
    "command, ready",
    [([sys.executable, "-c", HOLDS], b"ready\n"), (REDIS, SERVES)],
    ids=["python", "redis"],
)
def test_programs_that_nobody_here_wrote(stage: Stage, command: List[str], ready: bytes) -> None:
    """Python, on glibc's malloc, and redis-server, on jemalloc."""
    if shutil.which(command[0]) is None:
        pytest.skip("%s is not installed" % command[0])
    folder = stage.folder()
    process, core = stage.spawn(command, folder), folder / "core"
    got = b""
    while ready not in got.lower():
        assert select.select([process.popen.stdout], [], [], 30)[0], got
        got += os.read(process.popen.stdout.fileno(), 4096) or pytest.fail(repr(got))
    crashes.crash(process, folder, ("signal", "SIGSEGV"), words(folder, "--pass-to", "/bin/sh", "-c", "'cat > %s'" % core))
    (line,) = crashes.decided(folder)
    assert line["outcome"] == "taken" and process.popen.returncode == -11, json.dumps(line)
    crashes.same_as_core(line["path"], core, folder)


@pytest.fixture
def group() -> Iterator[Path]:
    """A memory cgroup of its own, of either version."""
    top = Path("/sys/fs/cgroup")
    parent = top / "memory" if (top / "memory").is_dir() else top
    made = parent / ("gdbheapx-test-%d" % os.getpid())
    try:
        made.mkdir()
    except OSError as error:
        pytest.skip("no memory cgroup can be made here: %s" % error.strerror)
    try:
        if not any((made / name).exists() for name in LIMITS):
            pytest.skip("the cgroups here have no memory controller")
        yield made
    finally:
        until = time.monotonic() + stretch(10)
        while (made / "cgroup.procs").read_text() and time.monotonic() < until:
            time.sleep(0.01)
        made.rmdir()


LIMITS = {"memory.max": "memory.current", "memory.limit_in_bytes": "memory.usage_in_bytes"}
KILLS = ("memory.events", "memory.oom_control")
ROOM = {"pipe": 256 << 10, "socket": 1 << 20}
"""Up to the limit. What the kernel holds of the core in its socket is charged to the group (net.core.wmem_default, 208 KiB, and what holds it), as
the 64 KiB of a pipe are."""


def kills(group: Path) -> List[str]:
    """What the group's files say of kills for memory."""
    return [line for name in KILLS if (group / name).exists() for line in (group / name).read_text().splitlines() if line.startswith("oom_kill ")]


@pytest.mark.parametrize("form", ["pipe", "socket"])
def test_a_memory_cgroup_at_its_limit(stage: Stage, group: Path, form: str) -> None:
    """Reading costs the group nothing but what the kernel holds of the core: nobody is killed, and the snapshot is whole."""
    folder = stage.folder()
    program, record = stage.builder.build("crashing"), folder / "record"
    line = 'echo $$ > "%s/cgroup.procs"; exec "$0" "$@"' % group
    process = stage.spawn_ready(["/bin/sh", "-c", line, str(program), str(record), "4", RATE], folder)
    time.sleep(1)
    os.kill(process.pid, signal.SIGSTOP)
    while any(path.read_text().rpartition(")")[2].split()[0] != "T" for path in Path("/proc/%d/task" % process.pid).glob("*/stat")):
        time.sleep(0.001)
    limit, used = next((group / name, group / of) for name, of in LIMITS.items() if (group / name).exists())
    limit.write_text(str(int(used.read_text()) + ROOM[form]))
    before, core = kills(group), folder / "core"
    server = crashes.Server(folder, "sh -c 'cat > \"%s\"'" % core) if form == "socket" else None
    by_pipe = words(folder, "--pass-to", "/bin/sh", "-c", "'cat > %s'" % core)
    with server.named(process) if server is not None else crashes.handled(folder, process.pid, by_pipe):
        os.kill(process.pid, signal.SIGSEGV)
        os.kill(process.pid, signal.SIGCONT)
    assert process.popen.wait(crashes.SECONDS) == -signal.SIGSEGV
    (told,) = crashes.decided(folder)
    assert server is None or server.end() == 0
    assert told["outcome"] in ("taken", "partial") and kills(group) == before and before, told
    crashes.same_as_core(told["path"], core, folder)


@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
def test_a_container_is_seen_from_outside(stage: Stage) -> None:
    """Of a process in namespaces of its own %P is the id outside; its files are those of its own tree."""
    folder = stage.folder()
    program = stage.builder.build("crashing")
    outer = stage.spawn_ready(["unshare", "--pid", "--fork", "--mount-proc", str(program), str(folder / "record"), "2", RATE], folder)
    (pid,) = subprocess.run(["pgrep", "-P", str(outer.pid)], stdout=subprocess.PIPE, text=True).stdout.split()
    with crashes.handled(folder, int(pid), words(folder)):  # the first process of a namespace dies of its own faults alone
        outer.send(b"s")
    outer.popen.wait(crashes.SECONDS)
    (line,) = crashes.decided(folder)
    assert line["outcome"] in ("taken", "partial") and line["pid"] == int(pid), line
    found = heapx(["--snapshot", line["path"]], "arenas", "--json").envelope
    assert found["target"]["pid"] == int(pid) and found["allocators"][0]["id"] == "glibc"
