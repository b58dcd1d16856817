"""The tool as it is where nothing but itself is at hand: no pack knows the target's builds, no debug file is read, no library is found."""

import re
import sys
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence

from tests.support.tool import Outcome, run, without_packs

LIVE = ("--no-debug-info",)
"""On a process: its libraries are read by its own memory and /proc, their debug files are not."""
OF_THE_MACHINE = ("split", "memory", "evidence")
"""Keys of `report` that tell of pages of files, which other processes share and the kernel drops between two looks; a verdict's shares are of RSS."""
OF_BUILDS = ("stopped_ms", "stops", "swapped_in_bytes", "version", "layout", "address_source", "allocators")
"""Keys that say where an answer comes from, and may differ."""

OF_A_SHELL = re.compile(r"\bgdbheapx (?:(?:-p|--core|--snapshot|--exe|--sysroot|--debug-dir|--gdb) [^ \"]+ |--no-debug-info )*")
"""How a command begins that is typed in a shell."""


class Bare(NamedTuple):
    """A copy of the tool without packs, and an empty tree in which no file of the target is found."""

    home: Path
    tree: Path

    def ask(self, target: Sequence[str], *words: str, alone: bool = False) -> Outcome:
        """Run one command. `alone`: without the program and its libraries, too (cores)."""
        options: List[str] = [*LIVE, *(["--sysroot", str(self.tree)] if alone else [])]
        return run([sys.executable, "-m", "gdbheapx", *target, *options, *words], env={"PYTHONPATH": str(self.home)}, cwd=self.home)


def make(folder: Path) -> Bare:
    """The copy, and an empty tree in this folder."""
    tree = folder / "empty"
    tree.mkdir()
    return Bare(without_packs(), tree)


def facts(data: Any, kind: str = "core") -> Any:
    """An answer without what says where it comes from, and of a living process without what tells of pages of files."""
    if isinstance(data, dict):
        left_out = OF_BUILDS if kind == "core" else OF_BUILDS + OF_THE_MACHINE
        found: Dict[str, Any] = {key: facts(value, kind) for key, value in data.items() if key not in left_out}
        for steps in ("next", "next_steps"):  # that the program's file is not here is no fact of the heap; nor is RSS, which settings are weighed by
            if isinstance(found.get(steps), list):
                found[steps] = [step for step in found[steps] if "--exe FILE" not in str(step) and "what-if" not in str(step)]
        return found
    if isinstance(data, str):
        return timeless(data)
    return [facts(one, kind) for one in data] if isinstance(data, list) else data


def timeless(text: str) -> str:
    """A sentence without how long a look would take, which is computed anew each time, and by how busy the CPUs are."""
    return doorless(re.sub(r"\(pauses the process for [^)]*\)", "(pauses the process)", text))


def doorless(text: str) -> str:
    """The same with the commands that it names as gdb has them: of what was asked, without the options that name it."""
    return OF_A_SHELL.sub("heapx ", text)
