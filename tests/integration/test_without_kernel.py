"""Where the native library cannot be loaded, each command says so in one line, with how to get it, before a process is stopped."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.support import compilers
from tests.support.processes import Lasting, Stage, by_turns
from tests.support.tool import Outcome, run, without_library
from tests.support.victims import check_free

pytestmark = pytest.mark.once  # the tool's own rules

REFUSED = ("arenas", "bins", "chunks --limit 3", "report", "check", "trim --dry-run", "leaks", "census", "refs 0x1000", "export --format csv")


def told(*words: str, compiler: str = "cc") -> Outcome:
    """What an installation without the library says; `compiler`: as $CC."""
    home = without_library()
    return run([sys.executable, "-m", "gdbheapx", "--gdb", "none", *words], env={"PYTHONPATH": str(home), "CC": compiler}, cwd=home)


@by_turns("words", REFUSED)
def test_each_command_says_how_to_get_it(lasting: Lasting, kind: str, words: str) -> None:
    """One line and exit code 1; with JSON its code, and that no process was stopped."""
    process = lasting.of(kind, Stage.start, "recorder", "2", "100", "5")
    outcome = told(*process.target(kind), *words.split())
    assert (outcome.code, outcome.stdout) == (1, b"") and outcome.stderr.count("\n") == 1
    assert "native library" in outcome.stderr and "gdbheapx.kernel.build" in outcome.stderr and "wheel" in outcome.stderr
    if not words.startswith("export"):
        envelope = json.loads(told(*process.target(kind), *words.split(), "--json").stdout)
        assert envelope["error"]["code"] == "kernel-missing" and envelope["tool"]["kernel"] is None
        assert envelope["target"]["stopped_ms"] is None
    if kind == "live":
        check_free(process)


def test_without_a_compiler_that_comes_first(lasting: Lasting, core: str) -> None:
    """What is looked for is named."""
    process = lasting.of(core, Stage.start, "recorder", "2", "100", "5")
    outcome = told(*process.target(core), "arenas", compiler="/nonexistent/cc")
    assert outcome.code == 1 and "no C compiler" in outcome.stderr and "$CC" in outcome.stderr


def test_doctor_has_a_row_for_it(lasting: Lasting, kind: str) -> None:
    """And whatever can be said without."""
    process = lasting.of(kind, Stage.start, "recorder", "2", "100", "5")
    rows = json.loads(told(*process.target(kind), "doctor", "--json").stdout)["data"]["checks"]
    (row,) = [one for one in rows if one["what"] == "kernel"]
    assert row["ok"] is False and "native library" in row["found"] and "wheel" in row["hint"]
    assert {"gdb", "python", "target", "machine", "threads"} <= {one["what"] for one in rows}


def test_a_snapshot_answers(lasting: Lasting, core: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What was looked at elsewhere is read from the file."""
    process, look = lasting.of(core, Stage.start, "recorder", "2", "100", "5"), str(tmp_path_factory.mktemp("look") / "look")
    made = run([sys.executable, "-m", "gdbheapx", "--gdb", "none", *process.target(core), "snapshot", look])
    assert made.code == 0, made.stderr
    for words in ("arenas", "report"):
        assert json.loads(told("--snapshot", look, words, "--json").stdout)["data"]


@pytest.mark.slow
def test_it_is_built_as_the_line_says(lasting: Lasting, core: str, tmp_path: Path) -> None:
    """Then it answers."""
    process, home = lasting.of(core, Stage.start, "recorder", "2", "100", "5"), without_library()
    if not shutil.which("cc"):
        pytest.skip("no C compiler here")
    quick = compilers.with_last(["cc"], tmp_path, "-O0")
    try:
        made = run([sys.executable, "-m", "gdbheapx.kernel.build"], env={"PYTHONPATH": str(home), "CC": quick[0]}, cwd=home, seconds=900)
        assert made.code == 0, made.stderr
        assert told(*process.target(core), "arenas").code == 0
    finally:
        (home / "gdbheapx" / "kernel" / "_kernel.so").unlink(missing_ok=True)
