"""What `doctor` looks at: what was found, what is missing, what to do about it. Never raises for a thing that is not well."""

import os
import platform
from functools import cache
from typing import Any, List, Optional, Protocol, Sequence

from gdbheapx.analysis import jemalloc_checkup
from gdbheapx.analysis.check import Check
from gdbheapx.errors import HeapxError
from gdbheapx.model import AllocatorInfo, JemallocBuild
from gdbheapx.problems import PART_MISSING, Code
from gdbheapx.target.base import Target


class Looked(Protocol):
    """What the checkup asks of a session."""

    @property
    def has_target(self) -> bool: ...

    @property
    def debugger_version(self) -> Optional[str]: ...

    @property
    def target(self) -> Target: ...

    @property
    def kernel(self) -> Any: ...

    def allocators(self) -> Sequence[AllocatorInfo]: ...

    def glibcs(self) -> Sequence[Any]: ...

    def jemallocs(self) -> Any: ...

    def jemalloc_builds(self) -> Sequence[JemallocBuild]: ...

    def foreign_owner(self) -> Any: ...

    def inner_allocators(self) -> Any: ...

    @property
    def runtime(self) -> Optional[str]: ...

    def problem(self, code: Code, where: Optional[str], what: str, hint: Optional[str] = None) -> None: ...


def checkup(session: Looked) -> List[Check]:
    """Everything, machine first."""
    rows = _machine(session)
    if session.has_target:
        rows += _target(session.target)
        for row in rows if session.target.kind == "core" and not session.target.problems() else ():
            if row.what == "executable" and row.ok is False:
                session.problem(PART_MISSING, None, row.found, row.hint)  # a missing part
        rows += _allocators(session)
        rows += _threads(session)
    return rows


def _machine(session: Looked) -> List[Check]:
    kernel = session.kernel
    gdb = session.debugger_version
    rows = [
        Check("gdb", gdb is not None, gdb or "not in use", None if gdb else "install gdb (Debian: apt-get install gdb)"),
        Check("python", None, platform.python_version(), None),
    ]
    slow = None if kernel.name == "c" else "%s; walks take about 15 times as long" % kernel.why
    rows.append(Check("kernel", kernel.name == "c", {"c": "C", "python": "Python twin"}.get(kernel.name, kernel.name), slow))
    scope = _line("/proc/sys/kernel/yama/ptrace_scope")
    if scope not in (None, "0") and os.geteuid() != 0:
        rows.append(Check("attach", False, "kernel.yama.ptrace_scope is %s" % scope, "run as root, or: sysctl kernel.yama.ptrace_scope=0"))
    return rows


@cache
def _line(path: str) -> Optional[str]:
    try:
        with open(path) as file:
            return file.readline().strip()
    except OSError:
        return None


def _target(target: Target) -> List[Check]:
    rows = []
    name = {"core": "core %s" % target.core_path, "live": "process %s" % target.pid, "remote": "remote process %s" % target.pid}[target.kind]
    geometry = "%s, %d-byte words, %s-endian, pages of %d bytes" % (
        target.machine,
        target.word_bytes,
        "little" if target.little_endian else "big",
        target.page_bytes,
    )
    rows.append(Check("target", True, name, None))
    rows.append(_executable(target))
    rows.append(Check("machine", None, geometry, None))
    complaints = target.problems()
    rows += [Check("target", False, one.what, one.hint) for one in complaints]
    if target.kind == "core" and not complaints:
        dumped = sum(mapping.dumped_bytes or 0 for mapping in target.mappings())
        rows.append(Check("core", True, "complete: %d bytes of memory in %d mappings" % (dumped, len(target.mappings())), None))
    rows.append(_calls(target))
    return rows


def _executable(target: Target) -> Check:
    """Whether the program's file is here, and is the one that ran."""
    hint = "give it with --exe FILE" if target.kind == "core" else None
    name = target.executable
    if name is None:
        return Check("executable", False, "unknown", hint)
    module = next((one for one in target.modules() if one.is_executable), None)
    path = target.module_file(module) if module is not None else None
    if path is None:
        return Check("executable", False, "%s: this file was not found here, or is not the program that ran" % name, hint)
    return Check("executable", True, name if path.endswith(name) else "%s, read from %s" % (name, path), None)


def _calls(target: Target) -> Check:
    """Whether gdb could call a function in the process (this tool does not): older gdbs break it on CPUs with AMX state."""
    if target.kind == "core":
        return Check("calls", None, "not applicable to a core", None)
    numbers = [int(part) for part in (target.debugger_version or "").split(".")[:1] if part.isdigit()]
    amx = "amx_tile" in (_cpu_flags() or ())
    if not amx or not numbers or numbers[0] >= 16:
        return Check("calls", None, "gdb %s, CPU %s AMX: no known problem with function calls" % (target.debugger_version or "?", "with" if amx else "without"), None)
    text = "gdb %s on a CPU with AMX: function calls fail halfway (seen up to gdb 13) and can leave the process broken" % target.debugger_version
    return Check("calls", False if numbers[0] <= 13 else None, text, "never use `call` in this process with this gdb; gdb 16 can call safely")


@cache
def _cpu_flags() -> Optional[List[str]]:
    """Features of this machine's first CPU; None where /proc/cpuinfo does not tell."""
    try:
        with open("/proc/cpuinfo") as file:
            return next((line.split(":", 1)[1].split() for line in file if line.startswith(("flags", "Features"))), None)
    except OSError:
        return None


def _allocators(session: Looked) -> List[Check]:
    try:
        found = session.allocators()
    except HeapxError as error:
        return [Check("allocator", False, error.message, error.hint)]
    unread, owner = session.jemallocs().unread, session.foreign_owner()
    untold = [(os.path.basename(one.module.name), one.module.build_id) for one in unread]
    builds = {build.allocator: build for build in session.jemalloc_builds()}
    rows = []
    for info in found:
        if info.layout is None and (info.object, info.build_id) in untold:
            continue
        owns = {True: "owns malloc", False: "does not own malloc", None: "cannot determine whether it owns malloc"}[info.owns_malloc]
        text = "%s %s in %s (build-id %s), %s" % (info.name, info.version or "of unknown version", info.object, info.build_id or "none", owns)
        rows.append(Check(info.id, info.layout is not None, text, None if info.layout else (owner.hint if owner is not None else None) or "this version cannot read it"))
        if info.layout is not None:
            rows.append(Check("", None, "layouts from %s, addresses from %s" % (_layouts_from(info), info.address_source), None))
        if info.id in builds:
            rows += jemalloc_checkup.checks(builds[info.id], len(session.target.threads()), info.owns_malloc)
    for one in unread:
        owns = "; it owns malloc" if owner is not None and owner.module.base == one.module.base else ""
        rows.append(Check("jemalloc", False, one.what + owns, one.hint))
    for one in session.inner_allocators():
        rows.append(Check(one.name, None, "gdbheapx does not read %s in %s: its memory counts as other anonymous mappings" % (one.name, one.file), one.hint))
    if not rows and session.runtime is not None:
        rows.append(Check("allocator", None, "no malloc: a pure %s program, which manages its memory itself" % session.runtime, None))
    elif not [info for info in found if info.name == "glibc"] and (owner is None or owner.hint is None):
        rows += _missing_symbols(session.target)
    return rows


def _layouts_from(info: AllocatorInfo) -> str:
    """A pack belongs to one build, so its file has the build's name."""
    return "pack %s.json" % info.build_id if info.layout == "pack" else info.layout or "nowhere"


def _missing_symbols(target: Target) -> List[Check]:
    rows = []
    for module in target.modules():
        if module.name.rsplit("/", 1)[-1].startswith(("libc.so", "libc-2")):
            hint = target.debug_hint(module)
            where = "; looked for %s" % hint.debug_file if hint.debug_file else ""
            rows.append(Check("debug symbols", False, "none for %s (build-id %s)%s" % (module.name, module.build_id or "none", where), hint.line() or None))
    return rows or [Check("allocator", False, "no libc found among %d loaded objects" % len(target.modules()), None)]


def _threads(session: Looked) -> List[Check]:
    target = session.target
    threads = target.threads()
    rows = [Check("threads", bool(threads), str(len(threads)), None)]
    try:
        glibcs = [glibc for glibc in session.glibcs() if glibc.tcache is not None]
    except HeapxError:
        return rows
    for glibc in glibcs:
        local = glibc.thread_local(target, "tcache")
        if local is None:
            hint = "chunks in thread caches count as used"
            rows.append(Check("thread caches", False, "thread-local storage of %s not found" % glibc.module.name, hint))
        else:
            known = sum(1 for address in local.addresses.values() if address is not None)
            rows.append(Check("thread caches", known == len(threads), "glibc's tcache found for %d of %d threads, by %s" % (known, len(threads), local.way), None))
    return rows
