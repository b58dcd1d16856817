"""Every signature of the census, looked for in programs that have none of it, whether its module is loaded or not: what is found there is false.

Files: analysis/census/registry.py.
"""

import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Callable, Dict, NamedTuple, Optional, Sequence, Tuple

import pytest

from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census import cplusplus, find, registry, rust
from gdbheapx.analysis.census.find import BEYOND
from gdbheapx.analysis.census.world import EXACT, SHAPE
from gdbheapx.inferior.target import open_elf_target
from gdbheapx.kernel.blocks import signatures
from tests.support.censuses import told
from tests.support.jemallocs import CACHE
from tests.support.processes import Process, Stage

pytestmark = pytest.mark.once  # programs that nobody here wrote; the rows are the tool's own

PYTHON = """import sys, json, decimal
kept = [{"a": n, "b": "s%d" % n, "c": [n, n + 1, float(n)]} for n in range(20000)], [bytearray(n % 300 + 1) for n in range(5000)]
print("ready", flush=True)
sys.stdin.read()"""
PERL = '$| = 1; for (1..15000) { $h{$_} = [$_, "x$_", {a => $_}]; push @a, "string $_" x 3; push @f, $_ + 0.5; } print "ready\\n"; <STDIN>'
BASH = "for ((n = 0; n < 9999; n++)); do a[n]=\"x$n $RANDOM\"; done; declare -A h; for ((n = 0; n < 4000; n++)); do h[k$n]=v$n; done; echo ready; read x"
GO = """package main
// #include <stdlib.h>
import "C"
import ("os"; "strconv")
var kept []*C.char
func main() {
	for i := 0; i < 20000; i++ { kept = append(kept, C.CString("text of go " + strconv.Itoa(i))) }
	os.Stdout.WriteString("ready\\n")
	os.Stdin.Read(make([]byte, 1))
}
"""
CONTROLS_PER_100_000 = {signatures.STRING: 36, signatures.VECTOR: 2}
"""Blocks of C programs that are taken for containers of C++ when these are looked for, at most: perl has 14 strings in 38,839."""


class Program(NamedTuple):
    """One that is run until it says `ready`."""

    command: Callable[[Stage], Sequence[str]]
    """What it is, built by the stage's builder."""
    own: Tuple[str, ...] = ()
    """Modules whose signatures it does have."""
    containers: Tuple[int, ...] = ()
    """And rows of containers."""


def installed(name: str, *arguments: str) -> Callable[[Stage], Sequence[str]]:
    """The system's own; another one on the path may be linked with C++."""

    def command(_: Stage) -> Sequence[str]:
        path = next((path for path in (Path("/usr/bin") / name, Path("/bin") / name) if path.exists()), None)
        if path is None:
            pytest.skip("%s is not installed" % name)
        return [str(path), *arguments]

    return command


def rust_program(stage: Stage) -> Sequence[str]:
    """Containers and trait objects of Rust, stripped."""
    return [str(stage.builder.build_by("rustc", "-O", "-C", "strip=symbols", name="rust/holds.rs"))]


def go(stage: Stage) -> Sequence[str]:
    """A program with blocks of malloc's: kept.go alone, without cgo, has none, and no signature could be met."""
    compiler = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if compiler is None or not shutil.which("gcc"):
        pytest.skip("go with cgo is not installed")
    folder = stage.folder()
    (folder / "kept.go").write_text(GO)
    environment = dict(os.environ, CGO_ENABLED="1", GOCACHE=str(CACHE.parent / "go"), GOFLAGS="-mod=mod", GOTOOLCHAIN="local")
    done = subprocess.run([compiler, "build", "-o", str(folder / "kept"), str(folder / "kept.go")], env=environment, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("this go builds nothing: " + done.stderr.strip().splitlines()[-1])
    return [str(folder / "kept")]


PROGRAMS_WITHOUT: Dict[str, Program] = {
    "python3": Program(installed("python3", "-c", PYTHON), ("python",)),
    "perl": Program(installed("perl", "-e", PERL), ("perl",)),
    "bash": Program(installed("bash", "-c", BASH)),
    "rust": Program(rust_program, ("holds",), (signatures.HASHES, signatures.VECS, signatures.BTREES, signatures.COUNTED)),
    "go": Program(go),
}


def started(stage: Stage, name: str) -> Tuple[Process, Program]:
    """The program at rest; Python's objects are then malloc's blocks, too."""
    program = PROGRAMS_WITHOUT[name]
    process = stage.spawn_ready(program.command(stage), None, {"PYTHONMALLOC": "malloc"})
    return process, program


def counted(process: Process) -> Tuple[Dict[Tuple[str, str, str], int], int]:
    """(Blocks by what the census says they are, how sure and whose; all blocks)."""
    session = Session(open_elf_target(pid=process.pid))
    session.prepare()
    found = find.find_census(session)
    rows: Dict[Tuple[str, str, str], int] = Counter()
    for row in found.rows:
        rows[row.signature or "", row.sure, row.module] += row.blocks
    return rows, found.blocks


@pytest.mark.parametrize("name", sorted(PROGRAMS_WITHOUT))
def test_no_other_signature_is_met(stage: Stage, name: str) -> None:
    """Each recogniser alone, so that none hides what another takes for its own, and with no regard to what is loaded."""
    process, program = started(stage, name)
    wrong = {}
    for recogniser in registry.list_recognisers():
        for one, blocks in told([recogniser], pid=process.pid).items():
            if one.sure in (EXACT, SHAPE) and one.module not in program.own:
                wrong[type(recogniser).__name__, one] = blocks
    for one, blocks in wrong.items():
        print(name, *one, blocks)
    assert not wrong


@pytest.mark.parametrize("name", sorted(PROGRAMS_WITHOUT))
def test_the_census_of_another_program(stage: Stage, name: str) -> None:
    """As it is asked: nothing of anybody else's is told as `exact` or `shape`, and no container of C++ is among it."""
    process, program = started(stage, name)
    rows, _ = counted(process)
    assert sum(rows.values()) > 9999
    own = tuple(BEYOND[kind].name for kind in program.containers) or ("none",)
    sure = {row: blocks for row, blocks in rows.items() if row[1] in (EXACT, SHAPE)}
    assert not {row: blocks for row, blocks in sure.items() if row[2] not in program.own and not row[0].startswith(own)}


@pytest.mark.parametrize("name", ["bash", "perl", "python3"])
def test_containers_in_c_programs(stage: Stage, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a library in C++ or Rust is loaded beside C, blocks of C are taken for containers no more often than was measured."""
    process, program = started(stage, name)
    monkeypatch.setattr(cplusplus, "has_cpp", lambda world: True)
    monkeypatch.setattr(rust, "has_rust", lambda world: True)
    rows, blocks = counted(process)
    names: Dict[str, Optional[int]] = {BEYOND[kind].name: kind for kind in BEYOND if BEYOND[kind].sure == SHAPE}
    names["dyn "] = None
    wrong = {one: sum(count for row, count in rows.items() if row[1] == SHAPE and row[0].startswith(one)) for one in names}
    print(name, wrong, "of", blocks)
    for one, count in wrong.items():
        assert count <= 2 + blocks * CONTROLS_PER_100_000.get(names[one], 0) // 100_000, (one, count, blocks)
