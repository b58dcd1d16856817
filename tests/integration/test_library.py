"""`import gdbheapx`: what it answers is what the command line answers, of a process, a core and a snapshot; opening stops nothing.

Files: api.py, analysis/census/block.py, report/encodings.py, addons/views/query/command.py
"""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Dict, List

import pytest

import gdbheapx
from gdbheapx.inferior.target import ElfTarget
from gdbheapx.report.encodings import make_jsonable
from tests.support import hostile
from tests.support.jemallocs import contents
from tests.support.paths import ROOT
from tests.support.processes import Lasting, Process, Stage, by_turns
from tests.support.tool import heapx
from tests.support.unchanged import unchanged

pytestmark = pytest.mark.image  # on each release's Python
EXAMPLES = ROOT / "docs" / "reference" / "examples"


def opened(process: Process, kind: str, tmp_path: Path) -> gdbheapx.Heap:
    """The process, a core of it, or a snapshot of that."""
    if kind != "snapshot":
        return gdbheapx.open(**({"pid": process.pid} if kind == "live" else {"core": str(process.core())}))  # type: ignore[arg-type]
    path = tmp_path / "the.snap"
    assert heapx(process.target("core"), "snapshot", str(path)).code in (0, 4)
    return gdbheapx.open(snapshot=str(path))


def options(process: Process, kind: str, tmp_path: Path) -> List[str]:
    """The same for the command line."""
    return ["--snapshot", str(tmp_path / "the.snap")] if kind == "snapshot" else process.target(kind)


@pytest.mark.parametrize("what, way", [("live", "glibc"), ("core", "jemalloc"), ("snapshot", "glibc"), ("snapshot", "jemalloc")])
def test_answers_are_those_of_the_command_line(lasting: Lasting, what: str, way: str, tmp_path: Path) -> None:
    """Records have what JSON has: each arena, class, owner, group, and their sums."""
    process = lasting.of("live" if what == "live" else "core", contents, way)
    with opened(process, what, tmp_path) as heap:
        target = options(process, what, tmp_path)

        def told(*words: str) -> Any:
            return heapx(target, *words, "--json").data

        assert make_jsonable(heap.arenas().rows) == told("arenas")["arenas"]
        census, wanted = heap.census(), told("census")
        assert make_jsonable(census.rows) == wanted["rows"] and census.data.bytes == wanted["used"]["bytes"]
        leaks, lost = heap.leaks().data, told("leaks")["classes"]
        assert [leaks.held.bytes, leaks.maybe.bytes, leaks.leaked.bytes] == [lost[name]["bytes"] for name in ("held", "maybe", "leaked")]
        assert make_jsonable(heap.owners(depth=2).data) == told("owners", "--depth", "2")
        assert make_jsonable(heap.histogram().data) == told("chunks", "--histogram")["histogram"]
        assert make_jsonable(heap.tcache().data) == told("tcache")["threads"]
        verdict = heap.report(deep=False).data.verdict
        assert make_jsonable(verdict) == told("report", "--no-deep")["verdict"] or what == "snapshot"
        block = max(heap.blocks("used").data, key=lambda block: block.usable_bytes)
        refs = heap.refs(block.address).data
        assert (refs.address, refs.size_bytes) == (block.address, block.usable_bytes)
        assert [refs.path.text if refs.path else None, len(refs.chains)] == [told("refs", hex(block.address))[name] for name in ("path", "referrers")]
        assert heap.whatis(block.address).data.address == block.address
        assert heap.ask("bins").data == told("bins")
        assert not any(answer.is_partial for answer in (census, heap.arenas(), heap.bins()))
        if what != "snapshot":
            with pytest.raises(gdbheapx.HeapxError):
                heap.ask("chunks", "--limit", "1").text()


@by_turns("way", ["glibc", "jemalloc"])
def test_blocks_are_those_that_chunks_lists(lasting: Lasting, kind: str, way: str) -> None:
    """Every block once, in columns of equal length, and by status."""
    process = lasting.of(kind, contents, way)
    listed = heapx(process.target(kind), "chunks", "--json").data["chunks"]
    wanted = sorted((int(row["address"], 16), row["usable_bytes"], row["status"], row["arena"], row["allocator"]) for row in listed)
    with gdbheapx.open(**({"pid": process.pid} if kind == "live" else {"core": str(process.core())})) as heap:  # type: ignore[arg-type]
        blocks = heap.blocks().data
        assert [tuple(block) for block in blocks] == wanted and len(blocks) == len(wanted)
        assert tuple(blocks[3]) == wanted[3] and [tuple(one) for one in blocks[-2:]] == wanted[-2:]
        assert len({len(column) for column in (blocks.addresses, blocks.usable_bytes, blocks.status_codes, blocks.arenas, blocks.allocator_codes)}) == 1
        used = heap.blocks("used").data
        assert [tuple(block) for block in used] == [row for row in wanted if row[2] == "used"] and len(used)
        assert not heap.blocks("nothing").data


def test_opening_stops_nothing(lasting: Lasting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither open() nor what stands between two questions; an answer says for how long it stood still."""
    process = lasting.of("live", contents, "glibc")
    stops = []  # type: List[int]
    stop = ElfTarget.stop
    monkeypatch.setattr(ElfTarget, "stop", lambda target: (stops.append(1), stop(target))[1])
    with gdbheapx.open(pid=process.pid) as heap:
        assert not stops
        answer = heap.arenas()
        assert len(stops) == 1 and answer.stopped_ms is not None and answer.stopped_ms > 0 and answer.target["stops"] == 1
    assert "TracerPid:\t0" in Path("/proc/%d/status" % process.pid).read_text()


@pytest.mark.parametrize("room", ["a copy", "no copy"])
def test_several_questions_of_one_moment(stage: Stage, room: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a process that allocates all the time each question has another answer; in one stop they agree to the byte, and it runs on."""
    if room == "no copy":
        monkeypatch.setenv("GDBHEAPX_MEMORY", "24000000")
    process = subprocess.Popen([sys.executable, "-c", ALLOCATING], stdout=subprocess.PIPE, env={**os.environ, "PYTHONMALLOC": "malloc"})
    try:
        assert process.stdout.readline() == b"ready\n"
        with gdbheapx.open(pid=process.pid) as heap:
            apart = {sum(block.usable_bytes for block in heap.blocks("used").data) for _ in range(8)}
            assert len(apart) > 1, "it stands still by itself"
            with heap.stopped(max_s=60), heap.stopped():
                looks = [heap.blocks("used") for _ in range(3)]
                sums = {sum(block.usable_bytes for block in look.data) for look in looks}
                answers = [heap.census(), heap.leaks(), heap.owners()]
            assert len(sums) == 1, [(look.is_partial, look.problems, look.target) for look in looks]
            assert {answer.target["stops"] for answer in answers} <= {0, 1, None}
            used = [answers[0].data.bytes, sum(part.bytes for part in (answers[1].data.held, answers[1].data.maybe, answers[1].data.leaked)), answers[2].data.used.bytes]
            assert len(set(used)) == 1, used
            assert any("no room" in one.what for one in answers[0].problems) == (room == "no copy")
            process.stdout.readline()
            assert process.stdout.readline() == b"on\n"
            assert heap.arenas().rows
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


ALLOCATING = """
import os, time
held = [[str(i) for i in range(200000)]]
print("ready", flush=True)
last, turn = time.monotonic(), 0
while True:
    turn += 1
    held.append([str(i) + "x" * (i % 40) for i in range(turn * 37 % 101)])
    del held[1:-100]
    if time.monotonic() - last > 0.2:
        last = time.monotonic()
        try:
            os.set_blocking(1, False)
            os.write(1, b"on\\n")
        except BlockingIOError:
            pass
"""


@pytest.mark.parametrize("room", ["a copy", "no copy"])
def test_asking_changes_nothing(stage: Stage, room: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No page comes into RAM, goes to swap or is faulted in, by one question or by several in one stop."""
    if room == "no copy":
        monkeypatch.setenv("GDBHEAPX_MEMORY", "9000000")
    process = stage.start("contents")
    with unchanged(process.pid), gdbheapx.open(pid=process.pid) as heap:
        assert heap.blocks().data and heap.census().rows
        with heap.stopped(max_s=30):
            assert heap.arenas().rows and heap.leaks().data and heap.owners().data and heap.report(deep=True).data


@pytest.mark.once
def test_differences(stage: Stage, tmp_path: Path) -> None:
    """Snapshots, cores and processes are compared in any combination; what is alike has not grown."""
    process, other = stage.start("contents"), stage.start("contents")
    snap = str(tmp_path / "old.snap")
    with gdbheapx.open(pid=process.pid) as live, gdbheapx.open(core=str(other.core())) as core:
        live.snapshot(snap)
        with gdbheapx.open(snapshot=snap) as old:
            for first, second in ((old, live), (old, core), (live, core), (core, old), (old, old)):
                found = first.diff(second).data
                assert not [row for row in found.states if row.what == "used" and row.old_bytes != row.new_bytes]
                assert found.verdict.kind in ("in-use", "growing", "kept")


@pytest.mark.once
def test_errors_are_of_one_kind(stage: Stage, tmp_path: Path) -> None:
    """Whatever is wrong is a HeapxError with a cause and a next step."""
    wrong: List[Dict[str, Any]] = [{}, {"pid": 4194304}, {"core": "/nowhere"}, {"snapshot": __file__}, {"core": __file__}, {"pid": 1, "core": "x"}]
    for given in wrong:
        with pytest.raises(gdbheapx.HeapxError) as error:
            gdbheapx.open(**given)
        assert "; " in error.value.line() and "Traceback" not in error.value.line()
    process = stage.start("contents")
    with gdbheapx.open(pid=process.pid) as heap:
        for asked in (lambda: heap.ask("nothing"), lambda: heap.ask("arenas", "--nothing"), lambda: heap.ask("watch"), lambda: heap.refs(16), lambda: heap.ask("arenas", "--help")):
            with pytest.raises(gdbheapx.HeapxError):
                asked()
        heap.close()
        assert heap.arenas().rows, "it can be asked again"
        process.popen.kill()
        process.popen.wait()
        with pytest.raises(gdbheapx.HeapxError) as error:
            heap.arenas()
        assert "; " in error.value.line()
    with pytest.raises(gdbheapx.HeapxError, match="does not run inside gdb"):
        gdbheapx.current().arenas()


@pytest.mark.once
def test_who_closes_one_lets_no_other_go(lasting: Lasting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes may be open at once: where there is no room for a copy the one that stands still goes on standing."""
    monkeypatch.setenv("GDBHEAPX_MEMORY", "1000000")
    first, second = (lasting.of("live", contents, way) for way in ("glibc", "jemalloc"))
    with gdbheapx.open(pid=first.pid) as heap, heap.stopped(max_s=60):
        with gdbheapx.open(pid=second.pid) as other:
            assert other.arenas().rows
        assert Path("/proc/%d/stat" % first.pid).read_text().rpartition(")")[2].split()[0] == "t"
        assert heap.arenas().rows
    assert Path("/proc/%d/stat" % first.pid).read_text().rpartition(")")[2].split()[0] != "t"


@pytest.mark.once
def test_another_thread_may_ask(lasting: Lasting) -> None:
    """No signal handler is needed: a server asks from a worker's thread, and the main thread's handlers stay as they are."""
    process, found = lasting.of("live", contents, "glibc"), []  # type: ignore[var-annotated]
    with gdbheapx.open(pid=process.pid) as heap:
        thread = threading.Thread(target=lambda: found.append(heap.census()))
        thread.start()
        thread.join()
        assert found[0].data.bytes == heap.census().data.bytes


def test_frames(lasting: Lasting, kind: str) -> None:
    """pandas, Arrow, polars and DuckDB read the same rows; columns of blocks are not copied."""
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    process = lasting.of(kind, contents, "glibc")
    with gdbheapx.open(**({"pid": process.pid} if kind == "live" else {"core": str(process.core())})) as heap:  # type: ignore[arg-type]
        blocks = heap.blocks()
        frame, table = blocks.to_pandas(), blocks.to_arrow()
        total = sum(block.usable_bytes for block in blocks.data)
        assert int(frame["usable_bytes"].sum()) == total == sum(table.column("usable_bytes").to_pylist())
        assert list(frame["status"]) == [block.status for block in blocks.data] == table.column("status").to_pylist()
        assert isinstance(frame, pandas.DataFrame) and isinstance(table, pyarrow.Table)
        assert repr(heap).startswith("<Heap of %s " % ("process" if kind == "live" else "core"))
        lost = heap.leaks().data
        assert lost.classes == (lost.held, lost.maybe, lost.leaked)
        census = heap.census()
        assert list(census.to_pandas()["bytes"]) == [row.bytes for row in census.rows] == census.to_arrow().column("bytes").to_pylist()
        for answer in (heap.arenas(), heap.owners(), heap.leaks(), heap.report(), heap.tcache(), heap.pins(), heap.check()):
            assert len(answer.to_pandas()) == len(answer.rows) == answer.to_arrow().num_rows
        polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
        assert polars.from_arrow(blocks.to_arrow())["usable_bytes"].sum() == total
        arrow = blocks.to_arrow()
        assert arrow.num_rows and duckdb.sql("select sum(usable_bytes) from arrow").fetchall() == [(total,)]


def test_sql(lasting: Lasting, kind: str) -> None:
    """Rows have the types of SQL; what names no table asks nothing of the process."""
    pytest.importorskip("duckdb")
    process = lasting.of(kind, contents, "glibc")
    with gdbheapx.open(**({"pid": process.pid} if kind == "live" else {"core": str(process.core())})) as heap:  # type: ignore[arg-type]
        rows = heap.query("select count(*) as n, sum(usable_bytes) as b from blocks where class = 'used'").rows
        used = heap.blocks("used").data
        assert [dict(row) for row in rows] == [{"n": len(used), "b": sum(block.usable_bytes for block in used)}]
        assert heap.query("select 6 * 7 as answer").rows == [{"answer": 42}]
        for sql in ("drop table blocks", "select * from nowhere", "select * from read_csv('/etc/passwd')"):
            with pytest.raises(gdbheapx.HeapxError):
                heap.query(sql)


@pytest.mark.once
def test_notebooks_get_escaped_html(stage: Stage, tmp_path: Path) -> None:
    """Names of a target are data: nothing of them is markup in a notebook."""
    process = hostile.start(stage, tmp_path / "record", hostile.HOSTILE[0])
    with gdbheapx.open(pid=process.pid) as heap:
        for answer in (heap.tcache(), heap.owners(), heap.census(), heap.report(), heap.arenas()):
            page = answer._repr_html_()
            assert page.startswith(("<table>", "<pre>", "<p>Suspect")) and "<script" not in page and "\x1b" not in page
            assert repr(answer).startswith("<Answer: ")
            assert answer.text() and json.dumps(answer.document())


def script(name: str, *words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """One of the examples."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, str(EXAMPLES / name), *words], capture_output=True, text=True, cwd=cwd, env=env, timeout=300)


@pytest.mark.once
def test_the_three_scripts(stage: Stage, tmp_path: Path) -> None:
    """They run as they stand in the docs, and say what the commands say."""
    process = stage.start("contents")
    lost = heapx(process.target("live"), "leaks", "--json").data["classes"]["leaked"]["bytes"]
    grown = script("growth.py", str(process.pid), "0.1", cwd=tmp_path)
    assert grown.returncode == 0 and "stood still for" in grown.stdout, grown.stderr
    moment = script("one_moment.py", str(process.pid), cwd=tmp_path)
    assert moment.returncode == 0 and "stood still once" in moment.stdout, moment.stderr
    for most, code in ((1 << 40, 0), (-1, 3)):
        gate = script("leak_gate.py", str(process.core()), str(most), cwd=tmp_path)
        assert gate.returncode == code and "leaked: %d bytes" % lost in gate.stdout, gate.stderr
    assert script("leak_gate.py", "/nowhere", "1", cwd=tmp_path).stderr.startswith("no answer: core not found")


@pytest.mark.once
def test_the_notebook(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs from its first cell to its last, on a core and on a snapshot, and shows tables."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    for package in ("pandas", "duckdb", "ipykernel"):
        pytest.importorskip(package)
    process = stage.start("contents")
    assert heapx(process.target("live"), "snapshot", str(tmp_path / "the.snap")).code in (0, 4)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for path in (str(process.core()), str(tmp_path / "the.snap")):
        monkeypatch.setenv("CORE", path)
        notebook = nbformat.read(EXAMPLES / "core.ipynb", 4)
        nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
        shown = [output["data"] for cell in notebook.cells for output in cell.get("outputs", []) if "data" in output]
        assert len(shown) == 5 and all("text/html" in one for one in shown)
