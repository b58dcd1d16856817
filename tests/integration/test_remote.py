"""A process behind gdbserver gives the answer it gives when it is attached to directly."""

import json
import os
import re
import select
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence

import pytest
from harness import GDB, GDBINIT, READY_SECONDS, Process, Stage, answers, check_envelope, check_identity, heapx, run

pytestmark = pytest.mark.image  # its gdb and gdbserver

COMMANDS = ("arenas", "chunks", "chunks --histogram", "bins", "tcache", "malloc-info", "malloc-stats", "tunables", "trim --dry-run")


class Server:
    """gdbserver attached to a process, listening on a port of this machine that was free."""

    def __init__(self, pid: int) -> None:
        self.popen = subprocess.Popen(
            ["gdbserver", "--once", "--attach", "localhost:0", str(pid)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self.said = ""

    def port(self) -> str:
        """The port, once it listens; skips where gdbserver may not attach."""
        assert self.popen.stderr
        while True:
            match = re.search(r"Listening on port (\d+)", self.said)
            if match:
                return match.group(1)
            if not select.select([self.popen.stderr], [], [], READY_SECONDS)[0]:
                raise AssertionError("gdbserver does not listen after %d s: %s" % (READY_SECONDS, self.said))
            piece = os.read(self.popen.stderr.fileno(), 4096).decode()
            if not piece:
                pytest.skip("gdbserver may not attach to a process here: " + self.said)
            self.said += piece

    def end(self) -> None:
        """End it, if it lives; the process it holds runs on."""
        self.popen.terminate()
        self.popen.wait()
        if self.popen.stderr:
            self.popen.stderr.close()


@pytest.fixture
def servers(live: str) -> Iterator[List[Server]]:
    """gdbservers that end with the test; skips where gdbserver is not installed."""
    if not shutil.which("gdbserver"):
        pytest.skip("gdbserver is not installed")
    made = []  # type: List[Server]
    yield made
    for server in made:
        server.end()


def remote_answers(servers: List[Server], process: Process, commands: Sequence[str], *before: str) -> List[Dict[str, Any]]:
    """The envelopes of several commands from one gdb that reaches the process through a gdbserver."""
    servers.append(Server(process.pid))
    files = [process.folder / ("remote-%d" % number) for number in range(len(commands))]
    words = ["-iex", "set auto-load no", *before, "-ex", "target remote localhost:" + servers[-1].port(), "-x", str(GDBINIT)]
    for command, path in zip(commands, files):
        words += ["-ex", "heapx %s --json -o %s" % (command, path)]
    outcome = run([GDB, "-nx", "-q", "-batch", *words])
    assert all(path.exists() for path in files), outcome.stderr[-2000:]
    envelopes = [json.loads(path.read_text()) for path in files]
    for envelope in envelopes:
        check_envelope(envelope)
    return envelopes


def in_ram(key: str) -> bool:
    """Whether this figure says what is in RAM."""
    return "resident" in key or "exclusive" in key or key.endswith("huge_bytes")


def without_resident(value: Any) -> Any:
    """The data with what only this machine's /proc tells set to None."""
    if isinstance(value, dict):
        return {key: None if in_ram(key) else without_resident(one) for key, one in value.items()}
    return [without_resident(one) for one in value] if isinstance(value, list) else value


def resident_figures(value: Any) -> List[Any]:
    """Every figure that says what is in RAM."""
    if isinstance(value, dict):
        return [one for key, one in value.items() if in_ram(key)] + [found for one in value.values() for found in resident_figures(one)]
    return [found for one in value for found in resident_figures(one)] if isinstance(value, list) else []


CASES = {
    "threads": (("recorder", "5", "300", "3"), COMMANDS),
    "sbrk": (("accounts", "sbrk"), COMMANDS),
    "subheaps": (("accounts", "subheaps"), ("arenas",)),  # a hundred megabytes in packets of 16 KiB
}


@pytest.mark.parametrize("arguments, commands", CASES.values(), ids=CASES)
def test_remote_equals_native(stage: Stage, servers: List[Server], arguments: Sequence[str], commands: Sequence[str]) -> None:
    """Every command's data through `target remote` equals the native data; what is in RAM is null there, and the answer is whole."""
    process = stage.start(*arguments)
    native = answers(["--pid", str(process.pid)], process.folder, *commands)
    remote = remote_answers(servers, process, commands)
    for command, mine, theirs in zip(commands, native, remote):
        assert theirs["target"]["kind"] == "remote" and theirs["target"]["pid"] == process.pid
        assert theirs["target"]["stopped_ms"] is None
        assert theirs["partial"] is False, (command, theirs["problems"])
        assert without_resident(theirs["data"]) == without_resident(mine["data"]), command
        assert set(resident_figures(theirs["data"])) <= {None}, command
        assert theirs["allocators"] == mine["allocators"]
    check_identity(remote[0]["data"])


def test_remote_without_the_targets_files(stage: Stage, servers: List[Server], folder: Path) -> None:
    """With an empty sysroot gdb has none of the target's files; libc's debug file, found by the build-id in memory, is enough."""
    process = stage.start("recorder", "3", "500", "3")
    native = heapx(["--pid", str(process.pid)], "arenas", "--json").data
    (remote,) = remote_answers(servers, process, ["arenas"], "-ex", "set sysroot %s" % folder)
    assert remote["partial"] is False, remote["problems"]
    assert without_resident(remote["data"]) == without_resident(native)


def test_report_and_doctor_on_remote(stage: Stage, servers: List[Server]) -> None:
    """report and doctor answer there too: the split of RAM is null, the verdict stands."""
    process = stage.start("recorder", "3", "500", "3")
    report, doctor = remote_answers(servers, process, ["report", "doctor"])
    assert report["partial"] is False and report["data"]["verdict"]
    assert doctor["partial"] is False
    assert process.popen.poll() is None
