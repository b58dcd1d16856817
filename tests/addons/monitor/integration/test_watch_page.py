"""The page of `watch --html`: whatever ends the watch it is there, with the figures of the lines; and again from the file of those lines."""

import json
import os
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.support import pages
from tests.support.processes import Stage
from tests.support.tool import heapx, tool_command, tool_environment

pytest.importorskip("jinja2", reason="pages require Jinja2")
pytestmark = pytest.mark.once  # what the tool makes of samples that test_watch holds


def lines(path: Path) -> List[Dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def begun(pid: int, folder: Path, *words: str) -> "subprocess.Popen[bytes]":
    """A watch that has taken four samples, with a page to come and lines as they go."""
    command = [*tool_command(), "--pid", str(pid), "watch", "--every", "0.05", "--jsonl", str(folder / "lines"), "--html", str(folder / "page"), *words]
    made = subprocess.Popen(command, env=tool_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    seen = 0
    while seen < 4:
        line = made.stdout.readline()
        assert line, made.communicate()
        seen += b"MiB" in line
    return made


def held(folder: Path) -> pages.Reader:
    """The page has what the lines have."""
    page, told = folder / "page", lines(folder / "lines")
    assert stat.S_IMODE(page.stat().st_mode) == 0o600 and sorted(one.name for one in folder.glob("page*")) == ["page"]
    read = pages.check(page.read_text(encoding="utf-8"))
    samples = [one for one in told if one["kind"] == "sample"]
    own = ("held_bytes", "used_bytes", "kept_bytes", "arenas", "system_bytes", "top_bytes", "mmapped_bytes", "free_bytes")
    columns = [[one[name] for one in samples] for name in ("rss_bytes", "anonymous_bytes", "swapped_bytes", "threads")]
    columns += [[one["allocators"]["glibc"][name] for one in samples] for name in own]
    wanted = [value for row in zip(*(column for column in columns if any(column))) for value in row if value is not None]
    assert 4 <= len(samples) < 240 and read.values["samples"] == wanted
    assert "Samples%d, one every" % len(samples) in "".join(read.text).replace("\n", "")
    return read


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_whoever_ends_it_gets_the_page(stage: Stage, live: str, number: signal.Signals) -> None:
    """The page is written once, at the end, and the terminal says so; the file of the lines makes the same one."""
    process = stage.start("trimmer", "main")
    watch = begun(process.pid, process.folder)
    assert not (process.folder / "page").exists()
    watch.send_signal(number)
    out, errors = watch.communicate(timeout=60)
    assert watch.returncode == 0 and out.endswith(b"the page is in %s\n" % os.fsencode(process.folder / "page")), errors
    read = held(process.folder)
    again = process.folder / "again"
    outcome = heapx([], "watch", "--from", str(process.folder / "lines"), "--html", str(again))
    assert outcome.code == 0 and stat.S_IMODE(again.stat().st_mode) == 0o600
    assert pages.check(again.read_text(encoding="utf-8")).values == read.values
    assert outcome.stdout.decode().split("\n")[:-2] == out.decode().split("\n")[-len(outcome.stdout.decode().split("\n")) : -2]


def test_a_process_that_ends(stage: Stage, live: str) -> None:
    """Its page says so."""
    process = stage.start("trimmer", "main")
    watch = begun(process.pid, process.folder)
    os.kill(process.pid, signal.SIGKILL)
    watch.communicate(timeout=60)
    assert watch.returncode == 0 and "the process crashed or exited" in "".join(held(process.folder).text)


def test_a_reader_that_goes(stage: Stage, live: str) -> None:
    """`watch --html PAGE | head`: the watch ends with its reader, and what was sampled until then is on the page."""
    process = stage.start("trimmer", "main")
    watch = begun(process.pid, process.folder)
    watch.stdout.close()
    assert watch.wait(60) == 0
    held(process.folder)


def test_no_sample_is_no_page(stage: Stage, live: str) -> None:
    """Where the process cannot be watched an older page stays."""
    process = stage.start("trimmer", "main")
    page = process.folder / "page.html"
    page.write_text("old")
    assert heapx(["--pid", "999999999"], "watch", "--html", str(page)).code == 1 and page.read_text() == "old"
    assert heapx(process.target(live), "watch", "--html", str(page), "--every", "0").code == 2 and page.read_text() == "old"
    outcome = heapx([], "watch", "--from", str(page), "--html", str(page))
    assert outcome.code == 1 and "no samples of a watch" in outcome.stderr and page.read_text() == "old"
