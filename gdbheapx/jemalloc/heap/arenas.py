"""The arenas: `arenas[0..narenas_total)`, where each lies and what kind it is; which threads were inside jemalloc.
"""

import os
from typing import Iterable, List, NamedTuple, Optional, Sequence

from gdbheapx.errors import Unreadable
from gdbheapx.inferior.base import Mapping, Thread, TypeSet
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.detection import calibrate
from gdbheapx.layout.view import View
from gdbheapx.units import named

NAMED = 4
"""Threads that are named."""
FRAMES_BYTES = 1024
"""So much of a thread's stack is searched: the frames of a lock or a system call that jemalloc waits in."""
SYSTEM = ("libc.", "libc-", "libpthread", "[vdso]")
"""How the names of what jemalloc calls begin; libpthread of older releases."""
CALLERS_BYTES = 4096
"""So much for who called jemalloc: what flushes a thread cache has arrays there."""
PAC = "pa_shard.pac."
EXTENT_STATES = ("dirty", "muzzy", "retained", "pinned")
UNUSED_STATES = ("dirty", "muzzy")
"""What a purge gives back."""
ACTIVE = ("pa_shard.nactive", "nactive")


class Inside(NamedTuple):
    """Kernel ids of threads."""

    surely: List[int]
    """Their pc lies in the code of the object that holds this jemalloc, or the word that a leaf function returns to does, or they wait in
    libc, which it has called: for a lock that was free again, and they have not run since, or in a system call."""
    maybe: List[int]
    """A return address into that code stands near the top of their stack."""


def threads_inside(context: Context) -> Inside:
    """Who was inside jemalloc, as far as registers and the top of each stack tell."""
    mappings = context.target.mappings()
    base = context.jemalloc.module.base
    name = next(
        (mapping.name for mapping in mappings if mapping.start <= base < mapping.end), context.jemalloc.module.name
    )  # ld.so's path may have symlinks
    names = {name, context.jemalloc.module.name} - {""}
    code = [range(mapping.start, mapping.end) for mapping in mappings if mapping.executable and mapping.name in names]
    inside = Inside([], [])
    for thread in context.target.threads():
        if thread.pc is not None and any(thread.pc in span for span in code):
            inside.surely.append(thread.lwp)
            continue
        words = _top_of_stack(context, thread)
        returns = [any(word in span for span in code) for word in words]
        if any(returns):
            (inside.surely if returns[0] or _waits(context, mappings, code, thread) else inside.maybe).append(thread.lwp)
    return inside


def _waits(context: Context, mappings: Sequence[Mapping], code: Sequence[range], thread: Thread) -> bool:
    """The thread is in libc, which this jemalloc has called for somebody else, as its stack tells. A
    background thread, which rests there for most of its life, works for nobody."""
    if not os.path.basename(_object_at(mappings, thread.pc or 0)).startswith(SYSTEM):
        return False
    words = _top_of_stack(context, thread, CALLERS_BYTES)
    names = ((word, _object_at(mappings, word)) for word in words)
    callers = [word for word, name in names if name and not os.path.basename(name).startswith(SYSTEM)]
    are_own = [any(word in span for span in code) for word in callers]
    return are_own[:1] == [True] and not all(are_own)


def _object_at(mappings: Sequence[Mapping], address: int) -> str:
    """The file whose code is there; empty: none."""
    return next((mapping.name for mapping in mappings if mapping.executable and mapping.start <= address < mapping.end), "")


def _top_of_stack(context: Context, thread: Thread, most_bytes: int = FRAMES_BYTES) -> List[int]:
    if thread.stack_pointer is None:
        return []
    start, end = thread.stack_pointer & -context.geometry.word_bytes, thread.thread_pointer or 0
    return context.target.words_in(context.target.read_prefix(start, min(most_bytes, end - start) if end > start else most_bytes))


def explain(context: Context) -> Optional[str]:
    """Return the hint for a contradiction between extents, or with thread caches; None where nobody was inside and there is no other
    moment."""
    inside = threads_inside(context)
    who = inside.surely or inside.maybe
    is_core = context.target.kind == "core"
    if not who:
        return None if is_core else "retry to see whether it persists"
    is_sure = bool(inside.surely) and not context.jemalloc.module.is_executable  # else the program's own code may be meant
    verb = ("were" if len(who) > 1 else "was") if is_sure else "may have been"
    inside_it = "%s %s inside jemalloc" % (named("thread", who, NAMED), verb)
    if is_core:
        return "%s when the core was written: this may be an unfinished change" % inside_it
    return "%s at that moment: retry to see whether it persists" % inside_it


class Arena(NamedTuple):
    """One arena_t. Its struct is tens of kilobytes, so it is read when it is looked at, not kept."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    address: int
    kind: Optional[str]
    """`auto`, `huge` (the one for allocations above opt.oversize_threshold) or `manual` (made by arenas.create); None where no variable
    tells, but for arena 0."""
    context: Context

    def read(self) -> View:
        """arena_s as it is now. Unreadable if it cannot be read whole."""
        return self.context.view("arena_s", self.address)


def read_arenas(context: Context) -> List[Arena]:
    """Every arena that exists; reports those that cannot be read or are not what they should be, and leaves them out."""
    geometry = context.geometry
    if context.jemalloc.is_partial:
        hides, hint = hides_dirty_pages(context), "its counters, options without a place, threads and caches are null; %s"
        if hides is not False:
            hint %= "so are its dirty pages, as opt.hpa %s: some may be in no extent; %%s" % ("is on" if hides else "is unknown")
        context.report(
            codes.LAYOUT_UNKNOWN,
            None,
            "no known layout is that of jemalloc %s: only its extents are read" % context.jemalloc.version_name,
            hint % "blocks in thread caches count as used",
        )
    total, place = context.variable("narenas_total", 4), context.symbols.find("narenas_total")
    if total is not None and place is not None and total > geometry.narenas:
        context.report(
            codes.NARENAS_WRONG,
            place.address,
            "narenas_total is %d, more than jemalloc ever makes" % total,
            "gdbheapx searches for arenas up to %d" % geometry.narenas,
        )
    try:
        pointers = calibrate.arena_pointers(context.target, context.symbols, geometry.narenas)
    except Unreadable as problem:
        context.report(
            codes.ARENAS_UNREADABLE,
            problem.address,
            "cannot read jemalloc's array of arenas",
            "a core must include the bss of %s" % context.jemalloc.module.name,
        )
        return []
    arenas = []
    for index, address in enumerate(pointers):
        if not address:
            continue  # not created, or destroyed
        arena = Arena(index, address, _kind(context, index), context)
        try:
            view = arena.read()
        except Unreadable as problem:
            context.report(
                codes.ARENA_UNREADABLE, problem.address, "cannot read arena %d at 0x%x" % (index, address), "its figures are missing here"
            )
            continue
        own = calibrate.own_index(context.target, context.types, address)
        if own != index and (own is not None or _has_base(context, view)):
            says = "that says it is arena %d" % own if own is not None else "with an unreadable base: it is not an arena"
            context.report(codes.ARENA_WRONG, address, "arenas[%d] points to a struct %s" % (index, says), "its figures are missing here")
            continue
        arenas.append(arena)
    return arenas


def hides_dirty_pages(context: Context) -> Optional[bool]:
    """Dirty pages are in no extent, and nothing that is read of this build counts them: where no layout is known and the huge page
    allocator serves requests, which keeps what was freed in its page slabs (hpdata.c). None: not known whether it does."""
    if not context.jemalloc.is_partial:
        return False
    option = context.variable("opt_hpa", 1)
    return bool(option) if option in (0, 1) else None


def report_missing(context: Context, indexes: Iterable[int]) -> None:
    """Reports arenas that have extents and no place in arenas[]: one is taken out only when it has none left (ctl.c: arena_i_destroy)."""
    try:
        pointers = calibrate.arena_pointers(context.target, context.symbols, context.geometry.narenas)
    except Unreadable:
        return  # was told
    for index in indexes:
        if index < len(pointers) and not pointers[index]:
            context.report(
                codes.ARENA_MISSING,
                None,
                "extents belong to arena %d, but arenas[%d] is null" % (index, index),
                "its counters are missing here",
            )


def _kind(context: Context, index: int) -> Optional[str]:
    geometry = context.geometry
    if context.symbols.by_structure and geometry.manual_arena_base is None:
        return None if index else "auto"
    if geometry.huge_arena is not None and index == geometry.huge_arena:
        return "huge"
    return "manual" if geometry.manual_arena_base is not None and index >= geometry.manual_arena_base else "auto"


def _has_base(context: Context, view: View) -> bool:
    """This build's arenas have a base that tells their index. It lies in the same block as the arena itself."""
    return view.has("base") and context.types.place("base_s", "ind") is not None


def base_view(context: Context, view: View) -> Optional[View]:
    """base_s of an arena: its metadata's bookkeeping. None if it cannot be read."""
    try:
        return context.view("base_s", view["base"])
    except (Unreadable, KeyError):
        return None


def states_of(context: Context) -> Sequence[str]:
    """EXTENT_STATES that extents of this build may have: none is `pinned` up to 5.3.1, and where no layout is known it is not told."""
    return EXTENT_STATES if context.geometry.states.pinned is not None else EXTENT_STATES[:-1]


def pages(view: View, state: str) -> Optional[int]:
    """Pages in the arena's extents of a state (see EXTENT_STATES) by its own counters; None if this build has none.

    extents_STATE.npages up to 5.2; from 5.3 the sum of both esets of pac.ecache_STATE.
    """
    paths = page_paths(view.types, state)
    return sum(view[path] for path in paths) if paths else None


def page_paths(types: TypeSet, state: str) -> Sequence[str]:
    """The counters in arena_s that pages() adds up, also for `active`; none if this build has none."""
    if state == "active":
        active = types.first("arena_s", *ACTIVE)
        return (active,) if active is not None else ()
    if types.place("arena_s", "extents_%s.npages" % state) is not None:
        return ("extents_%s.npages" % state,)
    first, guarded = ("%secache_%s.%s.npages" % (PAC, state, eset) for eset in ("eset", "guarded_eset"))
    if types.place("arena_s", first) is None:
        return ()
    return (first, guarded) if types.place("arena_s", guarded) is not None else (first,)


def held_bytes(context: Context, listed: Sequence[Arena]) -> Optional[int]:
    """Active and unused pages of all arenas by their own counters; None if one of them cannot be told."""
    total = 0
    for arena in listed:
        try:
            view = arena.read()
        except Unreadable:
            return None
        kept = [pages(view, state) for state in (*UNUSED_STATES, *(["pinned"] if "pinned" in states_of(context) else []))]
        for count in (active_pages(view), *kept):
            if count is None:
                return None
            total += count * context.geometry.page_bytes
    return total if listed else None


def active_pages(view: View) -> Optional[int]:
    """nactive."""
    return view.get(*ACTIVE)


def decay_path(view: View, state: str) -> str:
    """Path of the decay state for `dirty` or `muzzy` pages."""
    return "decay_%s" % state if view.has("decay_%s" % state) else "%sdecay_%s" % (PAC, state)


def decay_ms(view: View, state: str) -> Optional[int]:
    """decay.time_ms as a signed number: -1 never, 0 at once."""
    value = view.get(decay_path(view, state) + ".time_ms")
    if value is None:
        return None
    return value - (1 << 64) if value >= 1 << 63 else value
