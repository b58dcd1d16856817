"""Rust: trait objects (Box<dyn Trait>, &dyn Trait), which are an address and the vtable of what lies there; and what looks for containers.

A vtable is what drops the object or 0, its size, its alignment, then the trait's methods (rustc_middle: vtable.rs, COMMON_VTABLE_ENTRIES).
What a trait object itself is, its block does not say: the vtable is next to the pointer in the owner, at any place of that. A row looks
at one block, and describes those that begin with one; what lies there is shown while the graph is read (rust.c).
"""

from collections import Counter
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

from gdbheapx.analysis.census.images import Images, list_constant_ranges
from gdbheapx.analysis.census.world import PLACE, SHAPE, Ask, CensusTarget, Recogniser, Signature
from gdbheapx.inferior.base import Module
from gdbheapx.kernel.blocks.signatures import ALL, AT_LEAST, AT_MOST, IN_RANGES, Condition, NumberSet, SignatureRow, Signed

MOST_OBJECT_BYTES = 1 << 20
MOST_ALIGNMENT = 4096
HEADS_ORDER = 86
"""Of the row of blocks that begin with one trait object: it says less than what the block is."""
LEAST_BLOCKS = 4
"""That begin with one trait object of a kind: fewer are chance."""
LEAST_ADDRESS = 1 << 16


MOST_METHODS = 8
"""Of a vtable, whose symbols are looked up."""
MOST_TYPE = 100
"""Letters of a type's name."""
LEAST_LOCATIONS = 24
MOST_PATH, MOST_LINE, MOST_COLUMN = 512, 1 << 17, 512
MOST_SEARCHED = 1 << 20
"""Words of an object's constants."""
FEW_PATHS = 3
"""The most frequent ones, that must be those of sources of Rust where they can be read."""


class Modules:
    """Objects of which some is Rust."""

    def __init__(self, world: CensusTarget) -> None:
        self._world, self._images = world, world.once(Images)
        ranges: Dict[Module, List[Tuple[int, int]]] = {}
        for start, end in list_constant_ranges(world, self._images) if world.word_bytes == 8 and world.little_endian else ():
            span = self._images.span_at(start)
            if span is not None:
                ranges.setdefault(span[2], []).append((start, end))
        self.found = [module for module, some in ranges.items() if self._is_rust(some)]
        self.ranges = sorted(part for module in self.found or world.modules()[:1] for part in ranges.get(module, []))
        """Where their vtables may lie."""

    def _is_rust(self, ranges: Sequence[Tuple[int, int]]) -> bool:
        paths = self._count_paths(ranges)
        repeated = sorted((path for path in paths if paths[path] > 1), key=lambda path: -paths[path])
        if sum(paths[path] for path in repeated) < LEAST_LOCATIONS:
            return False
        texts = [self._world.target.read_prefix(at, length) for at, length in repeated[:FEW_PATHS]]
        return not any(texts) or any(text.endswith(b".rs") for text in texts)  # a core may have no constants

    def _count_paths(self, ranges: Sequence[Tuple[int, int]]) -> Dict[Tuple[int, int], int]:
        """Return by (address, length) of a source path the number of places in it."""
        paths: Dict[Tuple[int, int], int] = {}
        for start, end in ranges:
            low, high, _ = self._images.span_at(start) or (0, 0, None)
            words = self._images.words(start, min(end, start + 8 * MOST_SEARCHED))
            for at, (length, place) in enumerate(zip(words[1:], words[2:])):
                if not 4 <= length <= MOST_PATH or not low <= words[at] < high:
                    continue
                if 0 < place & 0xFFFFFFFF < MOST_LINE and 0 < place >> 32 < MOST_COLUMN:
                    paths[words[at], length] = paths.get((words[at], length), 0) + 1
        return paths


def has_rust(world: CensusTarget) -> bool:
    """Return True if an object has locations in its sources, as every panic has one (core::panic::Location): a path and its length, then
    line and column in one word; several times the same path. In an object at a fixed address they are constants, which no core has.
    """
    return bool(world.constant(Modules).found)


def find_rust_constants(world: CensusTarget) -> List[Tuple[int, int]]:
    """Return ranges that may have vtables of Rust: constants of Rust objects, or else of the program."""
    return world.constant(Modules).ranges


def _make_counts_ask(weak: Condition, key: Optional[Tuple[int, int, int]] = None) -> Ask:
    """Return the row of blocks that begin with two counts; it gives no name, since many blocks begin with small numbers."""
    strong = [Condition(0, 8, AT_LEAST, 1), Condition(0, 8, AT_MOST, MOST_COUNT)]
    return Ask(SignatureRow([*strong, Condition(8, 8, AT_LEAST, 1), weak], least_usable=24, key=key), lambda key: None, order=84)


MOST_COUNT, MOST_WEAK = 1 << 16, 16
STRONG_ROW = _make_counts_ask(Condition(8, 8, AT_MOST, 1), (0, 8, ALL))
COUNTS_ROW = _make_counts_ask(Condition(8, 8, AT_MOST, MOST_WEAK))
"""As an Rc or Arc, where all strong references together count as one weak one: those without others, by the strong ones; and the rest."""


def read_vtable_layout(images: Images, vtable: int) -> Optional[Tuple[int, int]]:
    """Return (size, alignment) of the object, or None if this is no vtable."""
    drop, size, alignment = (images.word(vtable + 8 * number) for number in range(3))
    if drop is None or size is None or alignment is None or vtable % 8:
        return None
    if not 0 < size <= MOST_OBJECT_BYTES or not 0 < alignment <= MOST_ALIGNMENT or alignment & (alignment - 1) or size % alignment:
        return None
    return (size, alignment) if not drop or images.is_code(drop) else None


class RustObjects:
    """Vtables that trait objects lead to."""

    def __init__(self, world: CensusTarget) -> None:
        self._world, self._images = world, world.once(Images)
        self.layouts: List[Tuple[int, int, int]] = []
        self._types: Optional[Dict[int, str]] = None

    def keep_vtables(self, candidates: Sequence[int]) -> None:
        layouts = ((vtable, read_vtable_layout(self._images, vtable)) for vtable in candidates)
        self.layouts = [(vtable, *known) for vtable, known in layouts if known is not None]

    def _find_type(self, vtable: int) -> Optional[str]:
        """Return the type of a vtable by the symbols of its functions, which are looked up for all vtables at once."""
        if self._types is None:
            self._types = {}
            functions: Dict[Module, Dict[int, List[int]]] = {}
            for address, _, _ in self.layouts:
                span = self._images.span_at(address)
                if span is not None:
                    functions.setdefault(span[2], {})[address] = self._list_functions(address)
            for module, by_vtable in functions.items():
                all_functions = sorted({function for some in by_vtable.values() for function in some})
                types = dict(zip(all_functions, self._world.target.types_of_functions(module, all_functions)))
                for address, some in by_vtable.items():
                    counts = Counter(name for function in some for name in types[function])
                    most = [name for name, count in counts.items() if count == max(counts.values())]
                    if len(most) == 1:  # of several the linker may have merged equal functions
                        self._types[address] = most[0]
        return self._types.get(vtable)

    def _list_functions(self, vtable: int) -> List[int]:
        functions = [self._images.word(vtable) or 0]
        for place in range(vtable + 24, vtable + 24 + 8 * MOST_METHODS, 8):
            word = self._images.word(place)
            if not word or not self._images.is_code(word) or read_vtable_layout(self._images, place) is not None:
                break
            functions.append(word)
        return [word for word in functions if word]

    def name(self, vtable: int, is_shared: bool) -> Optional[Signature]:
        span, known = self._images.span_at(vtable), read_vtable_layout(self._images, vtable)
        if span is None or known is None:
            return None
        module = span[2].shown_name
        type_ = self._find_type(vtable) or "%s+0x%x (%d B)" % (module, vtable - span[0], known[0])
        type_ = type_ if len(type_) <= MOST_TYPE else type_[: MOST_TYPE - 3] + "..."
        return Signature("%sdyn %s" % ("Rc or Arc of " if is_shared else "", type_), module, SHAPE)


class TraitObjects(Recogniser):
    """Structs and vectors that begin with one."""

    def is_here(self, world: CensusTarget) -> bool:
        """Return True for all programs with this word size: a stripped program has no name that shows it."""
        return world.word_bytes == 8

    def asks(self, world: CensusTarget) -> Iterable[Ask]:
        """Return rows for an address and a pointer to read-only data, and for two such pairs in an array."""
        images = world.once(Images)
        ranges = list_constant_ranges(world, images)
        for order, pairs in ((85, 2), (HEADS_ORDER, 1)) if ranges else ():
            conditions: List[Condition] = []
            for at in range(0, 16 * pairs, 16):
                conditions += [Condition(at, 8, AT_LEAST, LEAST_ADDRESS), Condition(at + 8, 8, IN_RANGES, 0)]
            heads = RustHeads(world, images, pairs)
            yield Ask(SignatureRow(conditions, key=(8, 8, ALL)), heads.name, [NumberSet(ranges=ranges)], order, heads.settle)


class RustHeads:
    """Vtables at the begin of blocks, such as those of tasks."""

    def __init__(self, world: CensusTarget, images: Images, pairs: int) -> None:
        self._world, self._images, self._pairs = world, images, pairs
        self._told: Dict[int, Signature] = {}

    def settle(self, matches: Sequence[Signed]) -> None:
        """Read the first block of each vtable."""
        for match in matches:
            layout, span = self._read_layout(match.key), self._images.span_at(match.key)
            words = self._world.words(match.sample, 2 * self._pairs)
            if layout is None or span is None or words is None or not self._is_object(words[0], layout):
                continue
            module = span[2].shown_name
            if self._pairs > 1 and self._is_object(words[2], self._read_layout(words[3])):
                self._told[match.key] = Signature("Box<dyn>[]", module, SHAPE)
            elif self._pairs == 1 and match.blocks >= LEAST_BLOCKS:
                what = "begins with Box<dyn %s+0x%x (%d B)>" % (module, match.key - span[0], layout[0])
                self._told[match.key] = Signature(what, module, PLACE)

    def _is_object(self, address: int, layout: Optional[Tuple[int, int]]) -> bool:
        mapping = self._images.mapping_at(address)
        return layout is not None and mapping is not None and mapping.writable and not address % layout[1]

    def _read_layout(self, vtable: int) -> Optional[Tuple[int, int]]:
        """Return (size, alignment) of the object, or None if this is no vtable with a method."""
        method = self._images.word(vtable + 24)
        return read_vtable_layout(self._images, vtable) if method is not None and self._images.is_code(method) else None

    def name(self, key: int) -> Optional[Signature]:
        return self._told.get(key)


RECOGNISERS: List[Recogniser] = [TraitObjects()]
