"""Names that a process gives to its file, threads, mapped files, classes and symbols, through every format: each stays what it is.

Files: common/files.py.
"""

import csv
import io
import json
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Tuple

import pytest

from tests.support.processes import Process, Stage
from tests.support.tool import Outcome, check_envelope, heapx

pytestmark = pytest.mark.once  # the tool's own rules of writing

NAMES = (
    "</svg><script>alert(1)</script>",
    "two\nlines",
    "\x1b]0;title\x07",
    "\x1b[2Jclear",
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-2-2",
    "@SUM(A1)",
    "a;b;c",
    'quo"te\\',
    os.fsdecode(b"\xff\xfe\x9b2J"),
    "\u202egnp.exe",
    "tab\tcr\rnel\u0085ls\u2028",
)
PROGRAM = "=cmd|;\n\x1b]0;x\x07<svg>\"'\u202e" + os.fsdecode(b"\xff")
"""The program's file."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its class and its global have such names, too: the symbols and the text of the type information."""
    if not shutil.which("g++") or not shutil.which("objcopy"):
        pytest.skip("g++ and objcopy make the program; one is not installed")
    folder = tmp_path_factory.mktemp("program")
    source, made = Path(__file__).parent.parent / "programs" / "names.cpp", folder / "names.o"
    assembly = folder / "names.s"
    subprocess.run(["g++", "-std=gnu++17", "-O1", "-S", "-fno-builtin", "-o", str(assembly), str(source)], check=True)
    label = b"=Evil|;</svg><script>alert(1)</script>\",'"  # a name with control characters or beyond ASCII is no class: it has a number
    told = "".join("\\%03o" % byte for byte in b"%d" % len(label) + label)
    code = assembly.read_text()
    assert code.count('"5Named"') == 1
    assembly.write_text(code.replace('"5Named"', '"%s"' % told))
    subprocess.run(["g++", "-c", "-o", str(made), str(assembly)], check=True)
    renamed = {b"holding": b"=held\n\x1b[2J;<b>\"\xff\xe2\x80\xae,x"}
    for kind in (b"V", b"I", b"S"):
        renamed[b"_ZT" + kind + b"5Named"] = b"_ZT" + kind + b"%d" % len(label) + label
    words = [word for old, new in renamed.items() for word in (b"--redefine-sym", old + b"=" + new)]
    subprocess.run([b"objcopy", *words, os.fsencode(made)], check=True)
    out = folder / PROGRAM
    subprocess.run(["g++", "-pthread", "-rdynamic", "-o", "linked", str(made)], cwd=folder, check=True)
    (folder / "linked").rename(out)
    return out


@pytest.fixture
def named(stage: Stage, program: Path) -> Process:
    """It runs, with a thread of each name and each name mapped as a file."""
    folder = stage.folder()
    files = [Path(os.path.join(folder, "<" + name[1:] if name.startswith("</") else name)) for name in NAMES]
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(65536))
    return stage.spawn_ready([str(program), "record", *map(str, files), "--", *NAMES], folder)


# ------------------------------------------------------------------------------------------------------------ what each format is


def text(content: bytes) -> None:
    """No control character but newline and tab, nothing that turns the reading direction."""
    lines = content.decode("utf-8").replace("\t", " ").split("\n")
    assert lines and all(line.isprintable() for line in lines), [line for line in lines if not line.isprintable()][:3]


def document(content: bytes) -> None:
    """One JSON document, itself without a byte that a terminal obeys."""
    assert re.fullmatch(rb"[\n -~]*", content)
    check_envelope(json.loads(content))


def json_lines(content: bytes) -> None:
    """Each line is an object."""
    assert re.fullmatch(rb"[\n -~]*", content)
    assert all(isinstance(json.loads(line), dict) for line in content.decode().splitlines())


def cells(content: bytes) -> None:
    """As many cells in each row, no formula, no control character."""
    shown = content.decode("utf-8")
    rows = list(csv.reader(io.StringIO(shown, newline="")))
    assert len(rows) > 1 and len({len(row) for row in rows}) == 1
    for cell in (cell for row in rows for cell in row):
        assert cell.isprintable(), cell
        assert not cell.startswith(FORMULA) or re.fullmatch(r"-?[0-9.]+", cell), cell


def folded(content: bytes) -> None:
    """Frames, a space, a number: in each line."""
    lines = content.decode("utf-8").splitlines()
    assert lines and all(re.fullmatch(r".*[^;] [0-9]+", line) and line.isprintable() for line in lines)


def pprof(content: bytes) -> None:
    """go tool pprof reads it, where it is installed."""
    assert content[:2] == b"\x1f\x8b"
    if not shutil.which("go"):
        return
    folder = Path(os.environ.get("TMPDIR", "/tmp"))
    path = folder / ("gdbheapx-names-%d.pb.gz" % os.getpid())
    try:
        path.write_bytes(content)
        done = subprocess.run(["go", "tool", "pprof", "-top", "-nodecount=500", str(path)], capture_output=True)
    finally:
        path.unlink()
    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stdout and b"flat%" in done.stdout


METRIC = re.compile(r'[a-zA-Z_:][\w:]*(\{(\w+="([^"\\\n]|\\[\\"n])*",?)*\})? -?[0-9.e+]+( [0-9.]+)?')


def openmetrics(content: bytes) -> None:
    """Each line a comment or a metric, its labels escaped; the end is said."""
    lines = content.decode("utf-8").split("\n")
    assert lines[-2:] == ["# EOF", ""]
    for line in lines[:-1]:
        assert line.isprintable() and (line.startswith("# ") or METRIC.fullmatch(line)), line


class Format(NamedTuple):
    """Words after the target, with {out} for a file; what it must be."""

    words: Tuple[str, ...]
    proof: Callable[[bytes], None]
    is_file: bool = False
    """The proof is of {out}, else of standard output."""
    live: bool = False
    """Only of a process."""


READING = ("report", "report --deep", "doctor", "arenas", "bins", "tcache", "census", "owners", "leaks", "pins", "tunables")
FORMATS: Dict[str, Format] = {
    **{name: Format(tuple(name.split()), text) for name in READING},
    **{name + " --json": Format((*name.split(), "--json"), document) for name in READING},
    "text in a file": Format(("owners", "-o", "{out}"), text, True),
    "folded owners": Format(("export", "--format", "folded", "--of", "owners", "-o", "{out}"), folded, True),
    "folded census": Format(("export", "--format", "folded", "--of", "census", "-o", "{out}"), folded, True),
    "pprof owners": Format(("export", "--format", "pprof", "--of", "owners", "-o", "{out}"), pprof, True),
    "pprof census": Format(("export", "--format", "pprof", "--of", "census", "-o", "{out}"), pprof, True),
    "csv": Format(("export", "--format", "csv", "-o", "{out}"), cells, True),
    "csv census": Format(("export", "--format", "csv", "--of", "census", "-o", "{out}"), cells, True),
    "watch": Format(("watch", "--every", "0.05", "--times", "2"), text, live=True),
    "watch --json": Format(("watch", "--every", "0.05", "--times", "2", "--json"), json_lines, live=True),
    "watch --csv": Format(("watch", "--every", "0.05", "--times", "2", "--csv", "{out}"), cells, True, True),
    "watch --jsonl": Format(("watch", "--every", "0.05", "--times", "2", "--jsonl", "{out}"), json_lines, True, True),
    "watch --openmetrics": Format(("watch", "--every", "0.05", "--times", "2", "--openmetrics", "{out}"), openmetrics, True, True),
}
"""Of a process or core. Another format is another line."""


def proved(name: str, outcome: Outcome, one: Format, out: Path) -> List[str]:
    """What is wrong with it, in lines."""
    try:
        assert outcome.code in (0, 3, 4), outcome.stderr[-300:]
        text(outcome.stderr.encode("utf-8", "replace"))
        if one.is_file:
            assert stat.S_IMODE(out.stat().st_mode) == 0o600
        one.proof(out.read_bytes() if one.is_file else outcome.stdout)
    except (AssertionError, ValueError, KeyError, OSError) as error:
        return ["%s: %s: %s" % (name, type(error).__name__, str(error)[:400])]
    return []


def asked(target: List[str], formats: Dict[str, Format], folder: Path, **words: str) -> List[str]:
    """Every format once; what is wrong with any."""
    wrong = []
    for name, one in formats.items():
        out = folder / re.sub(r"\W", "_", name)
        given = [word.format(out=out, **words) for word in one.words]
        wrong += proved(name, heapx(target, *given, env={"LC_ALL": "C.UTF-8"}), one, out)
    return wrong


def half(kind: str, formats: Dict[str, Format]) -> Dict[str, Format]:
    """Each second of those of any target, so that a process and a core share them; all that only a process has."""
    both = [name for name, one in formats.items() if not one.live][kind == "core" :: 2]
    return {name: one for name, one in formats.items() if name in both or (one.live and kind == "live")}


def test_every_format(named: Process, kind: str, tmp_path: Path) -> None:
    """Each is read by its own parser; no control character reaches a terminal; files are 0600. The names did get there."""
    target, found = named.target(kind), half(kind, FORMATS)
    wrong = asked(target, found, tmp_path)
    assert wrong == [], "\n".join(wrong)
    threads = (("tcache", "two"),) if kind == "live" else ()  # a core has no names of threads
    for command, planted in (("owners", "held"), ("census", "Evil"), ("report", "svg"), *threads):
        assert planted in heapx(target, command, "--json").stdout.decode(), command


def test_files_of_many(named: Process, kind: str, tmp_path: Path) -> None:
    """The same of what is made of a look: snapshots, what they answer, differences, fleets and tables."""
    target, record = named.target(kind), tmp_path / "record"
    assert heapx(target, "snapshot", str(record)).code == 0 and stat.S_IMODE(record.stat().st_mode) == 0o600
    again = {name: one for name, one in FORMATS.items() if not one.live and not name.startswith(("doctor", "csv", "text"))}
    wrong = asked(["--snapshot", str(record)], half(kind, again), tmp_path)
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "one.json").write_bytes(heapx(target, "report", "--json").stdout)
    of_none = {
        "--show": Format(("snapshot", "{record}", "--show"), text),
        "--show --json": Format(("snapshot", "{record}", "--show", "--json"), document),
        "diff": Format(("diff", "{record}", "{record}"), text),
        "diff --json": Format(("diff", "{record}", "{record}", "--json"), document),
        "table": Format(("table", "{documents}"), text),
        "table --by": Format(("table", "{documents}", "--by", "executable"), text),
        "table --json": Format(("table", "{documents}", "--json"), document),
        "table --csv": Format(("table", "{documents}", "--csv"), cells),
        "table --by --csv": Format(("table", "{documents}", "--by", "executable", "--csv"), cells),
    }
    if kind == "core":
        core = tmp_path / PROGRAM
        os.symlink(named.core(), core)
        fleet = ("fleet", str(core).replace("{", "{{"), "-o", "{documents}")
        of_none = {"fleet": Format(fleet, text), "fleet --json": Format((*fleet, "--json"), document), **of_none}
    wrong += asked([], of_none, tmp_path, record=str(record), documents=str(documents))
    assert wrong == [], "\n".join(wrong)
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in documents.iterdir() if path.name != "one.json")
