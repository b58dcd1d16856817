"""How long a process will stand still is said before it is stopped: held against how long it did, for heaps of several shapes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

import pytest

from tests.support.processes import Stage
from tests.support.tool import alone

pytestmark = pytest.mark.wild  # times of this machine, which must not be busy with other tests

LONGER, SHORTER, SLACK_MS = 1.5, 4.0, 25.0
"""How many times as long as was said a stop may last, and as short; on a busy machine it is said at most."""
LISTS = ("bins", "malloc-info")
"""Follow free lists, whose length nobody knows before."""
COMMANDS = ("arenas", "report", "doctor", "chunks --limit 10", "check", "leaks", "leaks --weak", "owners", "census", "pins", "pins --no-owners", "snapshot", *LISTS)
SHAPES: Dict[str, Tuple[str, ...]] = {
    "small heap": ("sized", "small", "1000"),
    "300,000 small blocks": ("sized", "small", "300000"),
    "0.45 GiB of small blocks": ("sized", "small", "5000000"),
    "0.3 GiB of large blocks": ("sized", "large", "300"),
    "untouched reserve": ("asleep",),
    "4,000 mappings": ("sized", "mappings", "2000"),
}
PYTHON = "rows = [{'id': i, 'name': 'name %d' % i, 'tags': [i, str(i)]} for i in range(200000)]; print('ready', flush=True); input()"


def looked(target: List[str], folder: Path) -> Iterator[Tuple[str, float, float]]:
    """(command, predicted, the shorter of two stops)."""
    for words in COMMANDS:
        stops = []
        for _ in range(2):
            more = [str(folder / "file")] if words == "snapshot" else []
            outcome = alone(target, *words.split(), *more, "--json", "--max-stop", "60")
            assert outcome.code in (0, 3), outcome.stderr
            told = json.loads(outcome.stdout)["target"]
            stops.append(told["stopped_ms"])
            (folder / "file").unlink(missing_ok=True)
        yield words, told["predicted_stop_ms"], min(stops)


def held(name: str, found: Iterator[Tuple[str, float, float]]) -> None:
    """Every prediction is near enough, and the table is printed."""
    rows = list(found)
    print("\n" + name, *("%-18s predicted %7.1f  stood %7.1f ms" % row for row in rows), sep="\n  ")
    is_busy = os.getloadavg()[0] > (os.cpu_count() or 1) / 2
    far = [row for row in rows if row[2] > row[1] * LONGER + SLACK_MS or (row[2] < row[1] / SHORTER - SLACK_MS and not is_busy)]
    far = [row for row in far if row[0] not in LISTS]
    assert not far, far


@pytest.mark.parametrize("shape", SHAPES)
def test_predicted_and_measured(stage: Stage, live: str, tmp_path: Path, shape: str) -> None:
    """Of a C program."""
    process = stage.start(*SHAPES[shape])
    held(shape, looked(list(process.target(live)), tmp_path))


def test_of_jemalloc(stage: Stage, live: str, tmp_path: Path) -> None:
    """Its extents tell less."""
    from tests.support import jemallocs

    process = stage.start("sized", "small", "1000000", env={"LD_PRELOAD": str(jemallocs.library())})
    commands = [row for row in looked(list(process.target(live)), tmp_path) if row[0] not in ("malloc-info", "bins")]
    held("jemalloc", iter(commands))


def test_of_python(tmp_path: Path) -> None:
    """An interpreter that cuts its own blocks."""
    with subprocess.Popen([sys.executable, "-c", PYTHON], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            held("Python", looked(["--pid", str(process.pid)], tmp_path))
        finally:
            process.kill()
