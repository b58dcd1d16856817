"""Which mimallocs are in the target, without a symbol: by the texts of their objects, and by what leads from an object's data to its
memory.

Releases 1 and 2: a segment's cookie is its address mixed with a random number that stands in the main heap, in the object's data. Release
3: a word of the data leads to the page map, whose first word leads to its own end. Nothing else looks so, and an object that holds no text
of mimalloc's is never searched.
"""

from array import array
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.addons.allocators.gates import MI_HINT
from gdbheapx.addons.allocators.mimalloc import codes, options, page_map, pages, segments
from gdbheapx.addons.allocators.mimalloc.layouts import SEGMENT_BYTES, Form, forms
from gdbheapx.allocators.records import Instances, NotRead
from gdbheapx.inferior.base import Module, Target
from gdbheapx.model import AllocatorInfo
from gdbheapx.units import Size, say

MOST_SEARCHED_BYTES = 64 << 20
"""Of one object's data."""
MOST_CANDIDATES = 1 << 20
"""Places where a segment may begin: 32 TiB of memory."""
HEAD_BYTES = 384
"""Of a segment, up to its pages: the longest of all forms."""
JUDGED_SEGMENTS = 16
"""By so many it is told which form fits."""
WORTH_BYTES = 1 << 20
"""Less than this in memory that is probably a copy's is no heap that somebody misses."""
VERSION = "mi_version"
"""A function that returns the release as a number."""
CODE_BYTES = 16


class Mimalloc(NamedTuple):
    """One mimalloc in the target, and all that is constant about it."""

    id: str
    module: Module
    form: Form
    version: Optional[str]
    owns_malloc: Optional[bool]
    place: int
    """Address of the word of the object's data that proves it: the main heap's cookie, or the pointer to the page map."""
    key: int
    """That word."""
    other_keys: Sequence[int] = ()
    """Of further copies."""
    unlisted: Optional[str] = None
    options: Optional[int] = None
    """Address of its array of options; None where it was not found."""

    def info(self) -> AllocatorInfo:
        """Its entry in the envelope."""
        return AllocatorInfo(
            id=self.id,
            name="mimalloc",
            version=self.version or self.form.releases,
            object=self.module.file_name,
            build_id=self.module.build_id,
            layout="table",
            address_source="probe",
            owns_malloc=self.owns_malloc,
        )

    def read(self, target: Target) -> pages.Found:
        """All its pages, as they are now."""
        if self.form.line == 3:
            delay = options.in_force(options.read(target, self.options)).get("purge_delay", 0)
            return page_map.read(target, self.form, self.key, never_purges=delay < 0)
        heads = _Heads(target)
        return segments.read(target, self.form, self.key, heads.with_key(self.form, self.key), heads.spoilt(self))


class _Heads:
    """The bytes where a segment may begin, read once."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._read: Dict[int, Dict[int, bytes]] = {}

    def of_line(self, line: int) -> Dict[int, bytes]:
        """By address, for one line of releases."""
        if line not in self._read:
            self._read[line] = dict(self._heads(SEGMENT_BYTES[line]))
        return self._read[line]

    def _heads(self, step: int) -> Iterator[Tuple[int, bytes]]:
        left = MOST_CANDIDATES
        for mapping in self._target.mappings():
            if not mapping.writable or (mapping.is_file and not mapping.shared):
                continue
            for address in range(-(-mapping.start // step) * step, mapping.end, step):
                left -= 1
                if left < 0:
                    return
                if self._target.kind != "live" or self._target.touched_ranges(address, address + 4096):
                    data = self._target.read_prefix(address, HEAD_BYTES)
                    if len(data) == HEAD_BYTES:
                        yield address, data

    def spoilt(self, located: Mimalloc) -> List[int]:
        """What is a segment of that copy but for its cookie: a thread's, with as many slices as all have."""
        places = located.form.segment
        assert places is not None
        if places.kind is None:
            return []
        threads, found = {thread.thread_pointer for thread in self._target.threads()}, []
        for address, data in self.of_line(located.form.line).items():
            numbers = [pages.word(data, offset) for offset in (places.size, places.entries, places.thread_id)]
            is_like = numbers[:1] == [places.slices] and 0 <= places.slices - numbers[1] <= 1 and numbers[2] in threads
            if is_like and pages.word(data, places.cookie) ^ address not in (located.key, *located.other_keys):
                found.append(address)
        return found

    def with_key(self, form: Form, key: int) -> List[int]:
        """Where segments of that copy begin."""
        assert form.segment is not None
        cookie = form.segment.cookie
        return [address for address, data in self.of_line(form.line).items() if pages.word(data, cookie) ^ address == key]


def find(target: Target, modules: Sequence[Module]) -> Instances:
    """The copies in these objects, and those that are there and cannot be read."""
    located: List[Mimalloc] = []
    unread: List[NotRead] = []
    unused: List[NotRead] = []
    heads, owner = _Heads(target), target.dynamic_symbol("malloc")
    for module in modules:
        if target.word_bytes != 8 or not target.little_endian:
            is_owner = owner is not None and owner.module == module
            what = "mimalloc in %s is read on 64-bit little-endian machines only" % module.file_name
            (unread if is_owner else unused).append(NotRead(module, what, MI_HINT))
            continue
        found = _page_map(target, module) or _segments(target, module, heads)
        if found is not None:
            ident = "mimalloc" if not located else "mimalloc#%d" % (len(located) + 1)
            owns = owner.module == module if owner is not None else None
            form, place, key = found
            table = options.find(target, _words(target, module))
            located.append(Mimalloc(ident, module, form, release(target, module), owns, place, key, options=table))
        elif owner is not None and owner.module == module:
            name = "mimalloc %s" % (release(target, module) or "")
            what = "%s in %s cannot be read: it fits no release from 1.8 to 3.4" % (name.strip(), module.file_name)
            unread.append(NotRead(module, what, "check for a newer gdbheapx; " + MI_HINT))
        else:
            what = "mimalloc in %s was never used, or is of a release that is not known" % module.file_name
            unused.append(NotRead(module, what, MI_HINT))
    likely = _likely_bytes(target) if unused and not located and not unread else 0
    if likely >= WORTH_BYTES:
        module = unused.pop().module
        size = say("%s of ", Size(likely)) if target.kind == "live" else ""  # a core may have pages of zeros that were never in RAM
        what = "mimalloc in %s is of a release that is not read: %sanonymous memory in this process is probably its"
        unread.append(NotRead(module, say(what, module.file_name, size), MI_HINT))
    keys = [copy.key for copy in located]
    copies = [copy._replace(other_keys=tuple(key for key in keys if key != copy.key)) for copy in located]
    return Instances(copies, unread, unused=unused)


def _likely_bytes(target: Target) -> int:
    """What takes memory of mappings that begin where mimalloc alone asks for its arenas: far from the rest, and at whole MiB."""
    uses, (low, high) = target.memory_use(), segments.CHOSEN
    mine = [use for use in (uses.mappings if uses is not None else ()) if low <= use.mapping.start < high]
    return sum(use.resident_bytes for use in mine if not use.mapping.is_file and use.mapping.start % WORTH_BYTES == 0)


def release(target: Target, module: Module) -> Optional[str]:
    """By the function that every shared build exports, where its code is in memory: 3.4.3."""
    symbol = target.exported(module, VERSION)
    if symbol is None or (target.kind == "live" and not target.present_ranges(symbol.address & -4096, (symbol.address & -4096) + 4096)):
        return None
    code, told = target.read_prefix(symbol.address, CODE_BYTES), target.arch.returned_number
    version = told(code) if told is not None else None
    return None if version is None else spelled(version)


def spelled(version: int) -> Optional[str]:
    """209 is 2.0.9, 3208 is 3.2.8, 30403 is 3.4.3."""
    if version < 1000:
        parts = version // 100, version // 10 % 10, version % 10
    else:
        big = 10000 if version >= 10000 else 1000
        parts = version // big, version // 100 % (big // 100), version % 100
    return "%d.%d.%d" % parts if 1 <= parts[0] <= 9 else None


def _words(target: Target, module: Module) -> Iterator[Tuple[int, "array[int]"]]:
    """The words of an object's data: where they begin, and what they are."""
    left = MOST_SEARCHED_BYTES
    for start, _, end in target.writable_segments(module):
        ranges = target.touched_ranges(start, end) if target.kind != "remote" else [(start, end)]
        for low, high in ranges:
            low = -(-low // 8) * 8
            data = target.read_prefix(low, min(high - low, left))
            left -= len(data)
            yield low, array("Q", data[: len(data) & -8])


def _page_map(target: Target, module: Module) -> Optional[Tuple[Form, int, int]]:
    """Of release 3: the form, and the word that leads to the page map."""
    tried: Set[int] = set()
    memory = [(mapping.start, mapping.end) for mapping in target.mappings() if mapping.writable and not mapping.is_file]
    for base, words in _words(target, module):
        for place, value in enumerate(words):
            if value & 4095 or not value or value in tried or value >= 1 << 47:
                continue
            tried.add(value)
            if any(start <= value < end for start, end in memory) and page_map.first_level(target, value):
                form = _mapped_form(target, value)
                if form is not None:
                    return form, base + 8 * place, value
    return None


def _mapped_form(target: Target, place: int) -> Optional[Form]:
    """The one whose arenas, and then whose pages, contradict nothing. The arenas come first: of 3.0.1 a wrong page may be taken for one
    that was freed, while its arenas lie as no others do."""
    best: List[Tuple[int, int, int, Form]] = []
    for order, form in enumerate(forms(3)):
        found = page_map.read(target, form, place)
        if found.pages and len(found.broken) <= len(found.pages) // 8:
            best.append((sum(one.code is codes.ARENA_WRONG for one in found.broken), len(found.broken), order, form))
    return min(best, key=lambda row: row[:3])[3] if best else None


def _segments(target: Target, module: Module, heads: _Heads) -> Optional[Tuple[Form, int, int]]:
    """Of releases 1 and 2: the form, and where the main heap's cookie stands."""
    data = list(_words(target, module))
    inside = [(start, end) for start, _, end in target.writable_segments(module)]
    for line in (2, 1):
        best: List[Tuple[int, int, Form, int, int]] = []
        for order, form in enumerate(forms(line)):
            for place, key in _keys(form, data, heads, inside):
                known = heads.with_key(form, key)
                addresses = known[:JUDGED_SEGMENTS]
                found = segments.read(target, form, key, addresses)
                wrong = len(found.broken) + (not _leads_inside(target, form, place, known))
                if len(found.pages) > wrong or (addresses and not wrong):
                    best.append((wrong, order, form, place, key))
        if best:
            chosen = min(best, key=lambda row: row[:2])
            return chosen[2:]
    return None


def _leads_inside(target: Target, form: Form, place: int, addresses: Sequence[int]) -> bool:
    """Whether the main heap's list of blocks that others have freed is empty, or begins in a segment: a debug build of 2.0.6 and a secure
    one of 2.0.7 differ in nothing else. `place`: of its cookie; `addresses`: of segments."""
    assert form.heap is not None
    if form.heap.thread_delayed_free is None:
        return True
    head = pages.word(target.read_prefix(place - form.heap.cookie + form.heap.thread_delayed_free, 8), 0)
    return not head or any(address <= head < address + SEGMENT_BYTES[form.line] for address in addresses)


def _keys(
    form: Form, data: "List[Tuple[int, array[int]]]", heads: _Heads, inside: Sequence[Tuple[int, int]]
) -> Iterator[Tuple[int, int]]:
    """Place and value of each word of the data that is the key of some segment, and has a pointer into the data where the heap's is."""
    assert form.segment is not None and form.heap is not None
    cookie = form.segment.cookie
    keys = {pages.word(head, cookie) ^ address for address, head in heads.of_line(form.line).items()}
    keys = {key for key in keys if key >> 32}
    seen: Set[int] = set()
    for base, words in data:
        for key in keys.intersection(words) - seen:
            place = words.index(key)
            beside = place + (form.heap.tld - form.heap.cookie) // 8
            if 0 <= beside < len(words) and any(start <= words[beside] < end for start, end in inside):
                seen.add(key)
                yield base + 8 * place, key


def confirm(target: Target, located: Mimalloc) -> Optional[Mimalloc]:
    """The same copy, proved again; None if it does not hold."""
    data = target.read_prefix(located.place, 8)
    if len(data) < 8 or pages.word(data, 0) != located.key:
        return None
    return located if located.form.line != 3 or page_map.first_level(target, located.key) else None
