"""V8's heap: its pages, the maps of its objects, and a walk from object to object through each page.

A page begins at a multiple of 256 KiB and is a run of objects behind a header; a larger one has one object. The first word of an object is
its map, which has its type and size; maps have a map of their own, one for each realm and one for all. How long arrays of a type are is no
constant: the rule that leads from such objects to the next object is learned, from many of them.

Constants that V8 exports for postmortem debuggers (`v8dbg_*`): types and offsets of its objects.

Tried with node 20, 22, 24 and 26.
"""

import itertools
import re
from array import array
from bisect import bisect_right
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, TypeVar

from gdbheapx.common.budget import Budget
from gdbheapx.common.ranges import Range, RangeIndex, unite_ranges
from gdbheapx.inferior.base import Target
from gdbheapx.kernel.common.library import address_of, flatten_record

PREFIX, NUMBER_BYTES = "v8dbg_", 4
MOST_OFFSET = 1 << 12
TAGGED = ("Tagged_Object_", "Object", "HeapObject", "Tagged_HeapObject_")
TYPES = (
    *("Map", "ByteArray", "FixedDoubleArray", "HeapNumber", "Oddball", "FixedArray", "ScopeInfo", "PropertyArray", "PropertyCell"),
    *("FeedbackVector", "WeakCell", "FreeSpace", "DescriptorArray"),
    *("JSFunction", "JSArray", "JSArrayBuffer", "JSTypedArray", "JSDataView", "JSMap", "JSSet", "JSWeakMap"),
)
"""Names of types: their numbers have the same with a line between words, `JS_ARRAY_BUFFER`."""
WORD_END = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=^JS)")
OFFSETS = {
    "buffer_data": ("JSArrayBuffer__backing_store__uintptr_t",),
    "buffer_length": ("JSArrayBuffer__byte_length__size_t",),
    "map_size": ("Map__instance_size_in_words__char",),
    "map_begin": ("Map__inobject_properties_start_or_constructor_function_index__char",),
    "map_type": ("Map__instance_type__uint16_t",),
    "map_bits": ("Map__bit_field3__int",),
    "map_maker": tuple("Map__constructor_or_back_pointer__" + kind for kind in TAGGED),
    "map_descriptors": ("Map__instance_descriptors_offset",),
    "descriptors_begin": ("DescriptorArray__header_size__uintptr_t",),
    "string_length": ("String__length__int32_t",),
    "string_bytes": ("SeqOneByteString__chars__char",),
    "string_first": ("ConsString__first__String",),
    "string_second": ("ConsString__second__String",),
    "function_shared": ("JSFunction__shared__SharedFunctionInfo",),
    "function_context": ("JSFunction__context__Tagged_Context_", "JSFunction__context__Context"),
    "shared_name": tuple("SharedFunctionInfo__name_or_scope_info__" + kind for kind in (*TAGGED, "Tagged_NameOrScopeInfoT_")),
    "shared_script": tuple("SharedFunctionInfo__%s" % name for name in ("raw_script__Tagged_Object_", "script_or_debug_info__HeapObject")),
    "script_name": ("Script__name__Object",),
}
NUMBERS = (
    *("TaggedSize", "FirstNonstringType", "FirstContextType", "LastContextType", "FirstJSFunctionType", "LastJSFunctionType"),
    *("context_min_slots", "scopeinfo_idx_ncontextlocals", "scopeinfo_idx_first_vars", "StringRepresentationMask", "OneByteStringTag"),
    *("bit_field3_number_of_own_descriptors_mask", "bit_field3_number_of_own_descriptors_shift", "prop_index_mask", "prop_index_shift"),
    *("prop_location_mask", "prop_desc_details", "prop_desc_size"),
)
OPTIONAL = ("FirstJSFunctionType", "LastJSFunctionType", "FreeSpace")


class V8Constants(NamedTuple):
    """Numbers that this V8 exports."""

    types: Mapping[str, int]
    """By a class's name, its instance type."""
    offsets: Mapping[str, int]
    """Of fields in bytes, by the names in OFFSETS."""
    numbers: Mapping[str, int]

    def name_type(self, number: int) -> Optional[str]:
        """Return the class of an instance type."""
        if self.is_context(number):
            return "Context"
        if self.is_function(number):
            return "JSFunction"
        return next((name for name, type_number in self.types.items() if type_number == number), None)

    def is_context(self, number: int) -> bool:
        """Return True for the instance type of a context."""
        return self.numbers["FirstContextType"] <= number <= self.numbers["LastContextType"]

    def is_function(self, number: int) -> bool:
        """Return True for the instance type of a function."""
        first = self.numbers.get("FirstJSFunctionType", self.types["JSFunction"])
        # without a last one: those of constructors of typed arrays and so on follow the first (instance-type.h)
        return first <= number <= self.numbers.get("LastJSFunctionType", first + 16)


def read_v8_constants(target: Target) -> Optional[V8Constants]:
    """Read the constants of the process's V8; None if one is missing, or if its pointers are compressed to four bytes."""
    types = {name: _read_first(target, ["type_%s__%s_TYPE" % (name, WORD_END.sub("_", name).upper())]) for name in TYPES}
    offsets = {name: _read_first(target, ["class_" + place for place in places]) for name, places in OFFSETS.items()}
    numbers = {name: _read_first(target, [name]) for name in NUMBERS}
    sound = all(number is not None and number >= 0 for number in (*types.values(), *numbers.values()) if number is not None)
    needed = [number for group in (types, offsets, numbers) for name, number in group.items() if name not in OPTIONAL]
    if not sound or None in needed or numbers["TaggedSize"] != 8:
        return None
    known = [{name: number for name, number in group.items() if number is not None} for group in (types, offsets, numbers)]
    constants = V8Constants(*known)
    return constants if all(0 <= offset < MOST_OFFSET for offset in constants.offsets.values()) else None


def _read_first(target: Target, names: Sequence[str]) -> Optional[int]:
    """Return the number of the first of these names that is exported."""
    for name in names:
        symbol = target.dynamic_symbol(PREFIX + name)
        data = target.read_prefix(symbol.address, NUMBER_BYTES) if symbol is not None else b""
        if len(data) == NUMBER_BYTES:
            return int.from_bytes(data, target.byte_order, signed=True)
    return None


def has_v8_constants(target: Target) -> Tuple[bool, bool]:
    """Return whether V8 exports any constant, and whether its pointers are as long as the process's."""
    size = _read_first(target, ["TaggedSize"])
    return size is not None, size == 8


Part = TypeVar("Part")
CHUNK_BYTES, LEAST_PAGE_BYTES = 256 << 10, 4 << 10
HEADER_WORDS, MOST_HEADER_BYTES, NEW_HEADER_BYTES = 16, 8 << 10, 16
PROBES = 16
OF_KERNEL = "["
"""How names of the program's break and stacks begin."""
MOST_CHUNKS, MOST_MAPS, MOST_REALMS = 1 << 15, 1 << 18, 64
MOST_RECENT = 128
"""Pages that are kept, to which objects were moved."""
MOST_HEAP_BYTES = 1 << 30
"""Of pages: a larger heap is not walked."""
LEAST_SAMPLES, MOST_SAMPLES, MOST_MISSES = 16, 256, 4
"""A rule is learned from so many objects, of which one of MOST_MISSES may lead to no object."""
WORD, HIGHEST = 8, 1 << 47
PROPERTIES_MASK = 0x3FF
"""Of the length of a PropertyArray: its owner's hash is above it."""
SIZE_BITS, MOST_OBJECT_WORDS = 16, 4096
HASH, HASH_SHIFT, MOST_SLOTS = 0x9E3779B97F4A7C15, 40, 1 << 22
SMI_SHIFT, ALL_COUNTS = 32, 0x7FFFFFFF
"""A Smi has its number in the upper half."""


class SizeRule(NamedTuple):
    """Rule for the size of an object by its second word; without a unit it ends where the next object begins."""

    head_bytes: int
    unit_bytes: int
    shift: int = SMI_SHIFT
    mask: int = ALL_COUNTS
    is_small_integer: int = 1
    """The lower half of the word must be 0."""

    def measure_words(self, second: int) -> int:
        """Return the size in words; 0 where the rule does not hold."""
        if self.is_small_integer and second & 0xFFFFFFFF:
            return 0
        return (self.head_bytes + (second >> self.shift & self.mask) * self.unit_bytes + 7) // 8


class PageWalk(NamedTuple):
    """State of a walk: where it is, whether the object before led there, and sums."""

    at: int
    is_led: int
    objects: int
    proven_words: int
    free_words: int
    other_words: int
    asks_for_rules: int


def make_word_table(pairs: Iterable[Tuple[int, int]]) -> "array[int]":
    """Return a table of keys and values for the native library, half of it empty at least."""
    values = dict(list(pairs)[: MOST_SLOTS // 2])
    slots = 1 << max(4, (2 * len(values)).bit_length())
    table = array("Q", bytes(16 * slots))
    for key, value in values.items():
        slot = (key * HASH & (1 << 64) - 1) >> HASH_SHIFT & slots - 1
        while table[2 * slot]:
            slot = (slot + 1) & slots - 1
        table[2 * slot], table[2 * slot + 1] = key, value
    return table


class PageWalker:
    """Walker with a table of maps and a list of rules."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._maps = make_word_table(())
        self._rules = array("Q", bytes(40))
        self.free_rule = 0

    def set_rules(self, maps: Dict[int, int], rules: Sequence[SizeRule], free_rule: int) -> None:
        """Take maps with the values that pages.c describes. `free_rule`: the number of the one for free space."""
        self._maps, self._rules, self.free_rule = make_word_table(maps.items()), flatten_record(list(rules)), free_rule

    def measure_object(self, words: "array[int]", at: int) -> int:
        """Return the words of the object that begins at a place; 0 if none is values."""
        slots = len(self._maps) // 2
        size: int = self._library.heapx_v8_measure(
            address_of(words), len(words), at, address_of(self._maps), slots, address_of(self._rules)
        )
        return size

    def walk_page(self, words: "array[int]", walk: PageWalk, objects: "array[int]") -> Tuple[bool, PageWalk]:
        """Walk on; True where someone is to look at the word there. `objects`: room for as many as there are words."""
        state = array("Q", walk)
        pointers = address_of(self._maps), len(self._maps) // 2, address_of(self._rules), self.free_rule
        stops = self._library.heapx_v8_walk(address_of(words), len(words), address_of(state), *pointers, address_of(objects))
        return bool(stops), PageWalk(*state)

    def find_members(self, words: "array[int]", table: "array[int]") -> List[int]:
        """Return the places of words that are keys of a table."""
        return self._list_places(self._library.heapx_v8_members, words, address_of(table), len(table) // 2)

    def find_pointers(self, words: "array[int]", low: int, high: int) -> List[int]:
        """Return the places of aligned words between two addresses that are no small integers."""
        return self._list_places(self._library.heapx_v8_pointers, words, low, high)

    @staticmethod
    def _list_places(function: Any, words: "array[int]", *numbers: Any) -> List[int]:
        places = array("I", bytes(4 * len(words)))
        return list(places[: function(address_of(words), len(words), *numbers, address_of(places))]) if words else []


RULES: Sequence[SizeRule] = (
    *(SizeRule(8 * head, 8) for head in (2, 3, 4)),
    *(SizeRule(8 * head, 16) for head in (2, 3)),
    *(SizeRule(head, 1) for head in (54, *range(16, 80, 8))),
    SizeRule(0, 1),
)
"""Of arrays: elements of 8 and of 16 bytes, bytes; free space has its own length."""
FIRST_OF_BYTES, FREE = 5, len(RULES) - 1
ONE_BYTE, TWO_BYTE, PROPERTIES, SCOPES, DESCRIPTORS, NONE = range(len(RULES), len(RULES) + 6)


class PageSpan(NamedTuple):
    """Addresses of a page, and of the part of it that has objects."""

    start: int
    end: int
    first: int
    last: int


class ScriptPage(NamedTuple):
    """A page of V8's heap."""

    start: int
    end: int
    objects: "array[int]"
    """Offset of each proven object in words, sorted; free space is one."""
    stale: RangeIndex
    """Copies of objects that a collection has moved, by offset in words: each begins with the address of the new one."""


class ScriptHeap:
    """The heap of one process at one moment."""

    def __init__(self, target: Target, constants: V8Constants, library: Any, budget: Budget) -> None:
        self.target, self.constants, self._budget = target, constants, budget
        self.walker = PageWalker(library)
        self.types: Dict[int, int] = {}
        """Instance type by tagged map."""
        self._sizes: Dict[int, int] = {}
        """Words of objects by tagged map; 0: they differ."""
        first, second = constants.offsets["string_bytes"], constants.offsets["descriptors_begin"]
        self._all_rules = [
            *RULES,
            *(SizeRule(first, letter, is_small_integer=0) for letter in (1, 2)),
            SizeRule(2 * WORD, WORD, mask=PROPERTIES_MASK),
            SizeRule(0, 0),
            SizeRule(second, constants.numbers["prop_desc_size"] * WORD, 0, 0xFFFF, 0),
            SizeRule(0, WORD, mask=0),
        ]
        self._rules = {
            constants.types["PropertyArray"]: PROPERTIES,
            constants.types["ScopeInfo"]: SCOPES,
            constants.types["DescriptorArray"]: DESCRIPTORS,
        }
        """By instance type; others are learned."""
        if "FreeSpace" in constants.types:
            self._rules[constants.types["FreeSpace"]] = FREE
        self._votes: Dict[int, List[int]] = {}
        self._realms: Set[int] = set()
        self._chunks: Set[int] = set()
        self._recent: Dict[int, array[int]] = {}
        self.pages: List[ScriptPage] = []
        self.proven_words = self.free_words = self.other_words = 0
        """Of proven objects, free ones aside; of free space, and of zeros; of what is neither."""
        self.is_too_large = False

    @property
    def is_proven(self) -> bool:
        """Return True if the walk led from object to object through nearly all that pages hold."""
        return bool(self.pages) and self.proven_words >= 4 * self.other_words

    def find_objects(self) -> None:
        """Find pages and maps, and walk."""
        spans = self._find_spans()
        if sum(span.end - span.start for span in spans) > MOST_HEAP_BYTES:
            self.is_too_large = True
            return
        self._chunks = {chunk for span in spans for chunk in range(span.start // CHUNK_BYTES, -(-span.end // CHUNK_BYTES))}
        for span in self._take_in_time(spans):
            self._find_realms(span.start, self._read_span(span.start, span.end))
        for span in self._take_in_time(spans):
            self._find_maps(span.start, self._read_span(span.start, span.end))
        self._update_rules()
        walked = {span: self._walk_span(span) for span in self._take_in_time(spans)}
        self._update_rules()
        for span, (_, walk) in self._take_in_time(list(walked.items())):
            if walk.asks_for_rules > 1:  # rules may have been learned since
                walked[span] = self._walk_span(span)
        self._recent.clear()
        self.pages = [page for page, _ in walked.values()]
        self.proven_words = sum(walk.proven_words for _, walk in walked.values())
        self.free_words = sum(walk.free_words for _, walk in walked.values())
        self.other_words = sum(walk.other_words for _, walk in walked.values())

    def page_words(self) -> "Iterator[Tuple[ScriptPage, array[int]]]":
        """Yield each page and its words."""
        for page in self._take_in_time(self.pages):
            yield page, self._read_words(page.start, page.end)

    def _take_in_time(self, parts: Sequence[Part]) -> Iterator[Part]:
        """Yield parts of the heap until the budget expires."""
        return itertools.takewhile(lambda part: not self._budget.expired(), parts)

    def locate_slot(self, page: ScriptPage, words: "array[int]", at: int) -> Optional[Tuple[int, int, int]]:
        """Return the object whose word this is, as instance type, tagged address and number of the word; None outside of proven objects."""
        place = bisect_right(page.objects, at) - 1
        if place < 0:
            return None
        begin = page.objects[place]
        size = self.walker.measure_object(words, begin)
        return (self.types[words[begin]], page.start + WORD * begin + 1, at - begin) if at < begin + size else None

    def read_object(self, tagged: int) -> Sequence[int]:
        """Return the words of a small object, or the first ones of a large one; empty if it is none."""
        if tagged & 3 != 1 or not 0 < tagged < HIGHEST:
            return ()
        head = self.read_words(tagged - 1, 2)
        if head and self.types.get(head[0]) == self.constants.types["ScopeInfo"]:
            head = self.read_words(tagged - 1, MOST_OBJECT_WORDS)
        size = self.walker.measure_object(head, 0) if len(head) >= 2 else 0
        return self.read_words(tagged - 1, min(size, MOST_OBJECT_WORDS)) if size else ()

    def read_words(self, address: int, count: int) -> "array[int]":
        """Return the readable ones of some words."""
        data = self.target.read_prefix(address, WORD * count) if 0 < address < HIGHEST else b""
        return array("Q", data[: len(data) & -WORD])

    def object_type(self, tagged: int) -> Optional[int]:
        """Return the instance type of an object; None if there is none."""
        head = self.read_words(tagged - 1, 1) if tagged & 3 == 1 else ()
        return self.types.get(head[0]) if head else None

    def is_data(self, type_number: int) -> bool:
        """Return True for objects whose bytes are content and no pointers: strings but external ones, arrays of bytes, numbers; free."""
        if type_number < self.constants.numbers["FirstNonstringType"]:
            return type_number & self.constants.numbers["StringRepresentationMask"] == 0
        rule = self._rules.get(type_number)
        named = (self.constants.types[name] for name in ("ByteArray", "FixedDoubleArray", "HeapNumber"))
        return (rule is not None and FIRST_OF_BYTES <= rule <= FREE) or type_number in named

    def _find_spans(self) -> List[PageSpan]:
        """Return pages: chunks whose header has the begin and end of a part of it, as it is or where its second word leads."""
        spans: List[PageSpan] = []
        chunks = 0
        for mapping in self.target.mappings():
            if not mapping.readable or mapping.executable or mapping.shared or mapping.is_file or mapping.name.startswith(OF_KERNEL):
                continue
            begin = -(-mapping.start // CHUNK_BYTES) * CHUNK_BYTES
            while begin < mapping.end and chunks < MOST_CHUNKS:
                chunks += 1
                end = min(begin + CHUNK_BYTES, mapping.end)
                area = self._find_area(begin)
                if area is not None:
                    end = min(mapping.end, max(end, -(-area[1] // CHUNK_BYTES) * CHUNK_BYTES))
                    spans.append(PageSpan(begin, end, *area))
                    self._find_realm(area[0])
                begin += -(-(end - begin) // CHUNK_BYTES) * CHUNK_BYTES
        return spans

    def _find_area(self, begin: int) -> Optional[Range]:
        """Return where the objects of a page begin and end, which its header has; None if this is no page."""
        if self.target.kind == "live" and not self.target.present_ranges(begin, begin + LEAST_PAGE_BYTES):
            return None
        head = self.read_words(begin, HEADER_WORDS)
        if len(head) < HEADER_WORDS:
            return None
        areas = [(head[0], head[3], head[4]), (head[2], head[4], head[5])]  # up to node 20, and 22
        words = self.read_words(head[1], HEADER_WORDS) if not head[1] & 7 else ()
        if len(words) == HEADER_WORDS:  # since node 24
            areas += [(MOST_HEAP_BYTES, start, end) for end, start in zip(words, words[2:]) if start == begin + NEW_HEADER_BYTES]
        for size, start, end in areas:
            is_size = size and not size % LEAST_PAGE_BYTES and size <= MOST_HEAP_BYTES
            if is_size and begin < start <= begin + MOST_HEADER_BYTES and start < end <= begin + size and not (start | end) & 7:
                return start, end
        return None

    def _find_realm(self, address: int) -> None:
        """Take the map of the map of the first object, or of one of the first words that is a map."""
        for word in self.read_words(address, PROBES):
            own = self.read_words(word - 1, 1) if word & 3 == 1 else ()
            if own and own[0] not in self._realms and len(self._realms) < MOST_REALMS and self._is_realm(own[0]):
                self._realms.add(own[0])

    def _measure_moved(self, word: int) -> int:
        """Return the size in words of an object that was moved to this address; 0 if none was."""
        chunk, within = divmod(word, CHUNK_BYTES)
        if chunk not in self._chunks or within % WORD:
            return 0
        if chunk not in self._recent:
            if len(self._recent) >= MOST_RECENT:
                self._recent.clear()
            self._recent[chunk] = self.read_words(chunk * CHUNK_BYTES, CHUNK_BYTES // WORD)
        words = self._recent[chunk]
        at = within // WORD
        return self.walker.measure_object(words, at) if at + 1 < len(words) and words[at] & 3 == 1 else 0

    def _is_realm(self, tagged: int) -> bool:
        """Return True for a map of maps: its map is itself."""
        words = self.read_words(tagged - 1, 2) if tagged & 3 == 1 else array("Q")
        return len(words) == 2 and words[0] == tagged and self._read_type(words[1]) == self.constants.types["Map"]

    def _read_type(self, word: int) -> int:
        return word >> 8 * (self.constants.offsets["map_type"] - WORD) & 0xFFFF

    def _find_realms(self, start: int, data: bytes) -> None:
        """Find maps of maps that begin no page: their second word is that of one that does."""
        for second in {word for realm in self._realms for word in self.read_words(realm - 1 + WORD, 1)}:
            for at in self._find_words(data, second):
                tagged = start + at - WORD + 1
                if at >= WORD and data[at - WORD : at] == tagged.to_bytes(WORD, self.target.byte_order) and len(self._realms) < MOST_REALMS:
                    self._realms.add(tagged)

    def _find_words(self, data: bytes, word: int) -> Iterator[int]:
        pattern = word.to_bytes(WORD, self.target.byte_order)
        at = data.find(pattern)
        while at >= 0:
            if at % WORD == 0:
                yield at
            at = data.find(pattern, at + 1)

    def _find_maps(self, start: int, data: bytes) -> None:
        for at in (at for realm in self._realms for at in self._find_words(data, realm)):
            if at + 2 * WORD <= len(data) and len(self.types) < MOST_MAPS:
                second = int.from_bytes(data[at + WORD : at + 2 * WORD], self.target.byte_order)
                tagged = start + at + 1
                self.types[tagged] = self._read_type(second)
                self._sizes[tagged] = second >> 8 * (self.constants.offsets["map_size"] - WORD) & 0xFF

    def _walk_span(self, span: PageSpan) -> Tuple[ScriptPage, PageWalk]:
        """Walk through a page; asks_for_rules of the result is more than 1 if an object had none."""
        area = self._read_words(span.start, min(span.last, span.end))
        objects = array("I", bytes(4 * len(area)))
        stale: List[Range] = []
        asks = 1
        stops, walk = self.walker.walk_page(area, PageWalk((span.first - span.start) // WORD, 1, 0, 0, 0, 0, 1), objects)
        while stops:
            moved = self._measure_moved(area[walk.at])
            if moved and moved <= len(area) - walk.at:
                stale.append((walk.at, walk.at + moved))
                walk = walk._replace(at=walk.at + moved, free_words=walk.free_words + moved)
            else:
                if area[walk.at] in self.types:
                    asks += 1
                    if self._learn_rule(area, walk.at):
                        self._update_rules()
                walk = walk._replace(at=walk.at + 1, other_words=walk.other_words + 1, is_led=0)
            stops, walk = self.walker.walk_page(area, walk, objects)
        page = ScriptPage(span.start, span.end, objects[: walk.objects], RangeIndex(unite_ranges(stale)))
        return page, walk._replace(asks_for_rules=asks)

    def _learn_rule(self, words: "array[int]", at: int) -> bool:
        """Count which rules lead from an object to the next one; the best becomes the rule of its type, if nearly all do."""
        number = self.types[words[at]]
        second = words[at + 1] if at + 1 < len(words) else 1
        votes = self._votes.setdefault(number, [0] * (len(RULES) + 1))
        votes[-1] += 1
        for place, rule in enumerate(RULES):
            size = rule.measure_words(second)
            if size and at + size < len(words) and words[at + size] in self._sizes:
                votes[place] += 1
        best = max(votes[:-1])
        if votes[-1] >= LEAST_SAMPLES and (votes[-1] - best) * MOST_MISSES <= votes[-1]:
            self._rules[number] = votes.index(best)
        elif votes[-1] >= MOST_SAMPLES:
            self._rules[number] = NONE
        return number in self._rules

    def _update_rules(self) -> None:
        """Give the walker maps and rules as far as they are known."""
        letters = {0: TWO_BYTE, self.constants.numbers["OneByteStringTag"]: ONE_BYTE}
        maps = {}
        for map_, size in self._sizes.items():
            number = self.types[map_]
            rule = self._rules.get(number, -1)
            if number < self.constants.numbers["FirstNonstringType"]:
                rule = letters[number & self.constants.numbers["OneByteStringTag"]]
            maps[map_] = size or (rule + 1) << SIZE_BITS
        self.walker.set_rules(maps, self._all_rules, FREE + 1)

    def _read_span(self, start: int, end: int) -> bytes:
        """Return the memory of a page: parts that are not present are zeros."""
        data = bytearray(end - start)
        for low, high in self.target.present_ranges(start, end) or [(start, end)]:
            part = self.target.read_prefix(low, high - low)
            data[low - start : low - start + len(part)] = part
        return bytes(data)

    def _read_words(self, start: int, end: int) -> "array[int]":
        return array("Q", self._read_span(start, end))
