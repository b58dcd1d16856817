"""`serve` on a machine with 500 processes, for as many samples as a day has: its memory stays, and a scrape is short.

Files: addons/monitor/watch/endpoint.py, addons/monitor/watch/machine.py.
"""

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import List

import pytest

from tests.support.serving import Served

pytest.importorskip("prometheus_client", reason="serve requires prometheus_client")
pytestmark = pytest.mark.wild  # 500 processes, and minutes

MB = 1 << 20
PROCESSES, SAMPLES = 500, int(os.environ.get("GDBHEAPX_SAMPLES", "2880"))
"""A day at one sample in 30 s."""
ENDED = 20
"""At each scrape so many processes end, and others begin."""
MOST_SCRAPE_S, MOST_BYTES, MOST_GROWTH_BYTES, MOST_SAMPLE_S = 0.1, 64 * MB, 4 * MB, 0.1


def own(popen: "subprocess.Popen[bytes]", key: str) -> int:
    """A line of its status."""
    text = Path("/proc/%d/status" % popen.pid).read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith(key + ":")))


def test_a_day_of_five_hundred(tmp_path: Path) -> None:
    """RSS below 64 MB and 4 MB more at most after the first tenth, though thousands of processes came and went; a sample costs below 0.1 s of
    processor time, and a scrape takes below 0.1 s in the median."""
    program = tmp_path / ("load%d" % (os.getpid() % 100_000))
    shutil.copy("/bin/sleep", program)

    def start() -> "subprocess.Popen[bytes]":
        return subprocess.Popen([str(program), "10000"])

    running: List[subprocess.Popen[bytes]] = [start() for _ in range(PROCESSES)]
    one = Served("serve", "--pids", program.name, "--every", "0.05", "--times", str(SAMPLES), "--listen", "127.0.0.1:0")
    first, resident, seen = [], [], 0
    try:
        while seen < SAMPLES and one.popen.poll() is None:
            began = time.monotonic()
            text = one.text()
            first.append(time.monotonic() - began)
            found = [line for line in text.splitlines() if line.startswith("gdbheapx_samples_total")]
            seen = int(float(found[0].split()[1])) if found else 0
            if found:
                resident.append((seen, own(one.popen, "VmRSS") * 1024))
                assert text.count("\ngdbheapx_rss_bytes{") <= PROCESSES + 2 * ENDED
            if seen >= SAMPLES * 0.95:
                break
            for each in running[:ENDED]:
                each.kill()
                each.wait()
            running[:ENDED] = []
            running += [start() for _ in range(ENDED)]
            time.sleep(0.5)
        cpu_s = sum(int(part) for part in Path("/proc/%d/stat" % one.popen.pid).read_text().rsplit(")", 1)[1].split()[11:13]) / os.sysconf("SC_CLK_TCK")
        peak = own(one.popen, "VmHWM") * 1024
    finally:
        one.popen.kill()
        one.popen.communicate()
        for each in running:
            each.kill()
            each.wait()
    settled = next(bytes_ for number, bytes_ in resident if number >= SAMPLES // 10)
    first.sort()
    median = first[len(first) // 2]
    what = "%d samples, %d scrapes: RSS %d, then %d, peak %d KiB; %.1f ms of processor time a sample; a scrape %.0f ms (median), %.0f ms (highest)"
    print(what % (seen, len(first), settled >> 10, resident[-1][1] >> 10, peak >> 10, cpu_s / seen * 1000, median * 1000, first[-1] * 1000))
    assert seen >= SAMPLES * 0.9 and peak < MOST_BYTES and resident[-1][1] - settled < MOST_GROWTH_BYTES
    assert cpu_s / seen < MOST_SAMPLE_S and median < MOST_SCRAPE_S
