"""Why there is no allocator to read in a target, and what to do about it."""

from typing import Optional

from gdbheapx import allocators
from gdbheapx.allocators.discovery import Discovery
from gdbheapx.allocators.records import Unread
from gdbheapx.errors import HeapxError, UsageError
from gdbheapx.inferior.base import Module, Target
from gdbheapx.problems import ALLOCATOR_UNREAD, NO_ALLOCATOR, OWNER_UNREAD


def why(discovery: Discovery, allocator_id: Optional[str]) -> HeapxError:
    """The error for a command that needs an allocator; UsageError where only the one that --allocator names is missing."""
    target, unread = discovery.target, discovery.unread()
    if allocator_id is not None:
        asked = allocators.by_name().get(allocator_id.split("#")[0])
        for one in discovery.found(asked).unread if asked is not None else ():
            return _cannot(one)
    known = discovery.ids()
    if known:
        return UsageError("allocator %s not found" % allocator_id, "found: %s" % ", ".join(known))
    for lacking in [*unread, *discovery.missing()]:
        return _cannot(lacking)
    for unused in discovery.unused():
        return HeapxError(unused.what, unused.hint, code=NO_ALLOCATOR)
    owner = discovery.owner
    if owner is not None:
        what = "no readable allocator: %s in %s owns malloc" % (owner.allocator or "an unknown allocator", owner.file)
        return HeapxError(what, owner.hint or "report shows the rest of the memory", code=OWNER_UNREAD)
    if discovery.runtime is not None:
        what = "no malloc here: this is a pure %s program, which manages its memory itself" % discovery.runtime
        return HeapxError(what, "report shows how much memory it holds", code=NO_ALLOCATOR)
    return _unknown(target)


def _cannot(one: Unread) -> HeapxError:
    return HeapxError(one.what, one.hint, code=ALLOCATOR_UNREAD)


def _unknown(target: Target) -> HeapxError:
    """Neither symbol nor text tells an allocator."""
    modules = target.modules()
    for complaint in target.problems() if not modules else ():
        return HeapxError(complaint.what, complaint.hint, code=complaint.code)
    if target.is_being_loaded():
        what = "the program is not loaded yet: it stands in the dynamic linker, before the library that has malloc"
        hint = "make the core later, when main() runs" if target.kind == "core" else "let it run until main() begins, then look again"
        return HeapxError(what, hint, code=NO_ALLOCATOR)
    if len(modules) != 1:
        return HeapxError("no readable allocator found in this target", "see `gdbheapx doctor`", code=NO_ALLOCATOR)
    return _static(target, modules[0])


def _static(target: Target, program: Module) -> HeapxError:
    name = program.file_name
    if target.module_file(program) is None:
        return HeapxError(
            "cannot search for an allocator: %s is linked statically, and its file was not found" % name,
            "give the file with --exe FILE",
            code=NO_ALLOCATOR,
        )
    what = "no allocator found: %s is linked statically, and no symbol or text in it identifies one" % name
    return HeapxError(what, "give the unstripped file of the same build with --exe FILE", code=NO_ALLOCATOR)
