"""Where the tcmallocs of the tests come from: the system's library, and others that the environment names; what tc_recorder.c records."""

from pathlib import Path
from typing import Dict, List, NamedTuple, Optional

import pytest

from tests.support.paths import installed
from tests.support.processes import Process, Stage

NAMES = ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4")
ENV = "GDBHEAPX_TCMALLOCS"
"""Further libraries, separated by colons."""
FIGURES = ("allocated", "heap", "free", "returned", "central", "transfer", "cached")


def libraries() -> List[Path]:
    """All of them."""
    return installed(NAMES, ENV)


def library() -> Path:
    """The first; skips where there is none."""
    found = libraries()
    if not found:
        pytest.skip("no libtcmalloc here (Debian: libtcmalloc-minimal4)")
    return found[0]


class Block(NamedTuple):
    """One block in use."""

    address: int
    requested: int
    usable: int


class Recorded(NamedTuple):
    """What tc_recorder.c recorded."""

    blocks: List[Block]
    leaked: int
    figures: Dict[str, int]


def recorded(process: Process) -> Recorded:
    """As it is now."""
    words = process.words()
    rows = [Block(*words[at : at + 3]) for at in range(10, len(words) - 2, 3)]
    return Recorded([row for row in rows if row.address], ~words[2] & (1 << 64) - 1, dict(zip(FIGURES, words[3:10])))


def recorder(stage: Stage, path: Optional[Path] = None, *more: str, slots: int = 400, env: Optional[Dict[str, str]] = None) -> Process:
    """tc_recorder.c on it: four threads."""
    preload = {"LD_PRELOAD": str(path or library()), **(env or {})}
    return stage.start("tc_recorder", "4", str(slots), "4", *more, env=preload)
