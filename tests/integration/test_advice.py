"""What is advised can be followed: each command that `report` and `tickers` name is run on the same target, and none is refused."""

import re
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator, Set

import pytest

from tests.support import jemallocs
from tests.support.paths import COMMANDS
from tests.support.processes import Process, Stage, by_turns
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # each program brings its own allocator

READING = {path.stem.replace("_", "-") for path in COMMANDS} - {"diff", "doctor", "export", "snapshot"}
ACTS = {"trim", "purge"}
NAMED = re.compile(r"gdbheapx (?:--?[a-z]+ \S+ )*((?:%s)(?: --[a-z-]+(?: (?:\d+|used|mmapped|size))?)*)" % "|".join(sorted(READING)))
"""A command of this tool, without the options that name its target."""


def texts(data: Any) -> Iterator[str]:
    """All sentences of an answer."""
    if isinstance(data, dict):
        for value in data.values():
            yield from texts(value)
    elif isinstance(data, list):
        for value in data:
            yield from texts(value)
    elif isinstance(data, str):
        yield data


def advised(data: Dict[str, Any]) -> Set[str]:
    """Commands of this tool that it names."""
    said = {name: data.get(name) for name in ("verdict", "verdicts", "findings", "next_steps", "advice")}
    return {command for text in texts(said) if "live process" not in text for command in NAMED.findall(text)}


def start(stage: Stage, name: str) -> Process:
    """A program of the suite; of jemalloc's one that keeps pages for its blind threads, where its release has these."""
    if name in ("preload", "rust-0.4"):
        return jemallocs.start(stage, name, "tickers", "400", "frees-first", "frees-first", conf="dirty_decay_ms:300")
    if name == "rust-0.4, stripped":
        folder = stage.folder()
        subprocess.run(["strip", "-o", str(folder / "service"), str(jemallocs.build_rust(jemallocs.RUST["rust-0.4"]))], check=True)
        arguments = [str(folder / "service"), "tickers", str(folder / "record"), "400", "frees-first", "frees-first"]
        return stage.spawn_ready(arguments, folder, {"_RJEM_MALLOC_CONF": "dirty_decay_ms:300"}, folder / "record")
    return stage.start(*{"leaker": ["leaker"], "trimmer": ["trimmer", "arenas"], "left": ["left", "8", "60000"], "mapper": ["mapper"]}[name])


RUST = [pytest.param(name, marks=pytest.mark.rust) for name in ("rust-0.4", "rust-0.4, stripped")]


@by_turns("name", ["leaker", "trimmer", "left", "mapper", "preload", *RUST])
def test_what_is_advised_is_not_refused(stage: Stage, kind: str, name: str, tmp_path: Path) -> None:
    """Live and on a core: those that act are tried dry, and on a core none of these is named."""
    target = start(stage, name).target(kind)
    commands = advised(heapx(target, "report", "--no-deep", "--json").envelope["data"])
    if name.startswith("rust"):
        assert "decay" in commands, "it holds pages, and that is spoken of"
        commands |= advised(heapx(target, "tickers", "--json").envelope["data"])
    for command in sorted(commands):
        words = [str(tmp_path / "file") if word == "FILE" else word for word in command.split()]
        if words[0] == "purge" or words[0] == "trim" or "--cure" in words:
            assert kind == "live" or "--dry-run" in words, "a core is not changed: %s" % command
        if words[0] == "tickers" and "--cure" in words:
            words.append("--yes")
        elif words[0] in ACTS and "--dry-run" not in words:
            words.append("--dry-run")
        outcome = heapx(target, *words, "--json")
        assert outcome.code in (0, 3), (command, outcome.code, outcome.stderr[-300:])
        assert not [one for one in outcome.envelope["problems"] if one["code"] == "call-refused"], command
