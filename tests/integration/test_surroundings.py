"""What surrounds the tool: signals, a gdb that dies, standard output, files that are none, environments, names that drive a terminal.

What a terminal changes: tables are as wide as it is, headings are bold, whoever answers.

`gdbinit --install`: one line in the user's start-up file of gdb, once; what else is there stays.

Files: app/gdb_startup.py.
"""

import json
import os
import re
import shutil
import signal
import stat
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest

from gdbheapx.app import gdb_startup
from gdbheapx.inferior.live import procfs
from gdbheapx.report.text import wrap_sentence
from tests.support.paths import GDB, GDBINIT
from tests.support.processes import Builder, Lasting, Process, Stage, by_turns
from tests.support.tool import TOOL_SECONDS, heapx, on_terminal, run, tool_command, tool_environment
from tests.support.unchanged import EVERY
from tests.support.victims import status, until

pytestmark = pytest.mark.image  # its gdb, its Python and its terminal

RECORDER = ("recorder", "9", "1000", "3")
WATCHING = ("trim", "--every", "3600", "--above", "64T", "--yes")
"""A command that runs until it is told to end, and calls nothing."""


def one_line(outcome: Any, code: int = 1) -> str:
    """The tool's one line of an error."""
    assert outcome.code == code, (outcome.code, outcome.stderr)
    lines = [line for line in outcome.stderr.splitlines() if line.startswith("gdbheapx: ")]
    assert len(lines) == 1, outcome.stderr
    return lines[0]


# ---------------------------------------------------------------------------------------------------- signals, and a gdb that dies


class Tool:
    """The tool at work on a process, and the gdb that serves it."""

    def __init__(self, process: Process, *words: str) -> None:
        self.process = process
        command = [*tool_command(), "--pid", str(process.pid), *words]
        self.popen = subprocess.Popen(
            command, env=tool_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        self.first = self.popen.stdout.readline()
        children = map(int, Path("/proc/%d/task/%d/children" % (self.popen.pid, self.popen.pid)).read_text().split())
        self.gdb = next(child for child in children if procfs.thread_name(child, child) == "gdb")  # the helper that holds processes is a child, too

    def end(self) -> "tuple[int, bytes, str]":
        """Exit code, the rest of standard output, standard error; gdb is gone by then or soon, and the process is free."""
        out, errors = self.popen.communicate(timeout=TOOL_SECONDS)
        until(lambda: not alive(self.gdb), lambda: "gdb lives on", self.process)
        assert status(self.process.pid, "TracerPid") == "0"
        return self.popen.returncode, out, errors.decode()


def alive(pid: int) -> bool:
    """The process runs; one that only waits to be reaped does not."""
    try:
        return Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture
def tool(stage: Stage, live: str) -> Iterator[Tool]:
    """A tool that waits for its next period."""
    made = Tool(stage.start("trimmer", "main"), *WATCHING)
    assert json.loads(made.first)["message"] == "below the limit"
    yield made
    made.popen.kill()
    made.popen.wait()


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_the_tool(tool: Tool, name: str) -> None:
    """Sent to the process that the user started, it reaches what works: both end, with an exit code of ours."""
    tool.popen.send_signal(getattr(signal, name))
    code, _, errors = tool.end()
    assert code in (0, 1, 4) and errors.count("gdbheapx: ") <= 1, (code, errors)


def test_ctrl_c_on_a_whole_group(tool: Tool) -> None:
    """What a terminal or `timeout` does: both get it; the first one still is the first."""
    os.killpg(tool.popen.pid, signal.SIGINT)
    code, _, errors = tool.end()
    assert code == 4, (code, errors)


def test_nothing_is_left_when_the_tool_is_killed(tool: Tool) -> None:
    """SIGKILL leaves no time to hand anything on; gdb ends all the same."""
    tool.popen.kill()
    assert tool.end()[0] == -signal.SIGKILL


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGBUS", "SIGABRT", "SIGKILL"])
def test_a_gdb_that_dies_in_the_middle(tool: Tool, name: str) -> None:
    """One line that names the signal (gdb 10 catches SIGSEGV and aborts), exit code 1, and nothing of gdb's own backtrace."""
    os.kill(tool.gdb, getattr(signal, name))
    code, _, errors = tool.end()
    named = {getattr(signal, name), signal.SIGABRT} if name == "SIGSEGV" else {getattr(signal, name)}
    assert code == 1 and any(re.search(r"\b%d\b" % number, errors) for number in named) and errors.count("\n") == 1, (code, errors)


def fake_gdb(folder: Path, script: str) -> List[str]:
    """A gdb of this shell script."""
    path = folder / "gdb"
    path.write_text("#!/bin/sh\n" + script + "\n")
    path.chmod(0o755)
    return ["--gdb", str(path)]


@pytest.mark.parametrize("script, told", [("kill -BUS $$", "signal 7"), ("exit 0", "exited with code 0"), ("exit 1", "exited with code 1"), ("kill -KILL $$", "signal 9")])
def test_a_gdb_that_never_answers(folder: Path, script: str, told: str) -> None:
    """Whatever becomes of it: one line, exit code 1, and with --json an envelope without data."""
    core = ["--core", str(folder / "any")]
    assert told in one_line(heapx(core, *fake_gdb(folder, script), "arenas"))
    outcome = heapx(core, *fake_gdb(folder, script), "arenas", "--json")
    assert outcome.envelope["data"] is None and told in one_line(outcome)


@pytest.mark.parametrize("program", ["/bin/true", "/bin/echo"])
def test_a_gdb_that_is_none(folder: Path, program: str) -> None:
    """Another program in gdb's place is told by its name, also for doctor, which needs no target."""
    for words in (["--core", str(folder / "any"), "arenas"], ["doctor"]):
        assert program in one_line(run([*tool_command(), "--gdb", program, *words]))


@pytest.mark.parametrize("stopped", [False, True])
def test_a_gdb_that_dies_at_the_attach(stage: Stage, live: str, folder: Path, stopped: bool) -> None:
    """A process that a dying gdb left stopped is let go; one that was stopped before stays so."""
    process = stage.start("trimmer", "main")
    if stopped:
        os.kill(process.pid, signal.SIGSTOP)
        until(lambda: status(process.pid, "State")[:1] == "T", lambda: "it does not stop", process)
    one_line(heapx(["--pid", str(process.pid)], *fake_gdb(folder, "kill -STOP %d; kill -SEGV $$" % process.pid), "trim", "--yes"))
    assert (status(process.pid, "State")[:1] == "T") == stopped
    os.kill(process.pid, signal.SIGCONT)
    process.command(b"t")


# ---------------------------------------------------------------------------------------------------- standard output


def shell(line: str, **variables: str) -> Any:
    """A shell's line; TOOL in it is the tool, CORE the core."""
    words = {"TOOL": " ".join(tool_command()), **variables}
    return run(["/bin/sh", "-c", line], env=words)


@pytest.mark.parametrize("command", ["arenas", "chunks --json", "arenas --help"])
@pytest.mark.parametrize("where, told", [(">&-", "Bad file descriptor"), (">/dev/full", "No space left on device")])
def test_standard_output_that_cannot_be_written(lasting: Lasting, core: str, command: str, where: str, told: str) -> None:
    """Closed or full: one line that says so, exit code 1."""
    process = lasting.of(core, Stage.start, *RECORDER)
    outcome = shell("$TOOL --core $CORE %s %s" % (command, where), CORE=str(process.core()))
    assert told in one_line(outcome) and outcome.stderr.count("\n") == 1


def test_an_answer_in_a_file_needs_no_standard_output(stage: Stage, core: str, folder: Path) -> None:
    """With -o the closed descriptors are never used, not even by the file that is opened next."""
    process, path = stage.start(*RECORDER), folder / "answer"
    outcome = shell("$TOOL --core $CORE arenas --json -o $OUT <&- >&- 2>&-", CORE=str(process.core()), OUT=str(path))
    assert outcome.code == 0 and json.loads(path.read_text())["data"]["arenas"]


@pytest.mark.parametrize("words", ["chunks --json", "chunks --json -o $OUT", "arenas -o $OUT"])
def test_a_limit_on_files(lasting: Lasting, core: str, folder: Path, words: str) -> None:
    """`ulimit -f`: the file that would grow beyond it is named, exit code 1."""
    process = lasting.of(core, Stage.start, *RECORDER)
    outcome = shell("ulimit -f 0; $TOOL --core $CORE %s > $OUT.too" % words, CORE=str(process.core()), OUT=str(folder / "out"))
    assert "File too large" in one_line(outcome)


# ---------------------------------------------------------------------------------------------------- files that are none


@pytest.fixture
def fifo(folder: Path) -> Path:
    """A FIFO that nobody writes to."""
    path = folder / "fifo"
    os.mkfifo(path)
    return path


@pytest.mark.once  # the tool's own reading of files
def test_a_fifo_is_no_core(fifo: Path) -> None:
    """It is refused at once; it would be waited for for ever."""
    assert "is not a file" in one_line(heapx(["--core", str(fifo)], "arenas", seconds=60))


@pytest.mark.once  # the tool's own reading of files
def test_a_fifo_is_no_program(stage: Stage, core: str, fifo: Path) -> None:
    """The same for --exe, on a core and on a process."""
    process = stage.start(*RECORDER)
    assert str(fifo) in one_line(heapx(["--pid", str(process.pid)], "--exe", str(fifo), "arenas", seconds=60))
    assert str(fifo) in one_line(heapx(process.target(core), "--exe", str(fifo), "arenas", seconds=60))


@pytest.mark.once  # the tool's own reading of files
def test_a_library_that_became_a_fifo(stage: Stage, core: str, builder: Builder, folder: Path) -> None:
    """A core names files that were mapped; what lies there now may be anything."""
    program = folder / "program"
    shutil.copy(builder.build("recorder"), program)
    process = stage.spawn_ready([str(program), str(folder / "record"), *RECORDER[1:]], folder)
    target = process.target(core)
    program.unlink()
    os.mkfifo(program)
    assert heapx(target, "arenas", "--json", seconds=60).envelope["data"]["arenas"]

HEADS = {"big-endian": (5, "says big-endian but is written little-endian"), "32-bit": (4, "says 32-bit but is written 64-bit")}


@pytest.mark.once  # the tool's own reading of files
@pytest.mark.parametrize("name", list(HEADS))
def test_a_core_whose_header_contradicts_itself(stage: Stage, core: str, folder: Path, name: str) -> None:
    """One flipped byte in the header: the byte is named, not the allocator that could not be found."""
    place, told = HEADS[name]
    data = bytearray(stage.start(*RECORDER).core().read_bytes())
    data[place] = 3 - data[place]
    path = folder / "flipped"
    path.write_bytes(data)
    assert told in one_line(heapx(["--core", str(path)], "arenas"))


@pytest.mark.once  # the tool's own reading of files
def test_a_core_without_a_program(folder: Path) -> None:
    """A core of a big-endian machine in which nothing can be found says which machine, and what it lacks."""
    head = b"\x7fELF" + bytes((2, 2, 1)) + bytes(9) + struct.pack(">HHIQQQIHHHHHH", 4, 22, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    path = folder / "s390x"
    path.write_bytes((head + struct.pack(">IIQQQQQQ", 1, 6, 4096, 0x10000, 0, 4096, 4096, 4096)).ljust(8192, b"\0"))
    line = one_line(heapx(["--core", str(path)], "arenas"))
    assert "big-endian 64-bit" in line and "s390" in line and "auxiliary vector" in line


# ---------------------------------------------------------------------------------------------------- the environment


@pytest.mark.parametrize("command", ["report", "doctor"])
def test_python_without_docstrings(stage: Stage, core: str, command: str) -> None:
    """PYTHONOPTIMIZE=2, usual in images, takes all docstrings away: gdb and the shell's command answer as without it."""
    target = stage.start(*RECORDER).target(core)
    plain = heapx(target, command).stdout
    assert heapx(target, command, env={"PYTHONOPTIMIZE": "2"}).stdout == plain
    words = [GDB, "-nx", "-q", "-batch", "-c", target[1], "-x", str(GDBINIT), "-ex", "heapx --exit " + command]
    done = subprocess.run(words, env=tool_environment({"PYTHONOPTIMIZE": "2"}), capture_output=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0 and plain.splitlines()[-1] in done.stdout  # what gdb's own Python files say of it is gdb's


def test_python_variables_of_the_user(stage: Stage, core: str, folder: Path) -> None:
    """They are meant for another Python than gdb's: a module on PYTHONPATH is not imported there, and nothing is printed or asked."""
    for name in ("tabulate", "argparse", "json"):
        (folder / (name + ".py")).write_text("import os; os.write(2, b'WRONG MODULE'); raise SystemExit(9)")
    variables = {"PYTHONPATH": str(folder), "PYTHONVERBOSE": "1", "PYTHONINSPECT": "1", "PYTHONWARNINGS": "error", "PYTHONHOME": "/nonexistent"}
    launcher = "import os, sys; os.environ.update(eval(sys.argv[1])); sys.argv[1:] = sys.argv[2:]; from gdbheapx.app.cli import main; sys.exit(main())"
    words = [*stage.start(*RECORDER).target(core), "arenas"]
    outcome = run([sys.executable, "-c", launcher, repr(variables), *words])
    assert outcome.code == 0 and outcome.stderr == "" and b"main" in outcome.stdout, outcome.stderr[-2000:]


# ---------------------------------------------------------------------------------------------------- names


@pytest.mark.once  # the tool's own reading of files
def test_a_name_cannot_pretend_to_be_a_mapping(stage: Stage, live: str, builder: Builder) -> None:
    """Python takes more for the end of a line than the kernel does: a file's name must not make lines of its own."""
    folder = stage.folder()
    forged = folder / "x\x0b7f0000000000-7f0000001000 rw-p 00000000 00:00 0 [heap]"
    shutil.copy(builder.build("mapper"), forged)
    process = stage.spawn_ready([str(forged), str(folder / "data")], folder)
    assert not [one for one in procfs.read_process_maps(process.pid) if one.start == 0x7F0000000000]




# ---------------------------------------------------------------------------------------------------- doctor looks before it says ok


def checks(outcome: Any, what: str) -> List[Any]:
    """The rows of a doctor's answer about one thing: whether it is well, and what was found."""
    return [(row["ok"], row["found"]) for row in outcome.envelope["data"]["checks"] if row["what"] == what]


def test_doctor_looks_for_the_program(stage: Stage, builder: Builder, live: str, core: str) -> None:
    """A program that is deleted is read by the process; from its core it is missing: NO, the next step, and exit code 4, unless --exe gives it."""
    folder = stage.folder()
    program, kept = folder / "program", folder / "kept"
    shutil.copy(builder.build("recorder"), program)
    process = stage.spawn_ready([str(program), str(folder / "record"), *RECORDER[1:]], folder)
    assert checks(heapx(process.target(live), "doctor", "--json"), "executable") == [(True, str(program))]
    shutil.copy(program, kept)
    program.unlink()
    (row,) = checks(heapx(process.target(live), "doctor", "--json"), "executable")
    assert row[0] is True and row[1].endswith("/exe"), row
    outcome = heapx(process.target(core), "doctor", "--json")
    assert outcome.code == 4 and checks(outcome, "executable")[0][0] is False, outcome.stdout
    shutil.copy("/bin/true", program)
    outcome = heapx(process.target(core), "doctor", "--json")
    assert outcome.code == 4 and checks(outcome, "executable")[0][0] is False, outcome.stdout
    outcome = heapx([*process.target(core), "--exe", str(kept)], "doctor", "--json")
    assert outcome.code == 0 and checks(outcome, "executable")[0][0] is True, outcome.stdout


def test_folders_that_are_not_there(stage: Stage, core: str, folder: Path) -> None:
    """A tree that is not there is refused, a folder of debug files that is not there is told beside the answer."""
    target, none = stage.start(*RECORDER).target(core), str(folder / "none")
    assert none in one_line(heapx([*target, "--sysroot", none], "arenas"))
    outcome = heapx([*target, "--debug-dir", none], "arenas", "--json")
    assert outcome.code == 0 and [one["where"] for one in outcome.envelope["problems"]] == [none]

WIDTHS = 80, 120, 200
PLAIN = {"NO_COLOR": "1"}


def table_lines(text: str) -> List[str]:
    """The lines of tables: from a heading to what follows the rows, which have gaps of two spaces."""
    return [line for line in text.splitlines() if "  " in line.strip()]


@by_turns("width", WIDTHS)
def test_tables_fit(lasting: Lasting, kind: str, width: int) -> None:
    """`arenas`, `bins` and `tcache` on a terminal of 80, 120 and 200 columns; with --wide all columns are there."""
    target = lasting.of(kind, Stage.start, *RECORDER).target(kind)
    for command in ("arenas", "bins", "tcache"):
        narrow = on_terminal(width, [*target, command], PLAIN)
        assert max(map(len, narrow.splitlines())) <= width, narrow
    wide = on_terminal(width, [*target, "arenas", "--wide"], PLAIN)
    assert "overhead" in wide.splitlines()[0] and "Hidden" not in wide
    assert ("Hidden: " in on_terminal(width, [*target, "arenas"])) == (max(map(len, wide.splitlines())) > width)

SENTENCES = [words for words in EVERY if words.split()[0] not in ("doctor", "export", "malloc-info", "malloc-stats", "snapshot", "watch")]
"""Commands whose text is for people alone; doctor asks gdb, see below."""


def test_sentences_fit(lasting: Lasting, kind: str) -> None:
    """No line of any command is longer than 80 columns, but for what cannot be broken; with --wide and in a pipe each sentence is one line."""
    target = lasting.of(kind, Stage.start, *RECORDER).target(kind)
    texts = {words: on_terminal(80, [*target, *words.split()], PLAIN) for words in SENTENCES}
    longer = [line for text in texts.values() for line in text.splitlines() if len(line) > 80 and len(wrap_sentence(line, 80)) > 1]
    assert not longer, longer
    for text in (heapx(target, "report", env={"COLUMNS": "80"}).stdout.decode(), on_terminal(80, [*target, "report", "--wide"], PLAIN)):
        assert any(len(line) > 80 and "  " not in line.strip() for line in text.splitlines()), text


def test_colors(lasting: Lasting, core: str, tmp_path: Path) -> None:
    """Headings are bold on a terminal; not with NO_COLOR, --color never, in a pipe, a file or JSON. --color always colours a pipe."""
    words = [*lasting.of(core, Stage.start, *RECORDER).target(core), "arenas"]
    assert on_terminal(100, words).startswith("\x1b[1marena ")
    path = tmp_path / "answer"
    on_terminal(100, [*words, "--color", "always", "-o", str(path)])
    plain = [on_terminal(100, words, {"NO_COLOR": "1"}), on_terminal(100, [*words, "--color", "never"]), on_terminal(100, [*words, "--json"])]
    assert not any("\x1b" in text for text in [*plain, path.read_text(), heapx(words[:2], "arenas").stdout.decode()])
    assert heapx(words[:2], "arenas", "--color", "always", "--bytes").stdout.startswith(b"\x1b[1marena ")


@pytest.mark.skipif(GDB is None, reason="no gdb")
def test_inside_gdb(lasting: Lasting, kind: str) -> None:
    """gdb has no standard output of the tool's own: the terminal's width reaches it all the same."""
    target = lasting.of(kind, Stage.start, *RECORDER).target(kind)
    assert GDB is not None
    text = on_terminal(80, [*target, "--gdb", GDB, "arenas"], PLAIN)
    assert max(map(len, text.splitlines())) <= 80 and "Hidden: " in text
    lines = on_terminal(80, [*target, "doctor"], PLAIN).splitlines()
    assert len(lines) > 8 and max(map(len, lines)) <= 80


def test_pipes_and_files(lasting: Lasting, core: str, tmp_path: Path) -> None:
    """Without a terminal a line has 120 characters, or COLUMNS; a file that is written from a terminal, too."""
    target = lasting.of(core, Stage.start, *RECORDER).target(core)
    piped = heapx(target, "arenas").stdout.decode()
    assert 80 < max(map(len, table_lines(piped))) <= 120
    narrow = heapx(target, "arenas", env={"COLUMNS": "80"}).stdout.decode()
    assert max(map(len, table_lines(narrow))) <= 80
    path = os.path.join(tmp_path, "answer")
    on_terminal(60, [*target, "arenas", "-o", path])
    with open(path) as file:
        assert file.read() == piped


def at_home(home: Path) -> Dict[str, str]:
    """The environment of somebody with this home."""
    return {"HOME": str(home), "XDG_CONFIG_HOME": ""}


def asked(home: Path, *words: str) -> Tuple[int, str]:
    """Exit code and what is said, without a terminal."""
    done = subprocess.run(
        [*tool_command(), "gdbinit", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, start_new_session=True, env={**tool_environment(), **at_home(home)}
    )
    assert done.returncode == 0 or done.stderr.count("\n") == 1, done.stderr
    return done.returncode, done.stdout + done.stderr


def test_each_gdb_knows_heapx_then(tmp_path: Path) -> None:
    """Until it is removed; the file that was there is byte for byte as before, with its permissions."""
    path, own = tmp_path / ".gdbinit", b"set pagination off\n# no end of line \xff"
    path.write_bytes(own)
    path.chmod(0o640)

    def knows() -> bool:
        return b"heapx help [COMMAND]" in run([GDB, "-q", "-batch", "-ex", "help heapx"], env=at_home(tmp_path)).stdout

    assert not knows()
    assert asked(tmp_path, "--install", "--yes")[0] == 0 and knows()
    assert path.read_bytes().startswith(own + b"\n") and stat.S_IMODE(path.stat().st_mode) == 0o640
    written = path.read_bytes()
    code, said = asked(tmp_path, "--install", "--yes")
    assert code == 0 and "already" in said and path.read_bytes() == written
    assert asked(tmp_path, "--remove", "--yes")[0] == 0 and path.read_bytes() == own + b"\n" and not knows()
    assert "nothing to remove" in asked(tmp_path, "--remove", "--yes")[1]
    assert [entry.name for entry in tmp_path.iterdir()] == [".gdbinit"]


def test_which_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that gdb reads: below .config where it is there, else ~/.gdbinit; a link is followed, a folder refused."""
    (tmp_path / "dot").mkdir()
    (tmp_path / "dot" / "files").write_text("set confirm off\n")
    (tmp_path / ".gdbinit").symlink_to(tmp_path / "dot" / "files")
    assert asked(tmp_path, "--install", "--yes")[0] == 0
    assert (tmp_path / ".gdbinit").is_symlink() and b"source" in (tmp_path / "dot" / "files").read_bytes()
    config = tmp_path / ".config" / "gdb" / "gdbinit"
    config.parent.mkdir(parents=True)
    config.write_text("")
    assert asked(tmp_path, "--install", "--yes")[0] == 0 and b"source" in config.read_bytes()
    config.unlink()
    config.mkdir()
    code, said = asked(tmp_path, "--install", "--yes")
    assert code == 1 and str(config) in said


def test_what_is_there_is_kept() -> None:
    """A line for the same file is left, whoever wrote it; an older one of ours is replaced."""
    path = os.fsencode(str(GDBINIT))
    own = b"set a\nsource   %s  \nset b\n" % path
    assert gdb_startup.with_startup_line(own, path) == own
    older: Any = b"set a\n" + gdb_startup.MARK + b"\nsource /old/gdbinit.py\nset b\n"
    assert gdb_startup.with_startup_line(older, path) == older.replace(b"/old/gdbinit.py", path)
    assert gdb_startup.BLOCK.sub(b"", older) == b"set a\nset b\n"
