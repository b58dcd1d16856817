"""Advise the next command, by the program that owns the memory: commands of this tool where it sees inside, else those of the runtime
itself. A core has no process to ask: advice that only a process can answer is given for the live process.
"""

import shlex
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from gdbheapx import findings as codes
from gdbheapx.analysis.memory import kinds
from gdbheapx.hints import hint_command
from gdbheapx.inferior.base import Module, Target
from gdbheapx.model import StepSentence


class ProgramAdvice(NamedTuple):
    """Advice for one program."""

    live: Tuple[Union[StepSentence, str], ...] = ()
    """What a process of it can be asked. PID: its number."""
    core: Tuple[StepSentence, ...] = ()
    """What a core can be asked."""
    in_malloc: Tuple[StepSentence, ...] = ()
    """What distinguishes a process's blocks of malloc."""
    is_seen: bool = False
    """This tool knows its objects: `owners` and `census` come first."""
    has_objects: bool = False
    """Most of its memory is a heap of objects, of which a collector or the runtime itself frees some."""
    has_c_beside: bool = False
    """Its own tools do not see malloc's blocks, which cgo or JNI take."""
    owners: str = "shows the owners of the blocks in malloc (of code in C)"


_NMT = StepSentence(
    "jcmd PID VM.native_memory summary",
    "splits heap, metaspace, code and threads, and direct buffers as Other; requires -XX:NativeMemoryTracking=summary at the start",
)
_HEAP_SNAPSHOT = StepSentence(
    "v8.writeHeapSnapshot()",
    "in the program writes each object and its holders to a file, and pauses the program meanwhile; so does SIGUSR2 if node was started "
    "with --heapsnapshot-signal=SIGUSR2 (else that signal ends node)",
)
_BY_PROGRAM: Dict[str, ProgramAdvice] = {
    "JVM": ProgramAdvice(
        (
            StepSentence("jcmd PID GC.heap_info", "shows how much of the Java heap is in use"),
            StepSentence("jcmd PID GC.class_histogram", "shows the objects in the Java heap by class, after a full collection"),
            _NMT,
        ),
        has_objects=True,
        core=(StepSentence("jhsdb jmap --histo --exe JAVA --core CORE", "of the same JDK shows the objects in the Java heap by class"),),
        in_malloc=(_NMT,),
        has_c_beside=True,
        owners="shows which fields of Java classes, and what of code in C, hold the blocks in malloc",
    ),
    "WebAssembly": ProgramAdvice(
        (
            StepSentence(
                "memory.buffer.byteLength",
                "in JavaScript shows how large a WebAssembly.Memory is; process.memoryUsage() of node 26 counts none of them",
            ),
            "a memory grows and never shrinks: it goes with the last reference to it and to its instance",
        )
    ),
    "V8": ProgramAdvice(
        (
            StepSentence("process.memoryUsage()", "in the program shows heapUsed, heapTotal and external"),
            _HEAP_SNAPSHOT,
        ),
        has_objects=True,
        in_malloc=(
            StepSentence(
                "process.memoryUsage()",
                "in the program shows arrayBuffers, the memory of Buffers, and external, all that JavaScript keeps outside",
            ),
            _HEAP_SNAPSHOT,
        ),
    ),
    "Go": ProgramAdvice(
        (
            StepSentence(
                "go tool pprof -inuse_space http://HOST:PORT/debug/pprof/heap",
                "shows which code holds the heap, if the program imports net/http/pprof",
            ),
            StepSentence("GOMEMLIMIT=SIZE", "at the next start makes the collector keep the heap below that"),
        ),
        has_c_beside=True,
        has_objects=True,
    ),
    "BEAM": ProgramAdvice(
        (
            StepSentence("erlang:memory().", "in a remote shell shows processes, binaries, ets, code"),
            StepSentence("recon_alloc:fragmentation(current).", "shows carriers that are mostly unused"),
        )
    ),
    "PHP": ProgramAdvice(
        (
            StepSentence(
                "memory_get_usage(true)",
                "in the program shows what the request holds; memory_limit bounds it, pm.max_requests ends workers that have grown",
            ),
            StepSentence("opcache_get_status()", "shows what opcache's shared memory holds"),
        ),
        is_seen=True,
    ),
    "Ruby": ProgramAdvice(
        (
            StepSentence("GC.stat", "in the program shows heap pages and live slots"),
            StepSentence(
                "ObjectSpace.trace_object_allocations_start", "in the program records which line makes each object (require 'objspace')"
            ),
        ),
        is_seen=True,
    ),
    "CPython": ProgramAdvice((StepSentence("tracemalloc", "started in the program shows which code made the objects"),), is_seen=True),
    "GCC": ProgramAdvice((StepSentence("-fmem-report", "makes the compiler show, when it finishes, what used the memory"),)),
    "MariaDB": ProgramAdvice((StepSentence("SHOW ENGINE INNODB STATUS", "shows the buffer pool; innodb_buffer_pool_size bounds it"),)),
    "PostgreSQL": ProgramAdvice(
        (
            StepSentence(
                "SELECT * FROM pg_shmem_allocations", "shows what the shared memory is used for; SHOW shared_buffers its largest part"
            ),
            StepSentence("SELECT * FROM pg_backend_memory_contexts", "shows the private memory of a backend"),
        )
    ),
    "nginx": ProgramAdvice(
        (StepSentence("nginx -T", "shows the zones and their sizes (limit_req_zone, proxy_cache_path, ssl_session_cache)"),)
    ),
}
"""By Owner.program."""
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
_BY_KIND: Dict[str, ProgramAdvice] = {
    kinds.SHARED: ProgramAdvice(
        (
            StepSentence("ipcs -m", "lists SysV segments"),
            StepSentence("ls -l /proc/PID/fd", "shows the memfds that the process holds open"),
        ),
    ),
    kinds.CACHE: ProgramAdvice(("nothing to do: the kernel drops such pages when memory is short",)),
    kinds.LOCKED: ProgramAdvice(
        (StepSentence("grep -E '^VmLck' /proc/PID/status", "shows how much is locked; mlock, mlockall or MAP_LOCKED did it"),)
    ),
    kinds.COPIED: ProgramAdvice(
        (StepSentence("grep -E ' rw-p .* /|^Anonymous' /proc/PID/smaps", "shows how much of each file's pages was written"),)
    ),
    kinds.STACK: ProgramAdvice(
        (
            StepSentence(
                "ls /proc/PID/task | wc -l", "counts the threads; ulimit -s and pthread_attr_setstacksize set the size of their stacks"
            ),
        )
    ),
}
"""By the kind of the part that is largest."""
_BY_CAUSE: Dict[str, ProgramAdvice] = {
    codes.NEVER_JOINED: ProgramAdvice(("find where the program creates these threads, and join each one or create it detached",)),
    codes.HUGE_STACKS: ProgramAdvice(
        (StepSentence("grep -E '^[0-9a-f]+-|^AnonHugePages' /proc/PID/smaps", "shows which stacks are in huge pages"),)
    ),
}
"""By the cause why stacks are largest."""
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
    advice = _BY_PROGRAM.get(program or "", ProgramAdvice())
    if not advice.live:
        names = [module.file_name for module in target.modules()]
        advice = ProgramAdvice(tuple(text for prefix, text in _BY_OBJECT if any(name.startswith(prefix) for name in names)))
    advice = _BY_CAUSE.get(cause or "", advice)
    if not advice.live:
        advice = next((advice for kind, advice in _BY_KIND.items() if code == codes.MOSTLY + kind), ProgramAdvice())
    if not advice.live:
        return ["look at the mappings listed above: this memory is outside malloc"]
    own = [
        StepSentence(hint_command("owners"), "shows the owners of most of it, by the program's own names"),
        StepSentence(hint_command("census"), "shows the objects by type"),
    ]
    beside = [
        StepSentence(hint_command("owners"), advice.owners),
        StepSentence(hint_command("leaks"), "lists those that nothing references any more"),
    ]
    return [
        *(own if advice.is_seen and has_heap else []),
        *_find_advice(target, advice.live, advice.core),
        *(beside if advice.has_c_beside and has_much else []),
    ]


def is_seen(program: Optional[str]) -> bool:
    """True if `owners` and `census` know the objects of the runtime."""
    return _BY_PROGRAM.get(program or "", ProgramAdvice()).is_seen


def has_objects(program: Optional[str]) -> bool:
    """True if most of the runtime's memory is for objects of the program."""
    advice = _BY_PROGRAM.get(program or "", ProgramAdvice())
    return advice.is_seen or advice.has_objects


def in_malloc(target: Target, programs: Sequence[str]) -> List[str]:
    """Return the steps that follow for malloc's memory in such programs."""
    files = {module.file_name for module in target.modules()}
    found: List[Union[StepSentence, str]] = [step for file, steps_ in _BY_EXECUTABLE.items() if file in files for step in steps_]
    found += [step for program in programs for step in _BY_PROGRAM.get(program, ProgramAdvice()).in_malloc]
    return [*_find_advice(target, found, ()), *([_NO_PROGRAM] if lacks_program(target) else [])]


def lacks_program(target: Target) -> bool:
    """A core whose program is not at hand."""
    if target.kind != "core" or not target.has_memory:
        return False
    program: Optional[Module] = next((module for module in target.modules() if module.is_executable), None)
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
