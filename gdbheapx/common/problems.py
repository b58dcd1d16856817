"""Codes of what can be wrong with an answer, for scripts, tests and actions. Sentences may change, a code never does."""

from enum import Enum
from typing import Dict, NamedTuple, Optional, Protocol


class Severity(Enum):
    """Kind of a problem, which decides whether a call into the process is refused."""

    DAMAGE = "memory breaks a rule of the allocator, or contradicts itself"
    UNREAD = "something that is there cannot be read, or was not dumped"
    MOMENT = "a thread was in the middle of a change"
    TIME = "time ran out, or Ctrl-C or a signal came"
    ENVIRONMENT = "this machine, gdb or the call of gdbheapx lacks something"
    NOTE = "nothing is wrong: it belongs to the answer"
    USAGE = "the command line asks for something that does not exist, or that cannot be combined"
    REFUSED = "a change of the process was not made"


KNOWN: Dict[str, "ProblemCode"] = {}
"""Every code by its text."""


class ProblemCode(str):
    """The code of a problem, as JSON shows it."""

    nature: Severity
    meaning: str
    """As the reference says it: of every code that only an error has."""

    def __new__(cls, text: str, nature: Severity, meaning: str = "") -> "ProblemCode":
        """A code that no other module uses; ValueError where one does."""
        if text in KNOWN:
            raise ValueError("two problems have the code %s" % text)
        made = super().__new__(cls, text)
        made.nature, made.meaning = nature, meaning
        KNOWN[text] = made
        return made

    @classmethod
    def of(cls, text: str) -> "ProblemCode":
        """The code of that text, which another run of the tool has written; a later version may have more of them."""
        if text in KNOWN:
            return KNOWN[text]
        made = super().__new__(cls, text)
        made.nature, made.meaning = Severity.NOTE, ""
        return made

    @property
    def forbids_calls(self) -> bool:
        """A function of the allocator that runs on what was read could end the process; so could what was not read to its end."""
        return self.nature in (Severity.DAMAGE, Severity.UNREAD, Severity.MOMENT, Severity.TIME)


class Diagnostic(NamedTuple):
    """Problem as the reader of the target reports it."""

    code: ProblemCode
    address: Optional[int]
    """In the target; None where it concerns no place."""
    what: str
    """The rule that is broken, or the thing that is missing."""
    hint: Optional[str]
    """What to think of it, or to do."""

    def line(self) -> str:
        """Return the problem as one line."""
        return self.what if self.address is None else "0x%x: %s" % (self.address, self.what)


class ProblemSink(Protocol):
    """Records a problem where it is shown: `where` is a file or an allocator's id, `partial`: the answer is not whole."""

    def __call__(self, code: ProblemCode, where: Optional[str], what: str, hint: Optional[str] = None, partial: bool = True) -> None: ...


class PartialSink(Protocol):
    """Records a problem that makes the answer partial: the members of Diagnostic."""

    def __call__(self, code: ProblemCode, address: Optional[int], what: str, hint: Optional[str]) -> None: ...


# ---- the target
MEMORY_UNREADABLE = ProblemCode("memory-unreadable", Severity.UNREAD)
CORE_CUT = ProblemCode("core-truncated", Severity.UNREAD)
"""The core is shorter than it says, or cannot be read to its end."""
CUT_HINT = "take a whole core: check the disk space and ulimit -c where it was written"
CORE_DAMAGED = ProblemCode("core-damaged", Severity.DAMAGE)
"""The core's program headers contradict each other."""
MEMORY_LEFT_OUT = ProblemCode("memory-left-out", Severity.UNREAD)
"""The core was written without the memory that answers are made from."""
WRONG_FILE = ProblemCode("wrong-file", Severity.ENVIRONMENT)
"""A file that was given, or found, is not the one that the process runs."""
NO_PROGRAM = ProblemCode("no-program", Severity.UNREAD)
"""Nothing shows which objects are loaded."""
OBJECTS_CUT = ProblemCode("objects-incomplete", Severity.DAMAGE)
"""The dynamic linker's list of objects is damaged or cut."""
PROCESS_ENDED = ProblemCode("process-ended", Severity.UNREAD)
"""It is gone, and how is not known; the next four say how."""
PROCESS_EXITED = ProblemCode("process-exited", Severity.UNREAD)
PROCESS_KILLED = ProblemCode("process-killed", Severity.UNREAD)
PROCESS_OUT_OF_MEMORY = ProblemCode("process-out-of-memory", Severity.UNREAD)
"""The kernel killed it because a memory cgroup was full."""
PROCESS_EXECUTED = ProblemCode("process-executed", Severity.UNREAD)
"""It runs another program now."""
ENDS = (PROCESS_ENDED, PROCESS_EXITED, PROCESS_KILLED, PROCESS_OUT_OF_MEMORY, PROCESS_EXECUTED)
CALL_LEFT = ProblemCode("call-unfinished", Severity.DAMAGE)
"""A call into the process did not end as it should."""

IN_SWAP = ProblemCode("in-swap", Severity.UNREAD)
"""Pages in swap were not read, because the process's memory limit, or the machine, has no room for them; or because they are shared,
which the page table does not distinguish from pages that were never touched."""
MAPPED_FILE_UNREAD = ProblemCode("mapped-file-unread", Severity.UNREAD)
"""Pages of a mapped file that are not in memory, or that a user's file system serves, and the file cannot be opened."""
USERFAULTFD_UNREAD = ProblemCode("userfaultfd-unread", Severity.UNREAD)
"""Pages that are not there, and that another program would fill in."""
MEMORY_UNREAD = ProblemCode("memory-unread", Severity.UNREAD)
"""Much of the anonymous memory is no one's that is read here: blocks in it are not in the answer."""
ROOTS_UNREAD = ProblemCode("roots-unreadable", Severity.UNREAD)
"""What may hold blocks could not all be read: who holds them is not known for sure."""
ROOTS_MISSING = ProblemCode("roots-missing", Severity.UNREAD)
"""A core lacks variables, a stack or thread-local storage that the process had: what is leaked is unknown."""
NOT_DUMPED = ProblemCode("heap-not-dumped", Severity.NOTE)
"""A core lacks memory of blocks in use that was never written to, or was to be left out: it counts as zeros."""
GRAPH_TOO_LARGE = ProblemCode("graph-too-large", Severity.ENVIRONMENT)
"""There was no room for the graph of blocks: what holds them was answered without it."""
NO_COUNTERS = ProblemCode("no-counters", Severity.ENVIRONMENT)
"""What an allocator holds cannot be determined while the process runs: it is in no figure."""
NO_RULE = ProblemCode("no-return-rule", Severity.ENVIRONMENT)
"""By what rule an allocator returns memory is not known here."""
REGISTERS_UNREAD = ProblemCode("registers-unreadable", Severity.ENVIRONMENT)

# ---- this machine and this call
PAGEMAP_UNREADABLE = ProblemCode("pagemap-unreadable", Severity.ENVIRONMENT)
SHARED_PAGES_UNKNOWN = ProblemCode("shared-pages-unknown", Severity.ENVIRONMENT)
SWAPPED_IN = ProblemCode("swapped-in", Severity.NOTE)
SEVERAL_MOMENTS = ProblemCode("several-moments", Severity.NOTE)
NOT_COPIED = ProblemCode("not-copied", Severity.NOTE)
"""There was no room for a copy of the process: it stood still for as long as it was looked at."""
PROFILE_PART = ProblemCode("profile-covers-part", Severity.NOTE)
"""Much of the memory in use was allocated while the allocator's sampling was off: the profile says nothing of it."""
OBJECTS_GATHERED = ProblemCode("objects-gathered", Severity.NOTE)
"""So many objects that those with the same owners are shown as one."""
NO_FOLDER = ProblemCode("no-folder", Severity.ENVIRONMENT)
SECCOMP = ProblemCode("seccomp", Severity.ENVIRONMENT)
"""A thread's seccomp filter forbids what a call into the process needs, or cannot be read."""
NOT_WRITABLE = ProblemCode("memory-not-writable", Severity.ENVIRONMENT)
"""This process may read the other's memory and may not write it."""
TAGS_UNKNOWN = ProblemCode("tags-unknown", Severity.NOTE)
"""Words would be pointers to leaked blocks if the process had asked for bits of pointers to be ignored, which a core does not show."""
FILES_NOT_DUMPED = ProblemCode("mapped-files-not-in-core", Severity.NOTE)
"""A core has no shared mappings of files, unless the program's coredump_filter asks for them: what only they hold looks leaked."""
SECCOMP_SLEEP = ProblemCode("seccomp-sleep", Severity.NOTE)
"""gdb stopped a thread in a sleep, and its seccomp filter does not let the kernel go on with that: letting it run kills the process."""
CALL_REFUSED = ProblemCode("call-refused", Severity.NOTE)
"""What was only predicted would not be done here, and why."""
NO_REGISTER_CALLS = ProblemCode("no-register-calls", Severity.ENVIRONMENT)
"""gdb cannot write registers here and set them back."""
THREAD_LOCALS_UNREADABLE = ProblemCode("thread-locals-unreadable", Severity.ENVIRONMENT)
"""The place of threads' variables is unknown: without symbols or registers, not for damage. What trim predicts does not rest on it."""

WORK_LIMIT = ProblemCode("work-limit", Severity.UNREAD)
"""A file, or what is in memory, is made so that parsing it has no end of use: the rest of it is unread."""

# ---- the answer
CUT = ProblemCode("stopped-early", Severity.TIME)
"""Time ran out, or Ctrl-C or a signal came."""
STOP_LIMIT = ProblemCode("stop-limit", Severity.TIME)
"""The process had to go on before everything of it was read."""
NO_ANSWER = ProblemCode("no-answer", Severity.ENVIRONMENT)
"""A part of the answer could not be given."""
ALLOCATOR_UNREAD = ProblemCode("allocator-unread", Severity.UNREAD)
"""An allocator is there and cannot be read."""
OWNER_UNREAD = ProblemCode("owner-unread", Severity.UNREAD)
"""Malloc belongs to an allocator that cannot be read."""
NO_ALLOCATOR = ProblemCode("no-allocator", Severity.UNREAD)
OTHER_IS_LARGER = ProblemCode("other-allocator-larger", Severity.NOTE)
"""Another allocator in this process holds more than the one that is shown."""
UNLISTED_RELEASE = ProblemCode("unlisted-release", Severity.NOTE)
"""A release that this version does not know was read like its neighbour, and proved itself."""
RUNTIME_UNREAD = ProblemCode("runtime-unread", Severity.NOTE)
"""A release of a runtime whose objects this version does not know: its memory is one part."""
LEAK_UNKNOWN = ProblemCode("leak-unknown", Severity.NOTE)
"""Whether as much is leaked as was asked about: what may hold it was not read."""
GROWTH_UNKNOWN = ProblemCode("growth-unknown", Severity.NOTE)
"""A limit on growth was asked for, and what one of the two looks lacks may have grown beyond it."""
CHECK_UNSETTLED = ProblemCode("check-unsettled", Severity.MOMENT)
"""What breaks a rule of the allocator may be an unfinished change."""
PART_MISSING = ProblemCode("part-missing", Severity.ENVIRONMENT)
"""What `doctor` found to be missing."""
ZEROS_NOT_SOUGHT = ProblemCode("zero-pages-not-searched", Severity.TIME)
STACK_LISTS_CUT = ProblemCode("stack-lists-incomplete", Severity.TIME)
"""There was no time to follow the C library's lists of stacks to their end."""
"""Pages of zeros in a core were not all distinguished from memory that was in use."""

# ---- errors: there is no answer
USAGE = ProblemCode("usage", Severity.USAGE, "an option or a value is wrong, or cannot be combined with another")
NO_TARGET = ProblemCode("no-target", Severity.USAGE, "the command requires a process, core or snapshot, and none was given")
NOT_FOUND = ProblemCode("not-found", Severity.USAGE, "the target has no arena, thread, module, block or variable of this name or address")
NOT_IN_SNAPSHOT = ProblemCode(
    "not-in-snapshot", Severity.USAGE, "a snapshot does not contain what this requires: ask the process or its core"
)
SHELL_ONLY = ProblemCode("shell-only", Severity.USAGE, "the command runs from a shell, not inside gdb or from the single file")
ADDON_MISSING = ProblemCode("addon-missing", Severity.USAGE, "the command or option belongs to an add-on that is not installed here")
QUERY_FAILED = ProblemCode("query-failed", Severity.USAGE, "DuckDB cannot run the SQL")

NO_PROCESS = ProblemCode("no-process", Severity.ENVIRONMENT, "no process has this id, or it is that of a thread or a kernel thread")
NOT_PERMITTED = ProblemCode("not-permitted", Severity.ENVIRONMENT, "this user may not read or trace the process, or not read the file")
NO_GROUP = ProblemCode("no-group", Severity.ENVIRONMENT, "no memory cgroup, pod or container has this name, or several have it")
ALREADY_TRACED = ProblemCode("already-traced", Severity.ENVIRONMENT, "a debugger is attached to the process")
PROC_UNUSABLE = ProblemCode("proc-unusable", Severity.ENVIRONMENT, "/proc is not mounted, or belongs to another pid namespace")
FILE_NOT_FOUND = ProblemCode("file-not-found", Severity.ENVIRONMENT, "there is no file or folder of this name")
FILE_UNREADABLE = ProblemCode("file-unreadable", Severity.ENVIRONMENT, "a file cannot be opened or read, or is no regular file")
NOT_A_CORE = ProblemCode("not-a-core", Severity.ENVIRONMENT, "the file is not an ELF core, is empty, or contradicts itself")
NOT_A_SNAPSHOT = ProblemCode("not-a-snapshot", Severity.ENVIRONMENT, "the file is not a snapshot, or has the format of another version")
SNAPSHOT_DAMAGED = ProblemCode("snapshot-damaged", Severity.ENVIRONMENT, "the snapshot is cut or damaged")
CANNOT_UNPACK = ProblemCode("cannot-unpack", Severity.ENVIRONMENT, "a compressed core cannot be unpacked")
CANNOT_WRITE = ProblemCode(
    "cannot-write", Severity.ENVIRONMENT, "a result cannot be written: disk, limits, permissions, a closed descriptor"
)
UNSAFE_PATH = ProblemCode("unsafe-path", Severity.ENVIRONMENT, "another user owns, or may change, the file or folder that is to be written")
MISSING_PACKAGE = ProblemCode("missing-package", Severity.ENVIRONMENT, "an optional Python package is not installed")
KERNEL_MISSING = ProblemCode("kernel-missing", Severity.ENVIRONMENT, "the native library, which reads memory, cannot be loaded here")
MISSING_SYMBOLS = ProblemCode("missing-symbols", Severity.ENVIRONMENT, "a debug file, symbol table or build-id is missing")
NO_SHORT_STOP = ProblemCode(
    "no-short-stop", Severity.ENVIRONMENT, "what --short-stop or cold --for does is not possible, or not safe, here"
)
NOT_PROFILED = ProblemCode("not-profiled", Severity.ENVIRONMENT, "the allocator does not sample allocations in this process")
GDB_MISSING = ProblemCode("gdb-missing", Severity.ENVIRONMENT, "the named gdb cannot be run, or the command requires a gdb")
GDB_FAILED = ProblemCode("gdb-failed", Severity.ENVIRONMENT, "gdb crashed, was killed, exited without a result, or lacks a feature")
NO_SCHEDULER = ProblemCode("no-scheduler", Severity.ENVIRONMENT, "the scheduler of the Dask cluster does not answer")
CANNOT_LISTEN = ProblemCode("cannot-listen", Severity.ENVIRONMENT, "the address or port is in use, or is not this machine's")
OUT_OF_MEMORY = ProblemCode("out-of-memory", Severity.ENVIRONMENT, "there is not enough memory for the answer")
INTERNAL = ProblemCode("internal-error", Severity.ENVIRONMENT, "a defect of gdbheapx")

INTERRUPTED = ProblemCode("interrupted", Severity.TIME, "Ctrl-C, SIGTERM or SIGHUP came before there was a result")

REFUSED = ProblemCode("refused", Severity.REFUSED, "a call into the process would not be safe, or would have no effect")
BUSY = ProblemCode("busy", Severity.REFUSED, "threads of the process are inside the allocator, or hold its locks")
NOT_LIVE = ProblemCode(
    "not-live", Severity.REFUSED, "only a process of this machine can be changed, not a core, snapshot or remote process"
)
NOT_CONFIRMED = ProblemCode("not-confirmed", Severity.REFUSED, "the change was not confirmed: --yes is missing, or the answer was no")
