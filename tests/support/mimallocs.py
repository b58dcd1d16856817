"""Where the mimallocs of the tests come from: the system's library, and others that the environment names; what mi_recorder.c records."""

from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.support.paths import installed
from tests.support.processes import Process, Stage

NAMES = ("libmimalloc.so.2", "libmimalloc.so.3")
ENV = "GDBHEAPX_MIMALLOCS"
"""Further libraries, separated by colons."""
LACKING = "no libmimalloc here (Debian: libmimalloc2.0)"
UNREAD = (".so.3.5", ".so.3.6")
"""Ends of the names of releases that are named and not read."""
PARTS = ("used", "free", "remote_free", "reserve", "span", "overhead", "unparsed")
"""That add up to what is held."""


def libraries() -> List[Path]:
    """All that can be read."""
    return [path for path in _present() if not path.resolve().name.endswith(UNREAD)]


def unread() -> List[Path]:
    """Those of releases that cannot."""
    return [path for path in _present() if path.resolve().name.endswith(UNREAD)]


def _present() -> List[Path]:
    return installed(NAMES, ENV)


def library() -> Path:
    """The first; skips where there is none."""
    found = libraries()
    if not found:
        pytest.skip(LACKING)
    return found[0]


def recorder(stage: Stage, path: Path, *more: str, slots: int = 600) -> Process:
    """mi_recorder.c on it: four threads, and two that have ended."""
    return stage.start("mi_recorder", "4", str(slots), "4", *more, env={"LD_PRELOAD": str(path)})


def recorded(process: Process) -> Dict[int, int]:
    """Usable size of every live block by its address."""
    words = process.words()
    return {words[place]: words[place + 1] for place in range(2, len(words) - 1, 2) if words[place]}


def adds_up(rows: List[Dict[str, Any]]) -> None:
    """Each arena's parts are what it holds, to the byte."""
    for row in rows:
        assert row["held_bytes"] == sum(row["%s_bytes" % part] for part in PARTS), row
