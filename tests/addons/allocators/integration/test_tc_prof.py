"""What a tcmalloc has sampled: stack, blocks and bytes of each call are those of its own GetHeapSample, live and on a core."""

import re
from pathlib import Path
from typing import Dict, Iterable, Tuple

import pytest

from gdbheapx.problems import NOT_PROFILED
from tests.support.processes import Lasting, Process, Stage
from tests.support.tcmallocs import recorder
from tests.support.tool import heapx

pytestmark = pytest.mark.image  # this system's libtcmalloc

HEADER = Path("/usr/include/gperftools/malloc_extension.h")
FLAGS = ("-Wl,--no-as-needed", "-ltcmalloc")
ROW = re.compile(r" *(\d+): +(\d+) \[.*\] @((?: 0x[0-9a-f]+)+)$")


def sampling(stage: Stage) -> Process:
    """One block in about 32 KiB is sampled."""
    if not HEADER.exists():
        pytest.skip("no gperftools/malloc_extension.h here (Debian: libgoogle-perftools-dev)")
    return stage.start("tc_prof", env={"TCMALLOC_SAMPLE_PARAMETER": "32768"}, flags=FLAGS)


def sites(lines: Iterable[str]) -> Dict[str, Tuple[int, int]]:
    """Blocks and bytes by stack."""
    found: Dict[str, Tuple[int, int]] = {}
    for row in filter(None, map(ROW.match, lines)):
        before = found.get(row[3], (0, 0))
        found[row[3]] = before[0] + int(row[1]), before[1] + int(row[2])
    return found


def test_the_profile_is_its_own(lasting: Lasting, kind: str, tmp_path: Path) -> None:
    """To the block and the byte; pprof's form has the same calls."""
    process = lasting.of(kind, sampling)
    truth = sites(Path(str(process.record_path) + ".heap").read_text().splitlines())
    envelope = heapx(process.target(kind), "profile", "--json").envelope
    data = envelope["data"]
    assert envelope["problems"] == [] and data["sample_bytes"] == 32768 and data["backtraces"] == len(truth)
    assert sites(data["profile"].splitlines()) == truth and sum(blocks for blocks, _ in truth.values()) > 20
    assert "@ heap_v2/32768\n" in data["profile"] and "MAPPED_LIBRARIES" in data["profile"]
    file = tmp_path / "profile.pb.gz"
    assert heapx(process.target(kind), "export", "--of", "profile", "--format", "pprof", "-o", str(file)).code == 0 and file.stat().st_size > 100


def test_one_that_samples_nothing(stage: Stage, live: str) -> None:
    """One line, with the next step."""
    outcome = heapx(recorder(stage).target(live), "profile", "--json")
    assert outcome.code == 1 and outcome.envelope["error"]["code"] == NOT_PROFILED and "TCMALLOC_SAMPLE_PARAMETER" in outcome.envelope["error"]["hint"]
