"""Pointers with tags: a program of aarch64 that tags its own, and one whose malloc does, as cores of qemu-user; the same program on this
machine, whose processor ignores no bit of a pointer unless a process asks for it.

Files: inferior/base.py, kernel/blocks/sieve.c, kernel/blocks/weak.c.
"""

import platform
import shutil
import signal
from pathlib import Path
from typing import Any, List, Tuple

import pytest

from tests.support.other_machines import compiled, start, tree
from tests.support.processes import Builder, Process, Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # programs of another machine, with a libc of their own

CHAIN, LOST = 1000, 100
ALL = (1 << 64) - 1


@pytest.fixture(params=["own", "malloc", "none"])
def tagged(request: pytest.FixtureRequest, stage: Stage, core: str, builder: Builder) -> Tuple[Process, List[str]]:
    """The program's core and the options that read it; skips with what is missing."""
    qemu = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    compiler = shutil.which("aarch64-linux-gnu-gcc") or shutil.which("aarch64-linux-gnu-gcc-12")
    if not qemu or not compiler:
        pytest.skip("qemu-user and a cross compiler for aarch64 are not both installed")
    root, program = tree("arm64"), compiled(builder, compiler, "aarch64", name="tagged")
    tunables = "glibc.mem.tagging=3" if request.param == "malloc" else ""
    command = [qemu, "-cpu", "max", "-L", str(root), "-E", "GLIBC_TUNABLES=" + tunables, str(program)]
    process = start(stage, command, "5a" if request.param == "own" else "0")
    process.popen.send_signal(signal.SIGABRT)
    process.popen.wait()
    cores = list(process.folder.glob("qemu_*.core"))
    if not cores:
        pytest.skip("qemu-user wrote no core; is there a limit on core files?")
    stored = process.words()[2]
    if request.param == "malloc" and not stored >> 56:
        pytest.skip("this qemu-user, or this libc, has no memory tagging")
    assert bool(stored >> 56) == (request.param != "none")
    debug = str(root / "usr/lib/debug")
    return process, ["--core", str(cores[0]), "--exe", str(program), "--sysroot", str(root), "--debug-dir", debug]


def said(target: List[str], *words: str, **options: Any) -> Any:
    """The data of an answer, which lacks thread caches: such cores have no thread pointers."""
    outcome = heapx(target, *words, "--json", **options)
    assert outcome.code in (0, 4), outcome.stderr
    return outcome.envelope["data"]


def test_aarch64_ignores_the_top_byte(tagged: Tuple[Process, List[str]], folder: Path) -> None:
    """The chain is held to its end and the lost blocks are leaked, whoever tagged pointers; so says a snapshot of it. Usable sizes are
    malloc_usable_size's. Addresses are taken with their tags, and given without."""
    process, target = tagged
    chain, lost, first, last_lost, walked, _, usable, _ = process.words()
    last_lost ^= ALL
    address, bare = "0x%x" % first, "0x%x" % (first & ALL >> 8)
    assert (chain, lost, walked) == (CHAIN, LOST, CHAIN)
    found = said(target, "leaks", "--list")
    assert found["classes"]["leaked"]["blocks"] == LOST and found["classes"]["maybe"]["blocks"] == 0
    assert found["classes"]["held"]["blocks"] >= CHAIN
    assert "0x%x" % (last_lost & ALL >> 8) in [row["address"] for row in found["blocks"]]
    assert said(target, "check")["findings"] == []
    assert said(target, "whatis", address)["places"][0]["block"]["usable_bytes"] == usable
    refs = said(target, "refs", address)
    assert refs["address"] == bare and refs["chains"][0][0]["root"].startswith("held")
    element, chained = (said(target, "owners", "--of", name)["owners"][0] for name in (address, "held"))
    assert element["address"] == bare and chained["retained_blocks"] == chained["container"]["elements"] == CHAIN
    taken = folder / "taken.heapx"
    assert heapx(target, "snapshot", str(taken), "--json").code in (0, 4)
    recorded = said(["--snapshot", str(taken)], "leaks")
    assert recorded["classes"] == found["classes"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the bits are those of x86-64")
@pytest.mark.parametrize("tag,told", [("2a", True), ("5a", True), ("80", False)])
def test_a_core_does_not_tell_whether_bits_are_ignored(stage: Stage, tag: str, told: bool) -> None:
    """A process that did not ask for linear address masking: its tagged words are no pointers, and half of the heap is leaked, with the
    next step. A second look masks them, from block to block; on a core it adds that they may be pointers, if the bits are such."""
    process = stage.start("tagged", tag)
    live = heapx(process.target("live"), "leaks", "--json")
    assert live.data["classes"]["leaked"]["blocks"] == CHAIN + LOST and live.envelope["problems"] == []
    assert " leaks --weak" in heapx(process.target("live"), "leaks").stdout.decode()
    for kind, options in (("live", ["--weak"]), ("core", [])):
        found = heapx(process.target(kind), "leaks", *options, "--json")
        classes = found.data["classes"]
        assert classes["maybe"]["by_evidence"]["masked"]["blocks"] == CHAIN and classes["leaked"]["blocks"] == LOST
        codes = [one["code"] for one in found.envelope["problems"]]
        assert ("tags-unknown" in codes) == (told and kind == "core") and found.code == 0
        assert "--weak" not in heapx(process.target(kind), "leaks", *options).stdout.decode()
