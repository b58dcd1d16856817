"""GLib: instances of types (GObject, GParamSpec and others) by the class that each leads to, in malloc's blocks and in GSlice's pages.

libgobject keeps a table of its fundamental types, each at the place of its own number; from there every type leads to its children. A type
is proven by the address of itself that it contains, a class by the type in its first word (gobject/gtype.c: TypeNode, InstanceData; tried
with 2.66, 2.74 and 2.84). An instance lies in its memory after the private data of its class, whose size the type has.
Up to 2.74 small pieces are cut from GSlice's pages (glib/gslice.c), which are blocks of malloc; from 2.76 on each is a block of malloc's.
"""

from array import array
from bisect import bisect_right
from typing import Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.analysis.census.images import Images
from gdbheapx.analysis.census.world import EXACT, Ask, CensusTarget, Inner, Recogniser, Signature, used_blocks
from gdbheapx.kernel.blocks.signatures import ALL, IN_SET, SIGNED_BYTES, Condition, NumberSet, SignatureRow, split_sized_key

FUNDAMENTALS, LEAST_FUNDAMENTALS = 256, 12
"""G_TYPE_FUNDAMENTAL_MAX >> 2, and one; every program has the 21 of gobject itself."""
SUPERS = (72, 64)
"""Of TypeNode, in bytes: supers[0], the type itself; up to 2.74 and in 2.84. A node begins with what differs."""
N_CHILDREN, CHILDREN, DATA, QNAME = 56, 48, 40, 32
"""Of TypeNode, in bytes before supers."""
CLASS, SIZES = 56, 64
"""Of InstanceData: class; instance_size and private_size."""
MOST_TYPES, MOST_QUARK = 1 << 16, 1 << 24
LEAST_INSTANCE_BYTES = 8
SLACK_BYTES, PAGE_SLACK_BYTES, LEAST_MAPPED_BYTES = 24, 4096, 128 << 10
MOST_NAME = 128
GOBJECT = 20
NAMED = {6: "gint", 16: "gchararray", GOBJECT: "GObject"}
"""Fundamental types, by whose names the table of names is known."""
LEAST_PAGE, MOST_PAGE, UNIT_BYTES = 128, 8192, 16
"""Of GSlice: min_page_size and max_page_size of its allocator, which are adjacent; its alignment."""
SLAB_INFO_BYTES, PADDING_BYTES = 48, 16
"""SlabInfo {chunks, n_allocated, next, prev} and what a page leaves to malloc at its end."""
SLAB_SIZES = (MOST_PAGE - SLAB_INFO_BYTES) // 8 // UNIT_BYTES
SEARCHED_WORDS = 24
"""Of the allocator, after these two."""
MOST_SLABS = 1 << 18
MOST_WORDS = 1 << 21
"""Of pages, read for where their pieces begin."""


class GType(NamedTuple):
    """GType with a class."""

    address: int
    quark: int
    instance_bytes: int
    private_bytes: int


class SlicePage(NamedTuple):
    """A page of pieces of one size."""

    address: int
    end: int
    """Address of its SlabInfo."""
    chunk_bytes: int
    free: Sequence[int]


def list_library_words(images: Images, name: str) -> Iterator[int]:
    """Yield the address of each word in a library's data."""
    for start, end in images.ranges:
        span = images.span_at(start)
        if span is not None and name in span[2].file_name:
            yield from range(start, end, 8)


def find_heap_pointers(world: CensusTarget, name: str) -> Iterator[Tuple[int, int]]:
    """Yield (place, word) of the words in a library's data that may point to a heap."""
    images = world.once(Images)
    for at in list_library_words(images, name):
        word = images.word(at)
        if word and word >> 16 and not word % 8 and not word >> 47 and images.span_at(word) is None:
            yield at, word


def find_fundamentals(world: CensusTarget) -> Tuple[int, Dict[int, int]]:
    """Return the offset of own types in all nodes, and the nodes of fundamental types by number; none if the table is not found."""
    images = world.once(Images)
    for at, node in find_heap_pointers(world, "libgobject"):
        for supers in SUPERS:
            own = world.words(node + supers, 1)
            if own is None or not own[0] or own[0] % 4 or own[0] >= 4 * FUNDAMENTALS:
                continue
            first = at - 2 * own[0]
            nodes: Dict[int, int] = {}
            for number in range(1, FUNDAMENTALS):
                type_node = images.word(first + 8 * number)
                if type_node and world.words(type_node + supers, 2) == (4 * number, 0):
                    nodes[number] = type_node
            if len(nodes) >= LEAST_FUNDAMENTALS and GOBJECT in nodes:
                return supers, nodes
    return SUPERS[0], {}


def find_gtypes(world: CensusTarget) -> Dict[int, GType]:
    """Return, by the address of the class, all types that have instances."""
    types: Dict[int, GType] = {}
    seen: Set[int] = set()
    left = MOST_TYPES
    supers, nodes = world.once(find_fundamentals)
    rest = [(4 * number, node) for number, node in nodes.items()]
    while rest:
        own, node = rest.pop()
        words = world.words(node + supers - N_CHILDREN, N_CHILDREN // 8 + 1)
        if node in seen or words is None or words[-1] != own:
            continue
        seen.add(node)
        of_type = _read_class(world, own, words)
        if of_type is not None:
            types[of_type[0]] = of_type[1]
        count, first = words[0] & 0xFFFFFFFF, words[(N_CHILDREN - CHILDREN) // 8]
        children = world.words(first, count) if 0 < count <= left and first else None
        left -= len(children or ())
        for child in children or ():
            if world.words(child + supers, 2) == (child, own):
                rest.append((child, child))
    return types


def _read_class(world: CensusTarget, own: int, node: Sequence[int]) -> Optional[Tuple[int, GType]]:
    """Return (class, type) of a node, given its words from N_CHILDREN on, if its class was made; the class's first word leads back."""
    place, quark = node[(N_CHILDREN - DATA) // 8], node[(N_CHILDREN - QNAME) // 8] & 0xFFFFFFFF
    data = world.words(place, SIZES // 8 + 1) if place else None
    if data is None or not data[CLASS // 8] or world.words(data[CLASS // 8], 1) != (own,):
        return None
    instance, private = data[SIZES // 8] & 0xFFFF, data[SIZES // 8] >> 16 & 0xFFFF
    if instance < LEAST_INSTANCE_BYTES or private % 8:
        return None
    return data[CLASS // 8], GType(own, quark, instance, private)


def find_quarks(world: CensusTarget) -> int:
    """Return the address of the names of quarks (glib/gquark.c: quarks), or 0.

    A core may lack names that are constants of a library: all types have one, some can be read, and those that are known differ.
    """
    supers, known = world.once(find_fundamentals)
    asked: Dict[int, Optional[str]] = {class_.quark: None for class_ in world.once(find_gtypes).values()}
    for number, name in NAMED.items():
        words = world.words(known[number] + supers - QNAME, 1) if number in known else None
        asked[words[0] & 0xFFFFFFFF if words is not None else 0] = name
    return next((names for _, names in find_heap_pointers(world, "libglib") if _are_names(world, names, asked)), 0) if known else 0


def _are_names(world: CensusTarget, names: int, asked: Dict[int, Optional[str]]) -> bool:
    if world.words(names, 1) != (0,):  # no quark is 0
        return False
    texts = 0
    for quark, name in asked.items():
        text = _read_quark(world, names, quark)
        if text is None:
            words = world.words(names + 8 * quark, 1) if 0 < quark < MOST_QUARK else None
            if words is None or not words[0] or world.read(words[0], 1):
                return False
        elif name is not None and text != name:
            return False
        texts += text is not None
    return texts > 0


def _read_quark(world: CensusTarget, names: int, quark: int) -> Optional[str]:
    words = world.words(names + 8 * quark, 1) if 0 < quark < MOST_QUARK else None
    return world.text(words[0], MOST_NAME) if words is not None and words[0] else None


def slice_page_bytes(chunk_bytes: int) -> int:
    """Return the bytes of a GSlice page for pieces of a size."""
    return max(LEAST_PAGE, 1 << (8 * chunk_bytes + SLAB_INFO_BYTES - 1).bit_length())


def find_slice_pages(world: CensusTarget) -> List[SlicePage]:
    """Return the pages of GSlice by address; none if it hands out malloc's blocks."""
    images = world.once(Images)
    slabs_: Dict[int, SlicePage] = {}
    for at in list_library_words(images, "libglib"):
        if images.word(at) != LEAST_PAGE or images.word(at + 8) != MOST_PAGE:
            continue
        for place in range(at + 16, at + 16 + 8 * SEARCHED_WORDS, 8):
            stacks = world.words(images.word(place) or 0, SLAB_SIZES)
            for number, first in enumerate(stacks or ()):
                made = follow_ring(world, first, UNIT_BYTES * (number + 1), MOST_SLABS - len(slabs_))
                slabs_.update((slab.address, slab) for slab in made)
            if slabs_:
                return drop_overlaps(slabs_)
    return []


def drop_overlaps(slabs_: Dict[int, SlicePage]) -> List[SlicePage]:
    """Return slabs by address; what damage leads to twice counts once."""
    kept: List[SlicePage] = []
    for address in sorted(slabs_):
        if not kept or address >= kept[-1].end + SLAB_INFO_BYTES - PADDING_BYTES:
            kept.append(slabs_[address])
    return kept


def follow_ring(world: CensusTarget, first: int, chunk_bytes: int, most_slabs: int) -> List[SlicePage]:
    """Return the pages of one size; none if their list does not close."""
    pages: List[SlicePage] = []
    size, at, before = slice_page_bytes(chunk_bytes), first, 0
    while first and len(pages) < most_slabs:
        words = world.words(at, 4) if (at + SLAB_INFO_BYTES) % size == 0 else None
        if words is None or (pages and words[3] != before):
            return []
        address = at + SLAB_INFO_BYTES - size
        free = _list_free_pieces(world, words[0], address, at)
        most = (at - address) // chunk_bytes
        if free is None or (words[1] & 0xFFFFFFFF) + len(free) != most:
            return []
        pages.append(SlicePage(address, at, chunk_bytes, free))
        before, at = at, words[2]
        if at == first:
            return pages
    return []


def _list_free_pieces(world: CensusTarget, first: int, start: int, end: int) -> Optional[List[int]]:
    """Return the pieces on a page's list, or None if the list leaves the page."""
    unused: List[int] = []
    while first:
        words = world.words(first, 1) if start <= first < end and len(unused) <= MOST_PAGE // UNIT_BYTES else None
        if words is None:
            return None
        unused.append(first)
        first = words[0]
    return unused


def count_page_shifts(world: CensusTarget) -> Dict[int, List[int]]:
    """Return, by the address of a page without free pieces, evidence for each 16 bytes that GSlice may have shifted its pieces by (it
    spreads them over cache lines): instances there, and words of all pages that lead to possible begins of pieces (list, tree and
    sequence nodes).
    """
    pages = world.once(find_slice_pages)
    known, starts, left = world.once(find_gtypes), [slab.address for slab in pages], MOST_WORDS
    votes = {slab.address: [0] * (read_padding(slab) // UNIT_BYTES) for slab in pages if not slab.free and read_padding(slab) > UNIT_BYTES}
    for slab in pages if votes else ():
        words = world.words(slab.address, min(left, (slab.end - slab.address) // 8)) or ()
        left -= len(words)
        for number, word in enumerate(words):
            if slab.address in votes and word in known and known[word].private_bytes < slab.chunk_bytes:
                _count_vote(votes[slab.address], slab, slab.address + 8 * number - known[word].private_bytes)
            if starts[0] <= word < pages[-1].end:
                page = pages[bisect_right(starts, word) - 1]
                if page.address in votes and word < page.end and page is not slab:
                    _count_vote(votes[page.address], page, word)
    return votes


def _count_vote(votes: List[int], slab: SlicePage, piece: int) -> None:
    shift, rest = divmod((piece - slab.address) % slab.chunk_bytes, UNIT_BYTES)
    if not rest and shift < len(votes):
        votes[shift] += 1


def read_padding(slab: SlicePage) -> int:
    """Return the bytes of a page that no piece has; GSlice shifts its pieces by fewer."""
    return (slab.end - slab.address) % slab.chunk_bytes


def find_first_piece(world: CensusTarget, slab: SlicePage) -> Optional[int]:
    """Return the begin of a page's first piece, or None."""
    if slab.free:
        return slab.address + (slab.free[0] - slab.address) % slab.chunk_bytes
    if read_padding(slab) <= UNIT_BYTES:
        return slab.address
    votes = world.once(count_page_shifts)[slab.address]
    best = max(votes)
    return slab.address + UNIT_BYTES * votes.index(best) if best and votes.count(best) == 1 else None


class Glib(Recogniser):
    """Instances, in blocks of malloc's and in pieces of GSlice's."""

    module, objects = "glib", ("libglib",)

    def asks(self, world: CensusTarget) -> Iterable[Ask]:
        by_offset: Dict[int, Dict[int, GType]] = {}
        for address, of_type in world.once(find_gtypes).items():
            by_offset.setdefault(of_type.private_bytes, {})[address] = of_type
        for offset, known in sorted(by_offset.items()):
            if offset + 8 <= SIGNED_BYTES:
                least = offset + min(of_type.instance_bytes for of_type in known.values())
                most = predict_usable_bytes(offset + max(of_type.instance_bytes for of_type in known.values()))
                row = SignatureRow([Condition(offset, 8, IN_SET, 0)], least, most, key=(offset, 8, ALL), sized=True)
                yield Ask(row, self._make_type_namer(world, known), [NumberSet(sorted(known))], 20)

    def _make_type_namer(self, world: CensusTarget, known: Dict[int, GType]) -> Callable[[int], Optional[Signature]]:
        def name_instance(key: int) -> Optional[Signature]:
            address, usable = split_sized_key(key)
            of_type = known.get(address)
            if of_type is None or not of_type.private_bytes + of_type.instance_bytes <= usable + 7:
                return None
            if usable > predict_usable_bytes(of_type.private_bytes + of_type.instance_bytes):
                return None
            text = _read_quark(world, world.once(find_quarks), of_type.quark) if world.once(find_quarks) else None
            return Signature(text or "GType 0x%x" % of_type.address, self.module, EXACT)

        return name_instance

    def inner(self, world: CensusTarget) -> Sequence[Inner]:
        """Return the pages of GSlice with their pieces in use, those of threads' magazines too; a page of unknown cut is one piece."""
        addresses, sizes, taken, free, overhead = array("Q"), array("Q"), [], 0, 0
        for slab in world.once(find_slice_pages):
            first, size = find_first_piece(world, slab), slab.chunk_bytes
            count = (slab.end - slab.address) // size
            taken.append((slab.address, slab.end + SLAB_INFO_BYTES - PADDING_BYTES))
            free += len(slab.free) * size
            overhead += slab.end - slab.address - count * size + SLAB_INFO_BYTES - PADDING_BYTES
            if first is None:
                addresses.append(slab.address)
                sizes.append(count * size)
                continue
            unused = set(slab.free)
            used = [at for at in range(first, first + count * size, size) if at not in unused]
            addresses.extend(used)
            sizes.extend([size] * len(used))
        if not taken:
            return ()
        pages, blocks = [start for start, _ in taken], iter([used_blocks(addresses, sizes)])
        return [Inner(blocks, self.module, "GSlice's pages", taken, free, overhead, UNIT_BYTES, pages)]


def predict_usable_bytes(asked_bytes: int) -> int:
    """Return the most usable bytes of a block or piece for a request of so many bytes: size classes are up to a fifth apart."""
    return asked_bytes + max(SLACK_BYTES, asked_bytes // 4) + (PAGE_SLACK_BYTES if asked_bytes >= LEAST_MAPPED_BYTES else 0)


RECOGNISERS: List[Recogniser] = [Glib()]
