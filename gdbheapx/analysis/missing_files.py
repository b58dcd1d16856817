"""Which files of a core's machine are not here, and what each would bring: a core holds what was written to, its files the rest."""

from typing import List

from gdbheapx.inferior.base import Module, Target
from gdbheapx.model import Check
from gdbheapx.session import Session

GIVE = "give the file tree of the machine that wrote the core with --sysroot DIR"
PROGRAM = "give it with --exe FILE: it brings the variables of what is linked into it, and names"
LIBRARY = "it brings symbols, where threads have their thread-local variables, and the release: " + GIVE
DEBUG = "it brings symbols of a stripped library, and layouts as its build has them: %s"
OTHERS = "they bring names of functions and variables, no figures: " + GIVE


def missing_files(session: Session) -> List[Check]:
    """A row for each file that answers are made from, one for all others. The program has a row of its own among the target's."""
    target, discovery = session.target, session.discovery
    if target.kind != "core":
        return []
    modules = [one for one in target.modules() if not one.is_executable]
    lacking = {one.module.base for one in discovery.missing()}
    homes = {one.located.module.base for one in discovery.copies()} | {one.module.base for one in discovery.unread()} | lacking
    absent = {one.base for one in modules if target.module_file(one) is None}
    rows: List[Check] = []
    for module in [one for one in modules if one.base in homes]:
        if module.base in absent:
            rows.append(Check("library", False, "%s: no such build here" % _named(module), LIBRARY))
        if not module.has_debug_info and module.base not in lacking:  # of those it is said already
            rows.append(Check("debug file", None, "%s: none here" % module.file_name, DEBUG % _debug(target, module)))
    others = [one for one in modules if one.base in absent and one.base not in homes]
    if others:
        what = "%d more of %d objects were not found here: %s" % (len(others), len(modules) + 1, _list(others))
        rows.append(Check("libraries", None, what, OTHERS))
    return rows


def _named(module: Module) -> str:
    return "%s (build-id %s)" % (module.name, module.build_id or "not in the core")


def _debug(target: Target, module: Module) -> str:
    return target.debug_hint(module).debug_file or "without a build-id nothing tells which"


def _list(modules: List[Module]) -> str:
    names = [one.file_name for one in modules]
    return ", ".join(names[:4]) + (" and others" if len(names) > 4 else "")
