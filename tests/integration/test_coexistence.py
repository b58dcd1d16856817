"""Beside another extension with the names that pwndbg and gef take, sourced before or after, neither does the other harm."""

import json
from pathlib import Path
from typing import List

import pytest

from tests.support.paths import GDB, GDBINIT
from tests.support.processes import Stage
from tests.support.tool import answers, run

pytestmark = pytest.mark.image  # what its gdb shares among extensions

OTHER = '''
"""An extension like pwndbg and gef: their command and parameter names, their habits with Python's path and modules."""

import sys
import types

import gdb

sys.path.insert(0, %(folder)r)  # modules of its own, some with names that others use too
for name in ("tabulate", "model", "parse", "session"):
    sys.modules.pop(name, None)
import tabulate

assert tabulate.OTHER
sys.modules["commands"] = types.ModuleType("commands")
sys.setrecursionlimit(5000)
gdb.execute("set pagination off")
gdb.execute("set confirm off")
gdb.execute("set print pretty on")
gdb.execute("set height 0")
gdb.execute("set prompt other> ")


class Prefix(gdb.Command):
    """Heap commands of the other extension."""

    def __init__(self, name):
        super().__init__(name, gdb.COMMAND_USER, gdb.COMPLETE_NONE, True)
        self.name = name

    def invoke(self, argument, from_tty):
        gdb.write("OTHER %%s %%s\\n" %% (self.name, argument))


class Word(gdb.Command):
    """A command of the other extension."""

    def __init__(self, name):
        super().__init__(name, gdb.COMMAND_USER)
        self.name = name

    def invoke(self, argument, from_tty):
        gdb.write("OTHER %%s %%s %%s\\n" %% (self.name, argument, tabulate.OTHER))


class Number(gdb.Parameter):
    """A setting of the other extension."""

    set_doc = show_doc = "A setting of the other extension."

    def __init__(self, name):
        super().__init__(name, gdb.COMMAND_DATA, gdb.PARAM_ZINTEGER)
        self.value = 7

    def get_set_string(self):
        return ""

    def get_show_string(self, value):
        return "OTHER setting %%s" %% value


Prefix("heap")
for name in %(names)r:
    Word(name)
for name in %(parameters)r:
    Number(name)
gdb.events.stop.connect(lambda event: gdb.write("OTHER stop\\n"))
gdb.prompt_hook = lambda current: "other> "
'''

NAMES = [
    "heap arenas", "heap chunks", "heap bins", "arenas", "arena", "bins", "chunks", "tcache", "tcachebins", "mp", "top_chunk",
    "malloc-info", "doctor",
]
PARAMETERS = ["max-seconds", "heap-color", "resolve-heap-via-heuristic"]


@pytest.fixture
def other(folder: Path) -> Path:
    """The other extension, with a module named tabulate that is not the one from PyPI."""
    (folder / "tabulate.py").write_text("OTHER = 'its-own-tabulate'\n")
    path = folder / "other.py"
    path.write_text(OTHER % {"folder": str(folder), "names": NAMES, "parameters": PARAMETERS})
    return path


def sourced(order: str, other: Path) -> List[str]:
    """gdb options that source both, in that order."""
    pair = {"before": [other, GDBINIT], "after": [GDBINIT, other], "twice": [GDBINIT, other, GDBINIT]}[order]
    return [word for path in pair for word in ("-x", str(path))]


@pytest.mark.parametrize("order", ["before", "after", "twice"])
def test_both_work(stage: Stage, core: str, other: Path, order: str) -> None:
    """Sourced before or after, every command and setting of the other works, and heapx gives its own answer and its text."""
    process = stage.start("recorder", "3", "300", "3")
    target = process.target(core)
    (alone,) = answers(target, process.folder, "arenas")
    files = [process.folder / name for name in ("first", "second")]
    words = ["-ex", "heapx arenas --json -o %s" % files[0]]
    for name in NAMES:
        words += ["-ex", name + " 1"]
    words += ["-ex", "heap 1"]
    for name in PARAMETERS:
        words += ["-ex", "set %s 9" % name, "-ex", "show %s" % name]
    words += ["-ex", "show heapx max-seconds", "-ex", "heapx arenas --json -o %s" % files[1], "-ex", "heapx arenas", "-ex", "heapx doctor"]
    outcome = run([GDB, "-nx", "-q", "-batch", "-iex", "set auto-load no", "-c", target[1], *sourced(order, other), *words])
    assert outcome.code == 0, outcome.stderr
    text = outcome.stdout.decode()
    for name in NAMES:
        assert "OTHER %s 1 its-own-tabulate" % name in text, name
    assert "OTHER heap 1\n" in text
    assert text.count("OTHER setting 9") == len(PARAMETERS)
    assert "heapx max-seconds is" in text
    assert "system" in text and "main" in text and "glibc" in text
    for path in files:
        assert json.loads(path.read_text())["data"] == alone["data"]


STATE = """python
import json, sys
def parameters():
    return sorted(line.split(":", 1)[0] for line in gdb.execute("show", to_string=True).splitlines() if ":" in line)
print("STATE " + json.dumps({
    "commands": sorted({line.split(" --")[0].strip() for line in gdb.execute("help all", to_string=True).splitlines() if " -- " in line}),
    "completions": sorted({line for letter in "abcdefghijklmnopqrstuvwxyz" for line in gdb.execute("complete " + letter, to_string=True).splitlines()}),
    "set": sorted({line for letter in "abcdefghijklmnopqrstuvwxyz" for line in gdb.execute("complete set " + letter, to_string=True).splitlines()}),
    "parameters": parameters(),
    "values": [gdb.execute("show " + name, to_string=True) for name in ("pagination", "confirm", "height", "width", "prompt", "sysroot", "auto-load", "max-value-size", "debug-file-directory", "python print-stack")],
    "convenience": gdb.execute("show convenience", to_string=True),
    "functions": gdb.execute("help function", to_string=True),
    "printers": len(gdb.pretty_printers), "unwinders": len(gdb.frame_unwinders), "filters": sorted(gdb.frame_filters), "xmethods": len(gdb.xmethods),
    "prompt_hook": repr(gdb.prompt_hook), "recursion": sys.getrecursionlimit(),
    "names": sorted(vars(gdb)), "path": sys.path[:-1] if sys.path[-1].endswith(%r) else sys.path,
    "hooks": [repr(sys.excepthook), repr(sys.displayhook)],
}))
end
"""


def test_sourcing_takes_no_other_name(folder: Path) -> None:
    """Sourcing adds commands and settings whose names begin with heapx; of gdb's settings, hooks, printers, values and module names nothing changes."""
    script = folder / "state.gdb"
    script.write_text(STATE % GDBINIT.parent.parent.name)
    found = []
    for words in ([], ["-x", str(GDBINIT)]):
        outcome = run([GDB, "-nx", "-q", "-batch", *words, "-x", str(script)])
        line = next(line for line in outcome.stdout.decode().splitlines() if line.startswith("STATE "))
        found.append(json.loads(line[len("STATE ") :]))
    before, after = found
    for key in ("commands", "completions", "set", "parameters"):
        added = set(after[key]) - set(before[key])
        assert not set(before[key]) - set(after[key]), key
        assert added and all("heapx" in name for name in added), (key, sorted(added)[:10])
    for key in sorted(set(before) - {"commands", "completions", "set", "parameters"}):
        assert after[key] == before[key], key


def test_its_events_still_come(stage: Stage, live: str, other: Path) -> None:
    """Around heapx commands the other extension gets gdb's stop events, and the process runs on after detach."""
    process = stage.start("recorder", "1", "100", "1")
    words = ["handle SIGUSR1 stop nopass", "heapx arenas", "shell kill -USR1 %d" % process.pid, "continue", "heapx tcache", "detach"]
    options = [word for one in words for word in ("-ex", one)]
    outcome = run([GDB, "-nx", "-q", "-batch", "-iex", "set auto-load no", "-p", str(process.pid), *sourced("before", other), *options])
    assert outcome.code == 0, outcome.stderr
    assert outcome.stdout.count(b"OTHER stop") == 1
    assert b"recorder" in outcome.stdout[outcome.stdout.index(b"OTHER stop") :]
    assert process.popen.poll() is None
