"""`fleet` and `table`: many cores, some of them ruined, and documents that may be anybody's.

Files: addons/views/fleet/run.py.
"""

import csv
import gzip
import io
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.support.paths import ROOT
from tests.support.processes import Stage
from tests.support.tool import heapx, tool_command, tool_environment

pytestmark = pytest.mark.image  # starts children of itself, by its Python and its gdb

NAMES = ("-leading", "with space", "new\nline", "=cmd", "<svg><script>", "esc\x1b[2J", os.fsdecode(b"bad\xff"))
WHOLE = 23


@pytest.fixture
def cores(stage: Stage, tmp_path: Path) -> List[str]:
    """Thirty: of one program, seven of them ruined."""
    folder = tmp_path / "cores"
    folder.mkdir()
    core = stage.start("contents").core()
    names = [*NAMES, *("core.%d" % number for number in range(WHOLE - len(NAMES)))]
    for name in names:
        os.link(core, folder / name) if os.stat(core).st_dev == os.stat(folder).st_dev else shutil.copy(core, folder / name)
    (folder / "cut").write_bytes(core.read_bytes()[:100])
    (folder / "zeros").write_bytes(bytes(100_000))
    (folder / "text").write_text("nothing\n")
    os.mkfifo(folder / "fifo")
    (folder / "directory").mkdir()
    (folder / "empty").write_bytes(b"")
    return [str(folder / name) for name in (*names, "cut", "zeros", "text", "fifo", "directory", "empty", "missing")]


def written(folder: Path) -> Dict[str, int]:
    """When each document was written."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.json")}


@pytest.mark.once  # of the cores alone
def test_ruined_cores_are_rows_and_a_second_run_makes_what_is_lacking(cores: List[str], tmp_path: Path) -> None:
    """Thirty rows, seven explained; one document deleted and one damaged are made again, whole ones stay."""
    out = tmp_path / "out"
    first = heapx([], "fleet", *cores, cores[0], "-o", str(out), "--json")
    assert first.code == 4, first.stderr
    rows = first.envelope["data"]["rows"]
    assert len(rows) == 30 and sum(row["error"] is None for row in rows) == WHOLE
    assert all(row["error"] and "\n" not in row["error"] for row in rows if row["core"] in cores[WHOLE:])
    assert all(row["used_bytes"] > 0 and row["verdict"] for row in rows if row["error"] is None)
    assert stat.S_IMODE(out.stat().st_mode) == 0o700 and {stat.S_IMODE(path.stat().st_mode) for path in out.iterdir()} == {0o600}
    before = written(out)
    good = sorted(Path(row["document"]).name for row in rows if row["error"] is None)
    (out / good[0]).unlink()
    (out / good[1]).write_text((out / good[1]).read_text()[:500])
    again = heapx([], "fleet", *cores, "-o", str(out), "--json").envelope["data"]["rows"]
    after = written(out)
    assert [row["error"] is None for row in again] == [row["error"] is None for row in rows]
    assert {name for name in good if before[name] != after[name]} == set(good[:2])
    shown = heapx([], "table", str(out), "--wide").stdout.decode("ascii")
    assert "\x1b" not in shown and len(shown.strip().split("\n")) == 32


def test_interrupt_leaves_whole_documents(cores: List[str], tmp_path: Path) -> None:
    """Ctrl-C in the middle: what is there is whole, and nothing else lies there."""
    out = tmp_path / "out"
    words = [*tool_command(), "fleet", *cores[:WHOLE], "-o", str(out), "--workers", "1"]
    running = subprocess.Popen(words, env=tool_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    until = time.monotonic() + 60
    while not list(out.glob("*.json")) and time.monotonic() < until:
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    found = list(out.glob("*.json"))
    assert running.returncode == 4, said
    assert 0 < len(found) < WHOLE and {path.name for path in out.iterdir()} == {path.name for path in found} | {"views.sql"}
    assert all(json.loads(path.read_text())["data"] for path in found)


HOSTILE = ("", "[]", "[" * 100_000, '{"schema": "gdbheapx/1"', "null", '"x"', "{}", "\xff", '{"schema": "gdbheapx/2", "command": "report"}')


def test_hostile_documents(tmp_path: Path) -> None:
    """One explained row each, fields of the wrong kind are unknown, and no cell begins a formula."""
    for number, content in enumerate(HOSTILE):
        (tmp_path / ("%d.json" % number)).write_text(content, encoding="latin-1")
    strange = {"schema": "gdbheapx/1", "command": "report", "data": {"totals": {"x": {"used_bytes": 1e300}}, "heaps": [{"held_bytes": 1e300, "used_bytes": 5}, 7], "sizes": [[]]}}
    strange["target"] = {"core": "=cmd|' /C calc'!A0", "executable": ["x"]}
    strange["allocators"] = "no"
    (tmp_path / "strange.json").write_text(json.dumps(strange))
    found = heapx([], "table", str(tmp_path), "--json").data["rows"]
    assert len(found) == len(HOSTILE) + 1 and [row["error"] is None for row in found] == [False] * len(HOSTILE) + [True]
    assert found[-1]["used_bytes"] is None and found[-1]["executable"] is None
    shown = list(csv.DictReader(io.StringIO(heapx([], "table", str(tmp_path), "--csv").stdout.decode())))
    assert shown[-1]["core"] == "'=cmd|' /C calc'!A0" and len(shown) == len(HOSTILE) + 1
    groups = heapx([], "table", str(tmp_path), "--by", "verdict", "--json").data["groups"]
    assert [(one["documents"], one["failed"]) for one in groups] == [(len(HOSTILE) + 1, len(HOSTILE))]


def test_views(cores: List[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB answers by views.sql what the table says."""
    duckdb = pytest.importorskip("duckdb")
    out = tmp_path / "out"
    rows = heapx([], "fleet", *cores[8:11], cores[-1], "-o", str(out), "--json").envelope["data"]["rows"]
    monkeypatch.chdir(out)
    db = duckdb.connect()
    db.execute((out / "views.sql").read_text())
    memory = sum(row["memory_bytes"] or 0 for row in rows)
    assert db.execute("SELECT sum(cores), sum(failed), sum(memory_bytes) FROM builds").fetchone() == (4, 1, memory)
    assert db.execute("SELECT cores, failed, memory_bytes FROM hosts").fetchone() == (4, 1, memory)
    assert {one[0] for one in db.execute("SELECT growth_bytes FROM growth").fetchall()} == {0}


def manifest(name: str) -> Dict[str, Any]:
    """A Job of docs/how-to/examples, and its only container."""
    yaml = pytest.importorskip("yaml", reason="reads manifests")
    spec = yaml.safe_load((ROOT / "docs" / "how-to" / "examples" / name).read_text())["spec"]
    return {**spec, "pod": spec["template"]["spec"], "container": spec["template"]["spec"]["containers"][0]}


def pod(container: Dict[str, Any], folder: Path, **more: str) -> "subprocess.CompletedProcess[str]":
    """The container's command with its variables, at folders of this machine."""
    variables = {one["name"]: one["value"] for one in container["env"]}
    variables.update(CORES=str(folder / "cores"), REPORTS=str(folder / "documents"), HOME=str(folder), COLUMNS="1000", **more)
    variables["PATH"] = "%s:%s" % (os.path.dirname(tool_command()[0]), os.environ["PATH"])
    return subprocess.run(container["command"], env=tool_environment(variables), capture_output=True, text=True, timeout=120)


@pytest.mark.once  # who takes which core goes by names
def test_the_job_looks_at_each_core_once(cores: List[str], tmp_path: Path) -> None:
    """The manifest's own line with two indexes, at the same time: no core twice, none left out, ruined ones fail no pod; then the table."""
    job, table = manifest("fleet-job.yaml"), manifest("fleet-table-job.yaml")
    with ThreadPoolExecutor(2) as pool:
        pods = list(pool.map(lambda index: pod(job["container"], tmp_path, SHARES="2", JOB_COMPLETION_INDEX=str(index)), range(2)))
    assert [one.returncode for one in pods] == [0, 0], [one.stderr for one in pods]
    there = [name for name in cores if os.path.lexists(name)]
    shown = [len(one.stdout.split("\n\n")[0].strip().split("\n")) - 2 for one in pods]
    assert sum(shown) == len(there) and min(shown) > 0
    rows = heapx([], "table", str(tmp_path / "documents"), "--json").data["rows"]
    assert sorted(row["core"] for row in rows) == sorted(there) and sum(row["error"] is None for row in rows) == WHOLE
    done = pod(table["container"], tmp_path)
    assert done.returncode == 0 and len(done.stdout.strip().split("\n")) == len(there) + 2
    nothing = heapx([], "fleet", cores[0], "--share", "%d/2" % (cores[0] not in pods[0].stdout), "-o", str(tmp_path / "one"), "--json")
    other = heapx([], "fleet", cores[0], "--share", "%d/2" % (cores[0] in pods[0].stdout), "-o", str(tmp_path / "none"), "--json")
    assert [nothing.code, other.code] == [0, 0] and sorted(len(one.data["rows"]) for one in (nothing, other)) == [0, 1]


@pytest.fixture
def core_file(stage: Stage, tmp_path: Path) -> Path:
    """One whole core."""
    found = tmp_path / "one.core"
    shutil.copy(stage.start("contents").core(), found)
    return found


def rows_of(outcome: Any) -> Dict[str, Dict[str, Any]]:
    """By the core's name."""
    assert outcome.envelope is not None, outcome.stderr
    return {os.path.basename(row["core"]): row for row in outcome.envelope["data"]["rows"]}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_core_that_may_not_be_read_is_a_row(core_file: Path) -> None:
    """Somebody else's core among one's own."""
    nobody = pwd.getpwnam("nobody")
    with tempfile.TemporaryDirectory(prefix="gdbheapx-fleet-") as folder:
        theirs, mine, out = (Path(folder) / name for name in ("theirs.core", "mine.core", "out"))
        Path(folder).chmod(0o755)
        out.mkdir()
        for path in (theirs, mine):
            shutil.copy(core_file, path)
            path.chmod(0o600)
        for path in (mine, out):
            os.chown(path, nobody.pw_uid, nobody.pw_gid)
        words = [*tool_command(), "fleet", str(theirs), str(mine), "-o", str(out), "--json"]
        who: Any = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        try:
            done = subprocess.run(words, env={**tool_environment(), "HOME": str(out)}, **who, capture_output=True)
        except PermissionError:
            pytest.skip("another user cannot run this checkout")
    if not done.stdout and b"ermission" in done.stderr:
        pytest.skip("another user cannot run this checkout")
    rows = {os.path.basename(row["core"]): row["error"] for row in json.loads(done.stdout)["data"]["rows"]}
    assert done.returncode == 4 and rows["mine.core"] is None and "this user may not read the core" in rows["theirs.core"] and "\n" not in rows["theirs.core"]


def test_one_core_by_two_paths_is_looked_at_once(core_file: Path, tmp_path: Path) -> None:
    """A link to it, the same name again, and one with dots."""
    (tmp_path / "link").symlink_to(core_file)
    names = [str(core_file), str(tmp_path / "link"), str(tmp_path / "out" / ".." / "one.core"), str(core_file)]
    outcome = heapx([], "fleet", *names, "-o", str(tmp_path / "out"), "--json")
    assert outcome.code == 0 and len(outcome.envelope["data"]["rows"]) == 1, outcome.stderr


def test_a_look_that_takes_too_long_is_a_row(core_file: Path, tmp_path: Path) -> None:
    """--max-seconds is for each core; another run with more time makes it."""
    out = str(tmp_path / "out")
    row = rows_of(heapx([], "fleet", str(core_file), "-o", out, "--max-seconds", "0", "--json"))["one.core"]
    assert row["error"] is not None or row["partial"]
    later = rows_of(heapx([], "fleet", str(core_file), "-o", out, "--json"))["one.core"]
    assert later["error"] is None and later["used_bytes"] > 0


def test_snapshots_beside_a_core(stage: Stage, tmp_path: Path) -> None:
    """A snapshot of a core has the figures of that core, one of a process those of the process; one that is cut is a row with its reason."""
    process = stage.start("contents")
    snapshots = {kind: str(tmp_path / (kind + ".snap")) for kind in ("live", "core")}
    for kind, path in snapshots.items():
        assert heapx(process.target(kind), "snapshot", path).code == 0
    (tmp_path / "cut.snap").write_bytes(Path(snapshots["core"]).read_bytes()[:-3])
    core = tmp_path / "the.core"
    core.symlink_to(process.core())
    given = [str(core), *snapshots.values(), str(tmp_path / "cut.snap")]
    outcome = heapx([], "fleet", *given, "-o", str(tmp_path / "out"), "--json")
    rows = {os.path.basename(row["core"]): row for row in outcome.envelope["data"]["rows"]}
    of_core, of_process = (rows[name + ".snap"] for name in ("core", "live"))
    (whole,) = (row for name, row in rows.items() if not name.endswith(".snap"))
    same = ("executable", "version", "build_id", "verdict", "used_bytes", "kept_bytes", "memory_bytes")
    assert [of_core[name] for name in same] == [whole[name] for name in same] and whole["used_bytes"] > 0
    assert of_core["largest"] == "placed"  # a snapshot was taken with a look into blocks
    assert of_process["used_bytes"] > 0 and of_process["error"] is None
    assert outcome.code == 4 and "is damaged, or was cut" in rows["cut.snap"]["error"]


def test_an_archive_of_cores_and_snapshots(stage: Stage, core_file: Path, tmp_path: Path) -> None:
    """A URL with a pattern: each file has the figures of the one that was packed, compressed or not; what is ruined, and a pattern that finds
    nothing, are rows with their reasons. A second run keeps what has a time, as files in an archive have not."""
    pytest.importorskip("fsspec", reason="URLs require fsspec")
    assert heapx(["--core", str(core_file)], "snapshot", str(tmp_path / "one.snap")).code == 0
    data, snapshot = core_file.read_bytes(), (tmp_path / "one.snap").read_bytes()
    content = {"core": data, "core.gz": gzip.compress(data), "a.snap": snapshot, "cut.snap": snapshot[:-3], "text": b"nothing"}
    archive = tmp_path / "all.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for name, written_ in content.items():
            packed.writestr("in/" + name, written_)
    given = ["zip://in/*::%s" % archive, "zip://in/gone::%s" % archive, "zip://none/*::%s" % archive, "nosuch://me:secret@host/*"]
    out = tmp_path / "out"
    outcome = heapx([], "fleet", *given, str(core_file), "-o", str(out), "--json")
    rows = {row["core"].partition("::")[0]: row for row in outcome.envelope["data"]["rows"]}
    whole = rows.pop(str(core_file))
    good = [rows.pop("zip://in/" + name) for name in ("core", "core.gz", "a.snap")]
    assert [(row["used_bytes"], row["kept_bytes"], row["error"]) for row in good] == [(whole["used_bytes"], whole["kept_bytes"], None)] * 3
    reasons = {"zip://in/cut.snap": "was cut", "zip://in/text": "not an ELF core", "zip://in/gone": "cannot read", "zip://none/*": "stands for no file", "nosuch://...@host/*": ""}
    assert outcome.code == 4 and sorted(rows) == sorted(reasons) and all(what in rows[name]["error"] for name, what in reasons.items())
    assert "secret" not in outcome.stdout.decode() + "".join(path.read_text() for path in out.iterdir())
    before = written(out)
    heapx([], "fleet", *given, str(core_file), "-o", str(out))
    assert {name for name, when in written(out).items() if when == before[name]} == {os.path.basename(whole["document"])}
