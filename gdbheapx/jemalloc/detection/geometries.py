"""The geometries that a build's own constants allow, read from its variables."""

from typing import Iterator, List, Optional, Tuple

from gdbheapx.errors import HeapxError, Unreadable
from gdbheapx.inferior.base import Target
from gdbheapx.inferior.types import TypeSet
from gdbheapx.jemalloc.detection import layouts
from gdbheapx.jemalloc.detection.calibrate import scalar, words
from gdbheapx.jemalloc.detection.geometry import MAX_ARENAS, BinInfo, Geometry, assemble, rtree_shapes
from gdbheapx.jemalloc.detection.symbols import Symbols
from gdbheapx.layout.view import read_view
from gdbheapx.problems import ALLOCATOR_UNREAD


def geometries(target: Target, symbols: Symbols, types: TypeSet, version: layouts.Version) -> Iterator[Geometry]:
    """Every geometry that the constants allow, the likeliest first; they differ in the radix tree. HeapxError if constants are
    unreadable."""
    try:
        base = _constants(target, symbols, types, version)
    except Unreadable as problem:
        hint = "a core must include the data and bss of %s" % symbols.module.name
        raise HeapxError("cannot read its constants: %s" % problem.message, hint, code=problem.code)
    if base is None:
        return
    root, elements = _root(target, symbols, types)
    if not root or not elements:
        return
    leaf = types.structs.get("rtree_leaf_elm_s")
    compact = "le_bits" in leaf.members if leaf is not None and elements == _typed_elements(types) else None
    for shape in rtree_shapes(elements, base.lg_page, len(base.size_classes), compact):
        yield base._replace(rtree_root=root, rtree=shape)


def _typed_elements(types: TypeSet) -> Optional[int]:
    place = types.place("rtree_s", "root")
    return place.count if place is not None else None


def _root(target: Target, symbols: Symbols, types: TypeSet) -> Tuple[int, int]:
    """Address and number of elements of rtree_s.root; by the variable's own size, as configure may have given it another one than the
    types'."""
    for name, struct, path in (("arena_emap_global", "emap_s", "rtree.root"), ("extents_rtree", "rtree_s", "root")):
        symbol, place = symbols.find(name), types.place(struct, path)
        if symbol is not None and place is not None:
            size = symbols.size_bytes(name)
            elements = place.count if not size else 1 << max(0, ((size - place.offset) // target.word_bytes).bit_length() - 1)
            return symbol.address + place.offset, elements
    return 0, 0


def _constants(target: Target, symbols: Symbols, types: TypeSet, version: layouts.Version) -> Optional[Geometry]:
    """Everything but the radix tree; None if what is there cannot be jemalloc's."""
    sizes, pages = _table(target, symbols, types, "sz_index2size_tab"), _table(target, symbols, types, "sz_pind2sz_tab")
    if not sizes or not pages:
        return None
    if not any(sizes):
        raise HeapxError(
            "it is not initialised, because the process has not called it yet", "retry after the first call", code=ALLOCATOR_UNREAD
        )
    found = _bins(target, symbols, types)
    narenas = scalar(target, symbols, "narenas_total", 4)
    huge = scalar(target, symbols, "huge_arena_ind", 4)
    threshold = scalar(target, symbols, "oversize_threshold", target.word_bytes)
    made = assemble(target, types, version, sizes, pages[:-1], found)
    return made and made._replace(
        narenas=min(MAX_ARENAS, narenas) if narenas is not None else MAX_ARENAS,
        manual_arena_base=scalar(target, symbols, "manual_arena_base", 4),
        huge_arena=huge if huge and threshold else None,
        large_pad_bytes=scalar(target, symbols, "sz_large_pad", target.word_bytes) or 0,
        size_from_extent=bool(scalar(target, symbols, "opt_disable_large_size_classes", 1)),
    )


def _table(target: Target, symbols: Symbols, types: TypeSet, name: str) -> List[int]:
    """A table of size_t; empty if this build has none."""
    symbol, typed = symbols.find(name), types.variables.get(name)
    size = symbols.size_bytes(name)
    count = size // target.word_bytes if size else typed.count if typed is not None else 0
    return words(target, symbol.address, count) if symbol is not None and 0 < count <= 4096 else []


def _bins(target: Target, symbols: Symbols, types: TypeSet) -> List[BinInfo]:
    for name, struct in (("bin_infos", "bin_info_s"), ("arena_bin_info", "arena_bin_info_s")):
        symbol = symbols.find(name)
        struct = struct if struct in types.structs else "bin_info_s"
        if symbol is None or struct not in types.structs:
            continue
        size, typed = symbols.size_bytes(name), types.variables.get(name)
        count = size // types.size_bytes(struct) if size else typed.count if typed is not None else 0
        if not 0 < count <= 256:
            return []
        rows = [read_view(target, types, struct, symbol.address + i * types.size_bytes(struct)) for i in range(count)]
        return [BinInfo(row["reg_size"], row["slab_size"], row["nregs"], row.get("n_shards") or 1) for row in rows]
    return []
