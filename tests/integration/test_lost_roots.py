"""What cannot be seen is unknown, in every answer that says it: a core without a program's variables, and a program with an allocator of its own.

Files: inferior/core_file.py, analysis/reachability/leaks.py, analysis/inside.py, snapshot/diff.py.
"""

import struct
from pathlib import Path
from typing import List

import pytest

from gdbheapx.inferior.target import open_elf_target
from tests.support.processes import Process, Stage
from tests.support.tool import alone, heapx

pytestmark = pytest.mark.image  # its kernel's cores, its libc

@pytest.fixture
def lost(stage: Stage, core: str, folder: Path) -> Path:
    """A core whose program header of the program's .bss has lost its type."""
    path = stage.start("recorder", "3", "1000", "3").core()
    target = open_elf_target(core=str(path))
    end = target.writable_segments(target.modules()[0])[-1][2]
    assert target.problems() == []
    with open(path, "r+b") as file:
        head = file.read(64)
        table, count = struct.unpack_from("<Q", head, 32)[0], struct.unpack_from("<H", head, 56)[0]
        for place in range(table, table + 56 * count, 56):
            file.seek(place)
            kind, _, _, start, _, _, size_bytes, _ = struct.unpack("<IIQQQQQQ", file.read(56))
            if kind == 1 and start <= end - 1 < start + size_bytes:
                file.seek(place)
                file.write(struct.pack("<I", 0))
    return path


def test_leaks_are_unknown(lost: Path, folder: Path) -> None:
    """leaks, owners, report: null in JSON, unknown in the text, exit code 4; --fail-on-leak does not say that all is well."""
    target = ["--core", str(lost)]
    answers = {words: alone(target, *words.split(), "--json") for words in ("leaks", "owners", "report", "leaks --fail-on-leak 1T", "leaks --fail-on-leak 1")}
    assert {answer.code for answer in answers.values()} == {4}
    data = {words: answer.envelope["data"] for words, answer in answers.items()}
    assert data["leaks"]["classes"]["leaked"] == {"blocks": None, "bytes": None, "roots": None, "is_upper_bound": True} and data["leaks"]["groups"] == []
    assert data["owners"]["leaked"] is None and (data["report"]["inside"] is None or data["report"]["inside"]["leaked"] is None)
    for answer in answers.values():
        assert {"roots-missing", "core-damaged"} <= {problem["code"] for problem in answer.envelope["problems"]}
    assert b"Leaked: unknown" in alone(target, "leaks").stdout and b"leaked: unknown" in alone(target, "owners").stdout


def test_a_snapshot_says_so_too(lost: Path, folder: Path) -> None:
    """A snapshot of such a core, and what it is compared with."""
    taken = str(folder / "lost.snap")
    assert alone(["--core", str(lost)], "snapshot", taken).code == 4
    leaks = alone(["--snapshot", taken], "leaks", "--json")
    assert leaks.code == 4 and leaks.envelope["data"]["classes"]["leaked"]["bytes"] is None
    assert heapx([], "diff", taken, taken, "--json").envelope["data"]["leaks"] is None


@pytest.fixture
def program(stage: Stage) -> Process:
    """24 MB that no reader knows."""
    return stage.start("own_arena")


def target(process: Process, kind: str) -> List[str]:
    """Live, its core, or a snapshot of it."""
    if kind != "snapshot":
        return process.target(kind)
    path = str(process.folder / "snap")
    assert heapx(process.target("live"), "snapshot", path).code == 4
    return ["--snapshot", path]


@pytest.mark.parametrize("kind", ["live", "core", "snapshot"])
def test_zero_is_unknown(program: Process, kind: str) -> None:
    """Exit code 4 and null, never "nothing"."""
    options = target(program, kind)
    for words in (["leaks", "--fail-on-leak", "1M"], ["owners"], ["census"], *([["check"]] if kind != "snapshot" else [])):
        outcome = heapx(options, *words, "--json")
        envelope = outcome.envelope
        assert outcome.code == 4 and "memory-unread" in [problem["code"] for problem in envelope["problems"]], words
        coverage = envelope["coverage"]
        assert coverage["anonymous_bytes"] >= 24 << 20 and coverage["share_percent"] < 10, words
        if words[0] == "leaks":
            assert envelope["data"]["classes"]["leaked"]["bytes"] is None
    assert b"Leaked: unknown (looked at " in heapx(options, "leaks").stdout


def test_a_healthy_program_is_whole(stage: Stage, kind: str) -> None:
    """Its answer has the field, and no null."""
    outcome = heapx(stage.start("untouched").target(kind), "leaks", "--json")
    assert outcome.envelope["coverage"]["read_bytes"] <= outcome.envelope["coverage"]["anonymous_bytes"]
    assert outcome.code == 0 and outcome.envelope["data"]["classes"]["leaked"]["bytes"] == 0
