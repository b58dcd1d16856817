"""The forms in which `watch` writes: whatever a program calls itself, each stays what its readers take it for.

Files: addons/monitor/watch/table.py, addons/monitor/watch/endpoint.py.
"""

import csv
import json
import os
import re
import stat
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

from gdbheapx.addons.monitor.memory_group import InContainer
from gdbheapx.addons.monitor.watch import endpoint, table
from gdbheapx.addons.monitor.watch.counters import ProcessCounters
from gdbheapx.addons.monitor.watch.samples import Sample, Watched
from gdbheapx.addons.monitor.watch.summary import TIMES, History, Over
from gdbheapx.addons.monitor.watch.text import BLOCKS, Text
from gdbheapx.allocators.answers import Figure, Reading
from gdbheapx.command import TextStyle
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.model import AllocatorInfo

MB = 1 << 20
HOSTILE = ["</svg><script>", "a\nb", "\x1b[31mred", "=cmd|' /C calc'!A0", "x;y", "bad\ufffdbytes", '"quoted\\', "@sum", "\u202eevil"]
INFO = AllocatorInfo("toy", "toy", "1", "libtoy.so", None, None, None, True)
FIGURES = (Figure("system_bytes", "system", "from the kernel"), Figure("free_bytes", "free~", "free", is_estimate=True))


class Sampled:
    """What writers need of a sampler."""

    def __init__(self, name: str, is_exact: bool = False) -> None:
        self.name, self.pid, self.is_exact = name, 4321, is_exact
        self.watched = [Watched(INFO, FIGURES, "trim --dry-run")]
        self.container = InContainer


def sampled(name: str) -> Any:
    """As any, which a sampler is not."""
    return Sampled(name)


def sample(at: float = 1.5, free: Any = 3 * MB) -> Sample:
    """One."""
    reading = Reading((10 * MB, free), 12 * MB, None if free is None else 9 * MB, free, 10 * MB)
    return Sample(1_700_000_000.25, at, ProcessCounters(20 * MB, 15 * MB, 0, 7), None, [reading], None)


@pytest.mark.parametrize("name", HOSTILE)
def test_csv(tmp_path: Path, name: str) -> None:
    """One row a sample, with as many cells as the heading; no cell is a formula; an unknown figure is empty."""
    path = str(tmp_path / "out.csv")
    writer = table.Csv(path, sampled(name))
    writer.sample(sample())
    writer.sample(sample(free=None))
    with open(path, newline="") as file:
        rows = list(csv.reader(file))
    assert [len(row) for row in rows] == [len(rows[0])] * 3
    found = [dict(zip(rows[0], row)) for row in rows[1:]]
    assert found[0]["name"][0] not in "=+-@" and found[0]["name"].isprintable() and found[0]["name"].isascii()
    assert (found[0]["rss_bytes"], found[0]["toy.free_bytes"], found[1]["toy.free_bytes"]) == (str(20 * MB), str(3 * MB), "")
    assert found[0]["time"] == "2023-11-14T22:13:20.250Z"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


@pytest.mark.parametrize("name", HOSTILE)
def test_json_lines(tmp_path: Path, name: str) -> None:
    """Every line is one object of ASCII; the name is as it was."""
    path = str(tmp_path / "out.jsonl")
    writer, made = table.Appended(path, None), table.WatchTableLines(sampled(name))
    for line in (made.start(5.0), made.sample(sample()), made.end(Over(TIMES, None))):
        writer.line(line)
    lines = Path(path).read_text("ascii").split("\n")
    told = [json.loads(line) for line in lines if line]
    assert [one["kind"] for one in told] == ["start", "sample", "end"] and lines[-1] == ""
    assert told[0]["name"] == name and told[0]["allocators"][0]["estimates"] == ["free_bytes", "used_bytes", "kept_bytes"]
    assert told[1]["allocators"]["toy"]["used_bytes"] == 9 * MB
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


LINE = re.compile(r'[a-z_]+\{(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)+\} [0-9.]+')


def metrics(document: str) -> Dict[str, str]:
    """Name of each metric -> its value; every line must be one of the format."""
    lines = document.split("\n")
    assert lines[-2:] == ["# EOF", ""] and lines.count("# EOF") == 1
    for line in lines[:-2]:
        assert re.fullmatch(r"# (TYPE|UNIT|HELP) [a-z_]+ .+", line) or LINE.fullmatch(line), line
    return {line.split("{")[0]: line.rsplit(" ", 1)[1] for line in lines[:-2] if line[0] != "#"}


@pytest.mark.parametrize("name", HOSTILE)
def test_openmetrics(tmp_path: Path, name: str) -> None:
    """Each line keeps to the format; at the end nothing is left but that nothing is watched."""
    path = tmp_path / "out.prom"
    writer = endpoint.OpenMetrics(str(path), sampled(name))
    assert metrics(path.read_text()) == {"gdbheapx_up": "0"}
    writer.sample(sample())
    found = metrics(path.read_text())
    assert (found["gdbheapx_up"], found["gdbheapx_rss_bytes"]) == ("1", str(20 * MB))
    assert found["gdbheapx_allocator_used_bytes"] == str(9 * MB) and found["gdbheapx_threads"] == "7"
    writer.sample(sample(free=None))
    assert "gdbheapx_allocator_free_bytes" not in metrics(path.read_text())
    writer.end()
    assert metrics(path.read_text()) == {"gdbheapx_up": "0"}
    assert os.listdir(tmp_path) == ["out.prom"] and stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_a_file_passes_on_its_mode(tmp_path: Path) -> None:
    """Whoever lets another user's collector read the file does so once; it is a new file each time."""
    path = tmp_path / "out.prom"
    path.touch(0o600)
    os.chmod(path, 0o640)
    before = os.stat(path).st_ino
    reader = path.open()
    table.replace_whole_file(str(path), "new\n")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640 and os.stat(path).st_ino != before
    assert reader.read() == "" and path.read_text() == "new\n"
    reader.close()


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    """What a symbolic link leads to stays as it is."""
    other, path = tmp_path / "other", tmp_path / "out.prom"
    other.write_text("theirs")
    path.symlink_to(other)
    table.replace_whole_file(str(path), "ours")
    assert other.read_text() == "theirs" and not path.is_symlink() and path.read_text() == "ours"


def test_a_file_is_continued(tmp_path: Path) -> None:
    """One with our heading is appended to; one with another, a folder, and a FIFO are refused without waiting."""
    path = tmp_path / "out.csv"
    for _ in range(2):
        table.Csv(str(path), sampled("toy")).sample(sample())
    assert len(path.read_text().splitlines()) == 3
    path.write_text("something,else\n")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for place in (path, fifo, tmp_path, tmp_path / "none" / "out.csv"):
        with pytest.raises(HeapxError):
            table.Csv(str(place), sampled("toy"))
    assert path.read_text() == "something,else\n"


def test_a_full_disk_is_told() -> None:
    """/dev/full is no regular file, and a file that cannot grow is an error of one line."""
    with pytest.raises(HeapxError, match="is not a regular file"):
        table.Appended("/dev/full", None)
    with pytest.raises(HeapxError, match="cannot write to /proc/none: "):
        table.replace_whole_file("/proc/none", "")


def lines(name: str, environment: Dict[str, str], plain: bool = False, width: Optional[int] = None) -> List[str]:
    """A start, two samples and the end."""
    told = Text(sampled(name), TextStyle(plain, False, width, wraps=width is not None), environment)
    history = History([])
    for one in (sample(0.0), sample(5.0, None)):
        history.add(one)
    made = [*told.start(5.0), *told.sample(sample()), *told.sample(sample(5.0, None))]
    return [*made, *told.end(Over(TIMES, history.summary(TIMES, 0)), history)]


@pytest.mark.parametrize("name", HOSTILE)
def test_text(name: str) -> None:
    """No control character and no letter beyond ASCII but the sparkline's; without UTF-8 none at all."""
    for line in lines(name, {"LANG": "C.UTF-8"}):
        assert re.fullmatch(r"[ -~%s]*" % BLOCKS, line), line
    assert all(line.isascii() for line in lines(name, {"LANG": "C"}))
