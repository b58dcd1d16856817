"""Which packs are found, and which is in use; the pack of a module."""

from typing import List, NamedTuple, Optional, Tuple

from gdbheapx.errors import HeapxError
from gdbheapx.inferior.base import Module, TypeSet
from gdbheapx.layout import pack
from gdbheapx.layout.pack import Classes, Pack
from gdbheapx.problems import FILE_NOT_FOUND, MISSING_SYMBOLS, NOT_FOUND
from gdbheapx.session import Session

MOST_NAMED = 8
"""Modules that an error names."""


class PackRow(NamedTuple):
    """One file that is, or claims to be, a pack."""

    file: str
    build_id: Optional[str]
    allocator: Optional[str]
    """Null where it has vtables alone."""
    version: Optional[str]
    machine: Optional[str]
    exactness: Optional[str]
    """How far it is that of the distributed library, in words; empty: all of it."""
    in_use: Optional[bool]
    """The target's allocator is read with it; null without a target."""
    problem: Optional[str]
    """Why it cannot be used."""
    vtables: Optional[int] = None
    """How many it has."""


def listed(session: Session) -> List[PackRow]:
    """Every pack, in the order in which they are asked: of one build the first is used."""
    used = (
        {(info.name, info.build_id) for info in session.discovery.infos() if "pack" in (info.layout, info.address_source)}
        if session.has_target
        else None
    )
    rows = []
    for listed_pack in pack.listed(session.pack_directories):
        content = listed_pack.pack
        if content is None:
            rows.append(PackRow(listed_pack.path, None, None, None, None, None, None if used is None else False, listed_pack.problem))
            continue
        try:
            vtables = len(content.vtables.all())
        except HeapxError as damage:
            rows.append(PackRow(listed_pack.path, None, None, None, None, None, None if used is None else False, damage.message))
            continue
        in_use = None if used is None else (content.allocator, content.build_id) in used
        if used is not None:
            used.discard((content.allocator, content.build_id))
        rows.append(
            PackRow(
                listed_pack.path,
                content.build_id,
                content.allocator or None,
                content.version_text,
                content.machine,
                content.exactness,
                in_use,
                None,
                vtables,
            )
        )
    return rows


def export(session: Session, name: Optional[str]) -> Pack:
    """The pack of the allocator that is asked for, with the vtables of its module; with `name`, of that module, whatever is in it.

    HeapxError where there is nothing to export.
    """
    target = session.target
    if name is None:
        made = session.heaps.pack()
        module = next((object_ for object_ in target.modules() if object_.build_id == made.build_id), None)
        return made._replace(vtables=Classes(target.vtables(module) if module is not None else None))
    module = _module(session, name)
    if not module.build_id:
        raise HeapxError(
            "%s has no build-id, and packs are found by build-id" % module.name, "link it with -Wl,--build-id", code=MISSING_SYMBOLS
        )
    vtables = target.vtables(module)
    made_pack, reason = _of_allocator(session, module)
    if made_pack is None and not vtables:
        raise _nothing(session, module, reason, vtables is None)
    return (made_pack or _without_allocator(session, module))._replace(vtables=Classes(vtables))


def _module(session: Session, name: str) -> Module:
    """The one with this path, base name or build-id; the executable, too."""
    modules = session.target.modules()
    for module in modules:
        if name in (module.name, module.file_name, module.build_id):
            return module
    bases = [module.file_name for module in modules]
    stem = name.rsplit("/", 1)[-1].split(".")[0].split("-")[0]
    near = [base for base in bases if stem and stem in base] or bases
    more = ", ..." if len(near) > MOST_NAMED else ""
    raise HeapxError(
        "no module %s in this target" % name, "its modules: %s%s" % (", ".join(near[:MOST_NAMED]) or "none", more), code=NOT_FOUND
    )


def _of_allocator(session: Session, module: Module) -> Tuple[Optional[Pack], Optional[HeapxError]]:
    """The pack of the allocator in this module, or why there is none."""
    reason = None
    for allocator in session.discovery.with_capability("pack"):
        copies = session.discovery.found(allocator)
        for located in copies.located:
            if located.module.base == module.base:
                try:
                    return allocator.pack(session.target, copies, located.id), None
                except HeapxError as error:
                    reason = error
    return None, reason


def _without_allocator(session: Session, module: Module) -> Pack:
    return Pack(
        allocator="",
        version_text=None,
        build_id=module.build_id or "",
        machine=session.target.machine,
        word_bytes=session.target.word_bytes,
        prefix="",
        public_prefix="",
        symbols={},
        thread_locals={},
        types=TypeSet(),
        constants={},
        made_from="the module's own file",
        exactness="",
    )


def _nothing(session: Session, module: Module, reason: Optional[HeapxError], is_absent: bool) -> HeapxError:
    """Why there is nothing to export."""
    if reason is not None:
        return reason
    if is_absent:
        hint = session.target.debug_hint(module).line()
        return HeapxError(
            "the file of %s (build-id %s) is not here, and vtables are read from it" % (module.name, module.build_id),
            hint,
            code=FILE_NOT_FOUND,
        )
    what = "%s has no C++ class with a vtable, and no allocator that a pack can be made of: there is nothing to export"
    return HeapxError(what % module.name, "name another module", code=NOT_FOUND)
