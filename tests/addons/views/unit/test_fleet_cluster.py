"""Looks as tasks of a cluster, without one, and the folder in which others may put documents.

Files: addons/views/fleet/run.py, app/invocation.py.
"""

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any, List

import pytest

from gdbheapx.addons.views.fleet import cluster, run
from gdbheapx.addons.views.fleet.run import prepare_folder
from gdbheapx.common import __version__, child_python
from gdbheapx.common.errors import HeapxError

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


NOBODY = 65534


def refused(path: Path) -> str:
    """Why it is not taken."""
    with pytest.raises(HeapxError) as caught:
        prepare_folder(str(path))
    assert caught.value.code == "unsafe-path" and "0700" in (caught.value.hint or "")
    return caught.value.message


def test_a_folder_that_is_made(tmp_path: Path) -> None:
    """It is its owner's alone, and taken again."""
    for _ in range(2):
        prepare_folder(str(tmp_path / "made"))
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702])
def test_others_may_write(tmp_path: Path, mode: int) -> None:
    """The sticky bit keeps nobody from putting a document there first."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(mode)
    assert "mode %o" % mode in refused(tmp_path / "open")


def test_a_group(tmp_path: Path) -> None:
    """One's own group may write, as with a volume of Kubernetes; another may not."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o770)
    prepare_folder(str(tmp_path / "shared"))
    if os.geteuid():
        pytest.skip("only root gives a folder to another group")
    os.chown(tmp_path / "shared", -1, NOBODY)
    (tmp_path / "shared").chmod(0o770)
    refused(tmp_path / "shared")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")
def test_another_user(tmp_path: Path) -> None:
    """Neither the folder nor a link to it may be his."""
    (tmp_path / "his").mkdir()
    os.chown(tmp_path / "his", NOBODY, NOBODY)
    assert "another user" in refused(tmp_path / "his")
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    prepare_folder(str(tmp_path / "link"))
    os.lchown(tmp_path / "link", NOBODY, NOBODY)
    assert "another user" in refused(tmp_path / "link")
