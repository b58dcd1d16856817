"""The command line, and what a session does before its target is stopped.

Files: app/direct.py, __main__.py.
"""

import os
import runpy
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Optional

import pytest

from gdbheapx import command
from gdbheapx.allocators.session import Session
from gdbheapx.app import cli, direct, invocation
from gdbheapx.common import global_options
from gdbheapx.common.budget import Budget
from gdbheapx.common.errors import HeapxError, UsageError


@pytest.fixture
def gdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder with a program `gdb`, and one `none`, alone on PATH."""
    for name in ("gdb", "none"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("GDBHEAPX_GDB", raising=False)
    return str(tmp_path / "gdb")


@pytest.mark.parametrize(
    "given, variable, found",
    [
        (None, None, "gdb"),
        (None, "", "gdb"),
        ("none", None, None),
        (None, "none", None),
        ("gdb", "none", "gdb"),
        ("none", "gdb", None),
        ("./none", None, "./none"),
    ],
)
def test_which_gdb(gdb: str, monkeypatch: pytest.MonkeyPatch, given: Optional[str], variable: Optional[str], found: Optional[str]) -> None:
    """The option wins over the variable; `none` is no name of a program, a path is."""
    if variable is not None:
        monkeypatch.setenv("GDBHEAPX_GDB", variable)
    monkeypatch.chdir(os.path.dirname(gdb))
    expected = {"gdb": gdb}.get(found or "", found)
    assert cli.find_gdb(given) == expected


WRONG: Dict[str, str] = {"--sysroot": "folder", "--exe": "executable"}


@pytest.mark.parametrize("option", sorted(WRONG))
def test_what_is_not_there_is_named(tmp_path: Path, option: str) -> None:
    """Before the core is opened."""
    asked, _ = global_options.split_words(["--core", "/nowhere.core", option, str(tmp_path / "nothing")])
    with pytest.raises(HeapxError) as refused:
        direct.open_source(asked)
    assert str(tmp_path / "nothing") in refused.value.message and WRONG[option] in refused.value.message


def test_an_unpacked_core_goes_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The descriptor that was handed on is read, once; errors have the name that the user gave."""
    path = tmp_path / "unpacked"
    path.write_bytes(b"no core")
    descriptor = os.open(path, os.O_RDONLY)
    monkeypatch.setenv(global_options.UNPACKED, global_options.pack_words([str(descriptor), ""]))
    with pytest.raises(HeapxError) as refused:
        direct.open_source(global_options.split_words(["--core", "mine.zst"])[0])
    os.close(descriptor)
    assert refused.value.message.startswith("mine.zst is not") and global_options.UNPACKED not in os.environ


def test_a_process_by_its_name(tmp_path: Path) -> None:
    """-p NAME is the one process whose program has it; none, or several, are told with their ids."""
    program = tmp_path / ("called%d" % os.getpid())
    shutil.copy("/bin/sleep", program)
    running = [subprocess.Popen([str(program), "60"]) for _ in range(2)]
    while any(Path("/proc/%d/comm" % one.pid).read_text() != program.name + "\n" for one in running):  # Popen is back before exec is done
        time.sleep(0.01)
    try:
        with pytest.raises(global_options.Wrong, match="%s matches 2 processes" % program.name) as several:
            global_options.split_words(["-p", program.name, "report"])
        assert [line.split() for line in several.value.choices] == [[str(one.pid), str(program), "60"] for one in sorted(running, key=lambda one: one.pid)]
        assert global_options.processes_called(str(running[0].pid) + ".py") == []
        running[1].kill()
        running[1].wait()
        asked, rest = global_options.split_words(["-p", program.name, "report"])
        assert (asked.pid, rest) == (running[0].pid, ["report"])
        assert global_options.split_words(["--pid=%s" % program.name])[0].pid == running[0].pid
        assert invocation.with_target(global_options.split_words([])[0], [program.name])[0].pid == running[0].pid
        nearly = invocation.nothing_called(program.name[:-1])
        assert nearly.hint == "did you mean the process %s (-p %d)?" % (program.name, running[0].pid)
    finally:
        for one in running:
            one.kill()
            one.wait()
    for name in (program.name, "", "-x", "0"):
        with pytest.raises(global_options.Wrong, match="no process is called|requires a process id"):
            global_options.split_words(["-p", name, "report"])


@pytest.mark.parametrize("words, meant", [("leeks", "leaks"), ("owners --limt 3", "--limit"), ("census --lik x", "--like"), ("zzz", "the commands are"), ("owners --zzzzz", "owners --help")])
def test_what_may_be_meant(words: str, meant: str) -> None:
    """A word that is nearly one has it as the next step; others have the list, or the help."""
    command.load_commands()
    with pytest.raises(UsageError) as refused:
        command.parse_command(words.split(), "gdbheapx")
    assert meant in (refused.value.hint or "")


def test_a_word_that_is_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """Without a target the first word may be three things: the line says so, and which command is near. `help` knows commands alone."""
    for words, line in (
        (["leeks"], "no command, no running process and no file is called leeks; did you mean the command leaks?"),
        (["\x1b[31mqqqqqqqqqq"], "no command, no running process and no file is called \\x1b[31mqqqqqqqqqq; gdbheapx --help lists the commands"),
        (["help", "leeks"], "no such command: leeks; did you mean leaks?"),
        (["--pid", str(os.getppid()), "leeks"], "no such command: leeks; did you mean leaks?"),
    ):
        assert cli.dispatch_words(words) == 2
        assert capfd.readouterr().err == "gdbheapx: %s\n" % line


def test_the_first_word_may_be_the_target(tmp_path: Path) -> None:
    """A process id, the name of one process, a core or a snapshot stands for itself; a command is a command, and what is none of these no target."""
    asked = global_options.split_words([])[0]

    def named(*words: str) -> Any:
        found, rest = invocation.with_target(asked, list(words))
        return found.pid, found.core, found.snapshot, list(rest)

    core, snapshot = tmp_path / "core", tmp_path / "snapshot"
    core.write_bytes(b"\x7fELF")
    snapshot.write_bytes(b"gdbheapx snapshot 1")
    assert named("12", "--json") == (12, None, None, ["--json"])
    assert named("12", "--bytes", "arenas") == (12, None, None, ["arenas", "--bytes"])
    assert named(str(core)) == (None, str(core), None, []) and named(str(snapshot)) == (None, None, str(snapshot), [])
    assert named("/nowhere/core") == (None, "/nowhere/core", None, [])
    for words in (["report"], ["malloc-info"], ["arena"], [], ["--json"]):
        assert named(*words) == (None, None, None, words)
    assert invocation.with_target(asked._replace(pid=1), ["12"])[1] == ["12"]
    with pytest.raises(global_options.Wrong, match="0 is no process id"):
        named("0")


def test_the_package_is_a_program(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """python -m gdbheapx, for who has no scripts in PATH."""
    monkeypatch.setattr(sys, "argv", ["gdbheapx", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("gdbheapx", run_name="__main__")
    assert not ended.value.code and capfd.readouterr().out.startswith("gdbheapx ")


def test_a_process_that_has_just_ended_is_prepared_for() -> None:
    """Its folder in /proc is gone: whoever stops it says that it has ended, and in words."""

    def anonymous_use() -> Any:
        return None

    target: Any = SimpleNamespace(anonymous_use=anonymous_use, identity=lambda: None, held_by_gdb=False)
    prepared: List[bool] = []
    discovery: Any = SimpleNamespace(prepare=lambda: prepared.append(True))
    session = Session(target, Budget(1.0), discovery=discovery)
    session.prepare()
    assert prepared and session.process is None
