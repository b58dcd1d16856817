"""`make matrix`: builds the images that are missing, runs the tests in each, lets each read the others' cores; exit code 1 if anything failed.

The checkout is copied into a container, so the engine may be on another machine, and the kernel is compiled there. Nothing is left
but images, which `--clean` removes, and the logs in build/matrix/.
"""

import argparse
import io
import json
import os
import signal
import sys
import tarfile
import threading
import time
import traceback
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import cross_cores
import images
import matrix
from docker.errors import NotFound
from engine import Engine, NoEngine
from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "matrix"
MARKED = ("-m", "image and not once and not wild and not slow")
"""What depends on an image's libc, libjemalloc, gdb or Python; the nearest mark decides (pyproject.toml)."""
TESTS = (*MARKED, "tests")
BETWEEN = ("-m", "image and first and not once and not wild and not slow", "tests/integration", "tests/addons")
"""For a release between the first and the last, which bound what it can differ in: what allocators themselves say is compared."""
REPORT = "/var/tmp/junit.xml"
"""In the container; what ran once more is reported beside it (tools/run_tests.py)."""
KERNEL = cross_cores.KERNEL
LEFT_OUT = {".git", ".venv", ".cache", "build", "dist", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}
"""Folders of a checkout that are not copied; nor is anything compiled."""
SECONDS = 3000
"""Tests that take longer hang: three images at a time took 1,600 s on two processors."""

OWN, RUN = "org.gdbheapx.matrix", "%d-%d" % (os.getpid(), time.time())
"""Label of this run's containers."""

STOPPING = threading.Event()
"""Set by an interrupt: what runs is ended, and nothing new begins."""

PROBE = r"""
import json, os, platform, re, subprocess
def say(*words):
    return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, universal_newlines=True).stdout
print(json.dumps({
    "glibc": os.confstr("CS_GNU_LIBC_VERSION").split()[1],
    "jemalloc": re.split(r"[-+]", say("dpkg-query", "-W", "-f", "${Version}", "libjemalloc2"))[0],
    "gdb": re.search(r"(\d+\.\d+)[^ ]*$", say("gdb", "--version").split("\n")[0]).group(1),
    "python": say("gdb", "-nx", "-batch", "-ex", "python import sys; print('%d.%d' % sys.version_info[:2])").strip(),
    "packages": say("dpkg-query", "-W", "-f", "${Package} ${Version}, ", "libc6", "gdb", "libjemalloc2") + "Python " + platform.python_version(),
}))
"""


class Result(NamedTuple):
    """What came of one row."""

    row: matrix.Row
    found: Dict[str, str]
    """Versions inside the image, by the names of the list's columns; empty if it did not get that far."""
    passed: int
    failed: int
    """Failures and errors."""
    skipped: Dict[str, int]
    """How many, by reason."""
    seconds: float
    alone: int
    """How many passed alone, but not among others."""
    notes: List[str]
    """What the reader should see at the end: failures above all."""
    bad: bool
    library: Optional[bytes] = None
    """The kernel, as it was compiled there."""


def say(row: matrix.Row, line: str) -> None:
    """One line of progress."""
    print("%s  %-9s %s" % (time.strftime("%H:%M:%S"), row.suite, line), flush=True)


def step(row: matrix.Row, line: str) -> None:
    """The row's next step begins, unless all are to stop."""
    if STOPPING.is_set():
        raise images.CannotBuild("interrupted")
    say(row, line)


def pack() -> io.BytesIO:
    """The checkout as a tar file."""

    def choose(entry: tarfile.TarInfo) -> Optional[tarfile.TarInfo]:
        name = os.path.basename(entry.name)
        if name in LEFT_OUT or name.endswith((".so", ".egg-info")):
            return None
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        return entry

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(str(ROOT), ".", filter=choose)
    packed.seek(0)
    return packed


def run_rows(client: Any, rows: Sequence[matrix.Row], checkout: bytes, asked: argparse.Namespace) -> List[Result]:
    """Every row, several at a time, the short ones last. An interrupt takes the containers away, which ends what runs in them."""
    pool = ThreadPoolExecutor(asked.jobs)
    options = {row.suite: asked.pytest or options_of(row, rows, asked.tested) for row in rows}
    order = sorted(rows, key=lambda row: (not options[row.suite], options[row.suite] == BETWEEN))
    try:
        results = pool.map(lambda row: run_row(client, row, checkout, options[row.suite]), order)
        return sorted(results, key=lambda result: rows.index(result.row))
    except KeyboardInterrupt:
        STOPPING.set()
        pool.shutdown(wait=False, cancel_futures=True)
        for container in client.containers.list(all=True, filters={"label": "%s=%s" % (OWN, RUN)}):
            container.remove(force=True, v=True)
        raise
    finally:
        pool.shutdown()


def options_of(row: matrix.Row, rows: Sequence[matrix.Row], tested: Optional[str]) -> Sequence[str]:
    """What pytest is asked for in a row's image; nothing if this machine is that release, and has just run all tests."""
    if row.suite == tested:
        return ()
    return TESTS if row in (rows[0], rows[-1]) else BETWEEN


def run_row(client: Any, row: matrix.Row, checkout: bytes, options: Sequence[str]) -> Result:
    """Build what is missing and run the tests; never raises."""
    begun = time.monotonic()
    try:
        images.ensure(client, row, lambda line: step(row, line))
        step(row, "testing" if options else "no tests: this machine, of the same release, has run all")
        return in_container(client, row, checkout, options, begun)
    except Exception as error:
        text = str(error) if isinstance(error, images.CannotBuild) else traceback.format_exc()
        return Result(row, {}, 0, 0, {}, time.monotonic() - begun, 0, [text], True)


def make_image(client: Any, row: matrix.Row) -> int:
    """Only that; 1, and the reason, if it cannot be made."""
    try:
        images.ensure(client, row, lambda line: step(row, line))
    except images.CannotBuild as error:
        say(row, str(error))
        return 1
    return 0


def in_container(client: Any, row: matrix.Row, checkout: bytes, options: Sequence[str], begun: float) -> Result:
    """The tests, in a container that is gone afterwards."""
    container = client.containers.run(
        row.image,
        ["sleep", "infinity"],
        detach=True,
        init=True,
        network_mode="none",
        cap_add=["SYS_PTRACE"],
        ulimits=[{"Name": "core", "Soft": -1, "Hard": -1}],
        tmpfs={"/tmp": "exec,size=6g"},
        labels={OWN: RUN},
    )
    try:
        container.put_archive("/src", checkout)
        versions = json.loads(cross_cores.must(container, ["python", "-c", PROBE]))
        differing = compare(row, versions)
        if not options:
            return Result(row, versions, 0, 0, {}, time.monotonic() - begun, 0, differing, bool(differing) and not row.moves)
        cross_cores.must(container, ["pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--no-build-isolation", "--no-deps", "-e", "."])
        cross_cores.must(container, ["test", "-e", KERNEL])
        words = ["timeout", str(SECONDS), "python", "-m", "tools.run_tests", "-q", "--junitxml=" + REPORT, "--durations=10"]
        code, output = container.exec_run([*words, *options], environment={"GDBHEAPX_TEST_IMAGE": row.suite})
        log = LOGS / (row.suite + ".log")
        log.write_bytes(output)
        report, notes = read_reports(container, code, output)
        library = read_file(container, "/src/" + KERNEL)
    finally:
        container.remove(force=True, v=True)
    result = Result(
        row,
        versions,
        report.tests - len(report.bad) - sum(report.skipped.values()),
        len(report.bad),
        report.skipped,
        time.monotonic() - begun,
        len(notes) - len(report.bad) if code in (0, 1) else 0,
        differing + notes,
        code != 0 or (bool(differing) and not row.moves),
        library,
    )
    say(row, "%d passed, %d failed, %d skipped; %s" % (result.passed, result.failed, sum(result.skipped.values()), log.relative_to(ROOT)))
    return result


class Report(NamedTuple):
    """What pytest wrote of one run."""

    tests: int
    bad: Dict[str, str]
    """A line for each failure and error, by the test."""
    skipped: Dict[str, int]
    """How many, by reason."""


def read_file(container: Any, path: str) -> bytes:
    """What is in a file of the container; NotFound if there is none."""
    stream, _ = container.get_archive(path)
    with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
        file = archive.extractfile(archive.getmembers()[0])
        assert file
        return file.read()


def read_report(container: Any, path: str) -> Report:
    """pytest's report at this path in the container; NotFound if there is none."""
    suite = next(ElementTree.fromstring(read_file(container, path)).iter("testsuite"))
    report = Report(int(suite.get("tests", 0)), {}, {})
    for case in suite.iter("testcase"):
        name = "%s::%s" % (case.get("classname"), case.get("name"))
        for kind in case:
            if kind.tag in ("failure", "error"):
                report.bad[name] = "%s %s: %s" % (kind.tag, name, " ".join((kind.get("message") or "").split())[:300])
            elif kind.tag == "skipped":
                reason = kind.get("message") or ""
                report.skipped[reason] = report.skipped.get(reason, 0) + 1
    return report


def read_reports(container: Any, code: int, output: bytes) -> "tuple[Report, List[str]]":
    """What counts in the end, and what is to be said: a test that failed among others and passed alone has passed."""
    if code not in (0, 1):
        return Report(0, {}, {}), ["pytest ended with %d: %s" % (code, output[-1500:].decode(errors="replace"))]
    first = read_report(container, REPORT)
    try:
        bad = read_report(container, REPORT + ".again").bad
    except NotFound:
        bad = first.bad
    alone = ["passed alone, but not among others: " + line for name, line in first.bad.items() if name not in bad]
    return first._replace(bad=bad), alone + list(bad.values())


def compare(row: matrix.Row, found: Dict[str, Any]) -> List[str]:
    """Versions in the image that are not those of the list."""
    differing = []
    for name in ("glibc", "jemalloc", "gdb", "python"):
        listed = matrix.text(getattr(row, name))
        if found[name] != listed:
            differing.append("docker/matrix.py says %s %s, the image has %s (%s)" % (name, listed, found[name], found["packages"]))
    return differing


def exchange(client: Any, results: Sequence[Result]) -> List[cross_cores.Outcome]:
    """Each image's cores read in each of them, with its files, without, and with the wrong ones."""
    found = cross_cores.cross(client, [cross_cores.Image(one.row.suite, one.row.image, one.library) for one in results], lambda line: print(line, file=sys.stderr, flush=True))
    return list(found)


def show(results: Sequence[Result], exchanged: Sequence[cross_cores.Outcome], bad: bool, seconds: float) -> None:
    """The table, and below it what is to be said."""
    heads = ["image", "glibc", "gdb", "python", "jemalloc", "passed", "failed", "skipped", "minutes"]
    rows = []  # type: List[List[Any]]
    for one in results:
        versions = [one.found.get(name, "?") for name in ("glibc", "gdb", "python", "jemalloc")]
        rows.append([one.row.suite, *versions, one.passed, one.failed, sum(one.skipped.values()), "%.1f" % (one.seconds / 60)])
    print()
    print(tabulate(rows, heads, disable_numparse=True, colalign=["left"] * 5 + ["right"] * 4))
    for one in results:
        for reason, count in sorted(one.skipped.items()):
            print("%s: %d skipped: %s" % (one.row.suite, count, reason))
    if exchanged:
        print("\n" + cross_cores.table(exchanged))
        for outcome in exchanged:
            if not outcome.good:
                print("%s in %s, %s sysroot: %s: %s" % outcome)
    for one in results:
        for note in one.notes:
            print("%s: %s" % (one.row.suite, note))
    print("matrix: %s in %.1f minutes" % ("FAILED" if bad else "ok", seconds / 60))


def record(results: Sequence[Result]) -> None:
    """What tools/ci_table.py shows."""
    rows = [{"suite": one.row.suite, "passed": one.passed, "failed": one.failed, "alone": one.alone, "skipped": sum(one.skipped.values()), "seconds": one.seconds} for one in results]
    (LOGS.parent / "matrix.json").write_text(json.dumps(rows))


def main() -> int:
    """Run the matrix, or clean up after it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--clean", action="store_true", help="remove the images instead")
    parser.add_argument("--jobs", type=int, default=min((os.cpu_count() or 1) + 1, len(matrix.ROWS)), help="images at a time (default: one for each CPU and one more: tests wait)")
    parser.add_argument("--suite", action="append", choices=[row.suite for row in matrix.ROWS], help="only this one (may be given several times)")
    parser.add_argument("--tested", metavar="SUITE", help="this machine's own release, where all tests have just run: its image only exchanges cores")
    parser.add_argument("--images", action="store_true", help="make the images that are missing, and run nothing in them")
    parser.add_argument("pytest", nargs="*", help="what to run instead of all tests: files and options of pytest, behind --")
    asked = parser.parse_args()
    rows = [row for row in matrix.ROWS if not asked.suite or row.suite in asked.suite]
    LOGS.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Engine(LOGS / "dockerd.log") as engine:
            if asked.clean:
                for row in rows:
                    images.remove(engine.client, row, lambda line, row=row: say(row, line))  # type: ignore[misc]
                return 0
            if asked.images:
                with ThreadPoolExecutor(asked.jobs) as pool:
                    return max(pool.map(lambda row: make_image(engine.client, row), rows))
            checkout = pack().getvalue()
            results = run_rows(engine.client, rows, checkout, asked)
            whole = [result for result in results if result.found]
            exchanged = [] if asked.pytest or len(whole) < 2 else exchange(engine.client, whole)
    except NoEngine as error:
        print("matrix: %s" % error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("matrix: interrupted", file=sys.stderr)
        return 1
    bad = any(one.bad for one in results) or not all(outcome.good for outcome in exchanged)
    record(results)
    show(results, exchanged, bad, time.monotonic() - begun)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
