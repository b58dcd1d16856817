"""Programs of other architectures, read by this machine's gdb: i386 live and as a kernel core, aarch64 as a core that qemu-user writes."""

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
