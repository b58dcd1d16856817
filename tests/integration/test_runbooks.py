"""The tutorial, and the runbooks from alarm to cure: each command line is taken from the page and run on a process that has the trouble."""

import json
import re
import time
from pathlib import Path

import pytest

from tests.support import jemallocs
from tests.support.paths import ROOT
from tests.support.processes import READY_SECONDS, Process, Stage
from tests.support.runbooks import Runbook
from tests.support.servers import Named

pytestmark = pytest.mark.once  # the pages' order and sentences; what each command answers is proved in the images by its own tests

MB = 1 << 20

WORKER = r"""
import os, sys
kept = [bytes(1500) for _ in range(20000)]
while True:
    records = [bytes(1500) for _ in range(100000)]
    kept.append([bytes(1500) for _ in range(100)])
    del records
    os.write(1, b"ready\n")
    if not os.read(0, 1):
        sys.exit()
"""
"""A burst of load for each command; what stays of it lies above what goes."""


def worker(stage: Stage) -> Process:
    """The Python program, after a burst."""
    return stage.spawn_ready(["/usr/bin/python3", "-I", "-c", WORKER])


@pytest.mark.first
def test_first_steps(stage: Stage, live: str, tmp_path: Path) -> None:
    """The tutorial's server hoards half of its memory, and has returned it in the end."""
    server, book = stage.builder.build(str(ROOT / "demo" / "hoarder")), Runbook("tutorial/first-steps.md", tmp_path)
    process = stage.spawn_ready([str(server), "serve", str(tmp_path / "socket")], tmp_path)
    for what in ("report", "arenas", "census", "trim --dry-run", "trim --yes", "report", "diff"):
        book.run(what, process)
    book.end()
    assert process.smaps_rollup("Rss") < 200 * MB


def test_hoarding(stage: Stage, live: str, tmp_path: Path) -> None:
    """Reported, predicted, returned as predicted, watched, trimmed by a periodic job with its log, and well in the end."""
    process, book = worker(stage), Runbook("how-to/runbook-hoarding.md", tmp_path)
    assert process.smaps_rollup("Rss") > 150 * MB
    book.run("report", process)
    predicted = book.run("trim --dry-run", process).figure(r"to the OS, (\S+ \w+) of it in RAM")
    before = process.smaps_rollup("Anonymous")
    told = book.run("watch", process)
    returned = before - process.smaps_rollup("Anonymous")
    assert predicted > 100 * MB and abs(returned - predicted) < MB
    assert abs(told.figure(r"anonymous .*: (\S+ \w+) returned") - predicted) < MB
    process.command(b"b")
    assert process.smaps_rollup("Rss") > 150 * MB
    book.run("--every", process)
    rounds = [json.loads(line) for line in (tmp_path / "trim.log").read_text().splitlines()]
    assert [one["message"] for one in rounds] == ["trimmed", "below the limit", "below the limit"]
    assert -rounds[0]["rss.diff"] > 100 * MB and abs(rounds[0]["rss.diff"] + rounds[0]["predicted_resident_bytes"]) < MB
    assert all(one["rss.before"] < 100 * MB and one["rss.diff"] == 0 for one in rounds[1:])
    book.run("report", process)
    process.command(b"b")
    book.end()


def test_leak(stage: Stage, live: str, tmp_path: Path) -> None:
    """What grows is told by two snapshots, what is lost by leaks, who keeps the rest by owners; of the mended service nothing grows."""
    process, book = stage.start("service", "leaky"), Runbook("how-to/runbook-leak.md", tmp_path)
    book.run("report", process)
    book.run("before.snap", process)
    for _ in range(5):
        process.command(b"r")
    told = book.run("diff", process)
    replies = 50000 // 3
    assert "+{:,}  Reply of service".format(replies) in told.text and "+200,000  g_sessions in service" in told.text
    lost = re.search(r"^Leaked: .* in ([\d,]+) blocks", book.run("leaks", process).text, re.M)
    assert lost and 60000 // 3 - 5 <= int(lost.group(1).replace(",", "")) <= 60000 // 3 + 5, "what stands in a register or a stale stack word may hold one"
    book.run("whatis", process)
    book.run("census", process)
    assert "Suspect: g_sessions in service" in book.run("owners", process).text
    book.run("folded", process)
    stacks = dict(line.rsplit(" ", 1) for line in (tmp_path / "service.folded").read_text().splitlines())
    assert abs(int(stacks["[leaked];Reply"]) - 60000 // 3 * 616) <= 5 * 616
    mended = stage.start("service", "mended")
    book.run("mended.snap", mended)
    for _ in range(5):
        mended.command(b"r")
    book.run("diff", mended)
    book.end()


OLD, NEW = "rust-0.4", "rust-0.6-stats"
"""The same program, with jemalloc 5.2.1, which has the bug, and 5.3.0."""
ROLES = ("frees-first", "frees-first", "healthy")


@pytest.mark.rust
def test_blind_threads(stage: Stage, live: str, tmp_path: Path) -> None:
    """Two blind threads are reported, named, cured, and purge as they work; idle ones are purged by a call; an upgrade ends it."""

    def start(way: str) -> Process:
        return jemallocs.start(stage, way, "tickers", "300", *ROLES, conf="dirty_decay_ms:400")

    process, book = start(OLD), Runbook("how-to/runbook-blind-threads.md", tmp_path)
    before = process.smaps_rollup("Anonymous")
    book.run("report", process)
    assert "2 blind, 2 ticking" in book.run("tickers", process).text
    book.run("decay", process)
    book.run("--cure", process)
    assert process.smaps_rollup("Anonymous") > before - MB, "nothing was called"
    end = time.monotonic() + READY_SECONDS
    while process.smaps_rollup("Anonymous") >= before - 120 * MB and time.monotonic() < end:
        process.command(b"w")  # light work of 300 ms, against a decay of 400 ms
    book.run("decay", process)
    assert process.smaps_rollup("Anonymous") < before - 120 * MB
    idle = start(OLD)
    before = idle.smaps_rollup("Anonymous")
    book.run("purge", idle)
    assert idle.smaps_rollup("Anonymous") < before - 150 * MB
    upgraded = start(NEW)
    assert not re.search(r" blind$", book.run("tickers", upgraded).text, re.M)
    assert upgraded.smaps_rollup("Anonymous") < before - 120 * MB
    book.end()


FEW, MANY = 2000, 150000
"""Names in named's zone."""


def test_startup_growth(stage: Stage, live: str, tmp_path: Path) -> None:
    """What named has without a load, what a zone adds, by its number of names, and that nothing of it is lost or grows on."""
    named, book = Named(stage, FEW), Runbook("how-to/runbook-startup-growth.md", tmp_path)
    process = named.process
    census = book.run("census", process)
    assert census.figure(r"isc_ht \('HTab'\)\+.* (\S+ MiB)") > 8 * MB
    book.run("before.snap", process)
    named.load(MANY)
    book.run("report", process)
    told = book.run("diff", process).text
    grown = [int(count.replace(",", "")) for count in re.findall(r"\+([\d,]+)  (?:\+0x50 of elements|element) of the hash table dns_rbt", told)]
    assert len([count for count in grown[:2] if abs(count - MANY) < 100]) == 2, told
    book.run("leaks", process)
    book.run("tickers", process)
    for number in range(0, MANY, 100):
        assert named.address(number) == (10, number >> 16, number >> 8 & 255, number & 255)
    book.run("diff", process)
    book.end()


def test_every_alarm_of_a_runbook_is_one_of_the_examples() -> None:
    """What a page calls an alarm of Prometheus is in docs/how-to/examples/gdbheapx-alerts.yml."""
    rules = set(re.findall(r"alert: (\w+)", (ROOT / "docs" / "how-to" / "examples" / "gdbheapx-alerts.yml").read_text()))
    told = {name for page in (ROOT / "docs" / "how-to").glob("runbook-*.md") for name in re.findall(r"`(Memory\w+)`", page.read_text())}
    assert told == {"MemoryKeptByAllocator", "MemoryInUseGrows"} and told <= rules
