"""A third allocator is one module, one folder of the kernel and one line of the registry: every command that any can serve serves it.

Files: snapshot/record.py.
"""

import json
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple, cast

import pytest

from gdbheapx import allocators, command, kernel
from gdbheapx.allocators.plan import Plan
from gdbheapx.app import runner
from gdbheapx.common.errors import Refusal
from gdbheapx.inferior.base import Target
from gdbheapx.inferior.target import open_elf_target
from gdbheapx.kernel import build
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.common.library import load_library_at
from gdbheapx.snapshot.record import Snapshot
from tests.support import compilers, toy_allocator
from tests.support.paths import PROGRAMS, ROOT
from tests.support.processes import Process, Stage
from tests.support.tool import in_gdb

pytestmark = pytest.mark.once  # how allocators are put together depends on no image

TOY_KERNEL = Path(toy_allocator.__file__).parent / "toy_kernel"


@pytest.fixture(scope="module")
def with_its_folder(tmp_path_factory: pytest.TempPathFactory) -> CKernel:
    """The C kernel, compiled with the toy's folder."""
    words, path = build.find_compiler(), str(tmp_path_factory.mktemp("kernel") / build.LIBRARY)
    if not words:
        pytest.skip("no C compiler here")
    quick = compilers.with_last(words, tmp_path_factory.mktemp("quick"), "-O0")
    done = build.compile_into(path, quick, {**build.all_sources(), **build.read_sources(str(TOY_KERNEL))}, 1)
    assert done.returncode == 0, done.stdout
    return CKernel(load_library_at(path))


@pytest.fixture(params=["python", "c"])
def walks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy's blocks are read by its lines of Python, or by its folder of the kernel."""
    if request.param == "c":
        monkeypatch.setattr(kernel, "_loaded", [request.getfixturevalue("with_its_folder")])


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch, walks: None) -> None:
    """The one line."""
    monkeypatch.setattr(allocators, "REGISTRY", (*allocators.REGISTRY, "tests.support.toy_allocator"))
    command.load_commands()


def library(folder: Path, *flags: str) -> str:
    """The toy's malloc, to be preloaded."""
    made = folder / "libtiny.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", *flags, "-o", str(made), str(PROGRAMS / "tiny_malloc.c")], check=True)
    return str(made)


@pytest.fixture
def process(stage: Stage, live: str, tmp_path: Path) -> Iterator[Process]:
    """A program whose malloc is the toy's."""
    yield stage.start("victim_parked", "idle", env={"LD_PRELOAD": library(tmp_path)})


def opened(target: Dict[str, Any]) -> Target:
    """A process, a core, or a snapshot by its path."""
    return cast(Target, Snapshot(**target)) if "path" in target else open_elf_target(**target)


def ask(target: Dict[str, Any], words: str) -> Tuple[int, str]:
    """A command in this process, without gdb."""
    out: List[str] = []
    host = runner.Host("gdbheapx", out.append, out.append, lambda: opened(target), runner.Settings())
    ended = runner.run_command_line(words.split(), host)
    return ended.code, "".join(out) + (ended.line or "")


def answer(target: Dict[str, Any], words: str) -> Dict[str, Any]:
    """Its JSON."""
    patient = " --max-stop 60" if "pid" in target else ""  # on a busy machine, too
    code, text = ask(target, words + " --allocator tiny --json" + patient)
    assert code == 0, text
    return json.loads(text)["data"]  # type: ignore[no-any-return]


def check(target: Dict[str, Any]) -> None:
    """doctor lists it, and report, arenas, chunks and bins show it: the same bytes everywhere."""
    assert any(row["what"] == "tiny" and "owns malloc" in row["found"] for row in answer(target, "doctor")["checks"])
    held = answer(target, "arenas")["totals"]["tiny"]["held_bytes"]
    chunks = answer(target, "chunks")["chunks"]
    used = [row for row in chunks if row["status"] == "used"]
    assert held > 0 and sum(row["usable_bytes"] + 16 for row in chunks) == held
    assert {(row["status"], row["allocator"], int(row["address"], 16) - int(row["chunk"], 16)) for row in chunks} == {
        ("used", "tiny", 16),
        ("idle", "tiny", 16),
    }
    assert answer(target, "chunks --status used")["chunks"] == used and not answer(target, "chunks --status tcache")["chunks"]
    code, told = ask(target, "chunks --status lost")
    assert code == 2 and "idle" in told
    assert sum(row["used_chunks"] for row in answer(target, "chunks --histogram")["histogram"]) == len(used)
    row = used[len(used) // 2]
    place = answer(target, "whatis %s" % row["address"])["places"][0]
    assert (place["block"]["address"], place["block"]["usable_bytes"], place["chunk"]) == (row["address"], row["usable_bytes"], row["chunk"])
    assert answer(target, "check") == {"findings": []}
    classes, owned = answer(target, "leaks")["classes"], answer(target, "owners")["used"]
    assert sum(one["blocks"] for one in classes.values()) == owned["blocks"] == len(used)
    assert answer(target, "refs %s" % row["address"])["address"] == row["address"]
    assert answer(target, "bins") == {"bins": []} and "tiny has no bins" in ask(target, "bins --allocator tiny")[1]
    assert "requires it" in ask(target, "tickers --allocator tiny")[1] or ask(target, "tickers --allocator tiny")[0] == 0
    check_reserve(target, held)
    check_unknown(target)


def check_reserve(target: Dict[str, Any], held: int) -> None:
    """A gigabyte of addresses is neither hoarded nor lost to others: what counts is what takes memory of it."""
    report = answer(target, "report --page")
    mapped = report["page"]["map"][0]
    assert mapped["allocator"] == "tiny" and held <= sum(mapped["sums"][name] for name in ("used_bytes", "pinned_bytes", "own_bytes", "free_bytes")) < held + 8192
    assert report["verdicts"]["tiny"]["kind"] in ("small", "in-use") and report["totals"]["tiny"]["held_bytes"] == held
    (part,) = [part for part in report["split"] if part["allocator"] == "tiny"]
    assert held <= (part["resident_bytes"] or part["dumped_bytes"]) < 1 << 20
    text = ask(target, "report --allocator tiny")[1]
    assert "total" in text and "held" in text


def check_unknown(target: Dict[str, Any]) -> None:
    """By what rule it returns memory nobody said: what pins keep is not known, and not nothing, nor what another allocator's rule gives."""
    code, told = ask(target, "pins --allocator tiny --json")
    found = json.loads(told)
    assert code == 4 and found["data"]["kept_bytes"] is None and not found["data"]["groups"]
    assert "no-return-rule" in [one["code"] for one in found["problems"]]
    assert "is not known" in ask(target, "pins --allocator tiny")[1]


@pytest.mark.parametrize("on", ["pid", "core"])
def test_every_command(process: Process, on: str) -> None:
    """Of a process, and of its core."""
    check({"pid": process.pid} if on == "pid" else {"core": str(process.core())})


def test_watched(process: Process) -> None:
    """Without counters it is in no figure of a watch, and that is said: the zeros of another allocator are not its own."""
    code, told = ask({"pid": process.pid}, "watch --every 0.01 --times 2")
    assert code == 4 and "tiny has no counters" in told


def test_a_copy_that_is_not_used(stage: Stage, kind: str, tmp_path: Path) -> None:
    """It is there and holds nothing: that is said, nothing is missing, and the others are read as without it."""
    process = stage.start("victim_parked", "idle", env={"LD_PRELOAD": library(tmp_path, "-DTINY_UNUSED")})
    target: Dict[str, Any] = {"pid": process.pid} if kind == "live" else {"core": str(process.core())}
    code, told = ask(target, "doctor --json")
    rows = [row for row in json.loads(told)["data"]["checks"] if row["what"] == "tiny"]
    assert [(row["ok"], row["found"]) for row in rows] == [(None, "tiny in libtiny.so was never used")]
    code, told = ask(target, "report --json")
    found = json.loads(told)
    assert code == 0 and [one["name"] for one in found["allocators"]] == ["glibc"] and not found["problems"]
    code, told = ask(target, "arenas --allocator tiny")
    assert code == 2 and "found: glibc" in told


@pytest.fixture
def hoarding(stage: Stage, live: str, tmp_path: Path) -> Iterator[Process]:
    """A program that has freed most of what it has from the toy."""
    yield stage.start("trimmer", "fast", env={"LD_PRELOAD": library(tmp_path)})


def check_returning(target: Dict[str, Any], what_follows: str) -> None:
    """The report, its next steps and the command that predicts speak of the way by which the toy returns memory."""
    report, said = answer(target, "report"), answer(target, "purge --dry-run")
    assert report["verdicts"]["tiny"]["kind"] in ("kept", "leaked"), "its blocks are read, and some of them are lost"
    assert {"command": "purge --dry-run", "why": "shows what tiny_release would return to the OS"} in report["next"]
    text = ask(target, "purge --dry-run")[1]
    assert text.startswith("tiny_release would return ") and text.rstrip().endswith(what_follows)
    assert said["predicted_bytes"] > 1 << 20 and said["way"] == "none" and said["returned"] is None
    code, text = ask(target, "purge --dry-run --arena 0")
    assert code == 2 and "--arena is not for tiny" in text
    code, text = ask(target, "trim --dry-run --allocator tiny")
    assert code == 1 and "for tiny use `gdbheapx" in text and " purge`" in text


def test_it_returns_memory(hoarding: Process, tmp_path: Path) -> None:
    """A plan in its own module is all that it needs to be purged: what was predicted is returned, through every check of a call."""
    check_returning({"pid": hoarding.pid}, "purge")
    register = 'python from gdbheapx import allocators; allocators.REGISTRY = (*allocators.REGISTRY, "tests.support.toy_allocator")'
    path = tmp_path / "answer"
    outcome = in_gdb(hoarding.target("live"), [register, "heapx purge --yes --json -o %s" % path], env={"PYTHONPATH": str(ROOT)})
    assert path.exists(), outcome.stderr
    done = json.loads(path.read_text())["data"]
    assert done["call"] == "tiny_release()" and done["returned"] > 0 and done["trouble"] is None
    assert -done["anonymous_diff_bytes"] == done["predicted_resident_bytes"] > 1 << 20


def test_it_would_return_memory(hoarding: Process) -> None:
    """On a core it is predicted; the process is spoken of."""
    check_returning({"core": str(hoarding.core())}, "only the live process can return it (tiny_release)")


def test_what_its_plan_refuses_is_said(hoarding: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dry run does not name the command that acts, and says why."""

    def check(self: Plan) -> None:
        raise Refusal("the moon is full", "retry")

    monkeypatch.setattr(Plan, "check", check)
    code, text = ask({"pid": hoarding.pid}, "purge --dry-run")
    assert code == 0 and " purge` would be refused here" in text and "the moon is full" in text


def test_its_folder_of_the_kernel_reads_the_same(process: Process, with_its_folder: CKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Block by block."""
    core = {"core": str(process.core())}
    monkeypatch.setattr(kernel, "_loaded", [with_its_folder])
    by_c = answer(core, "chunks")
    monkeypatch.setattr(kernel, "_loaded", [])
    assert answer(core, "chunks") == by_c and by_c["chunks"]


def test_snapshot(process: Process, tmp_path: Path) -> None:
    """And a snapshot of that: its own records come back."""
    core, path = {"core": str(process.core())}, str(tmp_path / "one.snap")
    assert ask(core, "snapshot %s" % path)[0] == 4, "what it cannot return is not known"
    assert ask({"path": path}, "arenas") == ask(core, "arenas")
    assert json.loads(ask({"path": path}, "report --json")[1])["data"]["totals"] == json.loads(ask(core, "report --json")[1])["data"]["totals"]
