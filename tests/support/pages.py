"""Recorded looks, hostile names, and a reader of pages that is as strict as a page must be."""

import json
import lzma
import random
import re
from html.parser import HTMLParser
from typing import Any, Callable, Dict, List, Optional, Tuple

from gdbheapx.app import place
from gdbheapx.command import command_files
from gdbheapx.common import hints
from tests.support.paths import ROOT

RECORDED = ("jemalloc-live", "glibc-core")
"""`report --deep --page --json` of a redis-server, `report --page --json` of a core of python3."""
DIFF = "diff"
"""`diff --json` of a snapshot of a redis-server and the process itself, later."""
WATCH = "watch.jsonl"
"""What `watch --jsonl` wrote of a program that fills 60 MB, frees some, and is trimmed once."""
HOSTILE = (
    "</svg><script>alert(1)</script>",
    "two\nlines\r\nand \x1b[31mred\x1b[0m",
    "=cmd|' /C calc'!A0",
    "a;b;c",
    "caf\udce9 \udcff\udc80",
    "\u202egpj.exe\u2066",
    "\"><img src=x onerror=alert(1)>'",
    "{{ 7 * 7 }}{% raw %}",
    "]]><!--",
    "",
    "x" * 9000,
)
"""Names of programs, threads, files and classes that try to be something else."""
VOID = frozenset(("meta", "br", "img", "link", "input", "hr"))


def recorded(name: str) -> Dict[str, Any]:
    """One of RECORDED, or DIFF."""
    with lzma.open(ROOT / "tests" / "data" / "pages" / (name + ".json.xz"), "rt", encoding="ascii") as file:
        recording = json.load(file)
    assert isinstance(recording, dict)
    recording["data"].setdefault("next_steps", [whole(recording, step) for step in recording["data"]["next"]])
    return recording


def whole(recording: Dict[str, Any], step: Dict[str, Any]) -> Dict[str, Any]:
    """A step as a look of today has it: with its whole command."""
    command, side = step["command"], recording["data"].get(step.get("side"))
    if command is not None and command.split()[0].replace("-", "_") in command_files():
        asked = hints.hint_about(side["form"], side["what"], command) if side else hints.hint_command(command)
        command = hints.write_commands(asked, place.of_target(recording["target"]).line)
    return {"command": command, "why": step["why"], "saves_bytes": None, "measured": False}


def watched() -> List[Any]:
    """The lines of WATCH."""
    with lzma.open(ROOT / "tests" / "data" / "pages" / (WATCH + ".xz"), "rt", encoding="ascii") as file:
        return [json.loads(line) for line in file]


def changed(document: Any, change: Callable[[Any], Any]) -> Any:
    """The document with `change` made to each value that is no object and no list."""
    if isinstance(document, dict):
        return {name: changed(one, change) for name, one in document.items()}
    if isinstance(document, list):
        return [changed(one, change) for one in document]
    return change(document)


def ruined(one: Any, chance: random.Random, depth: int = 0) -> Any:
    """The document with members left out, and others with something else in their place."""
    if depth and chance.random() < 0.08:
        return chance.choice((None, [], {}, "text", -1, 10**30, 1.5, True, [None], [[]], {"a": None}, [{}]))
    if isinstance(one, dict):
        return {name: ruined(part, chance, depth + 1) for name, part in one.items() if chance.random() > 0.05}
    return [ruined(part, chance, depth + 1) for part in one[:6]] if isinstance(one, list) else one


class Reader(HTMLParser):
    """What a page says. Fails where tags are not closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: List[Tuple[str, Dict[str, Optional[str]]]] = []
        self.open: List[str] = []
        self.section: List[Optional[str]] = []
        self.values: Dict[str, List[int]] = {}
        """By the section's id the figures that stand in it, in order."""
        self.shown: List[Tuple[int, str]] = []
        """(figure, as people read it)."""
        self.lines: List[str] = []
        """Commands to copy."""
        self.text: List[str] = []
        self._value: Optional[int] = None
        self._line = False
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: List[Tuple[str, Optional[str]]]) -> None:
        attributes = dict(attrs)
        assert len(attributes) == len(attrs), attrs
        self.tags.append((tag, attributes))
        if tag in VOID:
            return
        self.open.append(tag)
        if tag == "section":
            self.section.append(attributes.get("id"))
        if tag == "data":
            self._value = int(attributes["value"] or "")
            self.values.setdefault(self.section[-1] or "", []).append(self._value)
            self.shown.append((self._value, ""))
        if tag == "code" and attributes.get("class") == "line":
            self._line = True
            self.lines.append("")

    def handle_startendtag(self, tag: str, attrs: List[Tuple[str, Optional[str]]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()
        if tag == "section":
            self.section.pop()
        if tag == "data":
            self._value = None
        if tag == "code":
            self._line = False

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self._value is not None:
            self.shown[-1] = (self._value, self.shown[-1][1] + data)
        if self._line:
            self.lines[-1] += data

    def ids(self) -> List[str]:
        return [attributes["id"] or "" for _, attributes in self.tags if "id" in attributes]


def check(page: str) -> Reader:
    """A page that is one file, runs nothing, loads nothing and shows nothing that does not show."""
    read = Reader(page)
    names = {tag for tag, _ in read.tags}
    assert not names & {"script", "img", "iframe", "object", "embed", "link", "form", "input", "base", "use", "image", "foreignobject", "animate"}, names
    for tag, attributes in read.tags:
        assert not [name for name in attributes if name.startswith("on") or name in ("style", "src", "srcdoc", "action", "formaction")], (tag, attributes)
        for name in ("href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#"), attributes
    assert len(set(read.ids())) == len(read.ids())
    policies = [attributes["content"] for tag, attributes in read.tags if attributes.get("http-equiv") == "Content-Security-Policy"]
    assert len(policies) == 1 and (policies[0] or "").startswith("default-src 'none'; style-src 'sha256-")
    assert re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202f\u2066-\u2069\ud800-\udfff]", page) is None
    return read
