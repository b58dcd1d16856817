"""The walk over the radix tree: every extent once, in the kernel, and what it found wrong."""

from typing import Dict, List, Sequence, Tuple

from gdbheapx import units
from gdbheapx.errors import Unreadable
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.detection import calibrate
from gdbheapx.jemalloc.heap import arenas
from gdbheapx.kernel.common.records import STOP_TIME
from gdbheapx.kernel.jemalloc import records as kernel_api
from gdbheapx.kernel.jemalloc.records import BinLayout, BitField, BlockSizes, ExtentLayout, ExtentsResult, HeapLayout, RtreeLayout
from gdbheapx.kernel.jemalloc.walkers import ExtentWalker, extent_walker
from gdbheapx.problems import Code

_SLAB_BITMAPS = ("e_slab_data.bitmap", "e_slab_data")

DAMAGE: Dict[int, Tuple[Code, str]] = {
    kernel_api.EXTENT_NODE_UNREADABLE: (codes.NODE_UNREADABLE, "an rtree node that cannot be read: the extents below it are missing here"),
    kernel_api.EXTENT_NODE_HOLE: (codes.NODE_HOLE, "an rtree node that cannot be read completely: extents may be missing here"),
    kernel_api.EXTENT_NODE_TWICE: (codes.NODE_TWICE, "an rtree node that is a child in two places: it is read once"),
    kernel_api.EXTENT_NODE_MISALIGNED: (codes.NODE_MISALIGNED, "an rtree element that does not point to a node"),
    kernel_api.EXTENT_TOO_MANY_NODES: (codes.TOO_MANY_NODES, "more rtree nodes than memory could hold: the rest is not read"),
    kernel_api.EXTENT_UNREADABLE: (codes.EXTENT_UNREADABLE, "cannot read its extent structure"),
    kernel_api.EXTENT_SIZE: (codes.EXTENT_SIZE, "its extent has an impossible size"),
    kernel_api.EXTENT_STALE: (codes.EXTENT_STALE, "its extent does not contain it"),
    kernel_api.EXTENT_FIRST_PAGE: (codes.EXTENT_FIRST_PAGE, "the rtree does not map the first page of its extent to that extent"),
    kernel_api.EXTENT_LAST_PAGE: (
        codes.EXTENT_LAST_PAGE,
        "the rtree does not map the last page of its extent to that extent: its size is wrong, or it was being registered",
    ),
    kernel_api.EXTENT_OVERLAP: (codes.EXTENT_OVERLAP, "another extent begins inside its extent"),
    kernel_api.EXTENT_ARENA: (codes.EXTENT_ARENA, "its extent has an arena index beyond narenas_total"),
    kernel_api.EXTENT_STATE: (codes.EXTENT_STATE, "its extent has an invalid state"),
    kernel_api.EXTENT_SZIND: (codes.EXTENT_SZIND, "its extent has a size class that does not exist"),
    kernel_api.EXTENT_SLAB_SIZE: (codes.SLAB_SIZE, "its extent is a slab of another size than the slabs of its bin"),
    kernel_api.EXTENT_BITMAP: (codes.SLAB_BITMAP, "the number of free regions in its slab's bitmap is not nfree"),
}
"""Code and sentence about the page at hand, by EXTENT_ number."""

CACHED_DAMAGE: Dict[int, Tuple[Code, str]] = {
    kernel_api.CACHED_OUTSIDE: (codes.CACHED_OUTSIDE, "a thread cache contains this address, but it is in no active extent"),
    kernel_api.CACHED_NOT_START: (codes.CACHED_NOT_START, "a thread cache contains this address, but no region starts there"),
    kernel_api.CACHED_FREE: (
        codes.CACHED_FREE,
        "a thread cache contains this region, but it is free in its slab's bitmap: freed twice, or just leaving the cache",
    ),
    kernel_api.CACHED_TWICE: (codes.CACHED_TWICE, "thread caches contain this address twice: freed twice"),
    kernel_api.CACHED_UNKNOWN: (codes.CACHED_UNKNOWN, "a thread cache contains this address, but its extent cannot be read or is damaged"),
}
"""By CACHED_ number."""

OF_NODES = (
    kernel_api.EXTENT_NODE_UNREADABLE,
    kernel_api.EXTENT_NODE_HOLE,
    kernel_api.EXTENT_NODE_TWICE,
    kernel_api.EXTENT_NODE_MISALIGNED,
    kernel_api.EXTENT_TOO_MANY_NODES,
)
"""Damage that no step of jemalloc's own looks like: nodes are made before they are linked, and stay."""

_LEFT_OVER = (kernel_api.EXTENT_STALE, kernel_api.EXTENT_SIZE)
"""What an element says that names memory of another use. One that cannot be read may be an extent that a core lacks: that stays told."""

SHOWN = 8
"""Problems of one kind that are told one by one; the rest as a number."""


def heap_layout(context: Context) -> HeapLayout:
    """Places and constants for the kernel's walk."""
    geometry, types = context.geometry, context.types
    shape, struct = geometry.rtree, geometry.extent_struct
    rtree = RtreeLayout(
        root=geometry.rtree_root,
        levels=shape.levels,
        lg_page=geometry.lg_page,
        lg_vaddr=shape.lg_vaddr,
        leaf_bytes=geometry.word_bytes * (1 if shape.compact else 2),
        compact=shape.compact,
        extent_low_bits=geometry.leaf_low_bits,
        sign_extend=geometry.sign_extend,
        leaf_kind=_leaf_kind(context),
    )
    bitmap = types.place(struct, types.first(struct, *_SLAB_BITMAPS) or "e_slab_data")
    places = {name: types.place(struct, name) for name in ("e_bits", "e_addr", "e_size_esn")}
    offsets = {name: place.offset for name, place in places.items() if place is not None}
    fields = {name: BitField(*field) for name, field in geometry.fields.items()}
    states = geometry.states
    extent = ExtentLayout(
        size_bytes=types.size_bytes(struct),
        bits_offset=offsets["e_bits"],
        addr_offset=offsets["e_addr"],
        size_offset=offsets["e_size_esn"],
        bitmap_offset=bitmap.offset if bitmap is not None else 0,
        bitmap_bytes=bitmap.size_bytes * bitmap.count if bitmap is not None else 0,
        arena=fields["arena"],
        slab=fields["slab"],
        state=fields["state"],
        szind=fields["szind"],
        nfree=fields["nfree"],
        states=states.highest + 1,
        active=states.active,
        dirty=states.dirty,
        muzzy=states.muzzy,
        retained=states.retained,
        word_bytes=geometry.word_bytes,
        little_endian=geometry.little_endian,
        binshard=fields.get("binshard", BitField(0, 0)),
        pinned=kernel_api.NO_STATE if states.pinned is None else states.pinned,
    )
    has_shards = "binshard" in fields
    bins = tuple(
        BinLayout(info.reg_size_bytes, info.slab_size_bytes, info.nregs, info.n_shards if has_shards else 0) for info in geometry.bins
    )
    sizes = BlockSizes(geometry.size_from_extent, geometry.large_pad_bytes)
    return HeapLayout(rtree, extent, bins, geometry.size_classes, sizes, geometry.narenas, writable_bytes(context))


def _leaf_kind(context: Context) -> int:
    """What leaf elements say of an extent beside where it lies (rtree.h)."""
    compact, types = context.geometry.rtree.compact, context.types
    if context.jemalloc.is_partial:
        return kernel_api.LEAF_UNKNOWN
    if compact:
        return kernel_api.LEAF_COMPACT_STATE if context.geometry.leaf_low_bits > 1 else kernel_api.LEAF_COMPACT
    if types.place("rtree_leaf_elm_s", "le_metadata") is not None:
        return kernel_api.LEAF_METADATA
    return kernel_api.LEAF_FIELDS if types.place("rtree_leaf_elm_s", "le_szind") is not None else kernel_api.LEAF_UNKNOWN


def walker(context: Context) -> ExtentWalker:
    """The kernel's, bound to this heap."""
    return extent_walker(context.kernel, context.source, heap_layout(context), context.budget)


def walk(context: Context, cached: Sequence[int]) -> ExtentsResult:
    """Every extent of every arena. `cached`: sorted array('Q') of what thread caches hold. Damage is reported."""
    result = walker(context).walk(cached, context.ram.pages)
    if leaves_elements(context):
        result = without_left_over(result)
    report(context, result)
    return result


def leaves_elements(context: Context) -> bool:
    """Leaf elements of memory that was given back may stay in the radix tree, and name an extent structure that is used elsewhere by now.

    With opt.san_guard_small slabs are cut from regions of 4 MiB, and the end of one that is too short for the next slab is unmapped without
    being taken out of the tree (san_bump.c: san_bump_alloc, extent.c: extent_destroy_wrapper, from 5.3.0). So stays the region that an
    arena cuts from when it is destroyed, whose extent structure was in the arena's metadata, which is unmapped (arena.c: arena_destroy):
    what lies there by now may be anything, and is no extent.
    """
    if context.symbols.by_structure:
        return _has_guarded_slabs(context)
    return bool(context.variable("opt_san_guard_small")) and bool(context.variable("opt_retain", 1))


def _has_guarded_slabs(context: Context) -> bool:
    """Slabs that bins name stand between guard pages: the option is on."""
    geometry, guarded = context.geometry, context.geometry.fields.get("guarded")
    if guarded is None:
        return False
    try:
        for arena in calibrate.arena_pointers(context.target, context.symbols, geometry.narenas):
            slabs = calibrate.current_slabs(context.target, context.symbols, context.types, geometry, arena) if arena else []
            for _, place in slabs:
                slab = context.target.read_word(place)
                if slab and guarded.of(context.view(geometry.extent_struct, slab)["e_bits"]):
                    return True
    except Unreadable:
        pass
    return False


def without_left_over(result: ExtentsResult) -> ExtentsResult:
    """The result without the complaint that an element names an extent elsewhere, or what is no extent any more."""
    counts = tuple(0 if code in _LEFT_OVER else count for code, count in enumerate(result.problem_counts))
    problems = tuple(problem for problem in result.problems if problem.code not in _LEFT_OVER)
    return result._replace(problems=problems, problem_counts=counts)


def writable_bytes(context: Context) -> int:
    """All memory that could hold rtree nodes: what bounds a walk through damaged ones."""
    return sum(mapping.size_bytes for mapping in context.target.mappings() if mapping.readable and mapping.writable)


def report(context: Context, result: ExtentsResult) -> None:
    """Tells what the walk found wrong: the first few of each kind with their addresses, the rest as numbers."""
    if result.stop == STOP_TIME:
        context.report(
            codes.EXTENTS_CUT,
            result.at,
            "the walk over the extents ended here: %s" % (context.budget.reason or "time is up"),
            "raise --max-seconds",
        )
    hint = arenas.explain(context) if _may_pass(result) else None
    told: List[int] = []
    for problem in result.problems:
        told.append(problem.code)
        if told.count(problem.code) <= SHOWN:
            code, what = DAMAGE[problem.code]
            where = " (extent 0x%x)" % problem.extent if problem.extent else ""
            context.report(code, problem.page, what + where, None if problem.code in OF_NODES else hint)
    _tell_rest(context, result.problem_counts, told, DAMAGE)
    reasons: List[int] = []
    for cached in result.cached_problems:
        reasons.append(cached.reason)
        if reasons.count(cached.reason) <= SHOWN:
            code, what = CACHED_DAMAGE[cached.reason]
            context.report(code, cached.address, what, hint)
    _tell_rest(context, result.cached_problem_counts, reasons, CACHED_DAMAGE)


def _tell_rest(context: Context, counts: Sequence[int], told: Sequence[int], damage: Dict[int, Tuple[Code, str]]) -> None:
    """How many there are beyond those that were told one by one."""
    for number, count in enumerate(counts):
        if count > SHOWN:
            code, what = damage[number]
            context.report(code, None, "%s more: %s" % (units.number(count - min(SHOWN, told.count(number))), what), None)


def _may_pass(result: ExtentsResult) -> bool:
    """Something is wrong that a call in progress can look like: a slab's bitmap is written after nfree, leaf elements before the extent."""
    return any(problem.code not in OF_NODES for problem in result.problems) or bool(result.cached_problems)
