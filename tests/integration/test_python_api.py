"""gdbheapx.api in a stock gdb: the examples of docs/reference/python-api.md, live and on a core, say what the commands say.

Files: api.py.
"""

import re
from collections import Counter
from pathlib import Path
from typing import List, Sequence

import pytest

from tests.support.paths import ROOT
from tests.support.processes import Process, Stage
from tests.support.tool import Outcome, heapx, in_gdb

pytestmark = pytest.mark.image  # gdb's Python runs the scripts; one example says so, the others run once

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
