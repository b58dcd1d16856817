"""jemalloc's extents one by one in address order, in Python: what extents.c does."""

from typing import Dict, Iterator, Optional

from gdbheapx.kernel.common.twin.source import Reader
from gdbheapx.kernel.jemalloc import records as api
from gdbheapx.kernel.jemalloc.records import HeapLayout
from gdbheapx.kernel.jemalloc.twin.rtree import ADDRESSES, PAGE_BYTES, Problems, Span, Tree, leaf_bits_of

GOOD = -1
NOWHERE = ADDRESSES - 1
MOST_PAGES = 512


class Extent:
    """One extent; `code` is GOOD or what is wrong with it, `free` a slab's bitmap with a set bit for each free region."""

    def __init__(self, pointer: int, code: int) -> None:
        self.pointer, self.code = pointer, code
        self.begin = NOWHERE
        self.end = self.address = self.arena = self.slab = self.state = self.szind = self.nfree = self.free = self.rest = 0
        self.has_range = self.unassociated = False


class Extents:
    """The extents of one rtree; `next` gives those that are to be counted."""

    def __init__(self, reader: Reader, heap: HeapLayout) -> None:
        rtree, extent = heap.rtree, heap.extent
        self.problems, self.details, self.unknown = Problems(), Problems(), Span()
        self.tree = Tree(reader, rtree, extent, heap.mapped_bytes, self.problems, self.unknown)
        self.layout, self.bins = extent, heap.bins
        self.unassociated = self.unparsed_bytes = 0
        self._read, self._heap = reader.read, heap
        self._order = "little" if extent.little_endian else "big"
        self._pages: Dict[int, bytes] = {}
        self._page_bytes, self._top = 1 << rtree.lg_page, (1 << rtree.lg_vaddr) - 1
        self._pending: Optional[Extent] = None
        self._bad_pointer = self._bad_begin = 0
        self._masks = [
            (field.shift, (1 << field.width) - 1) for field in (extent.arena, extent.slab, extent.state, extent.szind, extent.nfree)
        ]
        self._found = self._run()
        self.ended = False

    @property
    def at(self) -> int:
        """The page that is next."""
        return self._pending.begin if self._pending else self.tree.at

    def next(self) -> Optional[Extent]:
        """The next good extent; None to look at the clock, or with `ended` when there is no more."""
        return next(self._found, None)

    def _run(self) -> Iterator[Optional[Extent]]:
        for entry in self.tree.entries():
            if entry is None:
                yield None
                continue
            page, pointer = entry
            pending = self._pending
            if pending and page >= pending.end and self._settle_unnamed(pending):
                yield pending
            pending = self._pending
            if pending and pointer == pending.pointer:
                if page == pending.end - self._page_bytes:
                    self._check_last_leaf(page, pending)
                    if self._settle(pending):
                        yield pending
                continue
            if pointer == self._bad_pointer and page != self._bad_begin:
                continue
            fresh = self._judge(page, pointer)
            if self._take(page, fresh) and self._settle(fresh):
                yield fresh
        last = self._pending
        if last and self._settle_unnamed(last):
            yield last
        self.ended = True

    def _take(self, page: int, fresh: Extent) -> bool:
        """The extent just read becomes the pending one, if it is more than a contradiction. Whether its only page was its last."""
        pending = self._pending
        if not fresh.has_range or (pending and fresh.code == api.EXTENT_FIRST_PAGE):
            self.problems.add(fresh.code, page, fresh.pointer)
            self.unknown.add(page, page + self._page_bytes)
            self._said(fresh, NOWHERE if fresh.has_range else fresh.begin)
            return False
        if pending:
            self._throw_away(pending, fresh.begin, api.EXTENT_OVERLAP)
        if fresh.code != GOOD:
            self.problems.add(fresh.code, page, fresh.pointer)
        self._pending = fresh
        self.tree.skip_pointer, self.tree.skip_until = fresh.pointer, fresh.end - self._page_bytes
        self.tree.hole.clear()
        self.tree.skipped = self.tree.odd_page = 0
        self.tree.skip_bits = leaf_bits_of(self._heap.rtree.leaf_kind, fresh.slab, fresh.state, fresh.szind)
        if self._is_active(fresh):
            self._check_leaf(page, fresh, -1)
        return fresh.end - fresh.begin == self._page_bytes

    def _is_active(self, extent: Extent) -> bool:
        return extent.code == GOOD and not extent.unassociated and extent.state == self.layout.active

    def _check_leaf(self, page: int, extent: Extent, mask: int) -> None:
        wanted = leaf_bits_of(self._heap.rtree.leaf_kind, extent.slab, extent.state, extent.szind)
        if (self.tree.bits ^ wanted) & mask:
            self.details.add(api.EXTENT_LEAF, page, extent.pointer)

    def _check_last_leaf(self, page: int, pending: Extent) -> None:
        """The element of the last page: of a large allocation only its state is kept (emap.c: emap_remap). Slabs have one for each page."""
        tree = self.tree
        if not self._is_active(pending) or not self._heap.rtree.leaf_kind:
            return
        self._check_leaf(page, pending, -1 if pending.slab else 14)
        if not pending.slab:
            return
        if tree.odd_page:
            self.details.add(api.EXTENT_LEAF, tree.odd_page, pending.pointer)
        if tree.skipped != (pending.end - pending.begin) // self._page_bytes - 2 and tree.hole.begin == tree.hole.end:
            self.details.add(api.EXTENT_INTERIOR, pending.begin, pending.pointer)

    def _said(self, extent: Extent, begin: int) -> None:
        self._bad_pointer, self._bad_begin = extent.pointer, begin

    def _throw_away(self, pending: Extent, end: int, code: int) -> None:
        """The pending extent goes up to `end` as far as is known, and is not counted."""
        if pending.code == GOOD:
            self.problems.add(code, pending.begin, pending.pointer)
        self.unparsed_bytes += end - pending.begin
        self.unknown.add(pending.begin, end)
        self._said(pending, NOWHERE)
        self._pending = None

    def _settle(self, pending: Extent) -> bool:
        """The pending extent ends where it says. Whether it is one to be counted."""
        self._pending = None
        if pending.code != GOOD:
            self._throw_away(pending, pending.end, pending.code)
            return False
        self.unassociated += pending.unassociated
        return not pending.unassociated

    def _settle_unnamed(self, pending: Extent) -> bool:
        """The elements of all its pages are passed, its last page's named it not. Whether it is one to be counted."""
        if pending.end - self._page_bytes in self.tree.hole:
            return self._settle(pending)
        self._throw_away(pending, pending.end, api.EXTENT_LAST_PAGE)
        return False

    def _bytes(self, address: int) -> bytes:
        """The extent structure at `address`, through the pages read before; less if it cannot be read whole."""
        size = self.layout.size_bytes
        page = address & -PAGE_BYTES
        offset = address - page
        if offset + size <= PAGE_BYTES:
            data = self._pages.get(page)
            if data is None:
                if len(self._pages) >= MOST_PAGES:
                    self._pages.clear()
                data = self._pages[page] = self._read(page, PAGE_BYTES)
            if len(data) >= offset + size:
                return data[offset : offset + size]
        return self._read(address, size) if address + size < ADDRESSES else b""

    def _judge(self, page: int, pointer: int) -> Extent:
        """Reads the extent that the leaf element of `page` names."""
        layout, word, order = self.layout, self.layout.word_bytes, self._order
        extent = Extent(pointer, api.EXTENT_UNREADABLE)
        data = self._bytes(pointer)
        if len(data) < layout.size_bytes:
            return extent
        extent.address = int.from_bytes(data[layout.addr_offset : layout.addr_offset + word], order)  # type: ignore[arg-type]
        size = int.from_bytes(data[layout.size_offset : layout.size_offset + word], order)  # type: ignore[arg-type]
        size &= -self._page_bytes
        begin = extent.address & -self._page_bytes
        if not size:
            extent.code = api.EXTENT_SIZE
        elif page - begin & ADDRESSES - 1 >= size:
            extent.code, extent.begin = api.EXTENT_STALE, begin
        elif size - 1 > self._top - (begin & self._top):
            extent.code = api.EXTENT_SIZE
        else:
            extent.has_range, extent.begin, extent.end = True, page, begin + size
            extent.code = self._check(extent, data) if page == begin else api.EXTENT_FIRST_PAGE
        return extent

    def _check(self, extent: Extent, data: bytes) -> int:
        """What is wrong with an extent whose range is known to be right."""
        layout = self.layout
        bits = int.from_bytes(data[layout.bits_offset : layout.bits_offset + 8], self._order)  # type: ignore[arg-type]
        extent.arena, extent.slab, extent.state, extent.szind, extent.nfree = [bits >> shift & mask for shift, mask in self._masks]
        extent.unassociated = extent.arena == self._masks[0][1]
        if extent.unassociated:
            return GOOD
        if extent.arena >= self._heap.narenas:
            return api.EXTENT_ARENA
        if extent.state >= layout.states:
            return api.EXTENT_STATE
        # Active without a size class: taken out of its state's list, by an allocation that has not yet made it its own or by a purge.
        if extent.state == layout.active and extent.szind == len(self._heap.size_classes):
            extent.state = layout.states
        # slab, nfree and szind of other states are what an earlier life left behind
        if extent.state != layout.active:
            return GOOD
        if extent.szind >= (len(self.bins) if extent.slab else len(self._heap.size_classes)):
            return api.EXTENT_SZIND
        if not extent.slab:
            return GOOD
        shape = self.bins[extent.szind]
        if extent.end - extent.begin != shape.slab_size_bytes:
            return api.EXTENT_SLAB_SIZE
        binshard = layout.binshard
        if shape.shards and bits >> binshard.shift & (1 << binshard.width) - 1 >= shape.shards:
            self.details.add(api.EXTENT_SHARD, extent.begin, extent.pointer)
        bitmap = self._bitmap(data, shape.nregs)
        extent.free = bitmap & (1 << shape.nregs) - 1
        if bin(extent.free).count("1") != extent.nfree:
            return api.EXTENT_BITMAP
        if bitmap != extent.free:
            self.details.add(api.EXTENT_BITMAP_REST, extent.begin, extent.pointer)
        return GOOD

    def _bitmap(self, data: bytes, nregs: int) -> int:
        """Level 0 of the bitmap as one number, with the bits of the last group that no region has."""
        layout, word = self.layout, self.layout.word_bytes
        used = -(-nregs // (8 * word)) * word
        groups = data[layout.bitmap_offset : layout.bitmap_offset + used]
        if not layout.little_endian:
            groups = b"".join(groups[place : place + word][::-1] for place in range(0, used, word))
        return int.from_bytes(groups, "little") & (1 << -(-nregs // 64) * 64) - 1
