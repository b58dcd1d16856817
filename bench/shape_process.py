"""A shape as a process: started, asleep, with what it is proven to be."""

import ctypes
import os
import select
import struct
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, NamedTuple, Sequence

from bench.looks import Load, answer
from bench.shape_programs import Broken

PAGE = os.sysconf("SC_PAGE_SIZE")
PR_SET_THP_DISABLE = 41
RECORD = struct.Struct("<6Q")


class Record(NamedTuple):
    """What the process itself tells (shapes/shape.h): its clock, and mallinfo2."""

    longest_gap_ns: int
    system_bytes: int
    free_chunks_and_tops: int
    fast_chunks: int
    mapped_chunks: int
    brk_bytes: int


def no_huge_pages() -> None:
    """For the child, before exec: the kernel's own thread that joins small pages would change Rss while nobody looks."""
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)


class ShapeProcess:
    """One shape, ready; end() it."""

    start_seconds = 120

    def __init__(self, command: Sequence[str], record: Path, env: Dict[str, str]) -> None:
        self._record = record
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("GLIBC_TUNABLES", "MALLOC_", "LD_PRELOAD", "ARROW_"))}
        self._popen = subprocess.Popen(
            command,
            env={**clean, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            preexec_fn=no_huge_pages,  # noqa: PLW1509  (no other thread runs here)
        )
        self.pid = self._popen.pid
        self._wait(" ".join(command))

    def _wait(self, what: str) -> None:
        assert self._popen.stdout
        if not select.select([self._popen.stdout], [], [], self.start_seconds)[0] or self._popen.stdout.readline() != b"ready\n":
            self.end()
            raise Broken("%s did not get ready" % what)

    def record(self) -> Record:
        """What it tells now."""
        return Record(*RECORD.unpack_from(self._record.read_bytes()))

    def watch_clock(self, on: bool) -> None:
        """Its own clock runs, from zero, or stands."""
        assert self._popen.stdin
        self._popen.stdin.write(b"g" if on else b"e")
        self._wait("the process")

    def proc(self, key: str) -> int:
        """A number of /proc/PID/status, kilobytes as bytes."""
        for line in Path("/proc/%d/status" % self.pid).read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1]) * (1024 if line.endswith("kB") else 1)
        raise KeyError(key)

    def end(self) -> None:
        """End it."""
        self._popen.kill()
        self._popen.wait()
        for stream in (self._popen.stdin, self._popen.stdout):
            if stream:
                stream.close()


def ask(pid: int, words: str) -> Any:
    """The data of a command's whole answer."""
    envelope, why = answer(pid, words)
    if envelope is None:
        raise Broken("%s: %s" % (words, why))
    return envelope["data"]


def measure(process: ShapeProcess) -> Dict[str, int]:
    """What the shape is, in the tool's own counts and the kernel's; held against mallinfo2's, which the process took itself."""
    totals = ask(process.pid, "arenas")["totals"]
    glibc, jemalloc = totals["glibc"], [row for name, row in totals.items() if name.startswith("jemalloc")]
    own = process.record()
    told = (own.free_chunks_and_tops, own.fast_chunks, own.mapped_chunks)
    counted = (glibc["free_chunks"] + glibc["arenas"], glibc["fast_chunks"], glibc["mmapped_chunks"])
    if own.system_bytes and told != counted:
        raise Broken("the tool counts %s free chunks and tops, fast chunks and mapped chunks; mallinfo2 %s" % (counted, told))
    facts = {key: glibc[key] for key in ("arenas", "heaps", "free_chunks", "fast_chunks", "tcache_chunks", "mmapped_chunks", "system_bytes")}
    facts["cached_blocks"] = sum(row["cached_blocks"] for row in jemalloc)
    facts["jemalloc_bytes"] = sum(row["mapped_bytes"] for row in jemalloc)
    facts["threads"] = process.proc("Threads")
    facts["resident_bytes"] = process.proc("VmRSS")
    facts["untouched_bytes"] = process.proc("VmSize") - facts["resident_bytes"]
    facts["beside_the_break_bytes"] = own.system_bytes - own.brk_bytes if own.system_bytes else 0
    return facts


def load(facts: Dict[str, int]) -> Load:
    """What its stops may grow with."""
    heap = facts["system_bytes"] + facts["mmapped_chunks"] * PAGE + facts["jemalloc_bytes"]
    members = facts["free_chunks"] + facts["fast_chunks"] + facts["tcache_chunks"] + facts["cached_blocks"]
    return Load(min(heap, facts["resident_bytes"]), members, facts["threads"])


def settle(moment: Any, seconds: float = 30) -> bool:
    """Whether the process comes to rest: two moments, half a second apart, that are equal."""
    end = time.monotonic() + seconds
    last = moment()
    while time.monotonic() < end:
        time.sleep(0.5)
        now = moment()
        if now == last:
            return True
        last = now
    return False


def unsorted_chunks(pid: int) -> int:
    """Members of the unsorted lists."""
    return sum(row["chunks"] for row in ask(pid, "bins")["bins"] if row["kind"] == "unsorted")
