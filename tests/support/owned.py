"""What a program recorded of its containers (truth.h), held against the tool's `owners`."""

import json
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence

from tests.support.tool import run, tool_command

NEAR = 0.05
"""Bytes may differ by so much, and by one page."""
PAGE = 4096
SECONDS = 300
AT = "at"
"""A line that tells where an element lies."""


class Fact(NamedTuple):
    """A line of a record."""

    how: str
    """owns: the variable alone keeps so much; most: it owns at most so much; child: the block there keeps so much."""
    name: str
    bytes: int
    address: int
    size: int


class Verdict(NamedTuple):
    """What the tool says of a fact."""

    fact: Fact
    got: int

    @property
    def good(self) -> bool:
        """Whether it is right."""
        if self.fact.how == "most":
            return self.got <= self.fact.bytes
        near = max(NEAR * self.fact.bytes, 64)
        return self.fact.bytes - near <= self.got <= self.fact.bytes + near

    @property
    def false_collapse(self) -> bool:
        """Whether the tool gives it what others own."""
        return not self.good and self.got > self.fact.bytes

    def line(self) -> str:
        """As it is printed."""
        return "%-5s %-24s truth %9d, got %9d (%5.1f %%)" % (*self.fact[:3], self.got, 100.0 * self.got / max(1, self.fact.bytes))


def facts(record: Path) -> List[Fact]:
    """What variables and blocks keep."""
    found = []
    for how, name, size, address, width in map(str.split, record.read_text().splitlines()):
        if how != AT:
            found.append(Fact(how, name, int(size), int(address, 16), int(width)))
    return found


def in_order(record: Path) -> Dict[str, List[int]]:
    """By the variable's name where the elements of its container lie, from the head on."""
    found: Dict[str, List[int]] = {}
    for how, name, _, address, _ in map(str.split, record.read_text().splitlines()):
        if how == AT:
            found.setdefault(name, []).append(int(address, 16))
    return found


def asked(target: Sequence[str], *arguments: str, tool: Optional[Sequence[str]] = None) -> Dict[str, Any]:
    """The envelope of `owners`."""
    other = {"PYTHONPATH": ""} if tool else None  # its own package, not the one beside these tests
    done = run([*(tool or tool_command()), *target, "owners", "--json", *arguments], env=other, seconds=SECONDS)
    return dict(json.loads(done.stdout))


def kept(rows: Iterable[Dict[str, Any]], fact: Fact) -> int:
    """What the rows say that the fact's variable, known by its address or name, keeps."""
    most = 0
    for row in rows:
        address = int(row["address"], 16) if row.get("address") else -1
        here = fact.address <= address < fact.address + max(fact.size, 1)
        named = row["kind"] == "global" and row["owner"].startswith(fact.name + " in ")
        if here or named:
            most = max(most, row["retained_bytes"])
    return most


def judged(target: Sequence[str], known: Sequence[Fact], tool: Optional[Sequence[str]] = None) -> List[Verdict]:
    """A verdict for each fact."""
    envelope = asked(target, "--limit", "100000", tool=tool)
    assert envelope["data"] is not None, envelope
    verdicts = []
    for fact in known:
        if fact.how == "child":
            data = asked(target, "--of", hex(fact.address), tool=tool)["data"]
            rows = data["owners"] if data else []
            verdicts.append(Verdict(fact, rows[0]["retained_bytes"] if rows else 0))
        else:
            verdicts.append(Verdict(fact, kept(envelope["data"]["owners"], fact)))
    return verdicts
