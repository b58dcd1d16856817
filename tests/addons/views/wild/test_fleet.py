"""A thousand cores in one run, ten of them ruined in ten ways."""

import os
import sys
import time
from pathlib import Path
from typing import Callable, Dict

import pytest

from tests.support.processes import Stage
from tests.support.tool import run, tool_command

pytestmark = pytest.mark.wild  # a thousand children

CORES = int(os.environ.get("GDBHEAPX_CORES", "1000"))
MEASURED = [
    *(sys.executable, "-c"),
    "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:]);"
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr); sys.exit(code)",
]
"""Runs a command and says the RSS of its largest process in KiB: the children of this process are those of other tests, too."""


def ruined(folder: Path, core: bytes) -> Dict[str, str]:
    """Names and the reasons of ten; nothing is there under `missing`."""
    found = {
        "cut": (core[:100], "ends"),
        "half": (core[: len(core) // 2], ""),
        "zeros": (bytes(100_000), "ELF"),
        "text": (b"nothing\n", "ELF"),
        "empty": (b"", "is empty"),
        "other-machine": (core[:18] + b"\xff\xff" + core[20:], ""),
        "no-segments": (core[:56] + b"\0\0" + core[58:], ""),
    }
    for name, (data, _) in found.items():
        (folder / name).write_bytes(data)
    os.mkfifo(folder / "fifo")
    (folder / "directory").mkdir()
    return {**{name: said for name, (_, said) in found.items()}, "fifo": "", "directory": "", "missing": ""}


@pytest.mark.parametrize("workers", [2])
def test_a_thousand_cores(stage: Stage, core: str, workers: int, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """One table; each ruined one is a row with its reason, or a partial answer; memory is that of one look."""
    whole = stage.start("contents").core()
    folder = tmp_path / "cores"
    folder.mkdir()
    bad = ruined(folder, whole.read_bytes())
    for number in range(CORES - len(bad)):
        os.link(whole, folder / ("core.%d" % number)) if os.stat(whole).st_dev == os.stat(folder).st_dev else os.symlink(whole, folder / ("core.%d" % number))
    names = [*(str(folder / ("core.%d" % number)) for number in range(CORES - len(bad))), *(str(folder / name) for name in bad)]
    begin = time.monotonic()
    outcome = run([*MEASURED, *tool_command(), "fleet", *names, "-o", str(tmp_path / "out"), "--workers", str(workers), "--json"], seconds=3600)
    seconds = time.monotonic() - begin
    assert outcome.code == 4, outcome.stderr
    rows = {os.path.basename(row["core"]): row for row in outcome.envelope["data"]["rows"]}
    told = {name: rows[name]["error"] for name in bad}
    assert len(rows) == CORES and sum(row["error"] is None and not row["partial"] for row in rows.values()) == CORES - len(bad)
    for name, said in bad.items():
        assert told[name] is not None or rows[name]["partial"], name
        assert told[name] is None or (said in told[name] and "\n" not in told[name]), (name, told[name])
    most_mib = int(outcome.stderr.split()[-1]) >> 10
    record_property("1,000 cores", "%.0f s with %d workers, the largest process %d MiB" % (seconds, workers, most_mib))
    assert most_mib < 150
