"""How long real programs stood still, beside what was said before: `python -m bench.predictions`, by hand.

Some 30 programs of this machine, one after the other, are asked a few questions each: as the machine is, and with a loop on each of its CPUs.
Environment: PREDICTIONS_ONLY (a part of their names), PREDICTIONS_COMMANDS (by commas), PREDICTIONS_ROUNDS (of how many looks
the least disturbed counts where there are no loops),
PREDICTIONS_FIFO (a real-time priority of program and
tool where there are no loops: other work of this machine is of no account there).
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Mapping, NamedTuple, Optional, Sequence, Tuple

from bench.timing import HERE, TOOL

ONLY = os.environ.get("PREDICTIONS_ONLY", "")
COMMANDS = os.environ.get("PREDICTIONS_COMMANDS", "arenas,report,chunks --limit 10,leaks,census,owners").split(",")
ROUNDS = int(os.environ.get("PREDICTIONS_ROUNDS", "2"))
FIFO = int(os.environ.get("PREDICTIONS_FIFO", "0"))
MOST = 1.5
LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
READY_S, SECONDS = 60, 120


class Program(NamedTuple):
    """One, and how it comes to a rest; it waits for its stdin then."""

    name: str
    words: Sequence[str]
    """`SHAPE`: bench/what_if.c as gcc makes it by `made`."""
    base: Mapping[str, str] = {}
    feed: str = ""
    made: Optional[Sequence[str]] = None


class Stop(NamedTuple):
    """One look."""

    predicted_ms: float
    stopped_ms: float
    why: str = ""

    @property
    def times(self) -> float:
        """How many times as long as was said."""
        return self.stopped_ms / self.predicted_ms if self.predicted_ms else 0.0


def python(name: str, text: str, base: Mapping[str, str] = {}, by: str = sys.executable) -> Program:
    return Program("python, " + name, [by, "-c", text + "; import sys; sys.stdin.read()"], base)


def shape(name: str, numbers: str, *made: str, preload: str = "", base: Mapping[str, str] = {}) -> Program:
    """Blocks of bench/what_if.c, by an allocator; `made`: how gcc is to link it."""
    more = {"LD_PRELOAD": str(LIBRARIES / preload)} if preload else {}
    return Program("%s: %s" % (name, numbers), ["SHAPE", *numbers.split()], {**base, **more}, made=made or ("gcc",))


SMALL, LARGE, MANY = "4 60000 16 512 3 2", "1 300 900000 1100000 2 1", "300 300 16 900 2 2"
ROWS = "rows = [{'id': i, 'name': 'name %d' % i, 'tags': [i, str(i)]} for i in range(200000)]"
NODE = "const k=[];for(let i=0;i<200000;i++)k.push({a:i,b:'s'+i,c:[i]});globalThis.k=k;process.stdin.resume()"
JAVA = "class Big { public static void main(String[] a) throws Exception { var k = new java.util.ArrayList<long[]>(); for (int i = 0; i < 200000; i++) k.add(new long[20]); System.in.read(); System.out.println(k.size()); } }"
SQL = "create table t(a,b); with recursive n(i) as (select 1 union all select i+1 from n where i<90000) insert into t select i,hex(randomblob(i%300)) from n;\n"
MAPS = "import mmap; kept = [mmap.mmap(-1, 8192, prot=1 + i % 2 * 2) for i in range(4000)]; [k.write(b'x') for k in kept[1::2]]"
STRIPPED = ("-s", "-static")
PROGRAMS = (
    Program("redis", ["redis-check-rdb as redis-server", "--save", "", "--port", "0", "--unixsocket", "FOLDER/redis.sock"]),
    Program("perl", ["perl", "-e", "$h{$_} = [$_, 'x' x ($_ % 90)] for 1..200000; <STDIN>"]),
    Program("perl, tcmalloc", ["perl", "-e", "$h{$_} = [$_, 'x' x ($_ % 90)] for 1..200000; <STDIN>"], {"LD_PRELOAD": str(LIBRARIES / "libtcmalloc.so.4")}),
    Program("node", ["node", "-e", NODE]),
    Program("java", ["java", "-Xmx512m", "FOLDER/Big.java"]),
    Program("sqlite3", ["sqlite3"], feed=SQL),
    Program("cmake", ["cmake", "-P", "FOLDER/wait.cmake"]),
    Program("gdb", ["gdb", "-nx", "-q"], feed="python import json\n"),
    Program("bash", ["bash", "-c", "for i in {1..50000}; do a[i]=$i; done; read x"]),
    Program("python3 of the system", ["/usr/bin/python3", "-c", "import sqlite3, ssl, json, decimal, ctypes; import sys; sys.stdin.read()"]),
    python("bare", "pass", by="/usr/bin/python3"),
    python("rows", ROWS),
    python("numpy and pandas", "import numpy, pandas; d = pandas.DataFrame({'a': range(300000), 'b': [str(i) for i in range(300000)]})"),
    python("polars", "import polars; d = polars.DataFrame({'a': range(300000), 'b': [str(i) for i in range(300000)]}).group_by('b').len()"),
    python("pyarrow", "import pyarrow; d = pyarrow.table({'a': list(range(300000)), 'b': [str(i) for i in range(300000)]})"),
    python("duckdb", "import duckdb; c = duckdb.connect(); c.sql('create table t as select i, hash(i) h from range(1000000) r(i)'); c.sql('select count(distinct h) from t').fetchall()"),
    python("five wheels", "import polars, pyarrow, duckdb, cryptography, zstandard; d = polars.DataFrame({'a': range(100000)}); e = pyarrow.array(range(100000)); f = duckdb.sql('select 1').fetchall()"),
    python("jemalloc", ROWS, {"LD_PRELOAD": str(LIBRARIES / "libjemalloc.so.2"), "PYTHONMALLOC": "malloc"}),
    python("mimalloc", ROWS, {"LD_PRELOAD": str(LIBRARIES / "libmimalloc.so.2"), "PYTHONMALLOC": "malloc"}),
    python("4,000 mappings", MAPS),
    shape("glibc", SMALL),
    shape("glibc", LARGE),
    shape("glibc, threads", MANY),
    shape("glibc, static, stripped", SMALL, "gcc", *STRIPPED),
    shape("glibc, static, stripped, threads", MANY, "gcc", *STRIPPED),
    shape("jemalloc", SMALL, preload="libjemalloc.so.2"),
    shape("jemalloc", LARGE, preload="libjemalloc.so.2"),
    shape("jemalloc, threads", MANY, preload="libjemalloc.so.2"),
    shape("jemalloc, static, stripped", SMALL, "gcc", "-s", "-Wl,--whole-archive", "-l:libjemalloc_pic.a", "-Wl,--no-whole-archive", "-l:libstdc++.so.6", "-lm"),
    shape("mimalloc", SMALL, preload="libmimalloc.so.2"),
    shape("mimalloc, threads", MANY, preload="libmimalloc.so.2"),
    shape("tcmalloc", SMALL, preload="libtcmalloc.so.4"),
    shape("tcmalloc, threads", MANY, preload="libtcmalloc_minimal.so.4"),
    shape("musl, static, stripped", SMALL, "musl-gcc", *STRIPPED),
    shape("musl, static, stripped, threads", MANY, "musl-gcc", *STRIPPED),
    shape("glibc, 450 MB", "1 2500000 16 300 2 2"),
)


def prepared(folder: Path) -> Iterator[Program]:
    """Those that can be started here."""
    (folder / "Big.java").write_text(JAVA)
    (folder / "wait.cmake").write_text("execute_process(COMMAND cat)")
    for number, one in enumerate(PROGRAMS):
        words = [word.replace("FOLDER", str(folder)) for word in one.words]
        if one.made is not None:
            words[0] = str(folder / ("shape%d" % number))
            compiler, *more = one.made
            command = [compiler, "-O1", "-pthread", "-o", words[0], str(HERE / "what_if.c"), *more]
            if not shutil.which(compiler) or subprocess.run(command, capture_output=True).returncode:
                print("%-44s cannot be made here" % one.name, flush=True)
                continue
        elif " as " in words[0]:
            real, _, name = words[0].partition(" as ")
            words[0] = str(folder / name)
            (folder / name).symlink_to(shutil.which(real) or "/nowhere")
        if not os.path.exists(one.base.get("LD_PRELOAD", "/")) or not shutil.which(words[0]):
            print("%-44s is not installed here" % one.name, flush=True)
            continue
        yield one._replace(words=words)


@contextmanager
def standing(one: Program) -> Iterator[int]:
    """It, once it took no more than a little time of a CPU for a while; its pid."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(one.words, stdin=subprocess.PIPE, env={**os.environ, **one.base}, **quiet) as process:  # type: ignore[call-overload]
        try:
            process.stdin.write(one.feed.encode())
            process.stdin.flush()
            before, until = -1, time.monotonic() + READY_S
            while time.monotonic() < until:
                time.sleep(0.7)
                fields = Path("/proc/%d/stat" % process.pid).read_text().rpartition(")")[2].split()
                now = int(fields[11]) + int(fields[12])
                if before >= 0 and now - before <= 1 and fields[0] == "S":
                    break
                before = now
            yield process.pid
        finally:
            process.kill()


@contextmanager
def busy() -> Iterator[None]:
    """A loop on each CPU."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def look(pid: int, words: str) -> Stop:
    """One question."""
    command = [TOOL, "--pid", str(pid), *words.split(), "--json", "--max-stop", "30"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS)
    try:
        target = json.loads(done.stdout)["target"]
        return Stop(target["predicted_stop_ms"], target["stopped_ms"], "" if done.returncode in (0, 3, 4) else "exit %d" % done.returncode)
    except (ValueError, TypeError, KeyError):
        return Stop(0, 0, (done.stderr.decode(errors="replace").strip().splitlines() or ["no answer"])[-1][:120])


def looks(pid: int, rounds: int) -> Iterator[Tuple[str, Stop]]:
    """(command, that of its looks which took least of what was said)."""
    for words in COMMANDS:
        yield words, min((look(pid, words) for _ in range(rounds)), key=lambda one: one.times)


def scheduled(pid: int, priority: int) -> None:
    """A program, all of its threads, and whoever is started from here, in real time; 0: as everybody."""
    for lwp in (0, *map(int, os.listdir("/proc/%d/task" % pid))):
        os.sched_setscheduler(lwp, os.SCHED_FIFO if priority else os.SCHED_OTHER, os.sched_param(priority))


def cell(stop: Stop) -> str:
    """Predicted, stood, how many times."""
    return stop.why or "%7.3g %7.3g %5.2f%s" % (*stop[:2], stop.times, "!" if stop.times > MOST else " ")


def main() -> int:
    """The table; exit code 1 if a stop was longer than 1.5 times what was said."""
    print("predicted, stood (ms), times: the best of %d looks as the machine is (load %.1f), and one with a loop on each of %d CPUs" % (ROUNDS, os.getloadavg()[0], os.cpu_count() or 1))
    over = asked = 0
    with tempfile.TemporaryDirectory(prefix="gdbheapx-bench-") as name:
        for one in prepared(Path(name)):
            if ONLY not in one.name:
                continue
            with standing(one) as pid:
                scheduled(pid, FIFO)
                idle = dict(looks(pid, ROUNDS))
                scheduled(pid, 0)
                with busy():
                    loaded = dict(looks(pid, 1))
            for words in COMMANDS:
                pair = idle[words], loaded[words]
                over += sum(stop.times > MOST for stop in pair)
                asked += sum(not stop.why for stop in pair)
                print("%-44s %-18s %s   %s" % (one.name, words, *map(cell, pair)), flush=True)
    print("%d of %d stops were longer than %g times what was said" % (over, asked, MOST))
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
