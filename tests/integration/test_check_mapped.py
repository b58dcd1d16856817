"""check on mmapped chunks, and on programs that malloc itself has ended: what malloc said, word for word.

Files: glibc/survey.py.
"""

import os
import resource
import struct
import subprocess
from pathlib import Path
from typing import Any, Iterator, List, Optional

import pytest

from tests.support import kernelcore
from tests.support.damaged_glibc import Damaged
from tests.support.gcores import gcore
from tests.support.plants_mapped import PLANTS, TRAILER_BYTES, Block, Plant, blocks
from tests.support.processes import Builder, Process, Stage
from tests.support.tool import alone, heapx

pytestmark = pytest.mark.image  # the messages are those of the image's libc

PLAIN, ALIGNED = 1, 12
"""Of the program's chunks by address: one of malloc's with another behind it, and one whose header posix_memalign has moved up."""
NOT_ALIGNED = ("both of text", "both of zeros")
"""Of a chunk that memalign moved nothing is left then; what is left behind of the block before tells the same block."""


class Live:
    """A living process, written to by its /proc/PID/mem."""

    def __init__(self, process: Process) -> None:
        self.process, self._fd = process, os.open("/proc/%d/mem" % process.pid, os.O_RDWR)
        rows = heapx(process.target("live"), "chunks", "--limit", "1000", "--json").data["chunks"]
        self.blocks = blocks(rows, lambda address: struct.unpack("<Q", os.pread(self._fd, 8, address))[0])

    def put(self, block: Block, prev_size: int, field: int) -> None:
        """Another header."""
        os.pwrite(self._fd, struct.pack("<QQ", prev_size, field), block.chunk)

    def close(self) -> None:
        """The process is ended by its stage."""
        os.close(self._fd)


@pytest.fixture(scope="module")
def live(builder: Builder) -> Iterator[Live]:
    """One process for all plants."""
    stage = Stage(builder)
    try:
        found = Live(stage.start("mapped"))
        yield found
        found.close()
    finally:
        stage.close()


@pytest.fixture(scope="module", params=["core", "gcore"])
def core(request: pytest.FixtureRequest, builder: Builder) -> Iterator[Damaged]:
    """One core of each writer for all plants."""
    if request.param == "core" and kernelcore.reason():
        pytest.skip(kernelcore.reason() or "")
    stage = Stage(builder)
    try:
        process = stage.start("mapped")
        found = Damaged(gcore(process) if request.param == "gcore" else process.core())
        yield found
        found.close()
    finally:
        stage.close()


def check(code: int, findings: List[Any], one: Plant, block: Block) -> None:
    """The rule is told, and nothing of another place. A word that an earlier call left near the stack pointer, as with glibc 2.41, makes
    the only thread one that may be inside malloc."""
    told = [(row["rule"], row["address"], row["abort"]) for row in findings]
    assert told == [(one.rule_of(block), hex(block.chunk), one.abort_of(block))], findings
    assert (code, findings[0]["evidence"]) in ((3, None), (4, "inside")), findings


def changed(one: Plant, block: Block) -> Optional["tuple[int, int]"]:
    """What it writes there."""
    found = one.make(block)
    return None if found == (block.prev_size, block.field) else found


@pytest.mark.once
@pytest.mark.parametrize("one", PLANTS, ids=lambda one: one.name)
def test_live(live: Live, one: Plant) -> None:
    """Each way, in a process that runs."""
    block = live.blocks[PLAIN]
    words = changed(one, block)
    assert block.next_total
    if words is None:
        pytest.skip("no damage here")
    live.put(block, *words)
    try:
        found = heapx(live.process.target("live"), "check", "--json")
    finally:
        live.put(block, block.prev_size, block.field)
    check(found.code, found.envelope["data"]["findings"], one, block)


@pytest.mark.parametrize("place", [PLAIN, ALIGNED])
def test_on_cores(core: Damaged, place: int) -> None:
    """Each way, of a plain chunk and one that posix_memalign has moved up, in a kernel core and one by gcore."""
    all_of_them = blocks(core.ask("chunks", "--limit", "1000").envelope["data"]["chunks"], core.get)
    block = all_of_them[place]
    assert (block.prev_size > 0) == (place == ALIGNED)
    assert core.ask("check").envelope["data"] == {"findings": []}
    for one in PLANTS:
        words = changed(one, block)
        if words is None or (place == ALIGNED and one.name in NOT_ALIGNED):
            continue
        core.put(block.chunk, words[0])
        core.put(block.chunk + 8, words[1])
        asked = core.ask("check")
        core.heal()
        check(asked.code, asked.envelope["data"]["findings"], one, block)


@pytest.mark.parametrize("one", [one for one in PLANTS if one.abort is not None], ids=lambda one: one.name)
def test_malloc_says_so(builder: Builder, tmp_path: Path, one: Plant) -> None:
    """free() of a block with that header ends the process with just that message."""
    block = Block(0x7F0000000000, 0, (2 << 20) + 4096 - TRAILER_BYTES | 2, 0)
    words = ["0x%x" % word for word in one.make(block)]
    ended = subprocess.run([str(builder.build("aborts")), "mapped", *words], cwd=tmp_path, capture_output=True, text=True)
    if ended.returncode != -6:
        pytest.skip("this libc does not notice")
    assert ended.stderr.strip().splitlines()[-1].endswith(str(one.abort))


@pytest.mark.parametrize("kind", ["live", "core", "gcore"])
def test_freed_with_the_size_of_several(stage: Stage, kind: str) -> None:
    """A chunk that had grown over another one and was freed (how2heap's mmap_overlapping_chunks) leaves mp_'s count one too high, and its
    bytes right."""
    if kind == "core" and kernelcore.reason():
        pytest.skip(kernelcore.reason() or "")
    process = stage.start("mapped")
    process.command(b"g")
    target = ["--core", str(gcore(process))] if kind == "gcore" else process.target(kind)
    found = heapx(target, "check", "--json")
    rows = found.envelope["data"]["findings"]
    assert [row["rule"] for row in rows] == ["mmapped-count"]
    assert (found.code, rows[0]["evidence"], found.envelope["partial"]) in ((3, None, False), (4, "inside", True))


KINDS = ("unsorted-size", "unsorted-links", "prev-size", "top-size", "double-free")


def unlimited() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@pytest.mark.parametrize("kind", KINDS)
def test_malloc_said_so(builder: Builder, tmp_path: Path, kind: str) -> None:
    """One of the findings has the message with which the process ended; it is sure, although malloc held its lock."""
    if kernelcore.reason():
        pytest.skip(kernelcore.reason() or "")
    ended = subprocess.run([str(builder.build("aborts")), kind], cwd=tmp_path, preexec_fn=unlimited, capture_output=True, text=True)
    if ended.returncode != -6:
        pytest.skip("this libc does not notice")
    found = sorted(tmp_path.glob("*core*"))
    assert found, "no core"
    outcome = alone(["--core", str(found[0])], "check", "--json")
    findings = outcome.envelope["data"]["findings"]
    said = ended.stderr.strip().splitlines()[-1]
    assert outcome.code == 3 and all(row["evidence"] is None for row in findings)
    report = alone(["--core", str(found[0])], "report", "--json").envelope["data"]
    assert "aborted-in-malloc" in [one["code"] for one in report["findings"]]
    assert any(row["abort"] and row["abort"] in said for row in findings), (said, [(row["rule"], row["abort"]) for row in findings])
