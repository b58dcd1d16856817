"""What `what-if` says before a restart, against programs that were really started with each setting: `python -m bench.what_if`, by hand.

Each program runs without a setting, is asked, and runs once with each; RSS is taken at the same point of its work. A trim or purge is made in
the process that was asked; `nothing` is a second run without a setting.
"""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.what_if import EVEN_BYTES, EVEN_SHARE

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
"""Of bench/what_if.c. What `what-if` says was first compared with these and with PYTHON."""
NEW_SHAPES = (
    (1, 120000, 24, 40, 7, 2),
    (1, 900, 5000, 90000, 5, 5),
    (2, 300, 1000, 700000, 3, 2),
    (5, 6000, 500, 1500, 9, 3),
    (7, 3000, 16, 9000, 2, 1),
    (12, 500, 2000, 60000, 6, 2),
    (32, 400, 100, 3000, 3, 2),
    (3, 40, 1000000, 3000000, 2, 2),
)
"""These and REAL came after."""
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
READ = "import sys; sys.stdin.read()"
FILES = "import glob; f = sorted(glob.glob('/usr/lib/python3*/*.py'))"
REAL: Dict[str, Tuple[Sequence[str], str]] = {
    "python ast": (["python3", "-c", "import ast; %s; t = [ast.parse(open(n).read()) for n in f]; t = t[::2]; %s" % (FILES, READ)], ""),
    "python lines": (["python3", "-c", "%s; t = [open(n).readlines() for n in f]; t = [x[::3] for x in t]; %s" % (FILES, READ)], ""),
    "python pool": (
        [
            "python3",
            "-c",
            "from concurrent.futures import ThreadPoolExecutor as P; import json, zlib; %s; "
            "t = list(P(6).map(lambda n: zlib.compress(json.dumps(open(n).read().split()).encode()), f * 2)); %s" % (FILES, READ),
        ],
        "",
    ),
    "perl": (["perl", "-e", "$h{$_} = 'x' x ($_ %% 900) for 1..60000; $_ %% 3 and delete $h{$_} for 1..60000; <STDIN>".replace("%%", "%")], ""),
    "sqlite3": (
        ["sqlite3", ":memory:"],
        "create table t(a, b); with recursive n(i) as (select 1 union all select i + 1 from n where i < 90000) "
        "insert into t select i, hex(randomblob(i % 300)) from n; create index u on t(b); delete from t where a % 3;\n",
    ),
    "jq": (["jq", "-n", '[range(150000) | {a: ., b: "x\\(.)"}] as $d | ($d | map(select(.a % 5 == 0))) as $e | input | $e'], ""),
    "git": (["git", "-C", str(ROOT), "cat-file", "--batch"], "OBJECTS"),
    "sort": (["sort", "-S", "40M"], "".join("%d line\n" % (n * 7919 % 1000003) for n in range(900000))),
    "xz": (["xz", "-6", "-c"], "".join("%x" % (n * n * 7919) for n in range(200000))),
    "tclsh": (["tclsh"], "for {set i 0} {$i < 90000} {incr i} {set a($i) [string repeat x [expr $i % 400]]}; array unset a *3*\n"),
    "bash": (["bash", "-c", "for ((i = 0; i < 90000; i++)); do a[i]=line$i; done; for ((i = 0; i < 90000; i += 2)); do unset a[i]; done; read"], ""),
    "mawk": (
        ["mawk", 'BEGIN {for (i = 0; i < 200000; i++) a[i] = "x" i; for (i = 0; i < 200000; i++) if (i % 3) delete a[i]; getline x < "-"}'],
        "",
    ),
    "cc1plus": (["/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus", "-quiet", "-imultiarch", "x86_64-linux-gnu", "PROGRAM.cc", "-o", "/dev/null"], ""),
    "node": (["node", "-e", "t = []; for (i = 0; i < 9e4; i++) t.push(Buffer.alloc(i % 900)); t = t.slice(0, 9000); process.stdin.resume()"], ""),
    "nginx": (["nginx", "-p", "PROGRAM.d", "-c", "nginx.conf", "-g", "daemon off; master_process off;"], ""),
    "redis-server": (["redis-server", "--save", "", "--port", "0", "--unixsocket", "PROGRAM.sock"], "EVAL"),
}
"""What stands in for a file and for what is sent later is in prepared() and standing()."""
EVAL = "for i = 1, 60000 do redis.call('set', i, string.rep('x', i % 900)) end for i = 1, 60000 do if i % 3 > 0 then redis.call('del', i) end end"
SOURCE = """#include <regex>
#include <map>
#include <iostream>
#include <functional>
std::regex one("a(b|c)*d"); std::map<std::string, std::function<int(int)>> two;
#include "/dev/stdin"
"""
ACTS = ("trim", "purge")


class Row(NamedTuple):
    """One program with one setting."""

    program: str
    setting: str
    kind: str
    now: int
    low: int
    high: Optional[int]
    measured: int

    @property
    def holds(self) -> bool:
        """What was measured lies between the two."""
        return self.low <= self.measured and (self.high is None or self.measured <= self.high)


def ask(pid: int, *words: str) -> Any:
    """The answer of a command."""
    done = subprocess.run([sys.executable, "-m", "gdbheapx", "--pid", str(pid), *words, "--json"], capture_output=True, cwd=ROOT)
    return json.loads(done.stdout)["data"] if done.returncode == 0 else None


def rests(pid: int) -> None:
    """Waits until all its threads slept for a while and took no time of a CPU."""
    before, since = 0, time.monotonic()
    while time.monotonic() - since < 0.7:
        time.sleep(0.05)
        try:
            fields = [path.read_text().rpartition(")")[2].split() for path in Path("/proc/%d/task" % pid).glob("*/stat")]
        except OSError:  # a thread ended meanwhile
            continue
        now = sum(int(number) for one in fields for number in one[11:13])
        if now != before or any(one[0] != "S" for one in fields):
            before, since = now, time.monotonic()


@contextmanager
def standing(words: Sequence[str], more: Dict[str, str], feed: str) -> Iterator[int]:
    """A program at its point, where it waits for more on stdin; its pid."""
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env={**os.environ, **more}) as process:
        assert process.stdin is not None
        try:
            if feed == "EVAL":
                rests(process.pid)
                subprocess.run(["redis-cli", "-s", words[-1], "eval", EVAL, "0"], check=True, stdout=subprocess.DEVNULL)
            elif feed:
                process.stdin.write(feed.encode())
                process.stdin.flush()
            rests(process.pid)
            yield process.pid
        finally:
            process.kill()


def rss_bytes(pid: int) -> int:
    """As the kernel has it, page by page."""
    found = re.search(r"^Rss: +(\d+)", Path("/proc/%d/smaps_rollup" % pid).read_text(), re.M)
    assert found is not None
    return int(found.group(1)) * 1024


def measure(name: str, words: Sequence[str], base: Dict[str, str], feed: str = "") -> Iterator[Row]:
    """One program, asked and run again."""
    with standing(words, base, feed) as pid:
        told = ask(pid, "what-if")
        held = [(heap["held_bytes"], heap["allocator"]) for heap in ask(pid, "report")["heaps"]] if told is not None else []
        if not held:
            print("%-28s no answer" % name, flush=True)
            return
        own = max(held)[1]
        mine = [one for one in told["settings"] if one["allocator"] == own and not one["is_in_force"] and one["then_least_bytes"] is not None]
        acted = [one["code"] for one in mine if one["code"] in ACTS and ask(pid, one["code"], "--yes") is not None]
        after = rss_bytes(pid)
    rss = told["rss_bytes"]
    even = EVEN_BYTES + rss // EVEN_SHARE
    with standing(words, base, feed) as pid:
        yield Row(name, "nothing", "bounded", rss, rss - even, rss + even, rss_bytes(pid))
    for one in mine:
        variable, _, value = one["setting"].partition("=")
        if one["code"] not in acted:
            if one["code"] in ACTS or not value:
                continue
            with standing(words, {**base, variable: value}, feed) as pid:
                after_it = rss_bytes(pid)
        yield Row(
            name,
            one["code"],
            one["kind"],
            rss,
            one["then_least_bytes"],
            one["then_most_bytes"],
            after if one["code"] in acted else after_it,
        )


def prepared(directory: str) -> Iterator[Tuple[str, Sequence[str], Dict[str, str], str]]:
    """(name, command, environment, what is sent) of all."""
    program = os.path.join(directory, "what_if")
    subprocess.run(["gcc", "-O1", "-pthread", "-o", program, str(ROOT / "bench" / "what_if.c")], check=True)
    jemalloc = {"LD_PRELOAD": JEMALLOC}
    for group, shapes in (("first", SHAPES), ("new", NEW_SHAPES)):
        for shape in shapes:
            words = [program, *map(str, shape)]
            yield group + " " + " ".join(words[1:]), words, {}, ""
            if os.path.exists(JEMALLOC) and shape[0] != 1:
                yield group + " jemalloc " + " ".join(words[1:]), words, jemalloc, ""
    for number, text in enumerate(PYTHON):
        yield "first python %d" % number, ["/usr/bin/python3", "-c", text + "; " + READ], {"PYTHONMALLOC": "malloc"} if number % 2 else {}, ""
    Path(program + ".cc").write_text(SOURCE)
    Path(program + ".d").mkdir()
    Path(program + ".d", "nginx.conf").write_text("error_log stderr; pid p; events {} http {}")
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-tree", "-r", "HEAD"], capture_output=True, text=True, check=True).stdout
    objects = "".join(line.split()[2] + "\n" for line in listed.splitlines())
    for name, (words, feed) in REAL.items():
        if shutil.which(words[0]) is None:
            continue
        words = [shutil.which(words[0]) or "", *(word.replace("PROGRAM", program) for word in words[1:])]
        if "python" in name:
            words = ["/usr/bin/python3", *words[1:]]
        sent = objects if feed == "OBJECTS" else feed
        yield "real " + name, words, {}, sent
        if os.path.exists(JEMALLOC) and name != "redis-server":
            yield "real jemalloc " + name, words, jemalloc, sent


def main() -> None:
    """Every program whose name has one of the words given; a line each, and the sums."""
    rows: List[Row] = []
    with tempfile.TemporaryDirectory() as directory:
        for name, words, base, feed in prepared(directory):
            if sys.argv[1:] and not any(word in name for word in sys.argv[1:]):
                continue
            for row in measure(name, words, base, feed):
                sizes = " ".join("%8s" % (None if value is None else "%.2f" % (value / 1e6)) for value in row[3:])
                print("%-28s %-18s %-8s %s %s" % (*row[:3], sizes, "" if row.holds else "OUTSIDE"), flush=True)
                rows.append(row)
    for code in sorted({row.setting for row in rows}):
        same = [row for row in rows if row.setting == code]
        print("%-18s %3d of %3d hold" % (code, sum(row.holds for row in same), len(same)), end="")
        both = [(row, row.high) for row in same if row.high is not None]
        if both:
            off = max(max(row.low - row.measured, row.measured - high, 0) / row.measured for row, high in both)
            width = statistics.median((high - row.low) / row.now for row, high in both)
            middle = [abs((row.low + high) / 2 - row.measured) / row.measured for row, high in both]
            print("; middle width %.0f %%; middle off by %.1f %%, at most %.1f %%" % (width * 100, statistics.median(middle) * 100, max(middle) * 100), end="")
            print("; outside by at most %.1f %%" % (off * 100), end="")
        print()


if __name__ == "__main__":
    main()
