"""Looks as tasks of a cluster, without one: what a task refuses, how it ends, and which addresses are open.

Files: addons/views/fleet/run.py, invocation.py.
"""

import subprocess
import sys
import types
from pathlib import Path
from typing import Any, List

import pytest

from gdbheapx import __version__, child_python
from gdbheapx.addons.views.fleet import cluster, run

KEY = "key"


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a task sees of its worker."""
    made = types.SimpleNamespace(address="tcp://w:1", get_current_task=lambda: KEY)
    made.state = types.SimpleNamespace(tasks={KEY: types.SimpleNamespace(state="executing")})
    module = types.ModuleType("distributed")
    module.get_worker = lambda: made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "distributed", module)
    return made


def test_a_path_that_the_worker_does_not_see(worker: Any, tmp_path: Path) -> None:
    """Gone there, or another file: a reason that names the worker, and nothing is started."""
    path = tmp_path / "core"
    assert "tcp://w:1 does not see this path" in cluster.run_task(__version__, str(path), (1, 2), (), (), None)[1].said
    path.write_bytes(b"other")
    assert "tcp://w:1 sees another file" in cluster.run_task(__version__, str(path), (1, 2), (), (), None)[1].said


def test_another_version(worker: Any, tmp_path: Path) -> None:
    """Its sentence begins as the caller expects it, which tells the user at once."""
    where, ended = cluster.run_task("0", str(tmp_path), None, (), (), None)
    assert where == "tcp://w:1" and ended.said.startswith(cluster.OTHER) and ended.code == 1


def test_a_look_is_the_tool(worker: Any, tmp_path: Path) -> None:
    """The child is gdbheapx from this folder: its exit code and last line come back."""
    path = tmp_path / "core"
    path.write_bytes(b"no core")
    _, ended = cluster.run_task(__version__, str(path), run.read_core_state(str(path)), ("--gdb", "none"), run.report_words(None), None)
    assert ended.code == 1 and "is not an ELF core" in ended.said and b'"data": null' in ended.content


def test_a_cancelled_task_ends_its_look(worker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody wants the result: the child is killed, not waited for."""
    worker.state.tasks[KEY].state = "cancelled"
    begun: List[run.Child] = []
    begin = run.start_child

    def noted(*given: Any) -> run.Child:
        begun.append(begin(*given))
        return begun[0]

    monkeypatch.setattr(child_python, "start_gdbheapx", lambda words, **how: subprocess.Popen(["sleep", "600"], **how))
    monkeypatch.setattr(run, "start_child", noted)
    assert cluster.run_task(__version__, "/", run.read_core_state("/"), (), (), None)[1].said == "it was cancelled"
    assert begun[0].process.returncode == -9


@pytest.mark.parametrize("address", ["tls://h:1", "tcp://127.0.0.1:1", "localhost:1", "tcp://[::1]:1", "wss://h:1"])
def test_closed_addresses(address: str) -> None:
    """Encrypted, or on this machine."""
    assert not cluster.is_unencrypted_network(address)


@pytest.mark.parametrize("address", ["tcp://10.0.0.1:1", "h:1", "tcp://[fe80::1]:1", "ws://h:1", "tcp://localhost.example.com:1"])
def test_open_addresses(address: str) -> None:
    """Others can read what goes there."""
    assert cluster.is_unencrypted_network(address)
