"""Who holds each block, in SQL: the same owners, bytes and paths as `owners`, `census --by owner` and `refs` have.

Files: addons/views/query/table_rows.py, analysis/census/owned.py, addons/views/query/csv_rows.py.
"""

import random
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest

from gdbheapx.addons.views.query import csv_rows, table_rows
from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census import block
from gdbheapx.inferior.target import open_elf_target
from tests.support.jemallocs import preloads
from tests.support.processes import Lasting, Process, Stage, by_turns
from tests.support.tool import heapx

pytestmark = pytest.mark.image  # the system's Python and C++ library
pytest.importorskip("duckdb", reason="duckdb is not installed")

SEVERAL, SMALL, REST = "[held by several owners]", "[small owners]", "[several owners, small ones, or leaked]"
SHOP = """
import sys, types
shop = sys.modules["shop"] = types.ModuleType("shop")
class Order:
    __slots__ = ("items", "note")
    def __init__(self, number):
        self.items, self.note = [float(number), str(number) * 3], {"=cmd": number, "a,b" + chr(10): "x" * 600}
shop._cache = {"u:%d" % number: Order(number) for number in range(2000)}
print("ready", flush=True)
sys.stdin.read()
"""


def started(stage: Stage, way: str) -> Process:
    """A program of Python, with its own allocator or with malloc alone; one of C++ without symbols, on glibc or on jemalloc."""
    if way in ("python", "python on malloc"):
        return stage.spawn_ready([sys.executable, "-c", SHOP], env={"PYTHONMALLOC": "malloc"} if "malloc" in way else {})
    process = stage.start("service", "leaky", flags=("-s",), env=preloads(way))
    process.command(b"w")
    return process


WAYS = ("python", "python on malloc", "glibc", "jemalloc")
Sums = Dict[Optional[str], Tuple[int, int]]


def rows(target: Sequence[str], sql: str, *words: str) -> List[Dict[str, Any]]:
    """Of a whole answer."""
    found: List[Dict[str, Any]] = heapx(target, "query", sql, "--json", *words).data["rows"]
    return found


BY_OWNER = {
    "held_blocks": "select owner, count(*) as n, sum(usable_bytes) as bytes from held_blocks group by all",
    "held": "select owner, sum(blocks) as n, sum(bytes) as bytes from held group by all",
    "blocks": "select owner, count(*) as n, sum(usable_bytes) as bytes from blocks where class = 'used' group by all",
}


def sums(target: Sequence[str], *tables: str) -> List[Sums]:
    """Blocks and bytes by owner, as each table of one look has them."""
    found = rows(target, " union all ".join("select '%s' as name, * from (%s)" % (table, BY_OWNER[table]) for table in tables))
    return [{row["owner"]: (row["n"], row["bytes"]) for row in found if row["name"] == table} for table in tables]


@by_turns("way", WAYS)
def test_owners_of_blocks_have_the_bytes_of_owners(lasting: Lasting, kind: str, way: str) -> None:
    """To the byte, each owner that `owners` and `census --by owner` show; what is leaked has none. Where malloc alone has blocks, those in use
    have the owners of held_blocks; no row is lost or made for it, and others have none."""
    target = lasting.of(kind, started, way).target(kind)
    by_block, by_class, *of_malloc = sums(target, "held_blocks", "held", *(["blocks"] if way != "python" else []))
    for of_blocks in of_malloc:
        assert (table_rows.NOT_COUNTED in of_blocks) == (way == "jemalloc")  # which has its threads' caches in blocks of its own
        of_blocks.pop(table_rows.NOT_COUNTED, None)
        assert of_blocks == by_block
        whole = "select count(*) as n, count(distinct address) as addresses, count(owner) filter (class <> 'used') as owned%s from blocks"
        found = rows(target, whole % ", count(signature) as named, count(path) as paths")[0]
        assert found["n"] == found["addresses"] == rows(target, "select count(*) as n from blocks")[0]["n"]
        assert found["owned"] == 0 and found["named"] > 0
    rest = [by_block.pop(name, (0, 0)) for name in (None, SMALL, SEVERAL)]
    assert (sum(row[0] for row in rest), sum(row[1] for row in rest)) == by_class.pop(REST, (0, 0))
    assert by_block == by_class and len(by_block) > 1
    answer = heapx(target, "owners", "--limit", "20", "--json").data
    several = {row["owner"] for row in answer["owners"] if [one["owner"] for one in answer["owners"]].count(row["owner"]) > 1}
    for row in answer["owners"]:
        if row["owner"] not in several:
            assert by_block[row["owner"]] == (row["retained_blocks"], row["retained_bytes"])
    assert rest[0] == (answer["leaked"]["blocks"], answer["leaked"]["bytes"])
    assert (rest[0][0] > 1000) == (way in ("glibc", "jemalloc"))


@pytest.mark.parametrize("way", ["python", "jemalloc"])
def test_paths_are_those_of_refs(lasting: Lasting, core: str, way: str) -> None:
    """Of 200 random blocks, and of 200 that have one: the path that the search of `refs` finds; two of them by `refs` itself. Words that are
    left over count for all paths of one look (MOST_STALE), so that who asks for many may get none where who asks for one does."""
    target = lasting.of(core, started, way).target(core)
    found = rows(target, "select address, usable_bytes, path from held_blocks")
    told, sizes = {int(row["address"], 16): row["path"] for row in found}, {int(row["address"], 16): row["usable_bytes"] for row in found}
    least = (sorted(sizes.values(), reverse=True)[table_rows.MOST_PATHS :] or [0])[0]  # the largest blocks have paths
    session = Session(open_elf_target(core=target[-1]))
    session.prepare()
    graph = block.make_named_graph(session)
    chance = random.Random(7)
    with_path = [address for address in told if told[address]]
    chosen = chance.sample(sorted(told), 200) + chance.sample(with_path, min(200, len(with_path)))
    lacking = 0
    for address in chosen:
        place = graph.reach.graph.find(address)
        path = graph.paths.of(place[0]) if graph.paths is not None and place is not None else None
        lacking += told[address] is None and path is not None and sizes[address] > least
        assert told[address] in (None, csv_rows.clean_name(path.text) if path is not None else None)
    assert 20 * lacking <= len(chosen)
    assert with_path
    for address in chosen[:1] + chosen[-1:]:
        shown = heapx(target, "refs", hex(address), "--json").data["path"]
        assert told[address] in (None, csv_rows.clean_name(shown) if shown is not None else None)


def test_paths_only_where_they_are_wanted(lasting: Lasting, live: str) -> None:
    """By name in both tables; `*` and --no-names have none. Keys are one line and no formula."""
    target = lasting.of(live, started, "python on malloc").target(live)
    sql = "select path from blocks where path like '%%_cache[\"u:7\"]%%' and size_bytes > %d order by all"
    owned = ["select owner as path from %s where owner like 'shop%%'" % table for table in ("owners", "held_blocks")]
    every = " union all ".join("(%s)" % one for one in (sql % 100, *owned))
    assert {'shop._cache["u:7"].note', "shop._cache"} <= {row["path"] for row in rows(target, every)}
    assert not rows(target, every, "--no-names")
    assert "path" not in rows(target, "select * from held_blocks limit 1")[0] and "owner" not in rows(target, "select * from blocks limit 1")[0]
    text = heapx(target, "query", sql % 0, "--csv").stdout.decode()
    assert all(line.isprintable() for line in text.splitlines()) and '"shop._cache[""u:7""]' in text


def test_paths_have_limits(lasting: Lasting, core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest blocks have them; all of them together have no more letters than they may."""
    from gdbheapx.analysis.census import owned

    target = lasting.of(core, started, "python on malloc").target(core)
    session = Session(open_elf_target(core=target[-1]))
    session.prepare()
    found = owned.find_owned_blocks(session, True)

    def told(most_paths: int) -> List[Tuple[int, str]]:
        lines = "".join(csv_rows.format_held_rows(found, most_paths, lambda: None)).splitlines()
        return [(int(line.split(",")[1]), line.rpartition(",")[2]) for line in lines]

    every = told(1 << 40)
    largest = sorted((size for size, _ in every), reverse=True)[:2100]
    some = [size for size, path in told(2100) if path]
    assert 1900 < len(some) <= 2100 and min(some) >= largest[-1]
    assert not [path for _, path in told(0) if path]
    monkeypatch.setattr(csv_rows, "MOST_PATHS_LETTERS", 1000)
    assert 0 < sum(len(path) for _, path in told(1 << 40)) < 2000


def test_a_snapshot_has_owners(lasting: Lasting, core: str, tmp_path: Path) -> None:
    """Which sum to what the core has; keys are data, which it does not have; paths of what its answers have named."""
    target, file = lasting.of(core, started, "python on malloc").target(core), str(tmp_path / "one.snap")
    assert heapx(target, "snapshot", file).code == 0
    snapshot = ["--snapshot", file]
    (found, of_blocks), (known,) = sums(snapshot, "held_blocks", "blocks"), sums(target, "held_blocks")
    assert found == of_blocks
    assert found["shop._cache"] == known["shop._cache"]
    assert sum(size for _, size in found.values()) == sum(size for _, size in known.values())
    assert {"path": "shop._cache"} in rows(snapshot, "select path from held_blocks where path is not null")


def test_what_it_costs_is_said() -> None:
    """In the list of tables: how many blocks have paths, and that a column is there only if it is named."""
    text = heapx([], "query", "--tables").stdout.decode()
    assert "{:,}".format(table_rows.MOST_PATHS) in text and "only if SQL names it" in text
