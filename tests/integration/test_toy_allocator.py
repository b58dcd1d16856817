"""A third allocator is one module and one line of the registry: every command that any allocator can serve serves it."""

import json
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest

from gdbheapx import allocators, loader, runner
from gdbheapx.inferior.target import open_elf_target
from tests.support.paths import PROGRAMS
from tests.support.processes import Process, Stage

pytestmark = pytest.mark.once  # how allocators are put together depends on no image


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line."""
    monkeypatch.setattr(allocators, "REGISTRY", (*allocators.REGISTRY, "tests.support.toy_allocator"))
    loader.load_commands()


@pytest.fixture
def process(stage: Stage, live: str, tmp_path: Path) -> Iterator[Process]:
    """A program whose malloc is the toy's."""
    library = tmp_path / "libtiny.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(PROGRAMS / "tiny_malloc.c")], check=True)
    yield stage.start("victim_parked", "idle", env={"LD_PRELOAD": str(library)})


def ask(target: Dict[str, Any], words: str) -> Tuple[int, str]:
    """A command through a door of this process, without gdb."""
    out: List[str] = []
    door = runner.Host("gdbheapx", out.append, out.append, lambda: open_elf_target(**target), runner.Settings())
    ended = runner.run(words.split(), door)
    return ended.code, "".join(out) + (ended.line or "")


def answer(target: Dict[str, Any], words: str) -> Dict[str, Any]:
    """Its JSON."""
    code, text = ask(target, words + " --allocator tiny --json")
    assert code == 0, text
    return json.loads(text)["data"]  # type: ignore[no-any-return]


def check(target: Dict[str, Any]) -> None:
    """doctor lists it, and report, arenas, chunks and bins show it: the same bytes everywhere."""
    assert any(row["what"] == "tiny" and "owns malloc" in row["found"] for row in answer(target, "doctor")["checks"])
    held = answer(target, "arenas")["totals"]["tiny"]["held_bytes"]
    chunks = answer(target, "chunks")["chunks"]
    assert held > 0 and sum((row["usable_bytes"] + 31) & ~15 for row in chunks) == held
    assert {(row["status"], row["allocator"], int(row["address"], 16) - int(row["chunk"], 16)) for row in chunks} == {("used", "tiny", 16)}
    assert sum(row["used_chunks"] for row in answer(target, "chunks --histogram")["histogram"]) == len(chunks)
    row = chunks[len(chunks) // 2]
    place = answer(target, "whatis %s" % row["address"])["places"][0]
    assert (place["block"]["address"], place["block"]["usable_bytes"], place["chunk"]) == (row["address"], row["usable_bytes"], row["chunk"])
    assert answer(target, "check") == {"findings": []}
    mapped = answer(target, "report --page")["page"]["map"][0]
    assert mapped["allocator"] == "tiny" and held <= sum(mapped["sums"][name] for name in ("used_bytes", "pinned_bytes", "own_bytes")) < held + 8192
    classes, used = answer(target, "leaks")["classes"], answer(target, "owners")["used"]
    assert sum(one["blocks"] for one in classes.values()) == used["blocks"] == len(chunks)
    assert answer(target, "refs %s" % row["address"])["address"] == row["address"]
    assert answer(target, "bins") == {"bins": []} and "tiny has no bins" in ask(target, "bins --allocator tiny")[1]
    assert answer(target, "pins")["kept_bytes"] == 0 and "No free memory is kept" in ask(target, "pins --allocator tiny")[1]
    report = answer(target, "report")
    assert report["verdicts"]["tiny"]["kind"] in ("small", "leak-like") and report["totals"]["tiny"]["held_bytes"] == held
    assert any(part["allocator"] == "tiny" for part in report["split"])
    text = ask(target, "report --allocator tiny")[1]
    assert "total" in text and "held" in text
    assert "requires it" in ask(target, "tickers --allocator tiny")[1] or ask(target, "tickers --allocator tiny")[0] == 0


def test_live(process: Process) -> None:
    """A process."""
    check({"pid": process.pid})


def test_core(process: Process) -> None:
    """And its core."""
    check({"core": str(process.core())})
