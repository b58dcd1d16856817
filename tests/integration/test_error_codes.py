"""With --json every failure has a code: on standard output an envelope without data, beside the one line on standard error."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import List

import pytest

from tests.support.paths import GDB
from tests.support.tool import Outcome, heapx, run, tool_command, tool_environment

pytestmark = pytest.mark.once  # the tool's own rules

GONE = "4194303"
"""No process has this id."""


def failed(outcome: Outcome, code: str, exit_code: int = 1) -> None:
    """One envelope, one line, and both say the same."""
    assert outcome.code == exit_code, (outcome.code, outcome.stdout[:500], outcome.stderr[-500:])
    envelope = outcome.envelope
    assert envelope["data"] is None and envelope["error"]["code"] == code, envelope["error"]
    lines = outcome.stderr.strip().splitlines()
    assert lines and envelope["error"]["message"] in lines[-1] and (envelope["error"]["hint"] or "") in lines[-1]


WAYS = [
    ("--core {}/no report", "file-not-found", 1),
    ("--core {} report", "file-unreadable", 1),
    ("--core {}/text arenas", "not-a-core", 1),
    ("--core {}/cut.zst arenas", "cannot-unpack", 1),
    ("--snapshot {}/text report", "not-a-snapshot", 1),
    ("--snapshot {}/no report", "file-unreadable", 1),
    ("--pid %s report" % GONE, "no-process", 1),
    ("--pid %s --gdb none report" % GONE, "no-process", 1),
    ("--pid %s --exe {}/no report" % GONE, "file-unreadable", 1),
    ("--pid %s --exe {}/text report" % GONE, "wrong-file", 1),
    ("--pid %s --sysroot {}/no report" % GONE, "file-not-found", 1),
    ("--pid %s --gdb {}/no report" % GONE, "gdb-missing", 1),
    ("--pid %s --gdb {}/crashes report" % GONE, "gdb-failed", 1),
    ("--pid %s --gdb {}/pythonless report" % GONE, "gdb-failed", 1),
    ("--pid %s --gdb {}/fails report" % GONE, "gdb-failed", 1),
    ("--pid %s report -o {}/no/file" % GONE, "cannot-write", 1),
    ("--pid %s report --html {}/no/file" % GONE, "cannot-write", 1),
    ("--pid %s report --html {}/text" % GONE, "no-process", 1),
    ("--core {}/no query --max-seconds 9 SELECT_1_FROM_blocks", "file-not-found", 1),
    ("query SELEKT", "query-failed", 2),
    ("query", "usage", 2),
    ("query SELECT_1_FROM_blocks", "no-target", 2),
    ("diff {}/no {}/no", "file-not-found", 1),
    ("diff {}/text {}/text", "not-a-core", 1),
    ("fleet {}/no -o {}/documents", "no-answer", 1),
    ("fleet {}/no -o {}/text", "cannot-write", 1),
    ("fleet {}/no", "usage", 2),
    ("table {}/empty", "file-not-found", 1),
    ("watch --pid %s" % GONE, "no-process", 1),
    ("arenas", "no-target", 2),
    ("--pid word arenas", "usage", 2),
    ("--pid 1 --core x arenas", "usage", 2),
    ("--pid 1 no-such-command", "usage", 2),
    ("--pid 1 arenas --no-such-option", "usage", 2),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that are not what they are asked as."""
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "text").write_text("text\n" * 100)
    (folder / "cut.zst").write_bytes(bytes.fromhex("28b52ffd") + b"\xff" * 20)
    (folder / "empty").mkdir()
    for name, does in (("crashes", "kill -SEGV $$"), ("pythonless", "exit 86"), ("fails", "exit 3")):
        (folder / name).write_text("#!/bin/sh\n%s\n" % does)
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize("words, code, exit_code", WAYS, ids=[words.replace("{}", "DIR") for words, _, _ in WAYS])
def test_a_failure_has_a_code(place: Path, words: str, code: str, exit_code: int) -> None:
    """Whatever is wrong, and whoever finds it: the shell's command, gdb's parent, a look, a page, SQL, a child."""
    if "query" in words or "html" in words:
        pytest.importorskip("duckdb" if "query" in words else "jinja2", reason="the extra is not installed")
    given = [word.replace("{}", str(place)).replace("_", " ") if "SELECT" in word else word.replace("{}", str(place)) for word in words.split()]
    failed(heapx(given, "--json"), code, exit_code)
    assert (place / "text").stat().st_size == 500


def test_a_fleet_keeps_the_code_of_each(place: Path, tmp_path: Path) -> None:
    """The document of a core without an answer has the error, and `table` its code."""
    run([*tool_command(), "fleet", str(place / "no"), str(place / "text"), "-o", str(tmp_path / "documents")])
    documents = [json.loads(path.read_text()) for path in (tmp_path / "documents").glob("*.json")]
    assert sorted(one["error"]["code"] for one in documents) == ["file-not-found", "not-a-core"]
    rows = run([*tool_command(), "table", str(tmp_path / "documents"), "--json"]).data["rows"]
    assert sorted(row["error_code"] for row in rows) == ["file-not-found", "not-a-core"]


@pytest.mark.parametrize("way", [["--gdb", GDB], []], ids=["gdb", "none"])
def test_nobody_reads_a_fifo(tmp_path: Path, way: List[str]) -> None:
    """A signal ends the wait for its reader; one that comes later gets the whole document."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    words: List[str] = [*tool_command(), "doctor", *way, "--json", "-o", str(fifo)]
    waiting = subprocess.Popen(words, env=tool_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    with open(fifo, "rb") as file:
        assert json.loads(file.read())["command"] == "doctor"
    assert waiting.wait(timeout=60) == 0
    words[1:2] = ["--pid", str(os.getpid()), "report"]
    waiting = subprocess.Popen(words, env=tool_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.communicate(timeout=2)
    waiting.send_signal(signal.SIGTERM)
    out, told = waiting.communicate(timeout=60)
    failed(Outcome(waiting.returncode, out, told.decode()), "interrupted")


@pytest.mark.parametrize("has_fifo", [False, True], ids=["", "fifo"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_before_gdb_answers(tmp_path: Path, number: int, has_fifo: bool) -> None:
    """What asks the tool to end, while a gdb starts that never comes up; also where nobody reads what it would write to."""
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\necho started >&2\nexec sleep 60\n")
    slow.chmod(0o755)
    words: List[str] = [*tool_command(), "--pid", str(os.getpid()), "--gdb", str(slow), "arenas", "--json"]
    if has_fifo:
        os.mkfifo(tmp_path / "fifo")
        words += ["-o", str(tmp_path / "fifo")]
    running = subprocess.Popen(words, env=tool_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    assert running.stderr is not None and running.stderr.readline() == b"started\n"
    running.send_signal(number)
    out, told = running.communicate(timeout=60)
    failed(Outcome(running.returncode, out, told.decode()), "interrupted")
