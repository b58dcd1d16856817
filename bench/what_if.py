"""What `what-if` says before a restart, against programs that were really started with each setting: `python -m bench.what_if`, by hand.

Each program runs without a setting, is asked, and runs once with each; RSS is taken at the same point of its work.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Sequence

ROOT = Path(__file__).parents[1]
JEMALLOC = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
SHAPES = (
    (1, 20000, 16, 256, 0, 1),
    (1, 20000, 16, 256, 4, 3),
    (1, 4000, 200, 8000, 3, 2),
    (1, 300, 20000, 400000, 3, 3),
    (1, 200, 100000, 300000, 0, 2),
    (1, 100, 140000, 900000, 2, 2),
    (2, 20000, 16, 512, 8, 2),
    (4, 8000, 16, 1024, 2, 2),
    (4, 8000, 16, 1024, 0, 2),
    (4, 2000, 100, 16000, 5, 3),
    (4, 200, 30000, 130000, 4, 2),
    (8, 4000, 32, 2000, 3, 2),
    (8, 4000, 32, 2000, 50, 4),
    (8, 1000, 1000, 20000, 0, 2),
    (16, 1500, 64, 4000, 4, 2),
    (16, 1500, 64, 4000, 0, 1),
    (3, 30000, 24, 24, 10, 2),
    (6, 100, 60000, 250000, 2, 3),
)
"""Of bench/what_if.c."""
PYTHON = (
    "d = {n: str(n) * 20 for n in range(60000)}",
    "d = [bytes(n % 5000 + 600) for n in range(9000)]; d = d[::3]",
    "d = [bytearray(200000) for n in range(80)]; d = d[::2]",
    "import json; d = json.loads(json.dumps([{'k%d' % n: [n] * 20} for n in range(9000)])); d = d[:9]",
    "import re, sqlite3; c = sqlite3.connect(':memory:'); c.execute('create table t(a, b)'); "
    "c.executemany('insert into t values(?, ?)', ((n, 'x' * (n % 900)) for n in range(30000))); c.execute('delete from t where a % 3')",
    "import threading; r = []; t = [threading.Thread(target=lambda: r.append([b'x' * n for n in range(600, 20000, 9)][::4])) for _ in range(4)]; "
    "[x.start() for x in t]; [x.join() for x in t]",
)
SIX = {"trim": {"WHAT_IF_TRIM": "1"}}
AFTER = "\nimport ctypes, os, sys\nif os.environ.get('WHAT_IF_TRIM'): ctypes.CDLL(None).malloc_trim(0)\nos.write(1, b'.'); sys.stdin.read()"


class Row(NamedTuple):
    """One program with one setting."""

    program: str
    setting: str
    kind: str
    now: int
    low: int
    high: int
    measured: int

    @property
    def holds(self) -> bool:
        """What was measured lies between the two."""
        return self.low <= self.measured <= self.high


@contextmanager
def standing(words: Sequence[str], more: Dict[str, str]) -> Iterator[int]:
    """A program at its point; its pid."""
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, env={**os.environ, **more}) as process:
        assert process.stdin is not None and process.stdout is not None and process.stdout.read(1) == b".", words
        yield process.pid
        process.stdin.close()


def rss_bytes(pid: int) -> int:
    """As the kernel has it, page by page."""
    found = re.search(r"^Rss: +(\d+)", Path("/proc/%d/smaps_rollup" % pid).read_text(), re.M)
    assert found is not None
    return int(found.group(1)) * 1024


def measure(name: str, words: Sequence[str], base: Dict[str, str]) -> List[Row]:
    """One program, asked and run again."""
    with standing(words, base) as pid:
        asked = subprocess.run([sys.executable, "-m", "gdbheapx", "--pid", str(pid), "what-if", "--json"], capture_output=True, cwd=ROOT)
    own = "jemalloc" if "LD_PRELOAD" in base else "glibc"
    told, rows = json.loads(asked.stdout)["data"], []
    for one in told["settings"]:
        variable, _, value = one["setting"].partition("=")
        more = SIX.get(one["code"]) or ({variable: value} if value else {})
        if one["allocator"] != own or one["code"] == "purge" or not more or one["then_least_bytes"] is None or one["then_most_bytes"] is None:
            continue
        with standing(words, {**base, **more}) as pid:
            measured = rss_bytes(pid)
        rows.append(Row(name, one["code"], one["kind"], told["rss_bytes"], one["then_least_bytes"], one["then_most_bytes"], measured))
    return rows


def main() -> None:
    """Every program; a line each, and the sums."""
    rows: List[Row] = []
    with tempfile.TemporaryDirectory() as directory:
        program = os.path.join(directory, "what_if")
        subprocess.run(["gcc", "-O1", "-pthread", "-o", program, str(ROOT / "bench" / "what_if.c")], check=True)
        for shape in SHAPES:
            words = [program, *map(str, shape)]
            rows += measure(" ".join(words[1:]), words, {})
            if os.path.exists(JEMALLOC) and shape[0] != 1:
                rows += measure("jemalloc " + " ".join(words[1:]), words, {"LD_PRELOAD": JEMALLOC})
        for number, text in enumerate(PYTHON):
            rows += measure("python %d" % number, ["/usr/bin/python3", "-c", text + AFTER], {"PYTHONMALLOC": "malloc"} if number % 2 else {})
    for row in rows:
        sizes = " ".join("%8.2f" % (size / 1e6) for size in row[3:])
        print("%-28s %-18s %-8s %s %s" % (*row[:3], sizes, "" if row.holds else "OUTSIDE"))
    for code in sorted({row.setting for row in rows}):
        same = [row for row in rows if row.setting == code]
        off = sorted(max(row.low - row.measured, row.measured - row.high, 0) / row.measured for row in same)
        width = sorted((row.high - row.low) / row.now for row in same)
        middle = sorted(abs((row.low + row.high) / 2 - row.measured) / row.measured for row in same)
        told = code, sum(row.holds for row in same), len(same), width[len(same) // 2] * 100, middle[-1] * 100, off[-1] * 100
        print("%-18s %3d of %3d hold; middle width %.0f %%; middle off by at most %.1f %%; outside by at most %.1f %%" % told)


if __name__ == "__main__":
    main()
