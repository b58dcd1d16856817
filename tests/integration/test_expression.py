"""Expressions of gdb's where a command takes an address: they are read, and nothing of the program is called or written for it.

Files: inferior/gdb/target.py
"""

import json
from pathlib import Path
from typing import List, Sequence

import pytest

from tests.support.processes import Lasting, Process, Stage
from tests.support.tool import heapx, in_gdb

pytestmark = pytest.mark.image  # its gdb's settings and evaluation
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
