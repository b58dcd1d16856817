"""Whether the graph fits: what this process may use.

Files: analysis/reachability/heap_graph.py common/budget.py
"""

import builtins
import io
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest

from gdbheapx.analysis.reachability import heap_graph
from gdbheapx.common import budget
from gdbheapx.common.errors import HeapxError
from tests.support.paths import ROOT

FILES: Dict[str, str] = {
    "/proc/self/cgroup": "0::/kubepods/pod1\n",
    "/sys/fs/cgroup/kubepods/pod1/memory.max": "max\n",
    "/sys/fs/cgroup/kubepods/memory.max": "1000000000\n",
    "/proc/meminfo": "MemTotal: 64000000 kB\nMemAvailable: 32000000 kB\n",
}


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Dict[str, str]:
    """The files that tell it, and a process without limits of its own."""
    made = dict(FILES)

    def opened(path: Any, *arguments: Any, **options: Any) -> Any:
        if path not in made:
            raise FileNotFoundError(path)
        return io.StringIO(made[path])

    monkeypatch.setattr(builtins, "open", opened)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    monkeypatch.delenv(budget.VARIABLE, raising=False)
    budget._allowed_bytes.cache_clear()
    return made


def test_the_groups_limit_decides(files: Dict[str, str]) -> None:
    """Also that of a group above; a part is left to the page cache."""
    assert budget.allowed_bytes() == int(0.7 * 1_000_000_000)


def test_what_the_group_has_by_now_is_not_left(files: Dict[str, str]) -> None:
    """The process that is looked at, in the same group; but for the page cache."""
    files["/sys/fs/cgroup/kubepods/memory.current"] = "700000000\n"
    assert budget.allowed_bytes() == int(0.7 * 300_000_000)
    budget._allowed_bytes.cache_clear()
    files["/sys/fs/cgroup/kubepods/memory.stat"] = "anon 500000000\ninactive_file 150000000\nactive_file 50000000\n"
    assert budget.allowed_bytes() == int(0.7 * 500_000_000)


def test_version_1_of_groups(files: Dict[str, str]) -> None:
    """The memory controller has its own tree and another name."""
    files["/proc/self/cgroup"] = "9:cpu:/other\n5:memory:/docker/x\n"
    files["/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes"] = "2000000\n"
    assert budget.allowed_bytes() == 1_400_000
    budget._allowed_bytes.cache_clear()
    files["/sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes"] = "1800000\n"
    files["/sys/fs/cgroup/memory/docker/x/memory.stat"] = "inactive_file 0\ntotal_inactive_file 800000\n"
    assert budget.allowed_bytes() == 700_000


def test_the_machine_where_no_group_limits(files: Dict[str, str]) -> None:
    """MemAvailable, and not MemTotal."""
    del files["/sys/fs/cgroup/kubepods/memory.max"]
    assert budget.allowed_bytes() == int(0.7 * 32_000_000 * 1024)


def test_the_processes_own_limit(files: Dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """RLIMIT_AS."""
    monkeypatch.setattr(resource, "getrlimit", lambda which: (5000, 5000) if which == resource.RLIMIT_AS else (resource.RLIM_INFINITY,) * 2)
    assert budget.allowed_bytes() == 3500


def test_a_number_that_is_given(files: Dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """GDBHEAPX_MEMORY wins."""
    monkeypatch.setenv(budget.VARIABLE, "123")
    assert budget.allowed_bytes() == 123


class Heap:
    """100 million blocks in 20 GB."""

    shape = SimpleNamespace(unit_bytes=16)

    def histogram(self) -> List[Any]:
        return [SimpleNamespace(used_chunks=100_000_000)]

    def claims(self) -> List[Any]:
        return [SimpleNamespace(start=0x1000, end=0x1000 + 20_000_000_000)]


def test_what_does_not_even_fit_without_a_graph_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """400 MB for a census: refused with both figures where less is allowed; tried where there is as much, and whatever is little."""
    session: Any = SimpleNamespace(copied_bytes=0, target=SimpleNamespace(has_memory=True), heaps=SimpleNamespace(all=lambda: [Heap()]))
    monkeypatch.setenv(budget.VARIABLE, "390000000")
    with pytest.raises(HeapxError) as refused:
        heap_graph.check_least(session, heap_graph.SIGNED_BYTES)
    assert "381.5 MiB" in refused.value.message and "371.9 MiB" in refused.value.message and refused.value.hint
    monkeypatch.setenv(budget.VARIABLE, "410000000")
    heap_graph.check_least(session, heap_graph.SIGNED_BYTES)
    with pytest.raises(HeapxError):
        heap_graph.check_least(session, heap_graph.PINNED_BYTES)
    monkeypatch.setenv(budget.VARIABLE, "1")
    monkeypatch.setattr(heap_graph, "LITTLE_BYTES", 400_000_000)
    heap_graph.check_least(session, heap_graph.SIGNED_BYTES)


def test_a_look_has_limits(tmp_path: Path) -> None:
    """A command that looks, which waits here for the reader of its answer: a limit of its data, and the highest oom_score_adj."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    words = [sys.executable, "-m", "gdbheapx", "--gdb", "none", "--core", __file__, "arenas", "-o", str(fifo)]
    look = subprocess.Popen(words, cwd=str(ROOT), stderr=subprocess.DEVNULL)
    try:
        until, score, limit = time.monotonic() + 60, "", "unlimited"
        while (score, limit.isdigit()) != ("1000", True) and look.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
            score = Path("/proc/%d/oom_score_adj" % look.pid).read_text().strip()
            limits = Path("/proc/%d/limits" % look.pid).read_text()
            limit = next(line for line in limits.splitlines() if line.startswith("Max data size")).split()[3]
        assert (score, limit.isdigit()) == ("1000", True)
    finally:
        look.kill()
        look.wait()
