"""Programs and what is hidden of them: each command's answer is what it is with everything at hand, or has nulls, or is a refusal with a next step."""

from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest

from tests.support import bare, jemallocs, runtimes
from tests.support.bare import Bare, facts
from tests.support.processes import Process, Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.wild  # each program is asked 13 questions in up to four ways

COMMANDS = (
    "arenas",
    "bins",
    "tcache",
    "chunks --histogram",
    "malloc-info",
    "malloc-stats",
    "tunables",
    "report",
    "trim --dry-run",
    "purge --dry-run",
    "tickers",
    "decay",
    "profile",
)
HIDDEN = {"symbols": (False, ()), "symbols, gdb": (False, ("--gdb", "none")), "symbols, libraries": (True, ()), "everything": (True, ("--gdb", "none"))}
"""What is hidden: (every file of a core's process, options)."""
MAY_DIFFER = ("uptime_ns", "late_ms", "epoch_ms", "deadline_ms", "pss_bytes", "shared_bytes", "next", "next_steps", "evidence", "lines", "hint", "what")
"""What changes from look to look, and sentences."""


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Bare:
    """The tool without packs."""
    return bare.make(tmp_path_factory.mktemp("bare"))


def glibc(stage: Stage) -> Process:
    return stage.start("recorder", "7", "3000", "5")


def preloaded(stage: Stage) -> Process:
    return jemallocs.start(stage, "preload", "recorder", "5", "2000", "4")


def runtime(name: str) -> Callable[[Stage], Process]:
    return lambda stage: runtimes.start(stage, runtimes.PROGRAMS[name])


PROGRAMS = {"glibc": glibc, "jemalloc": preloaded, "python": runtime("python"), "java": runtime("java"), "node": runtime("node")}


@pytest.mark.parametrize("hidden", list(HIDDEN))
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_hidden(stage: Stage, kind: str, tool: Bare, name: str, hidden: str, record_property: Callable[[str, object], None]) -> None:
    """No command gives another figure than it gives with symbols: it gives that, or null, or one line."""
    is_alone, options = HIDDEN[hidden]
    if is_alone and kind == "live":
        pytest.skip("a process has its files in /proc")
    process = PROGRAMS[name](stage)
    process.popen.poll()
    target = process.target(kind)
    states: Dict[str, List[str]] = {"equal": [], "nulls": [], "refused": []}
    for command in COMMANDS:
        known = heapx(target, *command.split(), "--json")
        found = tool.ask([*target, *options], *command.split(), "--json", alone=is_alone)
        other = list(differences(facts(known.envelope["data"], kind), facts(found.envelope["data"], kind)))
        wrong = [path for path, is_null in other if not is_null]
        if found.code == 1:
            assert found.stderr.count("\n") == 1 and ";" in found.stderr, found.stderr
            states["equal" if known.code == 1 else "refused"].append(command)
        else:
            assert not wrong, (command, wrong[:5])
            states["nulls" if other else "equal"].append(command)
    record_property("answers", "; ".join("%s: %s" % (state, ", ".join(commands)) for state, commands in states.items() if commands))


def differences(known: Any, found: Any, path: str = "") -> Iterator[Tuple[str, bool]]:
    """(where the answers differ, whether the second has null there)."""
    if isinstance(known, dict) and isinstance(found, dict):
        for key in {*known, *found} - set(MAY_DIFFER):
            yield from differences(known.get(key), found.get(key), "%s.%s" % (path, key))
    elif isinstance(known, list) and isinstance(found, list) and len(known) == len(found):
        for place, pair in enumerate(zip(known, found)):
            yield from differences(*pair, "%s[%d]" % (path, place))
    elif known != found:
        yield path, found is None or found == []
