"""V8, JavaScript's engine in node: backing stores of ArrayBuffers, and which JavaScript holds them."""

from typing import Dict, Iterable, List, Optional, Sequence, Set, Tuple

from gdbheapx.addons.runtimes.v8.buffer_holders import BufferHolders
from gdbheapx.addons.runtimes.v8.script_heap import HIGHEST, MOST_HEAP_BYTES, WORD, ScriptHeap, has_v8_constants, read_v8_constants
from gdbheapx.analysis.census.find import BUFFER
from gdbheapx.analysis.census.world import SHAPE, Ask, CensusTarget, Inner, Recogniser, RuntimeLabels, Signature
from gdbheapx.analysis.memory import attribute, kinds
from gdbheapx.analysis.reachability.heap_graph import ManagedField, ManagedHeap
from gdbheapx.analysis.reachability.paths import ALL_WORDS, Namer
from gdbheapx.common import problems
from gdbheapx.common.hints import hint_command
from gdbheapx.common.ranges import RangeIndex, subtract_ranges, unite_ranges
from gdbheapx.kernel.blocks.signatures import AT_LEAST, AT_MOST, EQUAL, FIELD, Condition, SignatureRow

STORE = "v8::BackingStore"
STORE_BYTES = (48, 88)
LOWEST, MOST_LENGTH = 1 << 16, 1 << 40
MOST_GROUPS = 64
BUFFER_TYPE = "ArrayBuffer"
VIEWS = ("JSArrayBuffer", "JSTypedArray", "JSDataView")
"""Types whose other words lead to the memory of a buffer, too: the buffer holds it."""
BufferWord = Tuple[int, int, int]
"""Of an ArrayBuffer outside of the heap: tagged address, address of its data, and their length in bytes."""
OTHER_BUFFERS, OTHER_OBJECTS, NO_OBJECTS = "ArrayBuffer that nothing named holds", "pointer of another object", "word of no known object"


class V8Namer(Namer):
    """Namer of V8's own blocks: a backing store is the collector's note of memory that the ArrayBuffer owns."""

    is_collected = True

    def owning_words(self, signature: Optional[str]) -> int:
        return ALL_WORDS & ~1 if signature == STORE else ALL_WORDS


class V8(Recogniser):
    """A backing store begins {start, length, longest, capacity}: the last three are the same unless the buffer can grow."""

    module, has_buffers = "v8", True
    table = RuntimeLabels(
        "V8", "JavaScript heap", "", "malloc: other blocks in use (node itself, addons, libraries)", "malloc: blocks in use"
    )

    def is_here(self, world: CensusTarget) -> bool:
        """Return True if an object of the process has V8's heap."""
        return world.word_bytes == 8 and world.little_endian and kinds.V8 in attribute.find_present_runtimes(world.target)

    def line_in_tables(self, signature: Signature) -> Optional[str]:
        """Return the line also of blocks with the words of a string, which buffers have (BackingStore, src/objects/backing-store.h)."""
        return "malloc: memory of Buffers and ArrayBuffers, strings of C++" if signature == BUFFER else super().line_in_tables(signature)

    def asks(self, world: CensusTarget) -> Iterable[Ask]:
        """Return the row of backing stores: a pointer, then three equal numbers."""
        same = [Condition(at, 8, EQUAL, 0, FIELD, other=8) for at in (16, 24)]
        begin = [Condition(0, 8, AT_LEAST, LOWEST), Condition(0, 8, AT_MOST, HIGHEST - 1), Condition(0, 8, EQUAL, 0, mask=7)]
        length = [Condition(8, 8, AT_LEAST, 1), Condition(8, 8, AT_MOST, MOST_LENGTH)]
        row = SignatureRow([*begin, *length, *same], *STORE_BYTES)
        yield Ask(row, lambda key: Signature(STORE, self.module, SHAPE), order=40)

    def inner(self, world: CensusTarget) -> Sequence[Inner]:
        """Return V8's pages, and what their objects hold; nothing where the walk through them is not proven."""
        heap = world.once(find_script_heap)
        if heap is None:
            return ()
        taken = unite_ranges((page.start, page.end) for page in heap.pages)
        used, free = WORD * heap.proven_words, WORD * heap.free_words
        managed = ManagedHeap("JavaScript", "", None, find_script_fields(heap))
        if world.session.budget.expired():
            sentence = "the JavaScript heap was not read to its end: %s" % world.session.budget.reason
            world.session.problem(problems.ROOTS_UNREAD, None, sentence, "blocks that only its objects reference count as leaked")
        overhead = sum(end - start for start, end in taken) - used - free
        return [Inner(iter(()), self.module, "object", taken, free, overhead, 8, is_collected=True, managed=managed)]

    def namer(self, world: CensusTarget) -> Optional[Namer]:
        return V8Namer() if world.once(find_script_heap) is not None else None


def find_script_heap(world: CensusTarget) -> Optional[ScriptHeap]:
    """Return V8's heap if the walk through it is proven; else the session has the reason."""
    constants = world.constant(lambda world: read_v8_constants(world.target))
    heap = ScriptHeap(world.target, constants, world.session.kernel.library, world.session.budget) if constants is not None else None
    if heap is not None:
        world.session.budget.progress.stage = "reading the JavaScript heap"
        heap.find_objects()
        if heap.is_proven:
            return heap
    reason = "V8: its heap is larger than %d MiB: JavaScript objects are not read" % (MOST_HEAP_BYTES >> 20)
    if heap is None:
        has_any, is_whole = has_v8_constants(world.target)
        why = "its constants for debuggers (v8dbg_*) are not exported, as in Electron"
        why = "constants of this release are not known" if is_whole else "its pointers are compressed" if has_any else why
        reason = "V8: JavaScript objects have no names here: %s" % why
    elif not heap.is_too_large:
        reason = "V8: its heap could not be read as a run of objects: JavaScript objects are not read"
    world.session.problem(problems.RUNTIME_UNREAD, None, reason, "all of V8's memory as one: %s" % hint_command("report"), partial=False)
    return None


def find_script_fields(heap: ScriptHeap) -> List[ManagedField]:
    """Return by which JavaScript objects blocks are held: ArrayBuffers by holder, pointers of other objects, and unknown words."""
    buffers, others, unknown = _find_words(heap)
    paths = BufferHolders(heap).find_paths([address for address, _, _ in buffers])
    groups: Dict[str, List[BufferWord]] = {}
    for buffer in buffers:
        group = paths.get(buffer[0], ("", ""))[0]
        groups.setdefault("%s of %s" % (BUFFER_TYPE, group) if group else OTHER_BUFFERS, []).append(buffer)
    ordered = sorted(groups, key=lambda name: -sum(length_bytes for _, _, length_bytes in groups[name]))
    for name in ordered[MOST_GROUPS:]:
        groups.setdefault(OTHER_BUFFERS, []).extend(groups.pop(name) if name != OTHER_BUFFERS else [])

    def find_path(address: int) -> Optional[str]:
        return paths[address][1] if address in paths else None

    fields = []
    for name, rows in groups.items():
        data, addresses = [data for _, data, _ in rows], [address for address, _, _ in rows]
        fields.append(ManagedField(name, data, addresses, len(rows), find_path=find_path, label=BUFFER_TYPE))
    for name, pairs in ((OTHER_OBJECTS, others), (NO_OBJECTS, unknown)):
        fields.append(ManagedField(name, [word for word, _ in pairs], [address for _, address in pairs], len(pairs)))
    return fields


def _find_words(heap: ScriptHeap) -> Tuple[List[BufferWord], List[Tuple[int, int]], List[Tuple[int, int]]]:
    """Return ArrayBuffers, (word, object) of other objects' pointers out of the heap, and the same words outside of proven objects,
    which no object has: others are copies that were moved or are gone."""
    constants, buffers, others, unknown = heap.constants, [], [], []
    known_words: Set[int] = set()
    writable = [(mapping.start, mapping.end) for mapping in heap.target.mappings() if mapping.writable]
    pages = unite_ranges((page.start, page.end) for page in heap.pages)
    outside = RangeIndex(subtract_ranges(unite_ranges(writable), pages))
    data_at, length_at = constants.offsets["buffer_data"] // WORD, constants.offsets["buffer_length"] // WORD
    views = {constants.types[name] for name in VIEWS}
    for page, words in heap.page_words():
        for at in heap.walker.find_pointers(words, LOWEST, HIGHEST):
            word = words[at]
            if not outside.meets(word, word + 1):
                continue
            place = heap.locate_slot(page, words, at)
            if place is None:
                if not page.stale.meets(at, at + 1):
                    unknown.append((word, page.start + WORD * at))
                continue
            number, address, slot = place
            known_words.add(word)
            if number == constants.types["JSArrayBuffer"] and slot == data_at:
                length = words[at - data_at + length_at]
                if 0 < length <= MOST_LENGTH:
                    buffers.append((address, word, length))
            elif number not in views and not heap.is_data(number):
                others.append((word, address))
    return buffers, others, [pair for pair in unknown if pair[0] not in known_words]


RECOGNISERS: List[Recogniser] = [V8()]
