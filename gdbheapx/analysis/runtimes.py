"""Programs that keep memory of their own outside malloc, or have commands about it: what to type there."""

from typing import Dict, List, Optional, Sequence, Tuple

from gdbheapx import findings as codes
from gdbheapx.analysis.memory import kinds
from gdbheapx.inferior.base import Module, Target
from gdbheapx.model import Step

_BY_PROGRAM: Dict[str, Tuple[Step, ...]] = {
    "JVM": (
        Step("jcmd PID GC.heap_info", "shows how much of the Java heap is in use"),
        Step(
            "jcmd PID VM.native_memory summary",
            "splits heap, metaspace, code and threads; requires -XX:NativeMemoryTracking=summary at the start",
        ),
    ),
    "V8": (
        Step("process.memoryUsage()", "in the program shows heapUsed, heapTotal and external"),
        Step("kill -USR2 PID", "writes a heap snapshot, if node was started with --heapsnapshot-signal=SIGUSR2"),
    ),
    "Go": (
        Step(
            "go tool pprof -inuse_space http://HOST:PORT/debug/pprof/heap",
            "shows which code holds the heap, if the program imports net/http/pprof",
        ),
        Step("GOMEMLIMIT=SIZE", "at the next start makes the collector keep the heap below that"),
    ),
    "BEAM": (
        Step("erlang:memory().", "in a remote shell shows processes, binaries, ets, code"),
        Step("recon_alloc:fragmentation(current).", "shows carriers that are mostly unused"),
    ),
    "PHP": (
        Step(
            "memory_get_usage(true)",
            "in the program shows what the request holds; memory_limit bounds it, pm.max_requests ends workers that have grown",
        ),
        Step("opcache_get_status()", "shows what opcache's shared memory holds"),
    ),
    "Ruby": (
        Step("GC.stat", "in the program shows heap pages and live slots"),
        Step("ObjectSpace.memsize_of_all", "shows what objects hold (require 'objspace')"),
    ),
    "CPython": (
        Step("tracemalloc", "started in the program shows which code made the objects"),
        Step(
            "PYTHONMALLOC=malloc",
            "at the next start puts small objects into malloc, which `chunks` and `leaks` read; "
            "`census` shows the objects by type, `owners` who keeps them",
        ),
    ),
    "GCC": (Step("-fmem-report", "makes the compiler show, when it finishes, what used the memory"),),
    "MariaDB": (Step("SHOW ENGINE INNODB STATUS", "shows the buffer pool; innodb_buffer_pool_size bounds it"),),
    "PostgreSQL": (
        Step("SELECT * FROM pg_shmem_allocations", "shows what the shared memory is used for; SHOW shared_buffers its largest part"),
        Step("SELECT * FROM pg_backend_memory_contexts", "shows the private memory of a backend"),
    ),
    "nginx": (Step("nginx -T", "shows the zones and their sizes (limit_req_zone, proxy_cache_path, ssl_session_cache)"),),
}
"""By Owner.program."""

_BY_OBJECT = (
    ("libmono", "Mono keeps objects in its own heap; use its profiler"),
    ("libcoreclr", ".NET keeps objects in its own heap; use dotnet-gcdump"),
)
"""Runtimes whose mappings are not known here."""

_BY_KIND: Dict[str, Tuple[str, ...]] = {
    kinds.SHARED: (Step("ipcs -m", "lists SysV segments"), Step("ls -l /proc/PID/fd", "shows the memfds that the process holds open")),
    kinds.CACHE: ("nothing to do: the kernel drops such pages when memory is short",),
    kinds.COPIED: (Step("grep -E ' rw-p .* /|^Anonymous' /proc/PID/smaps", "shows how much of each file's pages was written"),),
    kinds.STACK: (
        Step("ls /proc/PID/task | wc -l", "counts the threads; ulimit -s and pthread_attr_setstacksize set the size of their stacks"),
    ),
}
"""By the kind of the part that is largest."""


def _names(modules: Sequence[Module]) -> List[str]:
    return [module.file_name for module in modules]


def steps(target: Target, code: Optional[str], program: Optional[str]) -> List[str]:
    """What to do where most of the memory is not malloc's: by the program whose it is, else by its kind (`code` of the verdict)."""
    names = _names(target.modules())
    found: Sequence[str] = _BY_PROGRAM.get(program or "", ())
    found = found or [text for prefix, text in _BY_OBJECT if any(name.startswith(prefix) for name in names)]
    found = found or next((texts for kind, texts in _BY_KIND.items() if code == codes.MOSTLY + kind), ())
    if not found:
        return ["look at the mappings listed above: this memory is not malloc's"]
    return [_with_pid(step, target.pid if target.kind == "live" else None) for step in found]


def _with_pid(step: str, pid: Optional[int]) -> str:
    if pid is None or not isinstance(step, Step):
        return step
    return Step(step.command.replace("PID", str(pid)), step.why)
