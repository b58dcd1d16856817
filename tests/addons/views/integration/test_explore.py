"""`explore`: its keys by Textual's own driver, and itself in a real terminal; what it shows is what the commands say.

Files: addons/views/explore/app.py, addons/views/explore/command.py
"""

import asyncio
import csv
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Coroutine, List

import pytest

from gdbheapx.analysis.reachability.owners import ELEMENTS
from gdbheapx.common import global_options
from gdbheapx.common.errors import HeapxError
from tests.support import hostile
from tests.support.processes import Lasting, Process, Stage
from tests.support.tool import heapx, tool_command

textual = pytest.importorskip("textual", reason="textual is not installed")
from gdbheapx.addons.views.explore import command as exploring  # noqa: E402
from gdbheapx.addons.views.explore.app import Explorer, ExplorerTable  # noqa: E402
from gdbheapx.addons.views.explore.view import ExplorerClass, ExplorerView  # noqa: E402

pytestmark = pytest.mark.once  # the terminal is the same everywhere
ASKED = global_options.GlobalOptions(None, None, None, None, None, None, [], False, False)
PYTHON = "held = [{'k%d' % i: 'x' * 300} for i in range(2000)]; print('ready', flush=True); import time; time.sleep(600)"


@pytest.fixture(scope="module")
def snapshots(lasting: Lasting) -> List[str]:
    """Of a Python program that holds some thousand objects."""
    process = lasting.stage.spawn_ready([sys.executable, "-c", PYTHON])
    paths = [str(process.folder / name) for name in ("old.snap", "new.snap")]
    for path in paths:
        assert heapx(process.target("live"), "snapshot", path).code in (0, 4)
    return paths


def driven(path: str, drive: Callable[[Explorer, ExplorerView, Any], Coroutine[Any, Any, None]], older: str = "", width: int = 80) -> None:
    """The explorer on that file, with these keys."""
    with exploring.open_heap_file(path, ASKED) as heap:
        view = exploring.load_view(heap)
        app = Explorer(view, path, lambda sql: exploring.query_rows(heap, sql), (lambda: exploring.compare_with(older, heap, ASKED)) if older else None)

        async def run() -> None:
            async with app.run_test(size=(width, 24)) as pilot:
                await drive(app, view, pilot)

        asyncio.run(run())


async def press(pilot: Any, *keys: str) -> None:
    """These keys, and what they lead to."""
    await pilot.press(*keys)
    await pilot.pause()


async def until(pilot: Any, true: Callable[[], bool]) -> None:
    """Wait for another thread's answer."""
    for _ in range(600):
        await pilot.pause(0.05)
        if true():
            return
    raise AssertionError("it does not come")


def test_from_the_largest_owner_to_what_it_owns(snapshots: List[str]) -> None:
    """The tree begins with what `owners` says; Enter opens what a node owns, with the bytes that it retains."""
    rows = heapx(["--snapshot", snapshots[1]], "owners", "--depth", "2", "--limit", "5", "--json").data["owners"]

    async def drive(app: Explorer, view: ExplorerView, pilot: Any) -> None:
        await press(pilot, "3")
        await press(pilot, "enter")
        shown = app.query_one("#tree").root.children  # type: ignore[attr-defined]
        told = [(node.data.owned.owner, node.data.owned.retained_bytes) for node in shown[: len(rows)]]
        assert told == [(row["owner"], row["retained_bytes"]) for row in rows]
        kinds = [isinstance(node.data, ExplorerClass) for node in shown[0].children]
        assert kinds[0] and kinds == sorted(kinds, reverse=True), "classes stand first"
        owned = [node.data.owned for node in shown[0].children if node.data is not None and not isinstance(node.data, ExplorerClass)]
        below = [(one.owner, one.retained_bytes) for one in owned[:5]]
        assert below == [(row["owner"], row["retained_bytes"]) for row in rows[0]["children"]] and below

    driven(snapshots[1], drive)


def test_elements_that_are_alike_are_one_row(stage: Stage, core: str, tmp_path: Path) -> None:
    """Below a variable stands what `owners --depth` shows of its container; the row leads to the first element."""
    path = str(tmp_path / "ten.snap")
    assert heapx(stage.start("ten_containers", "2000", "0").target(core), "snapshot", path).code in (0, 4)
    rows = heapx(["--snapshot", path], "owners", "--depth", "2", "--limit", "200", "--json").data["owners"]
    with exploring.open_heap_file(path, ASKED) as heap:
        view = exploring.load_view(heap)
        for node, row in zip(view.tops(), rows):
            below, more_bytes = view.below(node.number)
            told = [(one.owned.owner, one.owned.retained_bytes) for one in below]
            assert told == [(child["owner"], child["retained_bytes"]) for child in row["children"]] and not more_bytes, row["owner"]
            assert not any(one.can_open for one in below if one.owned.kind == ELEMENTS)
        alike = [one.owned for one in view.below(view.tops()[0].number)[0] if one.owned.kind == ELEMENTS]
        assert alike and alike[0].address is not None and view.block(alike[0].address)[0].startswith("%s: offset 0 in " % alike[0].address)


def test_from_a_class_to_its_owners_to_a_block_to_its_paths(snapshots: List[str]) -> None:
    """The filter works while it is typed; Enter leads on, Escape back; each figure is that of the command."""
    rows = heapx(["--snapshot", snapshots[1]], "census", "--like", "dict", "--json").data["rows"]

    async def drive(app: Explorer, view: ExplorerView, pilot: Any) -> None:
        await press(pilot, "4", "slash", *"dict", "enter")
        table = app.query_one("#classes", ExplorerTable)
        assert [(row[0], row[4]) for row in table.shown.rows] == [(row["bytes"], row["signature"]) for row in rows]
        await press(pilot, "enter")
        owners, blocks = app.screen.query_one("#below-0", ExplorerTable).shown, app.screen.query_one("#below-1", ExplorerTable).shown
        assert sum(row[1] for row in owners.rows) == rows[0]["blocks"] and len(blocks.rows) > 1
        app.screen.query_one("#below-1", ExplorerTable).focus()
        await press(pilot, "enter")
        address = blocks.keys[0]
        assert any(line.startswith("Block 0x%x " % address) for line in app.screen.lines)  # type: ignore[attr-defined]
        await press(pilot, "escape")
        assert app.screen.query("#below-1")
        await press(pilot, "escape")
        sizes = [row[0] for row in app.query_one("#classes", ExplorerTable).shown.rows]
        await press(pilot, "s")
        counts = [row[2] for row in app.query_one("#classes", ExplorerTable).shown.rows]
        assert sizes == sorted(sizes, reverse=True) and counts == sorted(counts, reverse=True)

    driven(snapshots[1], drive)


def test_from_a_class_by_its_owner_to_paths(snapshots: List[str]) -> None:
    """Enter on an owner of a class goes to its place in the tree, p to the paths of what is there; of a root they end where it stands."""

    async def drive(app: Explorer, view: ExplorerView, pilot: Any) -> None:
        await press(pilot, "4", "enter")
        owners = app.screen.query_one("#below-0", ExplorerTable)
        owners.move_cursor(row=next(place for place, row in enumerate(owners.shown.rows) if "__main__.held" in (row[2] or "")))
        await press(pilot, "enter")
        node = app.query_one("#tree").cursor_node  # type: ignore[attr-defined]
        assert app.query_one("TabbedContent").active == "owners" and "__main__.held" in node.data.owned.owner  # type: ignore[attr-defined]
        await press(pilot, "p")
        assert "Path: __main__.held" in app.screen.lines  # type: ignore[attr-defined]
        await press(pilot, "escape")
        root = next(one for one in app.query_one("#tree").root.children if not one.data.is_block)  # type: ignore[attr-defined]
        app.query_one("#tree").move_cursor(root)  # type: ignore[attr-defined]
        await press(pilot, "p")
        assert [note.message for note in app._notifications][-1].endswith("is where paths end")

    driven(snapshots[1], drive)


def test_what_is_not_shown_is_counted(snapshots: List[str]) -> None:
    """Below a node with thousands the last row has the bytes of those that are left out; suspects stand above the tree, as `owners` says them."""

    async def drive(app: Explorer, view: ExplorerView, pilot: Any) -> None:
        text = heapx(["--snapshot", snapshots[1]], "owners").stdout.decode()
        assert view.suspicions() and all(line in text for line in view.suspicions())
        for node in view.tops()[:20]:
            below, more_bytes = view.below(node.number)
            kept = sum(one.owned.retained_bytes for one in below)
            assert kept + more_bytes <= node.owned.retained_bytes and (more_bytes > 0) == (len(below) == 200)

    driven(snapshots[1], drive)


def test_every_class_leads_to_its_blocks(snapshots: List[str]) -> None:
    """Those of which only the size is known, too: as many blocks as the census counts, or the first of them, of that size."""
    with exploring.open_heap_file(snapshots[1], ASKED) as heap:
        view = exploring.load_view(heap)
        rows = view.classes()
        assert any(row.signature is None for row in rows)
        for row in rows[:60]:
            wanted = ExplorerClass(row.signature, row.size_bytes)
            blocks = view.blocks_of(wanted)
            alike = sum(one.blocks for one in rows if ExplorerClass(one.signature, one.size_bytes).is_of(wanted))
            assert len(blocks) == min(200, alike), (row, len(blocks))
            assert all(size == row.size_bytes for _, size in blocks) or row.signature is not None
            assert sum(one.blocks for one in view.owners_of(wanted)) == alike or row.signature is None


def test_search_sql_and_differences(snapshots: List[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By address inside a block, by a part of a name; SQL's rows and its errors in one line; what grew; the table as CSV."""
    pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)

    async def drive(app: Explorer, view: ExplorerView, pilot: Any) -> None:
        address = view.blocks_of(ExplorerClass("dict", None))[0][0]
        for text, kind in ((hex(address + 8), "block"), ("__main__", "owner"), ("dict", "class")):
            app.action_show("search")
            await pilot.pause()
            app.query_one("#wanted").value = text  # type: ignore[attr-defined]
            app.query_one("#wanted").focus()
            await pilot.press("enter")
            await pilot.pause()
            assert kind in {row[1] for row in app.query_one("#found", ExplorerTable).shown.rows}, (text, app.query_one("#found", ExplorerTable).shown)
        app.action_show("sql")
        await pilot.pause()
        for sql, is_right in (("select count(*) as n from blocks", True), ("drop table blocks", False)):
            app.query_one("#statement").value = sql  # type: ignore[attr-defined]
            app.query_one("#statement").focus()
            app.query_one("#rows", ExplorerTable).show(type(app.query_one("#rows", ExplorerTable).shown)((), ()))
            await pilot.press("enter")
            await until(pilot, lambda: "asking" not in str(app.query_one("#sql-said").render()))
            assert bool(app.query_one("#rows", ExplorerTable).shown.rows) == is_right
            assert bool(str(app.query_one("#sql-said").render()).strip()) != is_right
        app.action_show("diff")
        await until(pilot, lambda: bool(app.query_one("#changes", ExplorerTable).shown.columns))
        app.query_one("#changes").focus()
        await pilot.press("e", "escape")
        await pilot.press("w", "escape")
        await press(pilot, "e")
        assert not list(tmp_path.iterdir())
        await pilot.press("x", "enter")
        await until(pilot, lambda: bool(list(tmp_path.iterdir())))
        (path,) = tmp_path.iterdir()
        (head, *_) = csv.reader(path.open())
        assert path.name in ("explore-diff.csvx", "x") and head[0] == "grown bytes" and path.stat().st_mode & 0o777 == 0o600

    driven(snapshots[1], drive, snapshots[0])


def test_a_core_with_hostile_names(stage: Stage, tmp_path: Path) -> None:
    """Names of a target are data: none is markup or moves the cursor."""
    process: Process = hostile.start(stage, tmp_path / "record", hostile.HOSTILE[2])

    async def drive(app: Explorer, view: ExplorerView, pilot: Any) -> None:
        for name in ("overview", "arenas", "owners", "census"):
            app.action_show(name)
            await pilot.pause()
        assert "\x1b" not in str(app.query_one("#report").render())

    driven(str(process.core()), drive)


def test_a_snapshot_without_blocks_is_refused(stage: Stage, tmp_path: Path) -> None:
    """There was no room for the graph when it was taken: one line says so, and what to do."""
    path = str(tmp_path / "small.snap")
    heapx(stage.start("recorder", "1", "50000", "5").target("live"), "snapshot", path, env={"GDBHEAPX_MEMORY": "1000000"})
    with exploring.open_heap_file(path, ASKED) as heap, pytest.raises(HeapxError, match="does not have the single blocks"):
        exploring.load_view(heap)


@pytest.mark.skipif(not shutil.which("tmux"), reason="no tmux")
def test_in_a_real_terminal(snapshots: List[str], tmp_path: Path) -> None:
    """In 80 columns of tmux: the first screen, the tree, the path of the largest owner, and q gives the terminal back with exit code 0."""
    tmux = ["tmux", "-L", tmp_path.name, "-f", "/dev/null"]
    command = "%s explore %s; echo ended with $?; sleep 60" % (shlex.join(tool_command()), shlex.quote(snapshots[1]))
    subprocess.run([*tmux, "new-session", "-d", "-s", "x", "-x", "80", "-y", "24", command], check=True, env={**os.environ, "TERM": "xterm-256color", "TMUX": ""})

    def shows(text: str) -> bool:
        screen = ""
        for _ in range(200):
            screen = subprocess.run([*tmux, "capture-pane", "-p", "-t", "x"], capture_output=True, text=True).stdout
            if text in screen:
                assert max(map(len, screen.splitlines())) <= 80
                return True
            time.sleep(0.2)
        raise AssertionError(screen)

    try:
        assert shows("RSS ")
        subprocess.run([*tmux, "send-keys", "-t", "x", "3"], check=True)
        assert shows("▶") and shows("__main__.held")
        subprocess.run([*tmux, "send-keys", "-t", "x", "p"], check=True)
        assert shows("Path: __main__.held")
        subprocess.run([*tmux, "send-keys", "-t", "x", "q"], check=True)
        assert shows("ended with 0")
    finally:
        subprocess.run([*tmux, "kill-server"])
