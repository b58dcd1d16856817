"""The same answer from the shell, inside gdb, and of a process behind gdbserver.

gdbheapx.api in a stock gdb: the examples of docs/reference/python-api.md, live and on a core, say what the commands say.

Expressions of gdb's where a command takes an address: they are read, and nothing of the program is called or written for it.

Files: api.py, app/gdb_process.py, gdbinit.py, inferior/gdb/inferior.py, inferior/gdb/target.py.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import List, Sequence

import pytest

from gdbheapx.inferior.arch import native_architecture
from tests.support.gdbserver import Server, remote_answers, resident_figures, without_resident
from tests.support.glibc import check_identity
from tests.support.paths import GDB, GDBINIT, ROOT
from tests.support.processes import Lasting, Process, Stage
from tests.support.tool import Outcome, answers, heapx, in_gdb, run, tool_command, tool_environment

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
        with subprocess.Popen(["head", "-n", "5"], stdin=tool.stdout, stdout=subprocess.PIPE) as head:
            tool.stdout.close()
            assert head.communicate(timeout=60)[0].count(b"\n") == 5
        errors = tool.stderr.read().decode()
        tool.wait(60)
    assert "Traceback" not in errors and "BrokenPipe" not in errors and "Exception" not in errors, errors
    if kind == "live":
        assert process.popen.poll() is None


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

PAGE = (ROOT / "docs" / "reference" / "python-api.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
ARENAS, CLASSES, OWNER = EXAMPLES


def script(folder: Path, process: Process, kind: str, text: str, before: Sequence[str] = ()) -> Outcome:
    """The script in a gdb that has the target."""
    path = folder / "script.py"
    path.write_text(text)
    return in_gdb(process.target(kind), [*before, "source %s" % path])


def lines(outcome: Outcome, pattern: str) -> List["re.Match[str]"]:
    """Lines of the script: gdb's own stand among them."""
    assert outcome.code == 0 and "Traceback" not in outcome.stderr, outcome.stderr
    return [found for found in (re.fullmatch(pattern, line) for line in outcome.stdout.decode().splitlines()) if found]


@pytest.mark.once
def test_bytes_of_arenas(stage: Stage, core: str, tmp_path: Path) -> None:
    """The first example prints for each arena what `arenas` says."""
    process = stage.start("damage", "rich")
    rows = heapx(process.target(core), "arenas", "--json").data["arenas"]
    found = lines(script(tmp_path, process, core, ARENAS), r"glibc arena (\d+): (\d+) bytes in use, (\d+) free, (\d+) would be returned")
    assert len(rows) >= 2
    assert [tuple(map(int, one.groups())) for one in found] == [(row["index"], row["used_bytes"], row["free_bytes"], row["reclaimable_bytes"]) for row in rows]


def test_size_classes(stage: Stage, kind: str, tmp_path: Path) -> None:
    """The second example prints the five classes that the listing of all blocks has."""
    process = stage.start("damage", "rich")
    chunks = heapx(process.target(kind), "chunks", "--json").data["chunks"]
    wanted = Counter()  # type: Counter[int]
    blocks = Counter(row["usable_bytes"] for row in chunks if row["status"] == "used")
    for size, count in blocks.items():
        wanted[size] = size * count
    found = lines(script(tmp_path, process, kind, CLASSES), r"(\d+) bytes in (\d+) blocks of (\d+)")
    assert [(int(one[3]), int(one[1]), int(one[2])) for one in found] == [(size, total, blocks[size]) for size, total in wanted.most_common(5)]


@pytest.mark.once
def test_owner_of_an_address(stage: Stage, live: str, tmp_path: Path) -> None:
    """The third example names the block that an inner address lies in and the chain that holds it; elsewhere it says so, without a traceback."""
    process = stage.start("damage", "rich")
    row = next(row for row in heapx(process.target(live), "chunks", "--status", "used", "--min-size", "64", "--json").data["chunks"])
    chain = heapx(process.target(live), "refs", row["address"], "--limit", "1", "--json").data["chains"]
    inner = "set var $address = %#x" % (int(row["address"], 16) + 9)
    outcome = script(tmp_path, process, live, OWNER, [inner])
    (block,) = lines(outcome, r"block (0x[0-9a-f]+), (\d+) bytes, (\w+)")
    assert block.groups() == (row["address"], str(row["usable_bytes"]), "used")
    held = lines(outcome, r"  held by (0x[0-9a-f]+) .*")
    assert [one[1] for one in held] == [link["address"] for link in (chain[0] if chain else [])]
    elsewhere = script(tmp_path, process, live, OWNER, ["set var $address = 4096"])
    assert lines(elsewhere, r"no block of malloc's holds it, or nothing points to it: .*")

ERRORS = """
from gdbheapx import api
for words in (["nothing"], ["arenas", "--nothing"], ["arenas", "--help"], ["arenas", "-o", "file"], ["trim", "--every", "1"], ["watch"], ["chunks", "--arena", "x"]):
    try:
        print("ANSWER", words, api.ask(*words))
    except api.HeapxError as error:
        print("%s %s: %s" % (type(error).__name__, words[0], error.line()))
"""


@pytest.mark.once
def test_errors_are_of_one_kind(stage: Stage, tmp_path: Path) -> None:
    """What cannot be answered raises HeapxError, wrong usage UsageError, with a line that says what to do; nothing is written to a file."""
    outcome = script(tmp_path, stage.start("damage", "rich"), "live", ERRORS)
    found = lines(outcome, r"(\w+Error) (\S+): (.+)")
    assert [one[1] for one in found][:4] == ["UsageError"] * 4 and len(found) == 7
    assert not [line for line in outcome.stdout.decode().splitlines() if line.startswith("ANSWER")]

BROKEN = """
from gdbheapx import api
seen = 0
try:
    for block in api.blocks():
        seen += 1
    print("whole %d" % seen)
except api.HeapxError as error:
    print("after %d: %s" % (seen, error.line()))
answer = api.ask("arenas")
print("partial %s %s" % (answer.is_partial, answer.problems[0].code))
"""


@pytest.mark.once
def test_a_damaged_heap_is_not_silent(stage: Stage, core: str, tmp_path: Path) -> None:
    """Blocks of a heap with a chunk whose size is ruined come as far as they can be read; then HeapxError says what is missing."""
    process = stage.start("damage", "size")
    outcome = script(tmp_path, process, core, BROKEN)
    (after,) = lines(outcome, r"after (\d+): (.+)")
    assert int(after[1]) > 0 and after[2].startswith("not all blocks could be read: ")
    (partial,) = lines(outcome, r"partial (\w+) (\S+)")
    assert partial[1] == "True"

MAY = ("may-call-functions", "may-write-memory")
TRIED = r'''python exec("def tried(command):\n try: gdb.execute(command)\n except gdb.error as error: print(error)")'''


def recorder(lasting: Lasting, kind: str) -> Process:
    """A program with debug information, whose memory is known."""
    return lasting.of(kind, Stage.start, "recorder", "2", "200", "3")


def printed(process: Process, kind: str, *commands: str) -> List[str]:
    """What the commands print, without what gdb says when it opens the target and lets it go."""
    target = [process.executable, *process.target(kind)]
    outcome = in_gdb(target, [TRIED, "echo BEGIN\\n", *("python tried(%r)" % command for command in commands), "echo END\\n"])
    assert outcome.code == 0, outcome.stderr
    return outcome.stdout.decode().partition("BEGIN\n")[2].partition("END\n")[0].splitlines()


def of_each(process: Process, kind: str, cases: Sequence[Sequence[str]]) -> List[List[str]]:
    """What the commands of each case print, all in one gdb."""
    lines = printed(process, kind, *(command for case in cases for command in ("echo CASE\\n", *case)))
    found: List[List[str]] = []
    for line in lines:
        if line == "CASE":
            found.append([])
        else:
            found[-1].append(line)
    assert len(found) == len(cases), lines
    return found

ADDRESSES = (
    ("blocks", "blocks"),
    ("&blocks", "&blocks"),
    ("header->freed_count", "&header->freed_count"),
    ("blocks + 1", "blocks + 1"),
    ("(char *) blocks + 16 --no-holders", "(char *) blocks + 16"),
    ("$sp", "$sp"),
    ("main", "&main"),
    ("'(uint64_t) blocks'", "(uint64_t) blocks"),
    ("0x10", "0x10"),
)


def test_an_expression_is_the_address_that_gdb_prints(lasting: Lasting, kind: str, tmp_path: Path) -> None:
    """With spaces or quoted, beside options; a number stays a number."""
    paths = [tmp_path / str(number) for number in range(len(ADDRESSES))]
    cases = [
        ("heapx whatis %s --json -o %s" % (typed, path), "print/x (unsigned long) (%s)" % expression) for (typed, expression), path in zip(ADDRESSES, paths)
    ]
    for (typed, _), path, lines in zip(ADDRESSES, paths, of_each(recorder(lasting, kind), kind, cases)):
        assert path.exists() and json.loads(path.read_text())["data"]["address"] == lines[-1].split()[-1], (typed, lines)


def test_refs_and_owners_take_them(lasting: Lasting, kind: str, tmp_path: Path) -> None:
    """As they do numbers: the same answer."""
    process = recorder(lasting, kind)
    first = "blocks[1].address ? blocks[1].address : blocks[2].address"
    paths = [tmp_path / name for name in "abcd"]
    commands = ["refs %s", "owners --of '(%s)'"]
    words = [first, "$number"]
    asked = ["heapx %s --json -o %s" % (command % word, path) for (command, word), path in zip(((one, word) for one in commands for word in words), paths)]
    printed(process, kind, "python import gdb; gdb.set_convenience_variable('number', gdb.parse_and_eval(%r))" % first, *asked)
    data = [json.loads(path.read_text())["data"] if path.exists() else None for path in paths]
    assert data[0] == data[1] and data[2] == data[3]

REFUSED = (
    ("threads = 99", "would assign"),
    ("threads <<= 1", "would assign"),
    ("$count++", "would assign"),
    ("threads--", "would assign"),
    ("$sp = 16", "would assign"),
    ("$_streq(1, 1)", "calls a function of gdb's"),
    ("(long) getpid()", "Cannot call functions"),
    ("no_such_variable", "no_such_variable"),
    ("*blocks", "which is no address"),
    ("(double) 1", "which is no address"),
    ("-1", "no address"),
    ("*(long *) 8", "Cannot access memory"),
    ("blocks +", "syntax error"),
    ("$no_such_variable", "void"),
)


def test_what_would_change_the_program_or_is_no_address_is_refused(lasting: Lasting, kind: str) -> None:
    """In one line with the next step; the program's variables, and gdb's settings, are as before."""
    state = [*("show %s" % name for name in MAY), "print threads", "print $sp", "print $count"]
    cases = [(*state, "heapx whatis %s" % typed, "echo MIDDLE\\n", *state) for typed, _ in REFUSED]
    for (typed, why), lines in zip(REFUSED, of_each(recorder(lasting, kind), kind, cases)):
        at = lines.index("MIDDLE")
        assert why in lines[at - 1] and at == len(state) + 1, (typed, lines)
        values = [line.rpartition(" = ")[2] for line in lines]
        assert values[: len(state)] == values[at + 1 :], (typed, lines)


def test_a_setting_that_was_off_stays_off(lasting: Lasting, core: str) -> None:
    """Settings are put back to what the user had."""
    lines = printed(recorder(lasting, core), core, "set may-call-functions off", "heapx whatis blocks", "show may-call-functions")
    assert lines[-1] == "Permission to call functions in the program is off."


def test_python_in_gdb_takes_them_too(lasting: Lasting, core: str) -> None:
    """api.ask() is what the command answers."""
    code = "from gdbheapx import api; print(api.ask('whatis', 'blocks').data['address'], hex(int(gdb.parse_and_eval('blocks'))))"
    lines = printed(recorder(lasting, core), core, "python " + code)
    assert len(set(lines[-1].split())) == 1


def test_outside_gdb_an_address_is_a_number(lasting: Lasting, core: str) -> None:
    """There is nobody to evaluate."""
    outcome = heapx(recorder(lasting, core).target(core), "whatis", "$sp")
    assert outcome.code == 2 and "$sp is not an address" in outcome.stderr


def test_completion_knows_allocators_arenas_and_symbols(lasting: Lasting, live: str, tmp_path: Path) -> None:
    """Of what gdb has; files behind other words; nothing without a process."""
    (tmp_path / "old.snap").write_text("")
    asked = ["arenas --allocator g", "purge --arena 0", "whatis blo", "arenas -o %s/ol" % tmp_path, "diff %s/ol" % tmp_path]
    lines = printed(recorder(lasting, live), live, *("complete heapx %s" % line for line in asked))
    assert {"heapx arenas --allocator glibc", "heapx purge --arena 0", "heapx whatis blocks"} <= set(lines)
    assert [line for line in lines if line.endswith("/old.snap")] == ["heapx arenas -o %s/old.snap" % tmp_path, "heapx diff %s/old.snap" % tmp_path]
    assert in_gdb([], ["complete heapx arenas --allocator g"]).stdout == b""
