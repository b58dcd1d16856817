"""Judge the memory as a whole: what is larger than all allocators, what was not read, what unloaded libraries left."""

import re
import shlex
import struct
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from gdbheapx.allocators.session import Session
from gdbheapx.analysis.memory import kinds
from gdbheapx.analysis.memory.attribute import Attribution, MappingPiece, drop_untouched
from gdbheapx.analysis.split import Split, SplitMemory
from gdbheapx.common import findings as codes
from gdbheapx.common import problems, verdict
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import GUESS, SURENESS, Finding, MemoryPart, StepSentence, TargetAddress
from gdbheapx.common.units import Sentence, SentenceSize, count_noun, format_number, format_share, join_sentences, make_sentence
from gdbheapx.common.verdict import MATTERS, MATTERS_BYTES, MUCH_SHARE, SMALL_BYTES, UNBOUNDED, WORTH_BYTES, HeapVerdict, of_lines, part_of
from gdbheapx.inferior.base import MappingUse, Target
from gdbheapx.kernel.blocks.graph import NativeSum

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
    "LuaJIT": (StepSentence('collectgarbage("count")', "in the program shows how many KiB Lua's objects take"),),
    "MariaDB": (
        StepSentence("SHOW ENGINE INNODB STATUS", "shows the buffer pool; innodb_buffer_pool_size bounds it"),
        StepSentence(
            "SHOW VARIABLES LIKE '%buffer_size'", "shows the others: innodb_log_buffer_size, key_buffer_size, aria_pagecache_buffer_size"
        ),
    ),
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
_LISTENING = re.compile(r"(?:redis|valkey)-server (?:unixsocket:([^\s']+)|([^\s']*):(\d+))")
"""The title of the process (Redis: proc-title-template): where it listens."""
_CLIENT = re.compile(r"\b(?:redis|valkey)-cli\b")
_USUAL_HOSTS, _USUAL_PORT = ("", "*", "127.0.0.1", "0.0.0.0", "::", "-::*"), "6379"
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


def make_client_options(command_line: Optional[str]) -> str:
    """Return the options by which a client reaches the server that calls itself so; nothing for the usual place."""
    listening = _LISTENING.search(command_line or "")
    if listening is None:
        return ""
    socket, host, port = listening.groups()
    if socket is not None:
        return " -s %s" % shlex.quote(socket)
    return ("" if host in _USUAL_HOSTS else " -h %s" % shlex.quote(host)) + ("" if port == _USUAL_PORT else " -p %s" % port)


def add_client_options(text: str, options: str) -> str:
    """Put the options after each name of a client."""
    return _CLIENT.sub(lambda client: client[0] + options, text) if options else text


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


MANY_UNJOINED = 8

_WHAT = {
    kinds.STACK: "thread stacks",
    kinds.JIT: "generated code",
    kinds.BSS: "bss",
    kinds.BRK: "program break ([heap]) without blocks of a known allocator",
    kinds.NAMED: "memory that the program has named",
    kinds.ANONYMOUS: "anonymous memory of unknown owner",
    kinds.SHARED: "shared memory",
    kinds.COPIED: "private copies of file pages",
    kinds.CACHE: "page cache of mapped files",
    kinds.LOCKED: "locked pages of mapped files",
    kinds.DEVICE: "memory of a device or a driver",
    kinds.KERNEL: "pages of the kernel",
    kinds.HUGETLB: "huge pages of hugetlbfs",
}

_OBJECTS = {
    "CPython": "Python objects (CPython's allocator)",
    "JVM": "Java's (the JVM)",
    "V8": "JavaScript's (V8)",
    "Go": "Go's heap and stacks",
    "Ruby": "Ruby objects (Ruby's heap)",
    "PHP": "PHP values (Zend's allocator)",
}
"""Whose objects most of a runtime's memory is for."""

UNCLAIMED = (kinds.ANONYMOUS, kinds.BRK, kinds.NAMED)
"""Kinds of memory that may be an allocator's that is not read, or not whole."""
_HINTS = {
    kinds.CACHE: "the kernel drops it when memory is short; it is not a leak",
    kinds.LOCKED: "mlock or mlockall keeps it in RAM; the kernel drops it after munlock",
    kinds.SHARED: "it counts in the RSS of every process that maps it; PSS shows this process's share",
    kinds.STACK: "to reduce it, use fewer threads or smaller stacks",
    kinds.BSS: "the program's own variables: run `nm --size-sort` on its file to find the largest",
}
_OBJECTS_HINT = "that is normal unless they keep growing: %s shows what keeps them, %s what grew"
_HUGE_STACKS_HINT = (
    "prctl(PR_SET_THP_DISABLE) before the program runs, madvise(MADV_NOHUGEPAGE) on each stack, or stacks without a whole aligned huge page"
)
"""Each measured on 60 stacks of 2 MiB (docs/reference/verdicts.md): 121.4 MiB before, 2.1 MiB after."""


class PartGroup(NamedTuple):
    """Parts that are spoken of as one: all allocators, all of one runtime, all of one kind."""

    kind: str
    program: Optional[str]
    bytes: int
    parts: Sequence[MemoryPart]
    """Largest first."""

    @property
    def sure(self) -> str:
        """Return the confidence that most of its bytes have."""
        best = {word: sum(judged_bytes(part) for part in self.parts if part.sure == word) for word in SURENESS}
        return max(SURENESS, key=lambda word: best[word])


def weigh_part(part: MemoryPart) -> int:
    """Return the memory of the machine that the part takes: RAM, swap, huge pages; in a core its bytes in the file."""
    return (part.resident_bytes or 0) + (part.swapped_bytes or 0) + (part.hugetlb_bytes or 0) + (part.dumped_bytes or 0)


def lazily_free_bytes(part: MemoryPart) -> int:
    """Bytes in RAM that the program gave to MADV_FREE."""
    return 0 if part.kind in kinds.FILE else part.droppable_bytes or 0


def judged_bytes(part: MemoryPart) -> int:
    """Return the weight of the part for a verdict. Pages of a file as they are on disk are in a core if the process asked for it
    (coredump_filter), in RAM or not: they do not count.
    """
    return 0 if part.kind == kinds.CACHE and part.dumped_bytes is not None else weigh_part(part)


def group_parts(split: Optional[Split]) -> List[PartGroup]:
    """Largest first; page cache that is too little to be the verdict comes last."""
    by_owner: Dict[str, List[MemoryPart]] = {}
    for part in split.parts if split is not None else ():
        key = kinds.ALLOCATOR if part.allocator is not None else part.program or part.kind
        by_owner.setdefault(key, []).append(part)
    made = []
    for members in by_owner.values():
        members.sort(key=lambda part: -judged_bytes(part))
        kind = kinds.ALLOCATOR if members[0].allocator is not None else members[0].kind
        made.append(PartGroup(kind, members[0].program, sum(map(judged_bytes, members)), members))
    least = verdict.CACHE_PERCENT * sum(group.bytes for group in made)
    return sorted(made, key=lambda group: (group.kind == kinds.CACHE and 100 * group.bytes < least, -group.bytes))


def with_verdict_1_0(judged: HeapVerdict, split: Optional[Split]) -> HeapVerdict:
    """Add what release 1.0 said where page cache was the largest part."""
    by_size = group_parts(split)
    largest = max(by_size, key=lambda group: group.bytes, default=None)
    if largest is None or largest.kind != kinds.CACHE or largest is by_size[0] or judged.kind == verdict.INCONCLUSIVE:
        return judged
    is_worth_it = sum(group.bytes for group in by_size) > WORTH_BYTES
    return judged._replace(kind_1_0=verdict.OUTSIDE_1_0, code_1_0=codes.MOSTLY + kinds.CACHE) if is_worth_it else judged


def has_much_memory(split: Optional[Split], allocators: Sequence[str]) -> bool:
    """Return True if these allocators hold enough to be judged, or if nothing is known of the memory."""
    total = sum(map(judged_bytes, split.parts)) if split is not None else 0
    if split is None or not total:
        return True
    held = sum(judged_bytes(part) for part in split.parts if part.allocator in allocators)
    return held >= max(MATTERS * total, min(MATTERS_BYTES, total / 2))


def sum_taken(split: Optional[Split], allocators: Sequence[str], kind: Optional[str] = None) -> Dict[str, int]:
    """Return the memory taken by each allocator's claims, or by their parts of one kind; empty if that is not known."""
    if split is None:
        return {}
    parts = [part for part in split.parts if kind in (None, part.kind)]
    return {name: sum(weigh_part(part) for part in parts if part.allocator == name) for name in allocators}


def sum_droppable(split: Optional[Split], allocators: Sequence[str]) -> Dict[str, int]:
    """Return the bytes of each allocator that the kernel may take without swap; allocators for which that is not known are left out."""
    if split is None:
        return {}
    parts = [part for part in split.parts if part.allocator is not None]
    unknown = {part.allocator for part in parts if part.droppable_bytes is None}
    return {name: sum(part.droppable_bytes or 0 for part in parts if part.allocator == name) for name in set(allocators) - unknown}


def unread_bytes(split: Optional[Split], lost_bytes: Optional[int]) -> int:
    """The most that an allocator may hold beyond what was read of it: what no other owner is known to have, and what a core lost."""
    if split is None or lost_bytes is None:
        return UNBOUNDED
    return lost_bytes + sum(weigh_part(part) for part in split.parts if _may_be_mallocs(part))


def _may_be_mallocs(part: MemoryPart) -> bool:
    """Return True if the part has no known owner."""
    return part.allocator is None and (part.kind in UNCLAIMED or part.sure == GUESS)


def may_be_mallocs(judged: HeapVerdict) -> bool:
    """An allocator that is not read could have the memory that such a verdict calls the largest."""
    return judged.sure == GUESS or (judged.code or "") in [codes.MOSTLY + kind for kind in UNCLAIMED]


def judge_memory(
    split: Optional[Split], lost_bytes: Optional[int] = 0, is_open: bool = False, is_malloc_free: bool = False
) -> Optional[Tuple[HeapVerdict, Optional[str]]]:
    """Return the verdict on the part that is larger than all allocators together, and its program; None where the allocators are the
    largest, and where the whole process is small. `lost_bytes`: bytes missing from a core, which may be of any owner; `is_open`: memory
    without a known owner may be an allocator's. There is no verdict where that decides it. `is_malloc_free`: no allocator was found, so
    that a small process is its runtime's.
    """
    if split is None or (not split.parts and not is_open and lost_bytes == 0):
        return None
    by_size = group_parts(split)
    total = sum(group.bytes for group in by_size)
    if not _is_stable(by_size, UNBOUNDED if lost_bytes is None else lost_bytes, is_open):
        if lost_bytes is not None and _is_stable(by_size, lost_bytes, False):
            what = "malloc's state is incomplete, and memory of unknown owner may belong to it"
        elif lost_bytes is None:
            what = "the core is truncated, and it is unknown how much is missing"
        else:
            share = format_share(lost_bytes, total + lost_bytes)
            what = make_sentence("the core is truncated; %s (%s) are missing", SentenceSize(lost_bytes), share)
        known = make_sentence("%s were read", SentenceSize(total))
        return of_lines([verdict.inconclusive_finding(what, known, problems.CUT_HINT)]), None
    largest = by_size[0] if by_size else None
    if largest is None or largest.kind == kinds.ALLOCATOR:
        return None
    if total <= WORTH_BYTES and not (is_malloc_free and largest.kind == kinds.RUNTIME):
        return None
    held = sum(group.bytes for group in by_size if group.kind == kinds.ALLOCATOR)
    return of_lines([_main_line(largest, total, held, split)], largest.sure), largest.program


def _is_stable(by_size: Sequence[PartGroup], lost: int, is_open: bool) -> bool:
    """Return True if the same group is the largest, no matter who owns the lost bytes, and whether allocators have the memory without a
    known owner.
    """
    unclaimed: Dict[str, int] = {}
    for group in by_size if is_open else ():
        unclaimed[group.kind] = sum(judged_bytes(part) for part in group.parts if _may_be_mallocs(part))
    total = sum(group.bytes for group in by_size)
    if total + lost <= WORTH_BYTES or not (lost or any(unclaimed.values())):
        return True
    if total <= WORTH_BYTES:
        return False
    first, rest = by_size[0], [group for group in by_size[1:] if group.kind != kinds.CACHE]
    if first.kind == kinds.ALLOCATOR:
        return all(group.bytes + lost < first.bytes for group in rest) and lost < first.bytes
    least = first.bytes - unclaimed.get(first.kind, 0)
    held = sum(group.bytes for group in rest if group.kind == kinds.ALLOCATOR) + sum(unclaimed.values())
    return lost < least and all(group.bytes + lost < least for group in rest) and held + lost < least


def _main_line(largest: PartGroup, total: int, held: int, split: Split) -> Finding:
    kind, program, owner = largest.kind, largest.program, _WHAT.get(largest.kind, "%s's own memory" % largest.program)
    cause = find_stack_cause(split) if kind == kinds.STACK else None
    if cause is not None and cause.code == codes.NEVER_JOINED:
        owner = largest.parts[0].name
    if kind == kinds.SHARED and program is not None:
        owner += " of %s" % program
    if kind == kinds.RUNTIME and has_objects(program):
        owner = _OBJECTS.get(program or "", "objects of %s" % program)
    unclaimed, hint = split.memory.unclaimed, _HINTS.get(kind)
    if kind == kinds.ANONYMOUS and unclaimed:
        hint = "largest mapping: %s-%s" % (unclaimed[0].start, unclaimed[0].end)
    elif largest.sure == GUESS:
        hint = "%s as the owner is a guess: a program like this has no other known owner of such memory" % program
    elif cause is not None:
        hint = None  # the finding's own
    elif kind == kinds.RUNTIME and is_seen(program):
        hint = _OBJECTS_HINT % (hint_command("owners"), hint_command("diff OLD"))
    lazy = sum(map(lazily_free_bytes, largest.parts))
    is_much = lazy >= max(SMALL_BYTES, MATTERS * largest.bytes)
    freed = make_sentence("%s of it freed with MADV_FREE; ", SentenceSize(lazy)) if is_much else ""
    evidence = make_sentence("%s are %s", part_of(largest.bytes, total), owner)
    details = make_sentence("%smalloc holds %s (%s)", freed, SentenceSize(held), format_share(held, total))
    return Finding("Runtime" if kind == kinds.RUNTIME else "In use", evidence, hint, codes.MOSTLY + kind, details, largest.bytes)


def _name_part(part: MemoryPart) -> str:
    if part.mappings <= 1:
        return part.name
    name, _, inner = part.name.partition(" (")
    name = "%s: %s" % (name, inner[:-1]) if inner.endswith(")") else part.name
    return "%s, %s" % (name, count_noun(part.mappings, "mapping"))


def find_stack_cause(split: Optional[Split]) -> Optional[Finding]:
    """The finding that most of the stacks' memory is due to."""
    if split is None:
        return None
    ended = split.memory.ended_threads
    are_unjoined = ended is not None and 2 * ended.unjoined_bytes >= split.memory.stack_bytes
    return next(_never_joined(split.memory) if are_unjoined else _huge_stacks(split), None)


def find_largest_program(split: Optional[Split]) -> Optional[str]:
    """Return the program whose memory is the largest part."""
    return next((group.program for group in group_parts(split)), None)


def find_program_with_cache(split: Optional[Split]) -> Optional[str]:
    """The program that has much where page cache, about which there is nothing to do, has most."""
    by_size = group_parts(split)
    if len(by_size) < 2 or by_size[0].kind != kinds.CACHE or by_size[1].bytes < MUCH_SHARE * sum(group.bytes for group in by_size):
        return None
    return by_size[1].program


def find_beside(split: Optional[Split]) -> List[Finding]:
    """Return the finding for a process in which allocators are the largest part, and have not nearly all."""
    by_size = group_parts(split)
    total = sum(group.bytes for group in by_size)
    others = [group for group in by_size if group.kind != kinds.ALLOCATOR]
    much = [group for group in others if group.bytes >= MUCH_SHARE * total]
    if not much or total <= WORTH_BYTES or by_size[0].kind != kinds.ALLOCATOR:
        return []
    outside = sum(group.bytes for group in others)
    named = join_sentences(", ", [make_sentence("%s in %s", SentenceSize(group.bytes), _name_part(group.parts[0])) for group in much])
    evidence = make_sentence("%s; %s", part_of(outside, total), named)
    return [Finding("much of the memory is outside malloc", evidence, None, codes.BESIDE_MALLOC, size_bytes=outside)]


def had_deeper_stacks(memory: Optional[SplitMemory]) -> bool:
    """Threads have touched much of their stacks in which they are no longer."""
    stacks = memory.thread_stacks if memory is not None else None
    past = stacks.past_bytes if stacks is not None else None
    return memory is not None and past is not None and past >= max(WORTH_BYTES, MATTERS * memory.total_bytes)


def find_memory_findings(split: Optional[Split]) -> List[Finding]:
    """Return the findings that a reader of RSS must know."""
    if split is None:
        return []
    memory, total = split.memory, split.memory.total_bytes
    found = [*_never_joined(memory), *_huge_stacks(split)]
    stacks = memory.thread_stacks
    if stacks is not None and had_deeper_stacks(memory):
        touched, past, threads = stacks.touched_bytes or 0, stacks.past_bytes or 0, count_noun(stacks.measured_threads, "thread")
        evidence = make_sentence("%s touched by %s, %s in use now", SentenceSize(touched), threads, SentenceSize(touched - past))
        hint = (
            "the rest was used by deeper calls and stays until each thread ends, or returns it with madvise; a smaller stack size limits it"
        )
        found.append(Finding("thread stacks were deeper before", evidence, hint, codes.DEEPER_STACKS, size_bytes=past))
    lazy = sum(map(lazily_free_bytes, split.parts))  # of any owner: droppable though it is no page cache
    if lazy >= max(SMALL_BYTES, MATTERS * total):
        largest = max(split.parts, key=lazily_free_bytes)
        evidence = make_sentence("%s of %s, most of it in %s", SentenceSize(lazy), SentenceSize(total), largest.name)
        hint = "the kernel reclaims it when memory is short, without swap; it counts in RSS until then and is not a leak"
        what = "memory was freed with MADV_FREE and is still in RSS"
        found.append(Finding(what, evidence, hint, codes.LAZY_FREE, size_bytes=lazy))
    own = [part for part in split.parts if part.kind not in (kinds.CACHE, kinds.KERNEL)]  # every process shares its libraries
    shared, pss = sum(part.shared_bytes or 0 for part in own), memory.pss_bytes
    if pss is not None and shared >= max(WORTH_BYTES, MUCH_SHARE * total):
        figures = SentenceSize(shared), SentenceSize(total), SentenceSize(pss)
        evidence = make_sentence("%s of RSS %s, not counting page cache; PSS %s", *figures)
        hint = "RSS counts such a page in every process, and once for each mapping; to add up a group of processes, use PSS"
        what = "much of RSS is mapped more than once, by other processes or by this one"
        found.append(Finding(what, evidence, hint, codes.SHARED_PAGES, size_bytes=shared))
    return found


def _never_joined(memory: SplitMemory) -> Iterator[Finding]:
    """Fewer threads may be waited for in turn."""
    ended = memory.ended_threads
    if ended is None or (ended.unjoined < MANY_UNJOINED and ended.unjoined_bytes < SMALL_BYTES):
        return
    where = "of RAM" if memory.measure == "resident" else "of the core"
    ran = join_sentences("", [make_sentence("; %s ran %s", format_number(start.threads), start.function) for start in ended.starts])
    sizes = SentenceSize(ended.unjoined_bytes), where, SentenceSize(ended.unjoined_virtual_bytes)
    evidence = make_sentence("their stacks take %s %s and %s of address space%s", *sizes, ran)
    what = "%s ended and %s never joined" % (count_noun(ended.unjoined, "thread"), "was" if ended.unjoined == 1 else "were")
    hint = "pthread_join or pthread_detach frees the stack of such a thread; nothing else does"
    yield Finding(what, evidence, hint, codes.NEVER_JOINED, size_bytes=ended.unjoined_bytes)


def _huge_stacks(split: Split) -> Iterator[Finding]:
    """Report stacks in huge pages; in a core these are the pages of zeros that the kernel took from RAM: a thread that has touched a page
    has rarely left it so.
    """
    parts = [part for part in split.parts if part.kind == kinds.STACK]
    stacks, threads = sum((part.resident_bytes or 0) + (part.dumped_bytes or 0) for part in parts), split.memory.thread_stacks
    is_core = split.memory.measure == "dumped"
    huge = sum(part.huge_bytes or 0 for part in parts)
    if is_core:
        are_measured = threads is not None and threads.measured_threads == threads.threads
        huge = stacks - (threads.touched_bytes or 0) if threads is not None and are_measured else 0
    if 2 * huge < stacks or huge < max(WORTH_BYTES, MATTERS * split.memory.total_bytes):
        return
    what, where = ("%s, most likely", " are pages of zeros that were in RAM") if is_core else ("%s", "")
    evidence = make_sentence("%s of %s%s: one touch of a stack fills a whole huge page", SentenceSize(huge), SentenceSize(stacks), where)
    yield Finding(what % "thread stacks are in huge pages", evidence, _HUGE_STACKS_HINT, codes.HUGE_STACKS, size_bytes=huge)


ENOUGH_PERCENT = 90
"""Less than SMALL_BYTES without a reader is what the loader and small libraries map: it makes no answer partial."""
READ = frozenset((kinds.ALLOCATOR, kinds.RUNTIME))
"""Kinds of anonymous memory with a reader; UNCLAIMED are those without. Stacks, bss, generated code and files are neither."""
HINT = "blocks in there are missing from this answer: `%s` shows which allocators were found" % hint_command("doctor")


class Coverage(NamedTuple):
    """Anonymous memory in RAM or swap, or in the core, next to stacks, bss, generated code and shared memory."""

    anonymous_bytes: int
    read_bytes: int
    """Of allocators that were read, and of runtimes that are known."""
    largest: Optional[TargetAddress] = None
    """The largest mapping without a reader."""

    @property
    def is_low(self) -> bool:
        """A zero in the answer may be any number."""
        unread_bytes = self.anonymous_bytes - self.read_bytes
        return unread_bytes >= SMALL_BYTES and 100 * self.read_bytes < ENOUGH_PERCENT * self.anonymous_bytes

    def words(self) -> Sentence:
        """`looked at 8.0 KiB of 89.9 MiB (0 %)`."""
        return make_sentence("looked at %s", part_of(self.read_bytes, self.anonymous_bytes))


def tell_coverage(session: Session) -> Optional[Coverage]:
    """Return the coverage of an answer about blocks; the answer is partial where it is low. None where it is unknown: of remote targets,
    of snapshots of earlier releases, and where one allocator alone is asked for."""
    try:
        coverage: Optional[Coverage] = session.kept("coverage", Optional[Coverage], lambda: _measure_coverage(session))
    except HeapxError:
        if session.target.has_memory:
            raise
        coverage = None
    return note_coverage(session, coverage)


def note_coverage(session: Session, coverage: Optional[Coverage]) -> Optional[Coverage]:
    """Put it into the envelope, and among the problems if it is low."""
    if coverage is None:
        return None
    whole, read = coverage.anonymous_bytes, coverage.read_bytes
    percent = 1000 * read // whole / 10 if whole else 100.0
    session.coverage = {"anonymous_bytes": whole, "read_bytes": read, "share_percent": percent}
    if coverage.is_low:
        words = SentenceSize(whole - read), coverage.words()
        what = make_sentence("%s of anonymous memory belong to no allocator or runtime that is read here: %s", *words)
        session.problem(problems.MEMORY_UNREAD, None if coverage.largest is None else str(coverage.largest), what, HINT)
    return coverage


def _measure_coverage(session: Session) -> Optional[Coverage]:
    """Return the coverage of a process or core that can be read now."""
    target, use = session.target, session.target.memory_use()
    if use is None or session.allocator_id is not None:
        return None
    claims = {heap.info.id: heap.claims() for heap in session.heaps.all()}
    use, pages, _, _ = drop_untouched(target, session.kernel, use, session.budget)
    return _sum_coverage(Attribution(target, session.kernel, use, claims, pages).pieces(), use.mappings)


def measure_split_coverage(session: Session, split: Optional[Split]) -> Optional[Coverage]:
    """Return the coverage of memory that is split already."""
    if split is None or split.attribution is None or session.allocator_id is not None:
        return None
    made = _sum_coverage((piece for pieces in split.pieces.values() for piece in pieces), split.attribution.mappings)
    return session.kept("coverage", Optional[Coverage], lambda: made)


def _sum_coverage(pieces: Iterable[MappingPiece], mappings: Sequence[MappingUse]) -> Coverage:
    read_bytes, unread_bytes, largest = 0, 0, (0, 0)
    for piece in pieces:
        size_bytes = piece.taken_bytes + (piece.swapped_bytes or 0)
        if piece.owner.kind in READ:
            read_bytes += size_bytes
        elif piece.owner.kind in UNCLAIMED:
            unread_bytes += size_bytes
            largest = max(largest, (size_bytes, mappings[piece.place].mapping.start))
    return Coverage(read_bytes + unread_bytes, read_bytes, TargetAddress(largest[1]) if largest[0] else None)


def hide_unread_zero(total: Optional[NativeSum], coverage: Optional[Coverage]) -> Optional[NativeSum]:
    """Return the sum; None for a sum of nothing where much was not read."""
    return None if total is not None and not total.blocks and coverage is not None and coverage.is_low else total


def count_sum(total: Optional[NativeSum], coverage: Optional[Coverage] = None) -> Dict[str, Optional[int]]:
    """Return blocks and bytes as JSON has them."""
    known = hide_unread_zero(total, coverage)
    return {"blocks": None, "bytes": None} if known is None else {"blocks": known.blocks, "bytes": known.bytes}


MANY = 4
"""Fewer may be failed loads of optional libraries; and of 2 every second number of blocks is a multiple."""
MOST_NAMESPACES, MUTEX_WORDS, RECURSIVE = 16, 5, 1
MOST_STATE_BYTES = 1 << 14
LOST_SHARE = 0.05


def count_unloaded(session: Session) -> Optional[int]:
    """Count the unloaded libraries; None where the dynamic linker's state could not be read, or it has several namespaces."""
    number: Optional[int] = session.kept("unloaded", Optional[int], lambda: _count_loads(session.target))
    return number


def _count_loads(target: Target) -> Optional[int]:
    """Loads that were counted, without the objects that are loaded (sysdeps/generic/ldsodefs.h: struct rtld_global). `_dl_load_adds` is
    after the recursive mutexes after `_dl_nns`, two or three by release; `_ns_nloaded` of the first namespace is the second word."""
    state = target.dynamic_symbol("_rtld_global")
    size = target.symbol_bytes(state) if state is not None else None
    if state is None or size is None or size > MOST_STATE_BYTES or target.word_bytes != 8 or not target.little_endian:
        return None
    data = target.read_prefix(state.address, size & -8)
    words = struct.unpack("<%dQ" % (len(data) // 8), data)
    for at, namespaces in enumerate(words[:-1]):
        end = at + 1
        while len(words) >= end + MUTEX_WORDS and words[end + 2] & 0xFFFFFFFF == RECURSIVE:
            if any((*words[end : end + 2], *words[end + 3 : end + MUTEX_WORDS])):  # held by a thread
                break
            end += MUTEX_WORDS
        if 1 <= namespaces <= MOST_NAMESPACES and end > at + 1 + MUTEX_WORDS and end < len(words):
            gone = words[end] - (words[1] & 0xFFFFFFFF)
            return gone if namespaces == 1 and 0 <= gone < 1 << 32 else None
    return None


def find_unloaded_findings(session: Session, used: Optional[NativeSum], leaked: Optional[NativeSum]) -> Sequence[Finding]:
    """Report unloaded libraries where a twentieth of the memory in use is leaked."""
    if used is None or leaked is None or leaked.bytes < LOST_SHARE * used.bytes or not leaked.bytes:
        return []
    gone = count_unloaded(session)
    if gone is None or gone < MANY:
        return []
    evidence = make_sentence("%s in %s are leaked, and may be theirs", SentenceSize(leaked.bytes), count_noun(leaked.blocks, "block"))
    hint = "memory that only a library's variables reference is leaked when dlclose unloads it: `%s` shows whether the numbers agree"
    what = "%s were loaded and unloaded since the process began" % name_libraries(gone)
    return [Finding(what, evidence, hint % hint_command("leaks"), codes.UNLOADED)]


def name_libraries(number: int) -> str:
    """`1 library`, `40 libraries`."""
    return "1 library" if number == 1 else "%d libraries" % number
