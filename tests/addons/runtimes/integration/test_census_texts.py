"""Texts of objects that runtimes lay out, shown by `census --show-data`: those that the program itself has put there.

Files: analysis/census/contents.py, addons/runtimes/cpython/paths.py, addons/runtimes/php.py, addons/runtimes/ruby/__init__.py.
"""

import re
import sys
from pathlib import Path
from typing import Any, Dict

import pytest

from tests.support.interpreters import started
from tests.support.processes import Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.image  # depends on this Python's release

PYTHON = r"""
import sys
class User:
    def __init__(self, number):
        self.name, self.mail, self.number = "user-%d" % number, "u%d@example.org" % number, number
class Slots:
    __slots__ = ("name",)
    def __init__(self, number): self.name = b"slot\n%d" % number
class Row(dict): pass
class Rows(list): pass
class Pair(tuple): pass
class Tags(set): pass
class Title(str): __slots__ = ()
users = [User(number) for number in range(2000)]
slots = [Slots(number) for number in range(2000)]
rows = [Row(name="n%d" % number, count=number) for number in range(2000)]
lists = [Rows(["first %d" % number, "second"]) for number in range(2000)]
pairs = [Pair(["left %d" % number, number]) for number in range(2000)]
tags = [Tags(["tag %d" % number]) for number in range(2000)]
titles = [Title("\u00dcber \x1b[31m%d" % number + "x" * 100) for number in range(2000)]
templates = ["template %d " % (number % 3) * 100 for number in range(3000)]
print("ready", flush=True)
sys.stdin.read()
"""
RUBY = (Path(__file__).parents[1] / "programs" / "texts.rb").read_text()
PHP = r"""<?php
class Session { public $key; public $number; }
$sessions = [];
for ($i = 0; $i < 5000; $i++) { $s = new Session; $s->key = "session $i"; $s->number = $i; $sessions[] = $s; }
$templates = [];
for ($i = 0; $i < 3000; $i++) $templates[] = str_repeat("template " . ($i % 3) . " ", 40);
echo "ready\n"; flush();
while (fgets(STDIN));
"""


def samples(target: Any, signature: str) -> Dict[str, Any]:
    """Of the row that is called so, and what the text says of it."""
    (one,) = [
        one for one in heapx(target, "census", "--json", "--show-data", "--limit", "1000").data["samples"] if one["signature"] == signature
    ]
    return dict(one)


def test_python(stage: Stage, kind: str) -> None:
    """Strings of an object's attributes, also of those beside it; keys of a dict, items, elements; escaped in the text, and cut."""
    process = started(stage, sys.executable, PYTHON)
    target = process.target(kind)
    answer = heapx(target, "census", "--json", "--show-data", "--limit", "1000").data
    told = {one["signature"].rpartition(".")[2]: one for one in answer["samples"]}
    mail, name = sorted(told["User"]["texts"][:2])  # 3.14 stores what stands last in the tuple first
    number = re.fullmatch(r"user-(\d+)", name)
    assert number and mail == "u%s@example.org" % number[1]
    assert re.fullmatch(r"slot\n\d+", told["Slots"]["texts"][0])
    assert told["Row"]["texts"] == ["name", "count"] and told["Row"]["contents"] == "Row of 2 entries"
    assert re.fullmatch(r"first \d+", told["Rows"]["texts"][0]) and told["Rows"]["contents"] == "Rows of 2"
    assert [re.sub(r"\d+", "N", text) for text in told["Pair"]["texts"]] == ["left N"]
    assert [re.sub(r"\d+", "N", text) for text in told["Tags"]["texts"]] == ["tag N"]
    same = [one for one in answer["samples"] if one["texts"] and one["texts"][0].startswith("template ")]
    assert {len(one["texts"][0]) for one in same} == {60} and len({one["texts"][0] for one in same}) >= 3
    shown = heapx(target, "census", "--show-data", "--limit", "1000").stdout.decode()
    assert "Row of 2 entries: " in shown and "slot\\n" in shown and "\x1b" not in shown


@pytest.mark.parametrize("program", [pytest.param("ruby", marks=pytest.mark.once), "php"])  # images have no Ruby, and one has PHP
def test_ruby_and_php(stage: Stage, kind: str, program: str) -> None:
    """Strings of an object's variables, of a Struct's members, and of repeated contents."""
    process = started(stage, program, RUBY if program == "ruby" else PHP)
    answer = heapx(process.target(kind), "census", "--json", "--show-data", "--limit", "1000").envelope[
        "data"
    ]  # partial for a PHP that is not read
    told = {one["signature"]: one["texts"] for one in answer["samples"]}
    if "Session" not in told:
        pytest.skip("this release of %s is not one that is read" % program)
    assert re.match(r"session \d+", told["Session"][0])
    assert program != "ruby" or re.fullmatch(r"item \d+", told["Item"][0])
    assert sum(one["texts"][:1] != [] and one["texts"][0].startswith("template ") for one in answer["samples"]) >= 3
