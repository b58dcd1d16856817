"""Programs of other architectures, read by this machine's gdb: i386 live and as a kernel core, aarch64 as a core that qemu-user writes.

Pointers with tags: a program of aarch64 that tags its own, and one whose malloc does, as cores of qemu-user; the same program on this
machine, whose processor ignores no bit of a pointer unless a process asks for it.

Files: inferior/base.py, kernel/blocks/sieve.c, kernel/blocks/weak.c.
"""

import platform
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

from tests.support.glibc import FIELDS, check_identity, found_fields
from tests.support.other_machines import compiled, i386_program, start, tree
from tests.support.paths import GDB
from tests.support.processes import Builder, Process, Stage
from tests.support.tool import heapx
from tests.support.unchanged import EVERY

pytestmark = pytest.mark.once  # programs of other machines, with a libc of their own

STATES = ("fresh", "seven", "sbrk", "subheaps", "mmapped")
EACH = [(kind, state) for state in (*STATES, "nobrk") for kind in ("live", "core")]
TYPED = [("live", "seven"), ("core", "seven"), ("live", "sbrk"), ("core", "subheaps"), ("live", "mmapped")]
UNTYPED = [("core", "seven"), ("live", "subheaps"), ("core", "mmapped"), ("live", "nobrk")]


def some(chosen: List[Tuple[str, str]]) -> List[Any]:
    """These, and for `make wild` the others."""
    return [one if one in chosen else pytest.param(*one, marks=pytest.mark.wild) for one in EACH]


def dynamic_i386(builder: Builder) -> Path:
    """With the dynamic linker and the libc of the fetched tree."""
    root = tree("i386")
    return i386_program(builder, "-Wl,--dynamic-linker=%s/lib/ld-linux.so.2" % root, "-Wl,-rpath,%s/lib/i386-linux-gnu" % root)


def check_own_accounts(process: Process, target: List[str], layout: str) -> None:
    """Identity in every arena, malloc_info's XML byte for byte, mallinfo2's ten fields; the layout came from where it should."""
    xml, info = process.record_path.with_name("record.xml").read_text(), dict(zip(FIELDS, process.words()))
    arenas = heapx(target, "arenas", "--json").envelope
    assert arenas["partial"] is False, arenas["problems"]
    assert arenas["allocators"][0]["layout"] == layout
    check_identity(arenas["data"])
    assert heapx(target, "malloc-info", "--json").data["xml"] == xml
    assert found_fields(heapx(target, "malloc-stats", "--json").data) == info


@pytest.mark.parametrize("kind, state", some(TYPED), indirect=["kind"])
def test_i386_with_debug_information(stage: Stage, kind: str, builder: Builder, state: str) -> None:
    """An i386 program and its kernel core give its own accounts exactly, with the types of its libc's debug file."""
    process = start(stage, [str(dynamic_i386(builder))], state)
    check_own_accounts(process, [*process.target(kind), "--gdb", GDB, "--debug-dir", str(tree("i386") / "usr/lib/debug")], "debug-info")


@pytest.mark.parametrize("kind, state", some(UNTYPED), indirect=["kind"])
def test_i386_without_types(stage: Stage, kind: str, builder: Builder, folder: Path, state: str) -> None:
    """With nothing but a symbol table the layouts of the table give the same: words of 4 bytes, alignment of 16."""
    symbols = without_types(tree("i386") / "usr/lib/debug", folder, "strip")
    process = start(stage, [str(dynamic_i386(builder))], state)
    check_own_accounts(process, [*process.target(kind), "--debug-dir", str(symbols)], "table")


def test_i386_static(stage: Stage, kind: str, builder: Builder) -> None:
    """A static i386 program, whose libc is in its own symbol table, is exact by the table too."""
    process = start(stage, [str(i386_program(builder, "-static"))], "seven")
    check_own_accounts(process, process.target(kind), "table")


def test_i386_calls_are_foreseen_as_refused(stage: Stage, kind: str, builder: Builder) -> None:
    """What a trim would return is predicted; that it would be refused is said of the process, and of a core of such a process."""
    process = start(stage, [str(i386_program(builder, "-static"))], "seven")
    outcome = heapx(process.target(kind), "trim", "--dry-run", "--json")
    (problem,) = outcome.envelope["problems"]
    assert outcome.data["predicted_bytes"] > 0 and (problem["code"], outcome.envelope["partial"]) == ("call-refused", False)
    assert "i386" in problem["what"] and b"would be refused" in heapx(process.target(kind), "trim", "--dry-run").stdout


def without_types(debug: Path, folder: Path, strip: str) -> Path:
    """A copy of the two largest debug files, libc's among them, that has only their symbol tables."""
    if not shutil.which(strip):
        pytest.skip("%s is not installed" % strip)
    for path in sorted(debug.glob(".build-id/*/*.debug"), key=lambda path: -path.stat().st_size)[:2]:
        made = folder / "symbols" / path.relative_to(debug)
        made.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([strip, "--strip-debug", "-o", str(made), str(path)], check=True)
    return folder / "symbols"


@pytest.fixture
def aarch64(builder: Builder) -> Dict[str, Any]:
    """The program, qemu-user and a gdb that knows aarch64; skips with what is missing."""
    qemu = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    compiler = shutil.which("aarch64-linux-gnu-gcc") or shutil.which("aarch64-linux-gnu-gcc-12")
    for name, path in (("qemu-user", qemu), ("a cross compiler for aarch64", compiler), ("gdb-multiarch", shutil.which("gdb-multiarch"))):
        if not path:
            pytest.skip("%s is not installed" % name)
    return {"qemu": qemu, "program": compiled(builder, str(compiler), "aarch64"), "tree": tree("arm64")}


def aarch64_core(stage: Stage, aarch64: Dict[str, Any], state: str, tunables: str = "") -> Process:
    """The program in that state, ended with a core that qemu-user wrote beside its record."""
    emulated = [aarch64["qemu"], "-cpu", "max", "-E", "GLIBC_TUNABLES=" + tunables, "-L", str(aarch64["tree"])]
    process = start(stage, [*emulated, str(aarch64["program"])], state)
    process.popen.send_signal(signal.SIGABRT)
    process.popen.wait()
    if not list(process.folder.glob("qemu_*.core")):
        pytest.skip("qemu-user wrote no core; is there a limit on core files?")
    return process


def aarch64_target(process: Process, program: Path, root: Path) -> List[str]:
    """Options that read the core."""
    return ["--gdb", "gdb-multiarch", "--core", str(next(process.folder.glob("qemu_*.core"))), "--exe", str(program), "--sysroot", str(root)]


@pytest.mark.parametrize("state,tunables", [*((state, "") for state in STATES), *((state, "glibc.mem.tagging=3") for state in ("seven", "mmapped"))])
def test_aarch64_core_of_qemu(stage: Stage, core: str, aarch64: Dict[str, Any], state: str, tunables: str) -> None:
    """malloc_info is byte for byte the program's own and the totals are mallinfo2's, also where malloc tags memory; thread caches are unknown, as
    the core has no thread pointers."""
    process = aarch64_core(stage, aarch64, state, tunables)
    xml, info = process.record_path.with_name("record.xml").read_text(), dict(zip(FIELDS, process.words()))
    target = aarch64_target(process, aarch64["program"], aarch64["tree"])
    assert heapx(target, "malloc-info", "--json").data["xml"] == xml
    outcome = heapx(target, "arenas", "--json")
    assert outcome.code == 4 and outcome.envelope["problems"][0]["code"] == "thread-locals-unreadable"
    data = outcome.envelope["data"]
    for arena in data["arenas"]:
        assert arena["tcache_bytes"] is None and arena["threads"] is None
        rest = ("used_bytes", "fast_bytes", "free_bytes", "top_bytes", "overhead_bytes", "unparsed_bytes")
        assert arena["system_bytes"] == sum(arena[part] for part in rest) and arena["unparsed_bytes"] == 0
    assert sum(arena["system_bytes"] for arena in data["arenas"]) == info["arena"]
    assert sum(arena["fast_bytes"] for arena in data["arenas"]) == info["fsmblks"]
    assert sum(arena[part] for arena in data["arenas"] for part in ("free_bytes", "top_bytes", "fast_bytes")) == info["fordblks"]
    assert data["mmapped"] == {"chunks": info["hblks"], "bytes": info["hblkhd"]}


def test_aarch64_core_by_every_command(stage: Stage, core: str, aarch64: Dict[str, Any]) -> None:
    """Each command that reads answers from such a core; nothing lacks but what the core does not have."""
    process = aarch64_core(stage, aarch64, "seven")
    target = aarch64_target(process, aarch64["program"], aarch64["tree"])
    for words in (words for words in EVERY if words.split()[0] not in ("refs", "watch", "cold")):  # no block has that address; a core does not change
        outcome = heapx(target, *words.split(), "--json")
        envelope = outcome.envelope
        assert outcome.code in (0, 4) and envelope["data"], (words, outcome.stderr)
        assert {one["code"] for one in envelope["problems"]} <= {"thread-locals-unreadable", "call-refused"}, (words, envelope["problems"])


def test_aarch64_with_other_files(stage: Stage, core: str, aarch64: Dict[str, Any]) -> None:
    """A program that is not the one in memory is not used: its dynamic section, which is all that identifies it in such a core, says so. The
    libc is found by structure all the same."""
    process = aarch64_core(stage, aarch64, "fresh")
    other = process.folder / "other-aarch64"
    shutil.copy(str(aarch64["tree"] / "lib" / "aarch64-linux-gnu" / "libc.so.6"), str(other))
    outcome = heapx(aarch64_target(process, other, aarch64["tree"]), "arenas", "--json")
    assert outcome.code == 4 and any("not the file that was loaded" in problem["what"] for problem in outcome.envelope["problems"])
    assert [one["address_source"] for one in outcome.envelope["allocators"]] == ["probe"]

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
