"""What `what-if` says before a restart, against programs that were really started with each setting: `python -m bench.what_if`, by hand.

Each program runs without a setting, is asked, and runs once with each; RSS is taken at the same point of its work. A trim or purge is made in
the process that was asked; `nothing` is a second run without a setting; for a restart, what is in use is built anew, and nothing else.
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
from typing import Any, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

ROOT = Path(__file__).parents[1]
JEMALLOC = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"


class Program(NamedTuple):
    """One program, and how it comes to its point."""

    group: str
    """`first`: what `what-if` says was first compared with these; `new` and `real` came after; `held` after its ends were narrowed."""
    name: str
    words: Sequence[str]
    """`PROGRAM` stands for bench/what_if.c, compiled, and begins the names of files beside it."""
    feed: str = ""
    """What is sent on stdin, but for EVAL and OBJECTS."""
    live: Optional[Tuple[Sequence[str], str]] = None
    """(words, feed) that make what is in use at its point, and nothing else: as after a restart. None: that cannot be said."""
    base: Mapping[str, str] = {}
    """Of its environment."""


def shape(group: str, *numbers: int) -> Program:
    """A heap of bench/what_if.c."""
    words = ["PROGRAM", *map(str, numbers)]
    return Program(group, " ".join(words[1:]), words, live=([*words, "live"], ""))


def python(group: str, name: str, text: str, live: str = "", malloc: bool = False) -> Program:
    """A text of Python; `live` makes what it keeps."""
    words, again = (["/usr/bin/python3", "-c", one + "; import sys; sys.stdin.read()"] for one in (text, live))
    return Program(group, name, words, live=(again, "") if live else None, base={"PYTHONMALLOC": "malloc"} if malloc else {})


LINES = "import glob; f = sorted(glob.glob('/usr/lib/python3*/*.py')); "
SQL = (
    "create table t(a, b); with recursive n(i) as (select %d union all select i + %d from n where i < 90000) "
    "insert into t select i, hex(randomblob(i %% 300)) from n; create index u on t(b); delete from t where a %% 3;\n"
)
KEYS = "for i = 1, 60000 do redis.call('set', i, string.rep('x', i % 900)) end for i = 1, 60000 do if i % 3 > 0 then redis.call('del', i) end end"
EVAL = {"EVAL": KEYS, "EVAL LIVE": "for i = 3, 60000, 3 do redis.call('set', i, string.rep('x', i % 900)) end"}
"""What redis-cli sends."""
REDIS = ["redis-server", "--save", "", "--port", "0", "--unixsocket", "PROGRAM.sock"]
PROGRAMS = (
    *(
        shape("first", *numbers)
        for numbers in (
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
    ),
    python("first", "python 0", "d = {n: str(n) * 20 for n in range(60000)}"),
    python("first", "python 1", "d = [bytes(n % 5000 + 600) for n in range(9000)]; d = d[::3]", "d = [bytes(n % 5000 + 600) for n in range(0, 9000, 3)]", True),
    python("first", "python 2", "d = [bytearray(200000) for n in range(80)]; d = d[::2]", "d = [bytearray(200000) for n in range(40)]"),
    python("first", "python 3", "import json; d = json.loads(json.dumps([{'k%d' % n: [n] * 20} for n in range(9000)])); d = d[:9]", malloc=True),
    python(
        "first",
        "python 4",
        "import re, sqlite3; c = sqlite3.connect(':memory:'); c.execute('create table t(a, b)'); c.executemany('insert into t values(?, ?)', "
        "((n, 'x' * (n % 900)) for n in range(30000))); c.execute('delete from t where a % 3')",
    ),
    python(
        "first",
        "python 5",
        "import threading; r = []; t = [threading.Thread(target=lambda: r.append([b'x' * n for n in range(600, 20000, 9)][::4])) for _ in range(4)]; "
        "[x.start() for x in t]; [x.join() for x in t]",
        "r = [[b'x' * n for n in range(600, 20000, 36)] for _ in range(4)]",
        True,
    ),
    *(
        shape("new", *numbers)
        for numbers in (
            (1, 120000, 24, 40, 7, 2),
            (1, 900, 5000, 90000, 5, 5),
            (2, 300, 1000, 700000, 3, 2),
            (5, 6000, 500, 1500, 9, 3),
            (7, 3000, 16, 9000, 2, 1),
            (12, 500, 2000, 60000, 6, 2),
            (32, 400, 100, 3000, 3, 2),
            (3, 40, 1000000, 3000000, 2, 2),
        )
    ),
    *(
        shape("held", *numbers)
        for numbers in (
            (1, 7000, 900, 1600, 6, 4),
            (2, 15000, 40, 5000, 11, 3),
            (4, 700, 8000, 200000, 4, 4),
            (6, 2500, 16, 12000, 0, 2),
            (10, 5000, 100, 700, 5, 2),
            (24, 60, 50000, 500000, 3, 3),
        )
    ),
    python(
        "real",
        "python ast",
        "import ast; " + LINES + "t = [ast.parse(open(n).read()) for n in f]; t = t[::2]",
        "import ast; " + LINES + "t = [ast.parse(open(n).read()) for n in f[::2]]",
    ),
    python("real", "python lines", LINES + "t = [open(n).readlines() for n in f]; t = [x[::3] for x in t]", LINES + "t = [open(n).readlines()[::3] for n in f]"),
    python(
        "real",
        "python pool",
        "from concurrent.futures import ThreadPoolExecutor as P; import json, zlib; "
        + LINES
        + "t = list(P(6).map(lambda n: zlib.compress(json.dumps(open(n).read().split()).encode()), f * 2))",
    ),
    Program(
        "real",
        "perl",
        ["perl", "-e", "$h{$_} = 'x' x ($_ % 900) for 1..60000; $_ % 3 and delete $h{$_} for 1..60000; <STDIN>"],
        live=(["perl", "-e", "$_ % 3 or $h{$_} = 'x' x ($_ % 900) for 1..60000; <STDIN>"], ""),
    ),
    Program("real", "sqlite3", ["sqlite3", ":memory:"], SQL % (1, 1), (["sqlite3", ":memory:"], SQL % (3, 3))),
    Program("real", "jq", ["jq", "-n", '[range(150000) | {a: ., b: "x\\(.)"}] as $d | ($d | map(select(.a % 5 == 0))) as $e | input | $e']),
    Program("real", "git", ["git", "-C", str(ROOT), "cat-file", "--batch"], "OBJECTS"),
    Program("real", "sort", ["sort", "-S", "40M"], "".join("%d line\n" % (n * 7919 % 1000003) for n in range(900000))),
    Program("real", "xz", ["xz", "-6", "-c"], "".join("%x" % (n * n * 7919) for n in range(200000))),
    Program(
        "real",
        "tclsh",
        ["tclsh"],
        "for {set i 0} {$i < 90000} {incr i} {set a($i) [string repeat x [expr $i % 400]]}; array unset a *3*\n",
        (["tclsh"], "for {set i 0} {$i < 90000} {incr i} {if {[string first 3 $i] < 0} {set a($i) [string repeat x [expr $i % 400]]}}\n"),
    ),
    Program(
        "real",
        "bash",
        ["bash", "-c", "for ((i = 0; i < 90000; i++)); do a[i]=line$i; done; for ((i = 0; i < 90000; i += 2)); do unset a[i]; done; read"],
        live=(["bash", "-c", "for ((i = 1; i < 90000; i += 2)); do a[i]=line$i; done; read"], ""),
    ),
    Program(
        "real",
        "mawk",
        ["mawk", 'BEGIN {for (i = 0; i < 200000; i++) a[i] = "x" i; for (i = 0; i < 200000; i++) if (i % 3) delete a[i]; getline x < "-"}'],
        live=(["mawk", 'BEGIN {for (i = 0; i < 200000; i += 3) a[i] = "x" i; getline x < "-"}'], ""),
    ),
    Program("real", "cc1plus", ["/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus", "-quiet", "-imultiarch", "x86_64-linux-gnu", "PROGRAM.cc", "-o", "/dev/null"]),
    Program(
        "real",
        "node",
        ["node", "-e", "t = []; for (i = 0; i < 9e4; i++) t.push(Buffer.alloc(i % 900)); t = t.slice(0, 9000); process.stdin.resume()"],
        live=(["node", "-e", "t = []; for (i = 0; i < 9e3; i++) t.push(Buffer.alloc(i % 900)); process.stdin.resume()"], ""),
    ),
    Program("real", "nginx", ["nginx", "-p", "PROGRAM.d", "-c", "nginx.conf", "-g", "daemon off; master_process off;"]),
    Program("real", "redis-server", REDIS, "EVAL", (REDIS, "EVAL LIVE")),
)
SOURCE = """#include <regex>
#include <map>
#include <iostream>
#include <functional>
std::regex one("a(b|c)*d"); std::map<std::string, std::function<int(int)>> two;
#include "/dev/stdin"
"""
ACTS = ("trim", "purge")


SEPARATORS = {"GLIBC_TUNABLES": ":", "MALLOC_CONF": ","}
"""Of variables that hold several settings."""


FORBID = (sys.executable, "-S", "-c", "import ctypes, os, sys; ctypes.CDLL(None).prctl(41, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])")
"""PR_SET_THP_DISABLE, which lasts when the process becomes another program."""


class Row(NamedTuple):
    """One program with one setting."""

    program: str
    allocator: str
    setting: str
    kind: str
    now: int
    low: Optional[int]
    high: Optional[int]
    measured: int

    @property
    def holds(self) -> bool:
        """What was measured lies between the two."""
        return (self.low is None or self.low <= self.measured) and (self.high is None or self.measured <= self.high)


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
def standing(words: Sequence[str], more: Mapping[str, str], feed: str, huge: bool = True) -> Iterator[int]:
    """A program at its point, where it waits for more on stdin; its pid. `huge`: it may have huge pages."""
    first = () if huge else FORBID
    with subprocess.Popen([*first, *words], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env={**os.environ, **more}) as process:
        assert process.stdin is not None
        try:
            if feed in EVAL:
                rests(process.pid)
                subprocess.run(["redis-cli", "-s", words[-1], "eval", EVAL[feed], "0"], check=True, stdout=subprocess.DEVNULL)
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


def measure(program: Program) -> Iterator[Row]:
    """One program, asked and run again."""
    name, words, feed, base = program.group + " " + program.name, program.words, program.feed, program.base

    def again(more: Mapping[str, str] = {}, live: bool = False, huge: bool = True) -> int:
        joined = {**base, **{key: SEPARATORS[key].join((base[key], value)) if key in base and key in SEPARATORS else value for key, value in more.items()}}
        with standing(*((words, joined, feed) if not live or program.live is None else (program.live[0], joined, program.live[1])), huge) as pid:
            return rss_bytes(pid)

    with standing(words, base, feed) as pid:
        told = ask(pid, "what-if")
        held = [(heap["held_bytes"], heap["allocator"]) for heap in ask(pid, "report")["heaps"]] if told is not None else []
        if not held:
            print("%-28s no answer" % name, flush=True)
            return
        own = max(held)[1]
        mine = [one for one in told["settings"] if one["allocator"] in (own, None)]
        acted = [one["code"] for one in mine if one["code"] in ACTS and not one["is_in_force"] and ask(pid, one["code"], "--yes") is not None]
        after = rss_bytes(pid)
    rss = told["rss_bytes"]
    even = told["even_bytes"]
    yield Row(name, own, "nothing", "bounded", rss, rss - even, rss + even, again())
    for one in mine:
        code, (variable, _, value) = one["code"], one["setting"].partition(" (")[0].partition("=")
        if code in acted:
            found = after
        elif code == "restart" and program.live is not None:
            found = again(live=True)
        elif code == "huge-pages":
            found = again(huge=False)
        elif code not in ACTS and value:
            found = again({variable: value})
        else:
            continue
        kind = "in force" if one["is_in_force"] else one["kind"]
        shown = "%s %s" % (code, value) if code == "size-classes" else code
        if code == "restart" and program.group != "real":
            without = rss - one["acts_on_bytes"]
            yield Row(name, own, "restart, same blocks", "exact", rss, without - even, without + even, found)
        yield Row(name, own, shown, kind, rss, one["then_least_bytes"], one["then_most_bytes"], found)


def prepared(directory: str) -> Iterator[Program]:
    """All, and most of them once more with jemalloc or with huge pages, as they can be started here."""
    made = os.path.join(directory, "what_if")
    subprocess.run(["gcc", "-O1", "-pthread", "-o", made, str(ROOT / "bench" / "what_if.c")], check=True)
    Path(made + ".cc").write_text(SOURCE)
    Path(made + ".d").mkdir()
    Path(made + ".d", "nginx.conf").write_text("error_log stderr; pid p; events {} http {}")
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-tree", "-r", "HEAD"], capture_output=True, text=True, check=True).stdout
    objects = "".join(line.split()[2] + "\n" for line in listed.splitlines())
    for one in PROGRAMS:
        first = shutil.which(one.words[0].replace("PROGRAM", made))
        if first is None:
            continue
        live = ([first, *(word.replace("PROGRAM", made) for word in one.live[0][1:])], one.live[1]) if one.live is not None else None
        feed = objects if one.feed == "OBJECTS" else one.feed
        one = one._replace(words=[first, *(word.replace("PROGRAM", made) for word in one.words[1:])], feed=feed, live=live)
        yield one
        if os.path.exists(JEMALLOC) and one.words[0] != shutil.which("redis-server") and (one.group == "real" or one.name[:2] != "1 ") and not one.base:
            yield one._replace(name="jemalloc " + one.name, base={"LD_PRELOAD": JEMALLOC})
        if one.group == "real" and one.words[0] in map(shutil.which, ("perl", "jq", "mawk", "sqlite3", "tclsh")):
            yield one._replace(name="huge " + one.name, base={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"})
            if os.path.exists(JEMALLOC):
                yield one._replace(name="huge jemalloc " + one.name, base={"LD_PRELOAD": JEMALLOC, "MALLOC_CONF": "thp:always"})


def main() -> None:
    """Every program whose name has one of the words given; a line each, and the sums."""
    rows: List[Row] = []
    with tempfile.TemporaryDirectory() as directory:
        for program in prepared(directory):
            if sys.argv[1:] and not any(word in program.group + " " + program.name for word in sys.argv[1:]):
                continue
            for row in measure(program):
                sizes = " ".join("%8s" % (None if value is None else "%.2f" % (value / 1e6)) for value in row[4:])
                print("%-28s %-9s %-26s %-8s %s %s" % (*row[:4], sizes, "" if row.holds else "OUTSIDE"), flush=True)
                rows.append(row)
    for own, code in sorted({(row.allocator, row.setting) for row in rows}):
        same = [row for row in rows if (row.allocator, row.setting) == (own, code)]
        changed = [abs(row.measured - row.now) / row.now for row in same]
        line = "%-9s %-26s %3d of %3d hold; RSS changed by %.1f %%, at most %.1f %%"
        print(line % (own, code, sum(row.holds for row in same), len(same), statistics.median(changed) * 100, max(changed) * 100), end="")
        both = [(row, row.low, row.high) for row in same if row.low is not None and row.high is not None]
        if both:
            off = max(max(low - row.measured, row.measured - high, 0) / row.measured for row, low, high in both)
            widths = [(high - low) / row.now for row, low, high in both]
            middle = [abs((low + high) / 2 - row.measured) / row.measured for row, low, high in both]
            narrow = sum(width <= 0.3 for width in widths)
            print("; middle width %.0f %%, %d at most 30 %%" % (statistics.median(widths) * 100, narrow), end="")
            print("; middle off by %.1f %%, at most %.1f %%" % (statistics.median(middle) * 100, max(middle) * 100), end="")
            print("; outside by at most %.1f %%" % (off * 100), end="")
        print()


if __name__ == "__main__":
    main()
