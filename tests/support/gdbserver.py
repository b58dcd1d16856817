"""gdbserver between gdb and a process: its start, answers through it, and what they cannot have."""

import json
import os
import re
import select
import subprocess
from typing import Any, Dict, List, Sequence

import pytest

from tests.support.paths import GDB, GDBINIT
from tests.support.processes import READY_SECONDS, Process
from tests.support.tool import check_envelope, run


class Server:
    """gdbserver attached to a process, listening on a port of this machine that was free."""

    def __init__(self, pid: int) -> None:
        self.popen = subprocess.Popen(
            ["gdbserver", "--once", "--attach", "localhost:0", str(pid)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self.said = ""

    def port(self) -> str:
        """The port, once it listens; skips where gdbserver may not attach."""
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
