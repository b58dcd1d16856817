"""The same services in the explorer: from the first screen by keys alone to what holds the memory, in 80 columns.

Files: addons/views/explore/app.py, addons/views/explore/command.py
"""

import asyncio
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Tuple

import pytest

from gdbheapx.common import global_options
from tests.support.processes import Stage
from tests.support.stories import STORIES
from tests.support.tool import heapx

pytest.importorskip("textual", reason="textual is not installed")
from gdbheapx.addons.views.explore import command as exploring
from gdbheapx.addons.views.explore.app import Explorer

pytestmark = pytest.mark.wild  # foreign programs
ASKED = global_options.GlobalOptions(None, None, None, None, None, None, [], False, False)
MOST_KEYS = 6


class Way(NamedTuple):
    """Keys, and the words that are on the screen after them."""

    keys: List[str]
    words: Tuple[str, ...]


OWNERS, BY_CLASS = ["3", "enter"], ["4", "enter", "enter"]
"""The largest owner opened; the largest class, its first owner, the tree."""
WAYS: Dict[str, List[Way]] = {
    "c++": [Way(OWNERS, ("sessions in service", "unordered map or set of 200,000 entries", "table of an unordered map")), Way(BY_CLASS, ("sessions in service",))],
    "rust": [Way(OWNERS, ("main::PENDING in service", "table of a"))],
    "ruby": [Way(OWNERS, ("App::Log::LINES", "Array of 200,000", "App::Log::LINES[")), Way([*BY_CLASS, "p"], ("Path: App::Log::LINES",))],
    "asyncio": [Way(["3"], ("gateway.uplink.later, list of 2,000 leads to",)), Way(["3", "down", "end", "p"], ("Path: coroutine",))],
    "redis": [Way(["3", "p"], ("server+", "redis")), Way(["3"], ("quicklist",))],
    "node-zlib": [Way(BY_CLASS, ("node::(anonymous",)), Way([*BY_CLASS, "p"], ("node::(anonymous namespace)::ZlibStream", "JavaScript heap"))],
}


def shown(app: Explorer) -> str:
    """What the terminal has, a line for each of its own."""
    lines = ["".join(part.text for part in strip).strip() for strip in app.screen._compositor.render_strips()]
    return " ".join(lines)


async def pressed(app: Explorer, keys: List[str]) -> str:
    """The screen after these keys, from the first one on."""
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
            await pilot.pause(0.2)
        return shown(app)


@pytest.mark.parametrize("name", list(WAYS))
def test_keys_lead_to_it(stage: Stage, tmp_path: Path, name: str) -> None:
    """From a snapshot, six keys at most."""
    story, path = STORIES[name], str(tmp_path / "story.snap")
    process = story.start(stage)
    assert heapx(["--pid", str(story.pid(process))], "snapshot", path).code in (0, 4)
    with exploring.open_heap_file(path, ASKED) as heap:
        view = exploring.load_view(heap)
        for way in WAYS[name]:
            app: Any = Explorer(view, path, lambda sql: exploring.query_rows(heap, sql))
            screen = asyncio.run(pressed(app, way.keys))
            assert len(way.keys) <= MOST_KEYS and not [word for word in way.words if word not in screen], (way.keys, screen)
