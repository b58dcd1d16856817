"""Run the checks of `doctor`: the findings, the missing parts, and the remedies. Never raises for a thing that is not well. It lists the
files of a core's machine that are missing here, and the use of each: a core holds the memory that was written to, its files the rest.
"""

import os
import platform
from functools import cache
from typing import List, Optional, Tuple

from gdbheapx import allocators
from gdbheapx import kernel as kernels
from gdbheapx.allocators.session import Session
from gdbheapx.common.errors import HeapxError, Refusal
from gdbheapx.common.model import Check
from gdbheapx.common.problems import PART_MISSING
from gdbheapx.common.units import count_noun
from gdbheapx.inferior.base import Target

GIVE = "give the file tree of the machine that wrote the core with --sysroot DIR"
PROGRAM = "pass it with --exe FILE to get its variables, symbol and class names"
LIBRARY = "it brings symbols, where threads have their thread-local variables, and the release: " + GIVE
DEBUG = "it brings symbols of a stripped library, and layouts as its build has them: %s"
OTHERS = "they bring names of functions and variables, no figures: " + GIVE


def missing_files(session: Session) -> List[Check]:
    """A row for each file that answers are made from, one for all others. The program has a row of its own among the target's."""
    target, discovery = session.target, session.discovery
    if target.kind != "core":
        return []
    modules = [module for module in target.modules() if not module.is_executable]
    lacking = {debug.module.base for debug in discovery.missing()}
    homes = {copy.located.module.base for copy in discovery.copies()} | {unread.module.base for unread in discovery.unread()} | lacking
    absent = [module for module in modules if target.module_file(module) is None]
    rows: List[Check] = []
    for module in [object_ for object_ in modules if object_.base in homes]:
        if module in absent:
            what = "%s (build-id %s): no such build here" % (module.name, module.build_id or "not in the core")
            rows.append(Check("library", False, what, LIBRARY))
        if not module.has_debug_info and module.base not in lacking:  # of those it is said already
            debug_file = target.debug_hint(module)[1] or "without a build-id nothing tells which"
            rows.append(Check("debug file", None, "%s: none here" % module.file_name, DEBUG % debug_file))
    others = [module.file_name for module in absent if module.base not in homes]
    if others:
        names = ", ".join(others[:4]) + (" and others" if len(others) > 4 else "")
        what = "%d of %d other objects were not found here: %s" % (len(others), len(modules) + 1, names)
        rows.append(Check("libraries", None, what, OTHERS))
    return rows


def run_checkup(session: Session) -> List[Check]:
    """Everything, machine first."""
    rows = _check_machine(session)
    if session.has_target:
        rows += _check_target(session.target)
        for row in rows if session.target.kind == "core" and not session.target.problems() else ():
            if row.what == "executable" and row.ok is False:
                session.problem(PART_MISSING, None, row.found, row.hint)  # a missing part
        threads = session.target.threads()
        rows.append(Check("threads", bool(threads), str(len(threads)), None))
        if kernels.loaded_library() is not None:
            rows += _check_allocators(session)
            rows += missing_files(session)
    return rows


def _check_machine(session: Session) -> List[Check]:
    gdb = session.debugger_version
    text, hint = "not in use: gdbheapx reads without it, and changes no process", "trim, purge and tickers --cure need gdb"
    rows = [Check("gdb", True, gdb, None) if gdb else Check("gdb", None, text, hint)]
    rows.append(Check("python", None, platform.python_version(), None))
    try:
        kernels.load_native_library()
        rows.append(Check("kernel", True, "C", None))
    except HeapxError as error:
        rows.append(Check("kernel", False, error.message, error.hint))
    scope = _read_line("/proc/sys/kernel/yama/ptrace_scope")
    if scope not in (None, "0") and os.geteuid() != 0:
        rows.append(Check("attach", False, "kernel.yama.ptrace_scope is %s" % scope, "run as root, or: sysctl kernel.yama.ptrace_scope=0"))
    return rows


@cache
def _read_line(path: str, starts: Tuple[str, ...] = ("",)) -> Optional[str]:
    """Return the first line of a file that begins so, or None."""
    try:
        with open(path) as file:
            return next((line.strip() for line in file if line.startswith(starts)), None)
    except OSError:
        return None


def _check_target(target: Target) -> List[Check]:
    names = {"core": "core %s" % target.core_path, "live": "process %s" % target.pid, "remote": "remote process %s" % target.pid}
    geometry = target.machine, target.word_bytes, target.byte_order, target.page_bytes
    rows = [
        Check("target", True, names[target.kind], None),
        _check_executable(target),
        Check("machine", None, "%s, %d-byte words, %s-endian, pages of %d bytes" % geometry, None),
    ]
    complaints = target.problems()
    rows += [Check("target", False, complaint.what, complaint.hint) for complaint in complaints]
    if target.kind == "core" and not complaints:
        dumped = sum(mapping.dumped_bytes or 0 for mapping in target.mappings())
        whole = "complete: %s of memory in %s" % (count_noun(dumped, "byte"), count_noun(len(target.mappings()), "mapping"))
        rows.append(Check("core", True, whole, None))
    rows.append(_check_calls(target))
    return rows


def _check_executable(target: Target) -> Check:
    """Check that the program's file is here, and is the one that ran."""
    hint = PROGRAM if target.kind == "core" else None
    name = target.executable
    if name is None:
        return Check("executable", False, "unknown", hint)
    module = next((object_ for object_ in target.modules() if object_.is_executable), None)
    path = target.module_file(module) if module is not None else None
    if path is None:
        return Check("executable", False, "%s: this file was not found here, or is not the program that ran" % name, hint)
    return Check("executable", True, name if path.endswith(name) else "%s, read from %s" % (name, path), None)


def _check_calls(target: Target) -> Check:
    """Check that gdb could call a function in the process (this tool does not): older gdbs break it on CPUs with AMX state."""
    if target.kind == "core":
        return Check("calls", None, "not applicable to a core", None)
    gdb = target.debugger_version
    if gdb is None:
        return Check("calls", None, "not possible without gdb", None)
    try:
        target.arch.to_call()
    except Refusal as refusal:
        return Check("calls", None, refusal.message, refusal.hint)
    numbers = [int(part) for part in gdb.split(".")[:1] if part.isdigit()]
    amx = "amx_tile" in (_read_line("/proc/cpuinfo", ("flags", "Features")) or "").split()
    if not amx or not numbers or numbers[0] >= 16:
        text = "gdb %s, CPU %s AMX: no known problem with function calls" % (gdb or "?", "with" if amx else "without")
        return Check("calls", None, text, None)
    text = "gdb %s on a CPU with AMX: function calls fail halfway (seen up to gdb 13) and can leave the process broken" % gdb
    hint = "never use `call` in this process with this gdb; gdb 16 can call safely"
    return Check("calls", False if numbers[0] <= 13 else None, text, hint)


def _check_allocators(session: Session) -> List[Check]:
    """The heaps that can be read, each with what it says itself; then those that cannot."""
    discovery = session.discovery
    unread, owner = discovery.unread(), discovery.foreign_owner()
    untold = [(unreadable.module.file_name, unreadable.module.build_id) for unreadable in unread]
    copies = {copy.located.id: copy for copy in discovery.copies()}
    rows: List[Check] = []
    for info in discovery.infos():
        if info.layout is None and (info.object, info.build_id) in untold:
            continue
        owns = {True: "owns malloc", False: "does not own malloc", None: "cannot determine whether it owns malloc"}[info.owns_malloc]
        version = info.version or "of unknown version"
        text = "%s %s in %s (build-id %s), %s" % (info.name, version, info.object, info.build_id or "none", owns)
        hint = None if info.layout else (owner.hint if owner is not None else None) or "this version cannot read it"
        rows.append(Check(info.id, info.layout is not None, text, hint))
        if info.layout is not None:
            layouts = "pack %s.json" % info.build_id if info.layout == "pack" else info.layout or "nowhere"  # a pack is of one build
            places = "by structure" if info.address_source == "probe" else "from %s" % info.address_source
            rows.append(Check("", None, "layouts from %s, addresses %s" % (layouts, places), None))
        if info.id in copies:
            rows += session.heaps.open(copies[info.id]).checks()
    for allocator in allocators.all_allocators():
        for unreadable in discovery.found(allocator).unread:
            owns = "; it owns malloc" if discovery.owner is not None and discovery.owner.module.base == unreadable.module.base else ""
            rows.append(Check(allocator.name, False, unreadable.what + owns, unreadable.hint))
        rows += [Check(allocator.name, None, unused.what, unused.hint) for unused in discovery.found(allocator).unused]
    if not rows and discovery.runtime is not None:
        rows.append(Check("allocator", None, "no malloc: a pure %s program, which manages its memory itself" % discovery.runtime, None))
    elif owner is None or owner.hint is None:
        rows += [Check("debug symbols", False, lacking.what, lacking.hint) for lacking in discovery.missing()]
    return rows or [Check("allocator", False, "no allocator found among %d loaded objects" % len(session.target.modules()), None)]
