"""Why there is no allocator to read in a target, and what to do about it."""

import os
from typing import Any, List, Optional, Protocol

from gdbheapx.errors import HeapxError, UsageError
from gdbheapx.target.base import Module, Target


class Looked(Protocol):
    """What is asked of a session."""

    @property
    def target(self) -> Target: ...

    @property
    def owner(self) -> Any: ...

    @property
    def runtime(self) -> Optional[str]: ...

    def jemallocs(self) -> Any: ...

    def readable(self) -> List[str]: ...


def why(session: Looked, allocator_id: Optional[str]) -> HeapxError:
    """The error for a command that needs an allocator; UsageError where only the one that --allocator names is missing."""
    target, unread = session.target, session.jemallocs().unread
    if unread and (allocator_id or "").startswith("jemalloc"):
        return HeapxError(unread[0].what, unread[0].hint)
    known = session.readable()
    if known:
        return UsageError("allocator %s not found" % allocator_id, "found: %s" % ", ".join(known))
    if unread:
        return HeapxError(unread[0].what, unread[0].hint)
    for module in target.modules():
        if os.path.basename(module.name).startswith(("libc.so", "libc-2")):
            return HeapxError("no debug symbols for %s (build-id %s)" % (module.name, module.build_id or "unknown"), target.debug_hint(module).line())
    owner = session.owner
    if owner is not None:
        what = "no readable allocator: %s in %s owns malloc" % (owner.allocator or "an unknown allocator", owner.file)
        return HeapxError(what, owner.hint or "report shows the rest of the memory")
    if session.runtime is not None:
        what = "no malloc here: this is a pure %s program, which manages its memory itself" % session.runtime
        return HeapxError(what, "report shows how much memory it holds")
    return _unknown(target)


def _unknown(target: Target) -> HeapxError:
    """Neither symbol nor text tells an allocator."""
    modules = target.modules()
    for complaint in target.problems() if not modules else ():
        return HeapxError(complaint.what, complaint.hint, code=complaint.code)
    if len(modules) != 1:
        return HeapxError("no readable allocator found in this target", "see `gdbheapx doctor`")
    return _static(target, modules[0])


def _static(target: Target, program: Module) -> HeapxError:
    name = os.path.basename(program.name)
    if target.module_file(program) is None:
        return HeapxError("cannot search for an allocator: %s is linked statically, and its file was not found" % name, "give the file with --exe FILE")
    what = "no allocator found: %s is linked statically, and no symbol or text in it identifies one" % name
    return HeapxError(what, "give the unstripped file of the same build with --exe FILE")
