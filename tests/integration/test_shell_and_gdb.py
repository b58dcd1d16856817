"""The same answer from the shell, inside gdb, and of a process behind gdbserver.

Files: app/gdb_process.py, gdbinit.py, inferior/gdb/inferior.py, inferior/gdb/target.py.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import List, Sequence

import pytest

from gdbheapx.inferior.arch import native_architecture
from tests.support.gdbserver import Server, remote_answers, resident_figures, without_resident
from tests.support.glibc import check_identity
from tests.support.paths import GDB, GDBINIT, ROOT
from tests.support.processes import Lasting, Stage
from tests.support.tool import answers, heapx, in_gdb, run, tool_command, tool_environment

pytestmark = pytest.mark.image  # its gdb's command line, settings and Python

RECORDER = ("recorder", "9", "1000", "3")


def test_gdb_gives_the_same_answer(stage: Stage, kind: str, folder: Path) -> None:
    """`heapx arenas --json` inside gdb answers as the shell's command does."""
    process = stage.start(*RECORDER)
    target = process.target(kind)
    path = folder / "out.json"
    assert in_gdb(target, ["heapx arenas --json -o %s" % path]).code == 0
    assert json.loads(path.read_text())["data"] == heapx(target, "arenas", "--json").data


def test_bare_checkout_is_enough(stage: Stage, core: str) -> None:
    """Stock gdb that sources gdbinit.py of a checkout shows tables and the report."""
    process = stage.start(*RECORDER)
    outcome = in_gdb(process.target(core), ["heapx arenas", "heapx"], env={"PYTHONPATH": ""})
    assert outcome.code == 0, outcome.stderr
    assert b"main" in outcome.stdout
    outcome = run([sys.executable, "-S", "-m", "gdbheapx", "--pid", "nobody-is-called-so", "arenas", "--json"], env={"PYTHONPATH": str(ROOT)})
    assert outcome.code == 2 and outcome.stderr.count("\n") == 1, outcome.stderr


def test_output_to_string(stage: Stage, core: str) -> None:
    """gdb.execute(..., to_string=True) gets the answer: the command writes through gdb."""
    process = stage.start(*RECORDER)
    outcome = in_gdb(
        process.target(core),
        ['python import json; print("LENGTH", len(json.loads(gdb.execute("heapx arenas --json", to_string=True))["data"]["arenas"]))'],
    )
    assert b"LENGTH" in outcome.stdout, outcome.stderr


def test_sourced_before_any_program(stage: Stage) -> None:
    """gdbinit.py can be sourced with nothing loaded, prints nothing, and a command then says what is missing."""
    outcome = run([GDB, "-nx", "-q", "-batch", "-x", str(GDBINIT)])
    assert (outcome.code, outcome.stdout) == (0, b"")
    outcome = run([GDB, "-nx", "-q", "-batch", "-x", str(GDBINIT), "-ex", "heapx arenas"])
    assert outcome.code == 1 and outcome.stderr.strip()


def test_help_and_completion() -> None:
    """help heapx, heapx help, help heapx arenas, heapx arenas --help and completion work without a program; gdb offers nothing of the shell's."""
    commands = ["help heapx", "heapx help", "heapx help arenas", "help heapx arenas", "heapx arenas --help", "complete heapx ar", "complete heapx arenas --", "show heapx max-seconds"]
    script = [word for command in (*commands, "complete heapx ") for word in ("-ex", "echo \\n---\\n", "-ex", command)]
    outcome = run([GDB, "-nx", "-q", "-batch", "-x", str(GDBINIT), *script])
    shown = dict(zip(commands, outcome.stdout.decode().split("\n---\n")[1:]))
    assert outcome.code == 0 and all(text.strip() for text in shown.values()), (shown, outcome.stderr)
    every = outcome.stdout.decode().rpartition("\n---\n")[2].splitlines()
    assert "heapx arenas" in shown["complete heapx ar"] and not {"heapx watch", "heapx fleet", "heapx mcp"} & set(every) and "heapx arenas" in every


def test_only_the_prefix_is_taken() -> None:
    """Sourcing adds the prefix heapx and its settings, no other command."""
    names = []
    for script in ([], ["-x", str(GDBINIT)]):
        listing = run([GDB, "-nx", "-q", "-batch", *script, "-ex", "help all"])
        names.append({line.split(" --")[0].strip() for line in listing.stdout.decode().splitlines() if " -- " in line})
    added = names[1] - names[0]
    assert added and all("heapx" in name for name in added), sorted(added)[:10]


@pytest.mark.parametrize("arguments, code", [("arenas", 0), ("no-such-command", 2), ("arenas --no-such-option", 2)])
def test_exit_ends_gdb_with_the_code(lasting: Lasting, core: str, arguments: str, code: int) -> None:
    """heapx --exit ends gdb with the command's exit code."""
    process = lasting.of(core, Stage.start, *RECORDER)
    assert in_gdb(process.target(core), ["heapx --exit " + arguments, "echo NOT REACHED\\n"]).code == code


def test_errors_stop_a_script(folder: Path) -> None:
    """An error inside gdb is a gdb error, so that an -x script stops there."""
    script = folder / "script.gdb"
    script.write_text("source %s\nheapx arenas\necho NOT REACHED\\n\n" % GDBINIT)
    outcome = run([GDB, "-nx", "-q", "-batch", "-x", str(script)])
    assert outcome.code == 1 and b"NOT REACHED" not in outcome.stdout


def test_streaming_into_head(stage: Stage, kind: str) -> None:
    """A reader that stops early ends the tool quietly, and a live process runs on."""
    process = stage.start("recorder", "1", "20000", "5")
    command = [*tool_command(), *process.target(kind), "chunks", "--json"]
    with subprocess.Popen(command, env=tool_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tool:
        assert tool.stdout and tool.stderr
        with subprocess.Popen(["head", "-n", "5"], stdin=tool.stdout, stdout=subprocess.PIPE) as head:
            tool.stdout.close()
            assert head.communicate(timeout=60)[0].count(b"\n") == 5
        errors = tool.stderr.read().decode()
        tool.wait(60)
    assert "Traceback" not in errors and "BrokenPipe" not in errors and "Exception" not in errors, errors
    if kind == "live":
        assert process.popen.poll() is None


def test_doctor_writes_nothing(stage: Stage, live: str, folder: Path) -> None:
    """doctor leaves the process's memory and registers alone: it runs on, untraced, with the same anonymous memory."""
    process = stage.start("recorder", "1", "2000", "3")
    before = process.smaps_rollup("Anonymous")
    assert heapx(process.target(live), "doctor", "--json").code == 0
    assert process.smaps_rollup("Anonymous") == before


ORDERED = """
import gdb
from gdbheapx.inferior.arch import native_architecture
from gdbheapx.inferior.gdb.target import call_in_every_thread, read_register_words
machine = native_architecture()
def compare_words(thread):
    words = read_register_words(machine)
    by_name = {name: word for name, word in zip(machine.registers.names, words) if name not in ("eflags", "pstate")}
    shown = {name: int(gdb.parse_and_eval("(unsigned long)$" + name)) for name in by_name}
    return by_name[machine.in_system_call.number] if by_name == shown else None
print("numbers of calls:", call_in_every_thread(compare_words))
"""


def test_registers_in_gdb_are_in_the_kernels_order(stage: Stage, tmp_path: Path) -> None:
    """Calls on a stack and the system call that a thread waits in are found by their places, as in a core."""
    process, script = stage.start("victim_parked", "idle"), tmp_path / "ordered.py"
    script.write_text(ORDERED)
    outcome = in_gdb(process.target("live"), ["source %s" % script])
    shown = outcome.stdout.decode().rpartition("numbers of calls: ")[2].partition("]")[0]
    calls = native_architecture().system_calls
    assert calls is not None and str(calls.numbers["clock_nanosleep"]) in shown and "None" not in shown, (shown, outcome.stderr)


COMMANDS = ("arenas", "chunks", "chunks --histogram", "bins", "tcache", "malloc-info", "malloc-stats", "tunables", "trim --dry-run")


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
