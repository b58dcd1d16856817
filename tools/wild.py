"""`make wild`: the tests that are marked so, one at a time, then the reading tests with things hidden from the tool, and tables; exit code 1 if a
test failed. `make hidden` is the second part.

The marked ones read big or foreign programs, a hundred cores, heaps over 200 MB, and are run by hand: no CI runs them. What a test gives to
record_property stands in its row. Options go to pytest (`-k java`).
"""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
READING = ("accounts", "blocks", "damage", "trim", "report", "je_accounts", "je_blocks", "je_tickers")
"""Modules of tests/integration whose tests hold what the reading commands answer against what is true."""
HIDDEN = ("symbols,libraries", "symbols,libraries,gdb")
"""What is hidden from the tool meanwhile (tests/support/hidden.py)."""
NOT_READING = "not after_the_cure"
ANSWER = "answer"
"""The property by which tests/wild/test_hidden.py tells of one answer: command, allocator, kind, what is hidden, program, state."""

Case = ElementTree.Element


def outcome(case: Case) -> str:
    """In a word, and why."""
    for kind in case:
        if kind.tag in ("failure", "error", "skipped"):
            why = " ".join((kind.get("message") or "").split())[:120]
            return "%s: %s" % ("skipped" if kind.tag == "skipped" else "FAILED", why)
    return "passed"


def properties(case: Case) -> List[Tuple[str, str]]:
    """What the test recorded: (name, value)."""
    return [(one.get("name") or "", one.get("value") or "") for one in case.iter("property")]


def row(case: Case) -> List[str]:
    """One test: its module and name, what became of it, seconds, what it told."""
    told = ["%s %s" % one for one in properties(case) if one[0] != ANSWER]
    name = "%s %s" % ((case.get("classname") or "").split(".")[-1], case.get("name"))
    return [name, outcome(case), "%.1f" % float(case.get("time") or 0), ", ".join(told)]


def run(words: Sequence[str], hidden: str = "") -> Tuple[int, List[Case]]:
    """One pytest: (exit code, its tests)."""
    with tempfile.TemporaryDirectory(prefix="gdbheapx-wild-") as folder:
        report = Path(folder) / "junit.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-o", "junit_family=xunit1", "--junitxml", str(report), *words]
        code = subprocess.call(command, cwd=str(ROOT), env={**os.environ, "GDBHEAPX_TEST_HIDDEN": hidden})
        return code, list(ElementTree.parse(report).iter("testcase")) if report.exists() else []


def answers(cases: Sequence[Case]) -> List[List[str]]:
    """A row for each command, allocator and kind: what it answered, by what was hidden; programs are named where they differ."""
    states: Dict[Tuple[str, str, str], Dict[str, Dict[str, str]]] = {}
    for case in cases:
        for name, value in properties(case):
            if name == ANSWER:
                command, allocator, kind, hidden, program, state = value.split("|", 5)
                states.setdefault((command, allocator, kind), {}).setdefault(hidden, {})[program] = state
    columns = list(dict.fromkeys(hidden for by_hidden in states.values() for hidden in by_hidden))
    rows = [["command", "allocator", "of", *("hidden: " + one for one in columns)]]
    return rows + [[*key, *(in_words(counts.get(one, {})) for one in columns)] for key, counts in sorted(states.items())]


def in_words(programs: Dict[str, str]) -> str:
    """One state for all programs, or each with those that have it."""
    if len(set(programs.values())) <= 1:
        return next(iter(programs.values()), "-")
    return "; ".join("%s (%s)" % (state, ", ".join(name for name in programs if programs[name] == state)) for state in dict.fromkeys(programs.values()))


def expected(cases: Sequence[Case]) -> List[List[str]]:
    """A row for each module, live or core: how many tests passed, failed, were skipped, and why how many expected less."""
    counts: Dict[Tuple[str, str], Counter[str]] = {}
    less: Dict[Tuple[str, str], Counter[str]] = {}
    for case in cases:
        key = ((case.get("classname") or "").split(".")[-1], dict(properties(case)).get("of", "-"))
        counts.setdefault(key, Counter())[outcome(case).split(":")[0]] += 1
        less.setdefault(key, Counter()).update(value for name, value in properties(case) if name == "expects less:")
    return [
        [*key, *(str(found[word]) for word in ("passed", "FAILED", "skipped")), "; ".join("%d: %s" % (count, why) for why, count in less[key].items())]
        for key, found in sorted(counts.items())
    ]


def marked(words: Sequence[str]) -> int:
    """The tests that only `make wild` runs."""
    code, cases = run(["-m", "wild", *words, str(ROOT / "tests")])
    print(tabulate([row(case) for case in cases], ["test", "outcome", "seconds", "told"], disable_numparse=True, colalign=("left", "left", "right", "left")))
    table = answers(cases)
    if len(table) > 1:
        print("\nWhat was hidden from the tool, and what each command answered")
        print(tabulate(table[1:], table[0], disable_numparse=True))
    return code


def reading(words: Sequence[str]) -> int:
    """The reading tests, with things hidden."""
    worst, modules = 0, [str(ROOT / "tests" / "integration" / ("test_%s.py" % name)) for name in READING]
    for hidden in HIDDEN:
        code, cases = run(["-n", "auto", "--dist", "worksteal", "-k", NOT_READING, *words, *modules], hidden)
        worst = worst or code
        print("\nHidden: %s" % hidden.replace(",", ", "))
        print(tabulate([row(case)[:2] for case in cases if outcome(case).startswith("FAILED")], ["test", "outcome"], disable_numparse=True))
        print(tabulate(expected(cases), ["tests", "of", "passed", "failed", "skipped", "expect less"], disable_numparse=True))
    return worst


def main() -> int:
    """Run them, print the tables."""
    words = sys.argv[1:]
    if words[:1] == ["--hidden"]:
        return reading(words[1:])
    code = marked(words)
    return code if words else reading(()) or code


if __name__ == "__main__":
    sys.exit(main())
