"""Advise the next command, by the program that owns the memory: commands of this tool where it sees inside, else those of the runtime
itself. A core has no process to ask: advice that only a process can answer is given for the live process.
"""

import shlex
from typing import Dict, List, Optional, Sequence, Tuple, Union

from gdbheapx import findings as codes
from gdbheapx.analysis.memory import kinds
from gdbheapx.hints import hint_command
from gdbheapx.inferior.base import Target
from gdbheapx.model import StepSentence

_NMT = StepSentence(
    "jcmd PID VM.native_memory summary",
    "splits heap, metaspace, code and threads, and direct buffers as Other; requires -XX:NativeMemoryTracking=summary at the start",
)
_HEAP_SNAPSHOT = StepSentence(
    "v8.writeHeapSnapshot()",
    "in the program writes each object and its holders to a file, and pauses the program meanwhile; so does SIGUSR2 if node was started "
    "with --heapsnapshot-signal=SIGUSR2 (else that signal ends node)",
)
_LIVE: Dict[str, Tuple[Union[StepSentence, str], ...]] = {
    "JVM": (
        StepSentence("jcmd PID GC.heap_info", "shows how much of the Java heap is in use"),
        StepSentence("jcmd PID GC.class_histogram", "shows the objects in the Java heap by class, after a full collection"),
        _NMT,
    ),
    "WebAssembly": (
        StepSentence(
            "memory.buffer.byteLength",
            "in JavaScript shows how large a WebAssembly.Memory is; process.memoryUsage() of node 26 counts none of them",
        ),
        "a memory grows and never shrinks: it goes with the last reference to it and to its instance",
    ),
    "V8": (StepSentence("process.memoryUsage()", "in the program shows heapUsed, heapTotal and external"), _HEAP_SNAPSHOT),
    "Go": (
        StepSentence(
            "go tool pprof -inuse_space http://HOST:PORT/debug/pprof/heap",
            "shows which code holds the heap, if the program imports net/http/pprof",
        ),
        StepSentence("GOMEMLIMIT=SIZE", "at the next start makes the collector keep the heap below that"),
    ),
    "BEAM": (
        StepSentence("erlang:memory().", "in a remote shell shows processes, binaries, ets, code"),
        StepSentence("recon_alloc:fragmentation(current).", "shows carriers that are mostly unused"),
    ),
    "PHP": (
        StepSentence(
            "memory_get_usage(true)",
            "in the program shows what the request holds; memory_limit bounds it, pm.max_requests ends workers that have grown",
        ),
        StepSentence("opcache_get_status()", "shows what opcache's shared memory holds"),
    ),
    "Ruby": (
        StepSentence("GC.stat", "in the program shows heap pages and live slots"),
        StepSentence(
            "ObjectSpace.trace_object_allocations_start", "in the program records which line makes each object (require 'objspace')"
        ),
    ),
    "CPython": (StepSentence("tracemalloc", "started in the program shows which code made the objects"),),
    "GCC": (StepSentence("-fmem-report", "makes the compiler show, when it finishes, what used the memory"),),
    "MariaDB": (StepSentence("SHOW ENGINE INNODB STATUS", "shows the buffer pool; innodb_buffer_pool_size bounds it"),),
    "PostgreSQL": (
        StepSentence(
            "SELECT * FROM pg_shmem_allocations", "shows what the shared memory is used for; SHOW shared_buffers its largest part"
        ),
        StepSentence("SELECT * FROM pg_backend_memory_contexts", "shows the private memory of a backend"),
    ),
    "nginx": (StepSentence("nginx -T", "shows the zones and their sizes (limit_req_zone, proxy_cache_path, ssl_session_cache)"),),
    codes.NEVER_JOINED: ("find where the program creates these threads, and join each one or create it detached",),
    codes.HUGE_STACKS: (StepSentence("grep -E '^[0-9a-f]+-|^AnonHugePages' /proc/PID/smaps", "shows which stacks are in huge pages"),),
    codes.MOSTLY + kinds.SHARED: (
        StepSentence("ipcs -m", "lists SysV segments"),
        StepSentence("ls -l /proc/PID/fd", "shows the memfds that the process holds open"),
    ),
    codes.MOSTLY + kinds.CACHE: ("nothing to do: the kernel drops such pages when memory is short",),
    codes.MOSTLY + kinds.LOCKED: (
        StepSentence("grep -E '^VmLck' /proc/PID/status", "shows how much is locked; mlock, mlockall or MAP_LOCKED did it"),
    ),
    codes.MOSTLY + kinds.COPIED: (
        StepSentence("grep -E ' rw-p .* /|^Anonymous' /proc/PID/smaps", "shows how much of each file's pages was written"),
    ),
    codes.MOSTLY + kinds.STACK: (
        StepSentence(
            "ls /proc/PID/task | wc -l", "counts the threads; ulimit -s and pthread_attr_setstacksize set the size of their stacks"
        ),
    ),
}
"""What a live process can be asked (PID: its number): by the program that owns the memory (MemoryOwner.program), by the code of the finding
that explains why stacks are largest, and by the code of a verdict on the largest part.
"""
_CORE = {"JVM": (StepSentence("jhsdb jmap --histo --exe JAVA --core CORE", "of the same JDK shows the objects in the Java heap by class"),)}
"""What a core of such a program can be asked."""
_IN_MALLOC = {
    "JVM": (_NMT,),
    "V8": (
        StepSentence(
            "process.memoryUsage()",
            "in the program shows arrayBuffers, the memory of Buffers, and external, all that JavaScript keeps outside",
        ),
        _HEAP_SNAPSHOT,
    ),
}
"""What distinguishes a process's blocks of malloc."""
_SEEN = frozenset(("PHP", "Ruby", "CPython"))
"""This tool knows their objects: `owners` and `census` come first."""
_WITH_OBJECTS = _SEEN | {"JVM", "V8", "Go"}
"""Most of their memory is a heap of objects, of which a collector or the runtime itself frees some."""
_WITH_C_BESIDE = {
    "JVM": "shows which fields of Java classes, and what of code in C, hold the blocks in malloc",
    "Go": "shows the owners of the blocks in malloc (of code in C)",
}
"""Their own tools do not see malloc's blocks, which cgo or JNI take: what `owners` shows of these."""
_BY_OBJECT = (
    ("libmono", "Mono keeps objects in its own heap; use its profiler"),
    ("libcoreclr", ".NET keeps objects in its own heap; use dotnet-gcdump"),
)
"""Runtimes whose mappings are not known here."""
_BY_EXECUTABLE = {
    name: (
        StepSentence(
            "%s MEMORY STATS" % client, "splits it: keys (dataset.bytes), buffers of clients (clients.normal), replication, scripts"
        ),
        StepSentence("%s --bigkeys" % client, "names the largest key of each type; %s MEMORY USAGE KEY says how large one is" % client),
    )
    for name, client in (("redis-server", "redis-cli"), ("redis-check-rdb", "redis-cli"), ("valkey-server", "valkey-cli"))
}
"""By the file of the program; Debian's redis-server is a link to redis-check-rdb."""
_NO_PROGRAM = "the program's file is missing, so variables, functions and classes show as offsets or hashes: pass it with --exe FILE"


def make_memory_steps(
    target: Target,
    code: Optional[str],
    program: Optional[str],
    has_heap: bool = False,
    cause: Optional[str] = None,
    has_much: bool = False,
) -> List[str]:
    """Return the advice where most of the memory is not malloc's: by the program that owns it, else by its kind (`code` of the verdict).
    `has_heap`: an allocator was read, so that this tool's commands go through the blocks. `cause`: code of the finding that explains it.
    `has_much`: an allocator holds enough to be judged as well.
    """
    key = next((key for key in (cause, program) if key in _LIVE), None)
    if key is not None:
        live = _LIVE[key]
    else:
        names = [module.file_name for module in target.modules()]
        others = tuple(text for prefix, text in _BY_OBJECT if any(name.startswith(prefix) for name in names))
        live = others or _LIVE.get(code or "", ())
    if not live:
        return ["look at the mappings listed above: this memory is outside malloc"]
    steps: List[str] = []
    if key in _SEEN and has_heap:
        steps.append(StepSentence(hint_command("owners"), "shows the owners of most of it, by the program's own names"))
        steps.append(StepSentence(hint_command("census"), "shows the objects by type"))
    steps += _find_advice(target, live, _CORE.get(key or "", ()))
    if key in _WITH_C_BESIDE and has_much:
        steps.append(StepSentence(hint_command("owners"), _WITH_C_BESIDE[key]))
        steps.append(StepSentence(hint_command("leaks"), "lists those that nothing references any more"))
    return steps


def is_seen(program: Optional[str]) -> bool:
    """True if `owners` and `census` know the objects of the runtime."""
    return program in _SEEN


def has_objects(program: Optional[str]) -> bool:
    """True if most of the runtime's memory is for objects of the program."""
    return program in _WITH_OBJECTS


def in_malloc(target: Target, programs: Sequence[str]) -> List[str]:
    """Return the steps that follow for malloc's memory in such programs."""
    files = {module.file_name for module in target.modules()}
    steps = [step for file, steps_ in _BY_EXECUTABLE.items() if file in files for step in steps_]
    steps += [step for program in programs for step in _IN_MALLOC.get(program, ())]
    return [*_find_advice(target, steps, ()), *([_NO_PROGRAM] if lacks_program(target) else [])]


def lacks_program(target: Target) -> bool:
    """A core whose program is not at hand."""
    if target.kind != "core" or not target.has_memory:
        return False
    program = next((module for module in target.modules() if module.is_executable), None)
    return program is not None and target.module_file(program) is None


def _find_advice(target: Target, live: Sequence[Union[StepSentence, str]], core: Sequence[StepSentence]) -> List[str]:
    if not live or (target.kind == "live" and target.pid is not None):
        return [
            StepSentence(step.command.replace("PID", str(target.pid)), step.why) if isinstance(step, StepSentence) else step
            for step in live
        ]
    asked = ["on the live process, `%s` %s" % (step.command, step.why) if isinstance(step, StepSentence) else step for step in live]
    core_path = target.core_path or ""
    # what was read while the kernel kept the process (capture) is no file, and is gone
    files = {"JAVA": target.executable, "CORE": None if core_path.startswith("/proc/") else core_path}
    words = [[shlex.quote(files.get(word) or word) for word in step.command.split()] for step in core]
    return [*(StepSentence(" ".join(command), step.why) for command, step in zip(words, core)), *asked]
