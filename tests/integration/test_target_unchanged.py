"""What commands cost: a sleeping process no page table, page, swap entry or page fault more; a small answer few modules and files of the product."""

import os
import sys
from typing import Sequence

import pytest

from gdbheapx import command
from gdbheapx.common import catalogue
from tests.support import jemallocs
from tests.support.paths import ROOT
from tests.support.processes import Stage
from tests.support.tool import alone, heapx, run
from tests.support.unchanged import EVERY, JEMALLOC, WALKERS, unchanged

pytestmark = pytest.mark.once  # the kernel's, which all images share

PATIENT = ("--max-stop", "60")
"""Where ten other programs run a look may take longer than the two seconds that people wait."""
CASES = [("glibc", words) for words in EVERY] + [("jemalloc", words) for words in WALKERS + JEMALLOC]


def codes(allocator: str, words: str) -> Sequence[int]:
    """`refs` reads everything before it says that there is no such block; a trim, and malloc_info(), are refused where another allocator owns
    malloc."""
    return (1,) if words == "refs 4096" or (allocator == "jemalloc" and words in ("trim --dry-run", "malloc-info")) else (0, 3)


@pytest.mark.parametrize("allocator, words", CASES)
def test_command_changes_nothing(stage: Stage, live: str, allocator: str, words: str) -> None:
    """VmPTE, VmSwap and Rss of a process and of the child it forked, and the page faults of both, are equal before and after its first look."""
    env = {"LD_PRELOAD": str(jemallocs.library()), "MALLOC_CONF": "prof:true,lg_prof_sample:12"} if allocator == "jemalloc" else {}
    process = stage.start("asleep", env=env)
    process.command(b"w")
    with unchanged(process.pid, process.words()[0]):
        outcome = heapx([*process.target(live), *PATIENT], *words.split(), "--json")
        assert outcome.code in codes(allocator, words), outcome.stderr[-1000:]


def test_every_command_is_among_them() -> None:
    """A command that is new is looked at here as well; `diff` looks by `snapshot`, `fleet` by `report`, test_query.py
    looks at `query`, test_bill.py at `bill`, test_serve.py at `serve`, `release` by `trim` and `purge`, and `explore` and `mcp` take no process."""
    command.load_commands()
    asked = {words.split()[0] for _, words in CASES}
    others = {"bill", "capture", "diff", "explore", "fleet", "mcp", "query", "release", "serve"}
    assert asked | {catalogue.ALIASES[name][0] for name in asked if name in catalogue.ALIASES} == (set(command.command_names()) - others) | (asked & set(catalogue.ALIASES))


def test_one_page_would_be_seen(stage: Stage) -> None:
    """A single page that somebody reads through /proc/PID/mem where nothing was ever touched is told as a change."""
    process = stage.start("asleep")
    with open("/proc/%d/maps" % process.pid) as maps:
        ranges = [[int(part, 16) for part in line.split()[0].split("-")] for line in maps if len(line.split()) == 5]
    start, end = max(ranges, key=lambda each: each[1] - each[0])
    with pytest.raises(AssertionError, match="the look changed the process"), unchanged(process.pid):
        memory = os.open("/proc/%d/mem" % process.pid, os.O_RDONLY)
        os.pread(memory, 1, start + (end - start) // 4)
        os.close(memory)


@pytest.mark.parametrize("words", WALKERS)
def test_what_lies_behind_heaps_and_stacks_is_left_alone(stage: Stage, live: str, words: str) -> None:
    """Nine threads with arenas and stacks, whose ends without permissions nobody has touched: /proc/PID/mem would read these all the same."""
    process = stage.start("recorder", "9", "2000", "3")
    with unchanged(process.pid):
        ask = heapx if words in ("report", "leaks --weak") else alone  # gdb's own reading is the same for each
        outcome = ask([*process.target(live), *PATIENT], *words.split(), "--json")
        assert outcome.code in codes("glibc", words), outcome.stderr[-1000:]


MODULES, FILES = 100, 80
"""Of the product, that an answer about the arenas of a small core imports and runs; the goal of files is 50. Three modules are there for
hostile cores: watchdog, roots, contradictions; three for every command and every text: catalogue
(which file has a command), hints and place (commands that texts name, whole for the place where they are read). One of them is the package's own,
which Python asks for each module before it looks for its file."""
COUNTED = """
import os, sys
ran, end = set(), os._exit

def called(frame, event, argument):
    ran.add(frame.f_code.co_filename)
    if frame.f_code.co_name == "<module>":  # what runs at import is no part of the answer
        sys.setprofile(lambda inner, event, argument: sys.setprofile(called) if inner is frame and event == "return" else None)

def told(code):
    sys.setprofile(None)
    modules = [name for name in sys.modules if name.split(".")[0] == "gdbheapx"]
    files = [file for file in ran if file.startswith((%(root)r + "/gdbheapx/", %(root)r + "/commands/"))]
    absent = [name for name in modules if name.split(".")[1:3] == ["addons", "allocators"] and name.count(".") > 3]
    print(len(modules), len(files), "tabulate" in sys.modules, len(absent), file=sys.stderr)
    end(code)

os._exit = told
from gdbheapx.app.cli import main
sys.setprofile(called)
main()
"""


@pytest.mark.parametrize("form", ["text", "json"])
def test_modules_and_files_of_arenas(stage: Stage, form: str) -> None:
    """No more modules are imported, and no more files run, than these; tabulate only where a table is printed, and nothing of allocators that
    are behind a gate (addons/allocators/gates.py): the program has none of them."""
    core = stage.start("recorder", "1", "2000", "5").core()
    words = [sys.executable, "-c", COUNTED % {"root": str(ROOT)}, "--core", str(core), "arenas", *["--json"] * (form == "json")]
    outcome = run(words, env={"GDBHEAPX_GDB": "none"})
    modules, files, has_tabulate, absent = outcome.stderr.split()
    assert absent == "0"
    assert outcome.code == 0 and int(modules) <= MODULES and int(files) <= FILES
    assert has_tabulate == str(form == "text")
