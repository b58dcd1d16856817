"""What a program itself calls its blocks, in every command that tells who holds what.

Files: analysis/reachability/paths.py, analysis/reachability/paths.py, analysis/census/block.py, analysis/census/owned.py.
"""

import json
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.support.processes import Process, Stage
from tests.support.python_service import TASKS
from tests.support.tool import heapx

pytestmark = pytest.mark.image  # the system's Python: 3.9 to 3.14

ENTRIES, LENGTH = 20_000, 100
BODY = """
import sys, types
shop = sys.modules["shop"] = types.ModuleType("shop")
shop._cache = {"k%%d" %% number: "%%0%dd" %% number for number in range(%d)}
class Field:
    memo = {}
shop.Field = Field
Field.__module__ = "shop"
Field.memo.update((number, [str(number) * 9]) for number in range(5000))
def rows():
    kept = [("row", str(number) * 5) for number in range(3000)]
    open("record", "w").write(" ".join(map(str, map(id, (shop._cache["k7"], shop._cache, Field.memo, kept)))))
    print("ready", flush=True)
    for line in sys.stdin:
        shop._cache.update(("more%%d" %% number, "%%090d" %% number) for number in range(30000))
        print("ready", flush=True)
rows()
""" % (LENGTH, ENTRIES)


@pytest.fixture
def service(stage: Stage) -> Process:
    """A service whose cache grows."""
    return stage.spawn_ready([sys.executable, "-c", BODY])


def places(process: Process) -> List[int]:
    """Addresses of an entry, the cache, the memo and the rows."""
    return [int(word) for word in (process.folder / "record").read_text().split()]


def by_owner(rows: List[Dict[str, Any]]) -> Dict[str, Dict[str, Any]]:
    return {row["owner"]: row for row in rows}


@pytest.mark.parametrize("kind", ["live", "core"])
def test_owners_are_named(service: Process, kind: str) -> None:
    """By module and variable, with what they hold; what a frame holds by its function."""
    outcome = heapx(service.target(kind), "owners", "--json")
    rows = by_owner(outcome.data["owners"])
    cache = rows["shop._cache"]
    assert (cache["kind"], cache["path"], cache["signature"]) == ("global", "shop._cache", "dict of 20,000 entries")
    assert [step["name"] for step in cache["path_steps"]] == ["shop", "._cache"]
    least = ENTRIES * (LENGTH + 40)
    assert least < cache["retained_bytes"] < 2 * least and cache["retained_blocks"] > 1.9 * ENTRIES
    assert any(owner.startswith("shop.Field") for owner in rows), list(rows)
    assert any("rows(): kept" in owner and row["kind"] == "thread" for owner, row in rows.items()), list(rows)
    assert outcome.data["suspects"][0]["owner"] == "shop._cache"
    assert all(row["reached_bytes"] is None or row["reached_bytes"] >= row["retained_bytes"] for row in rows.values())
    text = heapx(service.target(kind), "owners").stdout.decode()
    assert "Suspect: shop._cache, dict of 20,000 entries keeps" in text


@pytest.mark.once  # which words --of takes is the tool's own, once owners have names
def test_a_listed_path_can_be_asked_for(service: Process, core: str) -> None:
    """--of takes what `owners` shows, at each level, and says the same of it."""
    target = service.target(core)
    rows = heapx(target, "owners", "--depth", "2", "--limit", "5", "--json").data["owners"]
    shown = [row for top in rows for row in (top, *top["children"]) if row["path"]]
    assert len(shown) >= 3
    for row in (shown[0], shown[1], shown[-1]):
        one = heapx(target, "owners", "--of", row["owner"], "--json").data["owners"][0]
        assert (one["owner"], one["retained_bytes"]) == (row["owner"], row["retained_bytes"])
    assert heapx(target, "owners", "--of", "shop._cache.none", "--json").code == 1


def test_which_owner_holds_which_class(service: Process, core: str) -> None:
    """No block is lost or counted twice."""
    target = service.target(core)
    census, owned = (heapx(target, "census", *words, "--json").data for words in ((), ("--by", "owner")))
    assert owned["used"] == census["used"]
    sums: Dict[Any, List[int]] = {}
    for data, sign in ((census, 1), (owned, -1)):
        for row in data["rows"]:
            total = sums.setdefault((row["signature"], row["module"]), [0, 0])
            total[0] += sign * row["blocks"]
            total[1] += sign * row["bytes"]
    assert set(map(tuple, sums.values())) == {(0, 0)}
    texts = next(row for row in owned["rows"] if (row["owner"], row["signature"]) == ("shop._cache", "str"))
    assert texts["blocks"] >= ENTRIES and texts["bytes"] >= ENTRIES * LENGTH
    below = by_owner(heapx(target, "owners", "--by", "class", "--limit", "5", "--json").data["owners"])["shop._cache"]
    of_class = by_owner(below["children"])["str"]
    assert (of_class["kind"], of_class["retained_blocks"], of_class["retained_bytes"]) == ("class", texts["blocks"], texts["bytes"])
    few = heapx(target, "census", "--by", "owner", "--like", "STR", "--json").data["rows"]
    assert few and all("str" in row["signature"].lower() for row in few)


def test_flames_have_names(service: Process, core: str) -> None:
    """What a module holds begins with its variable, and not with several owners; no byte is lost, and keys are not told."""
    target = service.target(core)
    lines = heapx(target, "export", "--format", "folded").stdout.decode().splitlines()
    sums: Dict[str, int] = {}
    for line in lines:
        stack, size = line.rsplit(" ", 1)
        first = stack.split(";")[0]
        sums[first] = sums.get(first, 0) + int(size)
    data = heapx(target, "owners", "--json").data
    assert sum(sums.values()) == heapx(target, "census", "--json").data["used"]["bytes"]
    assert sums["shop._cache"] == by_owner(data["owners"])["shop._cache"]["retained_bytes"]
    assert not any('["' in line or "[held by several owners];module" in line for line in lines)


@pytest.mark.once  # what is left out is the tool's own rule
def test_without_names(service: Process, core: str, tmp_path: Path) -> None:
    """No name and no key of the program's own objects, wherever they are not wanted."""
    entry = places(service)[0]
    target, path = service.target(core), str(tmp_path / "one.snap")
    texts = [
        heapx(target, *words, "--no-names", "--json").stdout.decode() for words in (("owners",), ("refs", hex(entry)), ("report", "--deep"))
    ]
    texts.append(heapx(target, "whatis", hex(entry), "--holders", "--no-names", "--json").stdout.decode())
    assert heapx(target, "snapshot", "--no-names", path).code == 0
    texts.append(heapx(["--snapshot", path], "owners", "--json").stdout.decode())
    assert heapx(target, "snapshot", path).code == 0
    texts_of_file = heapx([], "snapshot", "--show", path).stdout.decode()
    assert "shop._cache" in texts_of_file and '["k' not in texts_of_file and '"k7"' not in texts_of_file, "keys are data"
    for text in texts:
        assert "_cache" not in text and "k7" not in text and json.loads(text)["data"]
    assert by_owner(json.loads(texts[0])["data"]["owners"]), "they are there all the same"


@pytest.mark.once  # whether a file has addresses is the tool's own
def test_a_snapshot_may_keep_addresses(service: Process, core: str, tmp_path: Path) -> None:
    """Those of the process: whatis and refs take them; else it says that they were moved."""
    cache = places(service)[1]
    path = str(tmp_path / "one.snap")
    made = heapx(service.target(core), "snapshot", "--keep-addresses", path, "--json").data
    found = heapx(["--snapshot", path], "whatis", hex(cache), "--json").data
    assert made["keeps_addresses"] and found["used"]["address"] == hex(cache - 16) and found["held_by"]["path"] == "shop._cache"
    assert heapx(service.target(core), "snapshot", path, "--json").data["keeps_addresses"] is False
    assert "--keep-addresses" in heapx(["--snapshot", path], "whatis", hex(cache)).stderr


def test_a_snapshot_has_the_same_names(service: Process, live: str, tmp_path: Path) -> None:
    """And two of them say by name what has grown."""
    old, new = str(tmp_path / "old.snap"), str(tmp_path / "new.snap")
    for path in (old, new):
        assert heapx(service.target(live), "snapshot", path).code == 0
        assert by_owner(heapx(["--snapshot", path], "owners", "--json").data["owners"])["shop._cache"]["signature"].startswith("dict of ")
        service.command(b"more\n")
    grown = heapx([], "diff", old, new, "--json").data["owners"]
    largest = max(grown, key=lambda row: row["diff_bytes"])
    assert largest["what"] == "shop._cache" and largest["diff_bytes"] > 30_000 * 90
    assert "shop._cache" in heapx([], "diff", old, new).stdout.decode()


SLACK = """
import sys
class Row:
    __slots__ = ("text", "parts")
    def __init__(self, number):
        self.text, self.parts = "x" * 200 + str(number), [number]
kept = {number: Row(number) for number in range(10000)}
lists = []
for number in range(0, 10000, 2):
    row = [None] * 8 + [kept[number], None, None]
    del row[8:]
    lists.append(row)
del row
gone = [[None, kept[number]] for number in range(1, 10000, 2)]
del gone
lists += [[number] for number in range(5000)]  # in the same memory: a word behind the end of each
print("ready", flush=True); sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["live", "core"])
def test_the_slack_of_lists_takes_nothing(stage: Stage, kind: str) -> None:
    """Lists that were cut keep pointers behind their ends, to each second row of a dict, and full ones have such pointers of who had the
    memory before them, to the others: the dict retains all rows."""
    process = stage.spawn_ready([sys.executable, "-c", SLACK])
    rows = by_owner(heapx(process.target(kind), "owners", "--json").data["owners"])
    assert rows["__main__.kept"]["retained_bytes"] > 10_000 * 250 and rows["__main__.kept"]["kind"] == "global"


@pytest.mark.parametrize("kind", ["live", "core"])
def test_who_holds_together(stage: Stage, kind: str) -> None:
    """Tasks that wait are held by a set of them, by a list of futures and, what they work on, by a dict: no one owns it, each is told."""
    process = stage.spawn_ready([sys.executable, "-c", TASKS])
    for words in (("owners", "--json"), ("report", "--deep", "--json")):
        data = heapx(process.target(kind), *words).data
        told = {row["path"].split(".")[-1].split(" ")[-1]: row for row in (data.get("inside") or data)["together"]}
        assert {"tasks", "later", "subs"} == set(told), [row["path"] for row in told.values()]
        assert {name: row["signature"] for name, row in told.items()} == {
            "tasks": "set of 2,000",
            "later": "list of 2,000",
            "subs": "dict of 2,000 entries",
        }
        assert all(row["reached_bytes"] >= 2000 * 30 * 100 > row["retained_bytes"] for row in told.values())
    text = heapx(process.target(kind), "owners").stdout.decode()
    assert "later, list of 2,000 reaches " in text and "list of 2,001" not in text


@pytest.mark.parametrize("kind", ["live", "core"])
def test_owning_pointers_come_first(service: Process, kind: str) -> None:
    """Of the pointers to an object, links of the collector's list own nothing and are the last; a chain goes on by what owns, where it can."""
    memo = places(service)[2]
    chains = [chain for chain in heapx(service.target(kind), "refs", hex(memo), "--json").data["chains"] if chain[-1]["root"]]
    links = [chain[0]["evidence"] == "not-owning" for chain in chains]
    assert links == sorted(links) and 1 <= sum(links) < len(links)
    assert all(step["evidence"] != "not-owning" for step in chains[0])


WEB = """
import sys
class Node:
    def __init__(self, up, number, store):
        self.up, self.children, self.store, self.text = up, [], store, "node %d" % number * 20
        store[number] = self
        if up:
            up.children.append(self)
def serve():
    store = {}
    root = Node(None, 0, store)
    for number in range(1, 20000):
        Node(store[number // 2], number, store)
    del store
    print("ready", flush=True)
    sys.stdin.read()
serve()
"""


@pytest.mark.parametrize("kind", ["live", "core"])
def test_who_leads_to_what_leads_everywhere(stage: Stage, kind: str) -> None:
    """Nodes that all point to each other are held by a variable of a function, by whichever of them it has."""
    process = stage.spawn_ready([sys.executable, "-c", WEB])
    data = heapx(process.target(kind), "owners", "--json").data
    assert "frame serve(): root" in (data["suspects"] or data["together"])[0]["owner"]
