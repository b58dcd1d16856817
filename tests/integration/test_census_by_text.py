"""`census --by-text`: objects of a class by a text that they have, as the program has made them.

Files: analysis/census/contents.py.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.support.interpreters import started
from tests.support.paths import PROGRAMS
from tests.support.processes import Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.image  # depends on this Python's release

PYTHON = r"""
import sys
class Task:
    def __init__(self, number):
        self.kind, self.key = ("zone", "resolver", "client")[0 if number % 10 else 1 if number % 100 else 2], "k%d" % number
class Slots:
    __slots__ = ("kind", "number")
    def __init__(self, number): self.kind, self.number = "even" if number % 2 else "odd", number
tasks = [Task(number) for number in range(3000)]
slots = [Slots(number) for number in range(3000)]
print("ready", flush=True)
sys.stdin.read()
"""
RUBY = (PROGRAMS / "tasks.rb").read_text()


LONG = (PROGRAMS / "long_texts.c").read_text()


def asked(target: List[str], like: str, *field: str) -> Any:
    """The answer, and its rows by text."""
    return heapx(target, "census", "--like", like, "--by-text", *field, "--json").data


def rows(answer: Any) -> Dict[str, int]:
    """Blocks by text."""
    assert sum(row["blocks"] for row in answer["rows"]) == answer["looked_blocks"] == answer["blocks"]
    return {row["text"]: row["blocks"] for row in answer["rows"]}


def test_a_name_inside(stage: Stage, kind: str) -> None:
    """Names in the structure, and those that it points to; found by themselves, by offset, or by one of the texts; escaped in the text."""
    target = stage.start("tasks").target(kind)
    names = {"zone": 5270, "resolver": 700, None: 30}
    found = asked(target, "magic 'Task'", "+0x18")
    assert rows(found) == names  # what is not printable is no text
    assert rows(asked(target, "magic 'Task'", "zone")) == names
    owners = asked(target, "magic 'Task'", "+0x28")
    assert rows(owners) == {"view 0": 2000, "view 1": 2000, "view 2": 2000}
    assert rows(asked(target, "magic 'Task'", "running")) == {"running long": 3000, "idle": 3000}
    assert asked(target, "magic 'Task'")["field"] == "+0x28"  # three texts
    fields = {row["field"]: row["texts"] for row in owners["fields"] if row["objects"] > 50}  # a number may look like a text
    assert fields == {"+0x0": 1, "+0x18": 2, "+0x28": 3, "+0x34": 2, "+0x2a8": 2}
    text = heapx(target, "census", "--like", "magic 'Task'", "--by-text", "+0x18").stdout.decode()
    assert "6,000 objects" in text and '"zone"' in text and "(none)" in text
    for arguments in (["--like", "magic 'Task'", "--by-text", "no such"], ["--by-text"], ["--like", "nobody", "--by-text"]):
        refused = heapx(target, "census", *arguments)
        assert refused.code in (1, 2) and refused.stderr.count("\n") == 1, refused.stderr


def test_beginnings_of_long_texts(stage: Stage, kind: str, folder: Path) -> None:
    """Texts without an end in what is shown, of several lines, too: none of them is `(none)`."""
    (folder / "texts.c").write_text(LONG)
    subprocess.run(["gcc", "-O1", "-o", str(folder / "texts"), str(folder / "texts.c")], check=True)
    process = stage.spawn_ready([str(folder / "texts")])
    shown = [("GET /index %d", '{   "id": %d')[number % 2] % number for number in range(6)]
    found = rows(asked(process.target(kind), "elements of the list", "+0x0"))
    counts = [sum(blocks for text, blocks in found.items() if text.startswith(begin)) for begin in shown]
    assert None not in found and counts[:5] == [100] * 5 and counts[5] >= 99  # a register may still have the last one


def test_python(stage: Stage, kind: str) -> None:
    """Attributes by name, in values, in a dict and in slots; without one that whose texts several objects have."""
    target = started(stage, sys.executable, PYTHON).target(kind)
    kinds = {"zone": 2700, "resolver": 270, "client": 30}
    assert rows(asked(target, "Task", "kind")) == kinds
    found = asked(target, "Task")
    assert found["field"] == "kind" and rows(found) == kinds and found["names"] == ["Task"]
    assert len(rows(asked(target, "Task", "key"))) == 3000
    assert rows(asked(target, "Slots", "kind")) == {"even": 1500, "odd": 1500}


@pytest.mark.once  # of one release
def test_ruby(stage: Stage, kind: str) -> None:
    """Instance variables, and members of a Struct."""
    target = started(stage, "ruby", RUBY).target(kind)
    signatures = {row["signature"] for row in heapx(target, "census", "--json").data["rows"]}
    if "Task" not in signatures:
        pytest.skip("this release of Ruby is not one that is read")
    assert rows(asked(target, "Task", "@kind")) == {"zone": 2700, "resolver": 300}
    assert rows(asked(target, "Item")) == {"a": 1000, "b": 2000}
