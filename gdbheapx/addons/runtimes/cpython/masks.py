"""Masks of the words of CPython's objects that own what they point to.

Not so: links of the collector's lists, counts and types, weak references and the list of them, and what a class has of its bases (they
have names of their own), links of chains whose members a dict has as well.
"""

from typing import Dict, FrozenSet, Iterable, List, Optional, Set, Tuple

from gdbheapx.addons.runtimes.cpython.types import (
    DEBUG_HEAD,
    GC_HEAD,
    HAS_GC,
    HEAP_TYPE,
    INLINE_VALUES,
    IS_TYPE,
    ITEM,
    STR,
    TYPE,
    WORD,
    PyType,
    list_bodies,
)
from gdbheapx.addons.runtimes.cpython.values import BYTES, INT, TUPLE, PyValues
from gdbheapx.analysis.reachability.paths import ALL_WORDS, LAST_BIT
from gdbheapx.kernel.blocks.graph_queries import Counting

WEAK_LIST_OFFSET = 208
"""tp_weaklistoffset, in a type."""
WEAK = frozenset((16, 40, 48))
"""PyWeakReference: wr_object, wr_prev, wr_next."""
OF_CLASS = frozenset((24, 256, 336, 344, 352, 360, 368))
"""PyTypeObject: tp_name (in a str that has a word of its own), tp_base, tp_bases, tp_mro, tp_cache, tp_subclasses, tp_weaklist."""
COUNTED_OF_CLASS = (256, 336, 344, 352, 360)
"""Of these the ones that are counted references: tp_base, tp_bases, tp_mro, tp_cache, tp_subclasses."""
COUNTING_BODIES = ("dict keys", "dict values", "list items", "set table", "instance values", "deque block", "type keys")
"""Blocks that objects own and that have references."""
NUMBERS_OF_CLASS = frozenset((32, 40, 168, 208, 288, 384))
"""tp_basicsize, tp_itemsize, tp_flags, tp_weaklistoffset, tp_dictoffset, tp_version_tag: where the heap lies low they look like
pointers."""
CODE_CACHES = frozenset((128, 136, 152, 160))
"""PyCodeObject of 3.8 to 3.10: co_zombieframe, whose stack has what ended calls have left, co_weakreflist, co_opcache_map, co_opcache."""
NOT_OWNED: Dict[str, FrozenSet[int]] = {
    **dict.fromkeys(("weakref", "weakref.ReferenceType"), WEAK),
    **dict.fromkeys(("weakproxy", "weakref.ProxyType", "weakcallableproxy", "weakref.CallableProxyType"), WEAK),
    **dict.fromkeys(("functools._lru_cache_wrapper", "functools._lru_list_elem"), frozenset((16, 24))),
    "dict": frozenset((16, 24)),
    "collections.OrderedDict": frozenset((64, 80, 88)),
    "collections.deque": frozenset(range(80, 208, WORD)),
}
"""By the name of a type, and for all derived from it: offsets in the object. Of a deque (3.11 and later) its free blocks;
of an OrderedDict what its keys were when its nodes were made (od_resize_sentinel)."""
GENERATORS = ("generator", "coroutine", "async_generator")
WITH_FRAME = (*GENERATORS, "frame")
GENERATOR_ITEM = {11: 56, 12: 48}
"""gi_exc_state.previous_item: in the caller's memory. The next word, of where a coroutine was made, is not always written."""
LINKED_TASKS = 14
"""Since then all tasks are in a list, by the last two words of each (TaskObj.task_node in Modules/_asynciomodule.c)."""
FRAME_DATA, OLD_FRAME_PARTS = 24, {8: range(88, 360, WORD), 10: range(80, 352, WORD)}
"""A frame object's pointer to its data; up to 3.10 numbers, blocks that it is in, and its generator, which it does not
count."""
GENERATOR_RUNS, CELL_NUMBERS, SPARE_FRAME = 24, 96, 128
"""gi_running (to 3.9), of whose word one byte is written; co_cell2arg and co_zombieframe (to 3.10), a frame that a call
left and the next one takes."""
CODE_EXTRA, MOST_CODE_BYTES = 144, 256
"""What code has for the interpreter alone: weak references, caches, counters."""
CLASS_DICT, MOST_DICTS = 264, 1 << 17
POOL_BYTES = 512
DEBUG_BYTES = 32
"""Of PYTHONMALLOC=debug around each block."""


class Masks:
    """Masks by the names of types."""

    def __init__(self, values: PyValues, dicts: Iterable[int]) -> None:
        """Take the dicts of modules."""
        self._values = values
        self._has_name = _with_names(values, dicts)
        self._named: Dict[str, List[PyType]] = {}
        for py_type in values.types.all.values():
            self._named.setdefault(py_type.name, []).append(py_type)
        self._made: Dict[str, int] = {}

    def of(self, name: Optional[str]) -> int:
        if name is None or name not in self._named:
            return ALL_WORDS
        if name not in self._made:
            links, owned = 0, 0
            for py_type in self._named[name]:
                owned |= self._mask_owned(py_type)
                links |= self._mask_links(py_type)
            self._made[name] = owned & ~links
        return self._made[name]

    def offset(self, name: Optional[str]) -> int:
        """Return the offset of the object in its block; 0 if types of that name differ."""
        offsets = {self._find_shift(py_type) + py_type.head_bytes for py_type in self._named.get(name or "", ())}
        return offsets.pop() if len(offsets) == 1 else 0

    def items(self, name: Optional[str]) -> Tuple[int, int]:
        """Return where the items of tuples and numbers begin in a block, and their size; (0, 0) for others, and if types of that name
        differ."""
        found = {self._read_item_layout(py_type) for py_type in self._named.get(name or "", ())}
        return found.pop() if len(found) == 1 else (0, 0)

    def _read_item_layout(self, py_type: PyType) -> Tuple[int, int]:
        is_tuple = py_type.flags & TUPLE and py_type.name == "tuple"  # those derived may have more items than they count: os.stat_result
        is_counted = is_tuple or (py_type.flags & INT and self._values.layout.release < 12)
        if not is_counted or self._find_shift(py_type) or py_type.head_bytes != GC_HEAD:
            return 0, 0
        return GC_HEAD + py_type.basic_bytes, self._values.word(py_type.address + ITEM) & 0xFF

    def counting(self, name: Optional[str]) -> Counting:
        types = self._named.get(name or "", ())
        begins = {(self._find_shift(py_type) + py_type.head_bytes, py_type.flags & HAS_GC) for py_type in types}
        if len(begins) != 1:
            return Counting()
        (begin, is_visited), more, own = begins.pop(), 0, 0
        for py_type in types:
            words = [*([TYPE] if py_type.flags & HEAP_TYPE else []), *(COUNTED_OF_CLASS if py_type.flags & IS_TYPE else ())]
            for offset in words:
                more |= _mask_words(begin + offset, begin + offset + WORD)
            for body in list_bodies(self._values.types, py_type):
                own |= _mask_words(body.offset, body.offset + WORD) if body.name in COUNTING_BODIES else 0
        return Counting(self.of(name), more, own, begin // WORD + 1, int(bool(is_visited)))

    def is_of_program(self, name: Optional[str]) -> bool:
        """Return True for a class made by Python code, as far as its flags show."""
        return any(py_type.flags & HEAP_TYPE for py_type in self._named.get(name or "", ()))

    def has_frame(self, name: Optional[str]) -> bool:
        """Return True if objects of such a type may contain a frame, whose stack has an end."""
        return any(kin.name in WITH_FRAME for py_type in self._named.get(name or "", ()) for kin in self._values.types.family(py_type))

    def frame_offset(self, name: Optional[str]) -> Optional[int]:
        """Return the offset of a generator's frame in its block, since 3.11; None for other objects."""
        layout = self._values.layout
        return self.offset(name) + layout.generator_frame if layout.release >= 11 and name in GENERATORS else None

    def _find_shift(self, py_type: PyType) -> int:
        if not self._values.types.shifts[0]:
            return 0
        return DEBUG_HEAD * (1 + (py_type.head_bytes + py_type.basic_bytes + DEBUG_BYTES > POOL_BYTES))

    def _mask_links(self, py_type: PyType) -> int:
        """Return the collector's links, and the list of weak references of objects with a managed dict (3.12 and later)."""
        first = self._find_shift(py_type) + py_type.head_bytes - GC_HEAD
        links = _mask_words(first, first + GC_HEAD) if py_type.head_bytes else 0
        if py_type.head_bytes > GC_HEAD and self._values.types.has_tagged_dicts:
            links |= _mask_words(first - 2 * WORD, first - WORD)
        return links

    def _mask_owned(self, py_type: PyType) -> int:
        begin = self._find_shift(py_type) + py_type.head_bytes
        mask = _mask_words(begin - GC_HEAD - 2 * WORD, begin - GC_HEAD) if py_type.head_bytes > GC_HEAD else 0
        if py_type.name in ("str", "bytes", "int", "bool", "float", "complex", "bytearray"):
            return mask if py_type.name != "bytearray" else mask | _mask_words(begin + 32, begin + 48)
        item = self._values.word(py_type.address + 40)
        has_dict_behind = py_type.flags & (INT | BYTES) and self._values.layout.release < 12
        is_long = (item == WORD or py_type.flags & INLINE_VALUES or has_dict_behind) and not py_type.flags & IS_TYPE
        least = begin + (self._values.layout.wide_text if py_type.flags & STR else 2 * WORD)
        mask |= _mask_words(least, begin + py_type.basic_bytes)
        if is_long:
            mask |= _mask_words(begin + py_type.basic_bytes, None)
        if py_type.flags & HEAP_TYPE and py_type.address not in self._has_name:
            mask |= _mask_words(begin + TYPE, begin + TYPE + WORD)
        for offset in self._not_owned(py_type):
            mask &= ~_mask_words(begin + offset, begin + offset + WORD)
        return mask

    def _not_owned(self, py_type: PyType) -> Set[int]:
        release = self._values.layout.release
        weak_list = self._values.word(py_type.address + WEAK_LIST_OFFSET)
        found = {weak_list} if 0 < weak_list < py_type.basic_bytes else set()
        if py_type.flags & IS_TYPE:
            found |= OF_CLASS | NUMBERS_OF_CLASS
        for kin in self._values.types.family(py_type):
            found |= NOT_OWNED.get(kin.name, frozenset())
            if kin.name in GENERATORS and release < 10:
                found.add(GENERATOR_RUNS)
            elif kin.name in GENERATORS and release >= 11:
                item = GENERATOR_ITEM[min(release, 12)]
                found |= {item, item + WORD, self._values.layout.generator_frame + self._values.layout.frame.previous}
            if kin.name == "_asyncio.Task" and release >= LINKED_TASKS:
                found |= {kin.basic_bytes - 2 * WORD, kin.basic_bytes - WORD}
            if kin.name == "module":
                found.add(self._values.layout.module_state)
            if kin.name == "code":
                found |= {*range(CODE_EXTRA, MOST_CODE_BYTES, WORD), *((CELL_NUMBERS, SPARE_FRAME, *CODE_CACHES) if release < 11 else ())}
            if kin.name == "frame":
                found |= {FRAME_DATA} if release >= 11 else set(OLD_FRAME_PARTS[release])
        return found


def _with_names(values: PyValues, dicts: Iterable[int]) -> Set[int]:
    """Return classes that belong to a module, or to such a class; others are named by their instances (`thing.__class__.memo`)."""
    found: Set[int] = set()
    waiting = list(dicts)
    for at in waiting:
        if len(waiting) > MOST_DICTS:
            break
        for _, value in values.entries(at):
            known = values.types.all.get(value)
            if known is not None and known.flags & HEAP_TYPE and value not in found:
                found.add(value)
                waiting.append(values.word(value + CLASS_DICT))
    return found


def _mask_words(start: int, end: Optional[int]) -> int:
    """Return the mask of the words from one byte to another, or to the end."""
    first, last = min(start // WORD, LAST_BIT), LAST_BIT + 1 if end is None else min(end // WORD, LAST_BIT + 1)
    return ((1 << last) - 1) & ~((1 << first) - 1) if last > first else 0
