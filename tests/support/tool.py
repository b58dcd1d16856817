"""Runs of the tool: from a shell, inside a stock gdb, and what every answer must be."""

import atexit
import contextlib
import fcntl
import importlib
import json
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from functools import cache
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence

from gdbheapx.allocators import list_allocator_modules
from gdbheapx.common.problems import KNOWN
from tests.support.forked_runs import Forker
from tests.support.hidden import HIDDEN
from tests.support.paths import GDB, GDBINIT, ROOT
from tests.support.processes import Process

for _entry in list_allocator_modules():
    importlib.import_module(_entry.rpartition(".")[0] + ".codes")  # each allocator registers its codes

TOOL_SECONDS = 120
"""A run of the tool that is not done by then hangs: that is a failure of its own."""


class Hang(AssertionError):
    """The tool did not end in time."""


class Outcome(NamedTuple):
    """One run of the tool."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def envelope(self) -> Dict[str, Any]:
        """The JSON document on standard output."""
        try:
            envelope = json.loads(self.stdout)
        except ValueError:
            raise AssertionError(
                "no JSON on standard output: %r\nexit code %d, standard error: %s" % (self.stdout[:2000], self.code, self.stderr[-2000:])
            ) from None
        check_envelope(envelope)
        return envelope

    @property
    def lines(self) -> List[Dict[str, Any]]:
        """The documents on standard output, one a line."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def data_beside_own_memory(self) -> Any:
        """The answer about a program with much memory of its own, which is partial where all blocks were read, for that alone."""
        envelope = self.envelope
        partial = [problem["code"] for problem in envelope["problems"] if problem["code"] == "memory-unread"]
        assert (self.code, envelope["partial"]) == ((4, True) if partial else (0, False)), self.stderr[-2000:]
        return envelope["data"]

    @property
    def data(self) -> Any:
        """The answer, which must be a whole one."""
        envelope = self.envelope
        assert self.code == 0 and envelope["partial"] is False, "exit code %d, problems %s, %s" % (
            self.code,
            envelope["problems"],
            self.stderr[-2000:],
        )
        return envelope["data"]


def check_envelope(envelope: Dict[str, Any]) -> None:
    """The envelope is as the contract says."""
    assert envelope["schema"] == "gdbheapx/1"
    for key, kind in (("command", str), ("tool", dict), ("target", dict), ("allocators", list), ("partial", bool), ("problems", list)):
        assert isinstance(envelope[key], kind), key
    assert "data" in envelope
    assert "error" not in envelope or (envelope["data"] is None and check_error(envelope["error"]))
    assert {"version", "gdb", "python", "kernel"} <= set(envelope["tool"])
    assert envelope["tool"]["kernel"] in ("c", None)
    assert {"kind", "pid", "executable", "core", "stopped_ms", "swapped_in_bytes"} <= set(envelope["target"])
    assert envelope["target"]["kind"] == "live" or envelope["target"]["swapped_in_bytes"] is None
    for problem in envelope["problems"]:
        assert {"where", "what", "hint"} <= set(problem)
        assert problem["what"] and problem["code"] in KNOWN


def check_error(error: Dict[str, Any]) -> bool:
    """A failure is told by a code that the reference lists, its cause, and what to do."""
    return set(error) == {"code", "message", "hint"} and error["code"] in KNOWN and bool(error["message"])


class Asked(NamedTuple):
    """What a command answered in this interpreter, without gdb."""

    code: int
    text: str
    line: Optional[str]
    """The error, where the code is 1 or 2."""

    @property
    def envelope(self) -> Dict[str, Any]:
        """Its JSON."""
        envelope = json.loads(self.text)
        check_envelope(envelope)
        return dict(envelope)

    def problem(self, code: str) -> Dict[str, Any]:
        """The first problem with this code."""
        problems = [one for one in self.envelope["problems"] if one["code"] == code]
        assert problems, (code, self.envelope["problems"])
        return dict(problems[0])


def tool_command() -> List[str]:
    """The command: the installed entry point beside this Python, else the checkout's module."""
    installed = Path(sys.executable).parent / "gdbheapx"
    if installed.exists():
        return [str(installed)]
    return [sys.executable, "-m", "gdbheapx"]


def tool_environment(extra: Optional[Dict[str, str]] = None) -> Dict[str, str]:
    """The environment that the tool runs in."""
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    environment["PYTHONPATH"] = str(ROOT)
    environment.update(extra or {})
    return environment


def run(command: Sequence[str], env: Optional[Dict[str, str]] = None, seconds: float = TOOL_SECONDS, cwd: Optional[Path] = None) -> Outcome:
    """Run a command to its end, in a group of its own; raises Hang when it does not end."""
    process = subprocess.Popen(
        command, env=tool_environment(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        stdout, stderr = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        raise Hang("%s did not end in %s s; so far %r %r" % (" ".join(command), seconds, stdout[-500:], stderr[-500:])) from None
    return ended(process.returncode, stdout, stderr)


def ended(code: int, stdout: bytes, stderr: bytes) -> Outcome:
    """The outcome of a run, in which nothing was raised that is no answer."""
    text = stderr.decode(errors="replace")
    assert "Traceback (most recent call last)" not in text, text[-4000:]
    return Outcome(code, stdout, text)


@cache
def forker(owner: int) -> Forker:
    """The interpreter that forks for the runs of this process."""
    return Forker()


def run_forked(command: Sequence[str], env: Optional[Dict[str, str]], seconds: float) -> Outcome:
    """The same of the tool, by a fork."""
    words = command[len(tool_command()) - 1 :]
    try:
        return ended(*forker(os.getpid()).run_words(words, tool_environment(env), seconds))
    except subprocess.TimeoutExpired as late:
        raise Hang("%s did not end in %s s; so far %r %r" % (" ".join(command), seconds, late.output[-500:], late.stderr[-500:])) from None


ANSWERED = 0, 1, 3, 4
"""Exit codes: no answer is one, too, of a question about an address where nothing is."""


def on_terminal(width: int, words: Sequence[str], env: Optional[Dict[str, str]] = None, height: int = 50) -> str:
    """What the tool writes to a terminal of that size."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", height, width, 0, 0))
    environment = tool_environment({"TERM": "xterm", **(env or {})})
    with subprocess.Popen([*tool_command(), *words], env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL) as tool:
        os.close(theirs)
        text = b""
        with contextlib.suppress(OSError):  # nobody has the other end any more
            while piece := os.read(ours, 1 << 16):
                text += piece
        os.close(ours)
        assert tool.wait(TOOL_SECONDS) in ANSWERED
    return text.decode()


PATIENT = ("--max-stop", "60")
"""For who asks once more because the stop took longer than the usual limit: tests of the limit give one of their own."""


def run_patiently(words: Sequence[str], arguments: Sequence[str], env: Optional[Dict[str, str]], seconds: float, is_started: bool = False) -> Outcome:
    """Run the tool; where a busy machine did not come to the end of a stop in time, once more with a longer one. By a fork where nothing is
    asked that an interpreter heeds when it starts."""
    is_alike = not is_started and all(name == "PATH" or name.startswith("GDBHEAPX_") for name in env or ())
    ask, command = run_forked if is_alike else run, [*tool_command(), *words]
    outcome = ask([*command, *arguments], env, seconds)
    was_let_go = b'"stop-limit"' in outcome.stdout or any(words in outcome.stderr for words in ("let go after --max-stop", "allow more with --max-stop"))
    if was_let_go and "--max-stop" not in [*command, *arguments]:
        return ask([*command, *PATIENT, *arguments], env, seconds)
    return outcome


def heapx(target: Sequence[str], *arguments: str, env: Optional[Dict[str, str]] = None, seconds: float = TOOL_SECONDS) -> Outcome:
    """Run a command as from a shell."""
    if HIDDEN:
        home = without_packs()
        command = [sys.executable, "-m", "gdbheapx", *target, *hiding(target), *arguments]
        return run(command, env={"PYTHONPATH": str(home), **(env or {})}, seconds=seconds, cwd=home)
    return run_patiently(target, arguments, env, seconds)


@cache
def tool_with_pack(build_id: str, text: str) -> Dict[str, str]:
    """The environment of a copy of the tool that bundles this pack."""
    home = copy_tool("__pycache__")
    (home / "gdbheapx" / "packs" / (build_id + ".json")).write_text(text)
    return {"PYTHONPATH": str(home)}


@cache
def without_packs() -> Path:
    return copy_tool("__pycache__", "[0-9a-f]*.json")


@cache
def without_library() -> Path:
    return copy_tool("__pycache__", "_kernel.so")


def copy_tool(*left_out: str) -> Path:
    """A copy of the tool without the files of these names."""
    home = Path(tempfile.mkdtemp(prefix="gdbheapx-copy-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for name in ("gdbheapx", "commands"):
        shutil.copytree(ROOT / name, home / name, ignore=shutil.ignore_patterns(*left_out))
    return home


def hiding(target: Sequence[str]) -> List[str]:
    """The options that hide what HIDDEN says."""
    options = {"symbols": ["--no-debug-info"], "gdb": ["--gdb", "none"], "libraries": []}
    if "libraries" in HIDDEN and "--core" in target and "--sysroot" not in target:
        options["libraries"] = ["--sysroot", str(without_packs() / "commands")]  # a folder that has none of them
    return [word for name in HIDDEN for word in options[name]]


def alone(
    target: Sequence[str], *arguments: str, env: Optional[Dict[str, str]] = None, seconds: float = TOOL_SECONDS, is_started: bool = False
) -> Outcome:
    """The same without gdb, which is not even found; `is_started`: by an interpreter of its own, as from a shell."""
    return run_patiently([*target, "--gdb", "none"], arguments, {"PATH": "/nonexistent", **(env or {})}, seconds, is_started)


def in_gdb(target: Sequence[str], commands: Iterable[str], env: Optional[Dict[str, str]] = None, seconds: float = TOOL_SECONDS) -> Outcome:
    """Run gdb commands inside one stock gdb that sourced gdbinit.py."""
    options = {"--pid": "-p", "--core": "-c"}
    chosen = [options.get(word, word) for word in target]
    script = [word for command in commands for word in ("-ex", command)]
    return run([GDB, "-nx", "-q", "-batch", "-iex", "set auto-load no", *chosen, "-x", str(GDBINIT), *script], env=env, seconds=seconds)


def answers(target: Sequence[str], folder: Path, *commands: str, env: Optional[Dict[str, str]] = None) -> List[Dict[str, Any]]:
    """Several commands' envelopes from one gdb (one attach), by `heapx COMMAND --json -o FILE`."""
    if HIDDEN:
        return [heapx(target, *command.split(), "--json", env=env).envelope for command in commands]
    files = [folder / ("answer-%d" % number) for number in range(len(commands))]
    outcome = in_gdb(target, ["heapx %s --json -o %s" % pair for pair in zip(commands, files)], env=env)
    envelopes = []
    for name, path in zip(commands, files):
        assert path.exists(), "%s wrote nothing: %s" % (name, outcome.stderr[-2000:])
        envelopes.append(json.loads(path.read_text()))
        check_envelope(envelopes[-1])
        if envelopes[-1]["data"] is None:  # pytest shows it beside what then fails
            print("%s: %s" % (name, envelopes[-1]["error"]))
        path.unlink()
    return envelopes


def told(process: Process, kind: str, *commands: str) -> List[Dict[str, Any]]:
    """The same of a process at rest that several tests read: each command is asked once, and the envelopes are not to be changed."""
    lacking = [command for command in commands if command not in process.told]
    if lacking:
        process.told.update(zip(lacking, answers(process.target(kind), process.folder, *lacking)))
    return [process.told[command] for command in commands]


def steps_of(data: Dict[str, Any]) -> List[str]:
    """The next steps of a report as sentences."""
    return ["%s %s" % (step["command"], step["why"]) if step["command"] else step["why"] for step in data["next"]]


def acted(data: Dict[str, Any]) -> Dict[str, Any]:
    """An action took place, and its figures agree with each other."""
    assert data["way"] in ("gdb-call", "register-call")
    assert data["anonymous_diff_bytes"] == data["anonymous_after_bytes"] - data["anonymous_before_bytes"]
    assert data["rss_diff_bytes"] == data["rss_after_bytes"] - data["rss_before_bytes"]
    assert data["trouble"] is None and data["elapsed_ms"] >= 0
    assert data["stopped_ms"] is None or data["elapsed_ms"] <= data["stopped_ms"]
    return data
