"""Programs and what is hidden of them: each command's answer is what it is with everything at hand, or has nulls, or is a refusal with a next step."""

import re
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

import pytest

from tests.support import bare, jemallocs, runtimes
from tests.support.bare import Bare, facts
from tests.support.processes import Process, Stage
from tests.support.tool import Outcome, heapx

pytestmark = pytest.mark.wild  # each program is asked 13 questions in up to five ways

COMMANDS = (
    "arenas", "bins", "tcache", "chunks --histogram", "malloc-info", "malloc-stats", "tunables", "report", "trim --dry-run",
    "purge --dry-run", "tickers", "decay", "profile",
)
HIDDEN = {"symbols": (False, ()), "symbols, gdb": (False, ("--gdb", "none")), "symbols, libraries": (True, ()), "everything": (True, ("--gdb", "none"))}
"""What is hidden: (every file of a core's process, options)."""
MAY_DIFFER = ("uptime_ns", "late_ms", "epoch_ms", "deadline_ms", "pss_bytes", "shared_bytes", "next", "evidence", "lines", "hint", "what", "why", "meaning")
"""What changes from look to look, and sentences."""


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Bare:
    """The tool without packs."""
    return bare.make(tmp_path_factory.mktemp("bare"))


def glibc(stage: Stage) -> Process:
    return stage.start("recorder", "7", "3000", "5")


def preloaded(stage: Stage) -> Process:
    return jemallocs.start(stage, "preload", "recorder", "after", "4", "4", conf="prof:true,lg_prof_sample:12")


def runtime(name: str) -> Callable[[Stage], Process]:
    return lambda stage: runtimes.start(stage, runtimes.PROGRAMS[name])


OF_OTHERS = {"glibc": ("purge --dry-run", "tickers", "decay", "profile"), "jemalloc": ("malloc-info", "trim --dry-run")}
"""What is not about this allocator: the same words as ever, and not in the table."""
MOST_LOOKS = 5
"""At a living process that goes on."""
ANSWER = "answer"
"""The property by which tools/wild.py makes its table: command, allocator, kind, what is hidden, program, state."""
ONLY_NAMES_TELL: Dict[str, Dict[str, Tuple[str, ...]]] = {
    "glibc": {},
    "jemalloc": {
        "malloc-stats": (
            r"\.jemalloc\.(arenas|config|opt|prof)\.\w+",  # constants in code; options that no code in the core leads to
            r"\.jemalloc\.stats\.(background_thread|mutexes\.(background_thread|ctl|prof\w*))\.\w+",
            r"\.jemalloc\.opt",
            r"\.jemalloc\.(stats\.zero_reallocs|stats\.arenas\.destroyed)",
        ),
        "tunables": (
            r"\.background_threads\.jemalloc\.\w+",
            r"\.tunables\.jemalloc(\.\w+(\.\w+)*\.\w+)?",
            r"\.sources\.jemalloc",
            r"\.tunables\.glibc\[14\]\.name",  # of a libc whose malloc was never used: the number of thread cache bins, renamed in 2.42
        ),
    },
}
"""Where null is an answer without names: patterns of paths, by allocator and command (docs/how-to/only-a-core.md, section 3)."""
ONLY_CODE_TELLS = (r"\.arenas\[\d+\]\.kind", r"\.findings\.(arenas-without-threads|profiling)")
"""Of jemalloc, null in a core without libraries: opt.narenas, which parts the program's own arenas from the others, is found by code."""

BY_NAME = (".tunables.jemalloc", ".jemalloc.opt", ".findings")
"""Where an entry that is not there is as unknown as null."""

PROGRAMS = {"glibc": glibc, "jemalloc": preloaded, "python": runtime("python"), "java": runtime("java"), "node": runtime("node")}


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_hidden(stage: Stage, kind: str, tool: Bare, name: str, record_property: Callable[[str, object], None]) -> None:
    """No command gives another figure than it gives with symbols: it gives that; or null, where the figure is one of ONLY_NAMES_TELL; or one line."""
    process = PROGRAMS[name](stage)
    target = process.target(kind)
    allocator = "jemalloc" if name == "jemalloc" else "glibc"
    wrong = []
    for words in COMMANDS:
        known = heapx(target, *words.split(), "--json")
        for hidden, (is_alone, options) in HIDDEN.items():
            if is_alone and kind == "live":
                continue  # a process has its files in /proc
            for _ in range(MOST_LOOKS):
                found = tool.ask([*target, *options], *words.split(), "--json", alone=is_alone)
                state, more = compared(known, found, words, allocator, kind, is_alone)
                before, known = known, heapx(target, *words.split(), "--json") if more and kind == "live" else known
                if not more or facts(before.envelope["data"], kind) == facts(known.envelope["data"], kind):
                    break  # else the program has gone on between the looks, as a JVM does: it answers otherwise with symbols, too
            wrong += [(hidden, words, one) for one in more]
            if words not in OF_OTHERS[allocator]:
                record_property(ANSWER, "|".join((words, allocator, kind, hidden, name, state)))
    assert not wrong, (len(wrong), wrong[:8])


def compared(known: Outcome, found: Outcome, words: str, allocator: str, kind: str, is_alone: bool) -> Tuple[str, List[str]]:
    """(whole, partial with what is null, or not with the reason; what is wrong)."""
    if found.code == 1:
        is_line = found.stderr.count("\n") == 1 and ";" in found.stderr
        reason = found.stderr.strip().split(": ", 1)[-1].split(";")[0]
        return ("with symbols neither" if known.code == 1 else "not: ") + reason * (known.code != 1), [] if is_line else ["no line with a next step: " + found.stderr]
    if known.code == 1:
        return "whole", ["an answer where there was none"]
    other = list(differences(*(by_name(facts(one.envelope["data"], kind)) for one in (known, found))))
    patterns = ONLY_NAMES_TELL[allocator].get(words, ()) + (ONLY_CODE_TELLS if is_alone and allocator == "jemalloc" else ())
    nulls = [path for path, is_null in other if is_null]
    wrong = [path for path, is_null in other if not is_null]
    wrong += ["%s is null" % path for path in nulls if not any(re.fullmatch(one, path) for one in patterns)]
    codes = {one["code"] for one in found.envelope["problems"]} - {one["code"] for one in known.envelope["problems"]}
    wrong += ["%s is a problem" % code for code in sorted(codes)]
    if found.code != known.code:
        wrong.append("exit code %d, not %d" % (found.code, known.code))
    groups = sorted({re.sub(r"\[\d+\]", "", path).lstrip(".") for path in nulls})
    return ("partial: %s null" % told(groups) if groups else "whole"), wrong


def told(paths: Sequence[str]) -> str:
    """Some names of what is null, and how many there are."""
    names = list(dict.fromkeys(path.rsplit(".", 1)[-1] for path in paths))
    return ", ".join(names[:3]) + (" and %d more" % (len(names) - 3) if len(names) > 3 else "")


def by_name(data: Any) -> Any:
    """Options and findings by their names, as there are fewer where less is known; glibc's tunables by their places too: all are told, and a
    name that depends on a release that is not known is null."""
    if not isinstance(data, dict):
        return data
    if isinstance(data.get("tunables"), dict):
        told = data["tunables"].items()
        data = {**data, "tunables": {name: rows if name == "glibc" or rows is None else {row["name"]: row for row in rows} for name, rows in told}}
    return {**data, "findings": {row["code"]: row for row in data["findings"]}} if "findings" in data else data


def differences(known: Any, found: Any, path: str = "") -> Iterator[Tuple[str, bool]]:
    """(where the answers differ, whether the second has null there)."""
    if isinstance(known, dict) and isinstance(found, dict):
        for key in sorted({*known, *found} - set(MAY_DIFFER)):
            if key in found or path in BY_NAME:
                yield from differences(known.get(key), found.get(key), "%s.%s" % (path, key))
            else:
                yield "%s.%s is missing" % (path, key), False
    elif isinstance(known, list) and isinstance(found, list) and len(known) == len(found):
        for place, pair in enumerate(zip(known, found)):
            yield from differences(*pair, "%s[%d]" % (path, place))
    elif known != found and not (path.endswith(".signature") and str(found).startswith("CLASS@")):  # without its library a class has its place
        yield path, found is None
