"""Java objects by the native library: the walk over the parts of the heap in use, marks from roots, and words that lead out of the heap."""

from array import array
from typing import Any, Callable, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.runtimes.jvm.java_classes import FINAL, SOFT, JavaClass
from gdbheapx.addons.runtimes.jvm.java_heap import JavaShape
from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource
from gdbheapx.kernel.common.library import ADDRESS_MASK, Kernel, NativeRows, address_of, as_array, flatten_record, run_resumable
from gdbheapx.ranges import Range, unite_ranges

MARK_COUNT = 3
"""Marks that are kept apart, by number."""
MARK_SETS = 8
IS_OBJECT = 8
ROWS_AT_ONCE = 65536
SPAN_BITS = 44
"""Parts of the heap lie within 2^44 bytes, which is ZGC's largest."""
ANY_ELEMENT = 0xFFFFFFFF
"""Place of a word in a long[]."""
MOST_STEPS = 1000


class ObjectLayout(NamedTuple):
    """JavaShape and offsets in StackChunks for the native library; ADDRESS_MASK for an offset that is not known."""

    little_endian: int
    oop_base: int
    oop_shift: int
    oop_bytes: int
    class_offset: int
    class_bytes: int
    mark_class_shift: int
    alignment_bytes: int
    array_length_offset: int
    mirror_size_offset: int
    mirror_static_count_offset: int
    chunk_size_offset: int
    chunk_sp_offset: int
    chunk_flags_offset: int


class ObjectClass(NamedTuple):
    """JavaClass for the native library."""

    key: int
    layout_helper: int
    kind: int
    first_block: int
    block_count: int


class WalkSums(NamedTuple):
    """Sums of a walk."""

    is_whole: int
    """0: the budget expired."""
    unparsed_bytes: int
    gaps: int


class ObjectParent(NamedTuple):
    """A reference that leads to an object."""

    address: int
    """Of the object that has it."""
    class_index: int
    """Among the classes of the walker; ADDRESS_MASK: not known any more, as `place`."""
    place: int
    """Offset in the object, or the index in an array."""


class ObjectWalker:
    """Objects of one Java heap: walk_objects() first, then marks, then questions; an answer after an expired budget is partial."""

    def __init__(
        self,
        kernel: Kernel,
        source: BulkSource,
        shape: JavaShape,
        classes: Sequence[JavaClass],
        parts: Iterable[Range],
        budget: Budget,
        little_endian: bool = True,
        stack_chunk: Sequence[Optional[int]] = (None, None, None),
        referent_offset: Optional[int] = None,
    ) -> None:
        """`parts`: runs of objects, JavaHeap.used_parts. `stack_chunk`: offsets of a StackChunk's size in words, of its stack pointer in
        words (what lies below is not in use) and of its flags; without the first its objects count as gaps. `referent_offset`: of the
        field of java.lang.ref.Reference, which no class counts as a reference: those of SoftReferences and FinalReferences are followed,
        for the former live while there is memory, and the latter until they are finalized.
        """
        self._library, self._opened, self._budget, self._class_count = kernel.library, kernel.open(source), budget, len(classes)
        self._ranges = array("Q")
        rows, blocks = array("Q"), array("Q")
        for java_class in classes:
            place = len(blocks) // 2
            has_referent = java_class.kind in (SOFT, FINAL) and referent_offset is not None
            runs = sorted([*java_class.oop_blocks, (referent_offset or 0, 1)] if has_referent else java_class.oop_blocks)
            blocks.extend(number & ADDRESS_MASK for run in runs for number in run[:2])
            helper = java_class.layout_helper & 0xFFFFFFFF
            rows.extend(ObjectClass((java_class.key or 0) & ADDRESS_MASK, helper, java_class.kind & 15, place, len(blocks) // 2 - place))
        layout = _make_layout(shape, little_endian, stack_chunk)
        numbers, bounds = flatten_record(layout), _settle_parts(parts, layout.alignment_bytes)
        counts = (len(classes), address_of(blocks), len(blocks) // 2, address_of(bounds), len(bounds) // 2)
        self._job = self._library.heapx_java_new(self._opened.handle, address_of(numbers), address_of(rows), *counts)
        if not self._job:
            raise MemoryError()

    def __del__(self) -> None:
        job = self.__dict__.pop("_job", None)
        if job:
            self._library.heapx_java_free(job)

    def walk_objects(self) -> Tuple[WalkSums, "array[int]", "array[int]"]:
        """Find all objects: sums, and number and bytes of them by class, in the order of the walker's classes. What is none is passed."""
        self._run_slices(self._library.heapx_java_walk)
        sums = NativeRows(WalkSums, 1)
        objects, sizes = self._make_columns("QQ", self._class_count + 1)
        self._library.heapx_java_walked(self._job, *map(address_of, (sums.numbers, objects, sizes)))
        return sums.records(1)[0], objects[:-1], sizes[:-1]

    def mark_objects(self, number: int, roots: Sequence[int], skipped_kinds: Sequence[int] = (), with_parents: bool = False) -> bool:
        """Mark what the objects at these addresses lead to, besides what has the mark already; addresses of no object are passed.

        `skipped_kinds`: JavaClass.kind of classes whose references are followed to other References alone. `with_parents`: of one mark,
        for find_path. False: the budget expired.
        """
        addresses, skipped = as_array(roots), sum(1 << kind for kind in set(skipped_kinds))
        if not self._library.heapx_java_roots(self._job, number % MARK_COUNT, skipped, with_parents, address_of(addresses), len(addresses)):
            raise MemoryError()
        return self._run_slices(self._library.heapx_java_mark)

    def list_reached_classes(self, number: int) -> List[int]:
        """Return the indexes of classes that have an object with this mark."""
        (flags,) = self._make_columns("B", self._class_count + 1)
        self._library.heapx_java_reached(self._job, number % MARK_COUNT, address_of(flags))
        return [index for index, flag in enumerate(flags) if flag]

    def look_up(self, addresses: Sequence[int]) -> bytes:
        """Return for each address IS_OBJECT with a bit for each of its marks, or 0 where no object begins."""
        numbers = as_array(addresses)
        (marks,) = self._make_columns("B", len(numbers) + 1)
        self._library.heapx_java_look_up(self._job, address_of(numbers), len(numbers), address_of(marks))
        return bytes(marks[:-1])

    def find_path(self, address: int) -> Optional[List[ObjectParent]]:
        """Return the references that lead from a root to the object, the root's first; the last MOST_STEPS, if there are more. None: it
        has no mark that was made with parents.
        """
        steps: List[ObjectParent] = []
        parent = NativeRows(ObjectParent, 1)
        while self._library.heapx_java_parent(self._job, address, address_of(parent.numbers)):
            (step,) = parent.records(1)
            if not step.address or len(steps) == MOST_STEPS:
                return steps[::-1]
            steps.append(step)
            address = step.address
        return steps[::-1] if steps else None

    def iterate_border(self, ranges: Iterable[Range]) -> Iterator[Sequence["array[int]"]]:
        """Yield the aligned words of 8 bytes that lead into these ranges and are no references, by address of the object: of instances,
        with static fields, and elements of long[]. Columns: index of the class, offset in the object (ANY_ELEMENT in a long[]), the word,
        address of the object, a bit for each of its marks. The objects are counted by the way, see count_marked.
        """
        self._ranges = array("Q", (bound for pair in unite_ranges(ranges) for bound in pair))
        self._library.heapx_java_border_open(self._job, address_of(self._ranges), len(self._ranges) // 2)
        columns, (count,), is_over = self._make_columns("IIQQB", ROWS_AT_ONCE), self._make_columns("Q", 1), False

        def fill_columns(job: Any, seconds: float) -> int:
            nonlocal is_over
            left = int(self._library.heapx_java_border(job, seconds, *map(address_of, (*columns, count))))
            is_over = not left
            return 0 if count[0] else left

        while not is_over and not self._budget.expired():
            self._run_slices(fill_columns)
            if count[0]:
                yield [column[: count[0]] for column in columns]

    def count_marked(self) -> Tuple["array[int]", "array[int]"]:
        """Return objects and bytes by class and set of marks (MARK_SETS numbers a class), after iterate_border."""
        objects, sizes = self._make_columns("QQ", self._class_count * MARK_SETS + 1)
        self._library.heapx_java_border_sums(self._job, address_of(objects), address_of(sizes))
        return objects[:-1], sizes[:-1]

    def _run_slices(self, work: Callable[[Any, float], int]) -> bool:
        left = 1

        def work_on(seconds: float) -> int:
            nonlocal left
            left = work(self._job, seconds)
            return left

        run_resumable(work_on, self._opened, self._budget)
        return not left

    def _make_columns(self, types: str, count: int) -> List[Any]:
        return [array(code, (0,)) * count for code in types]


def _make_layout(shape: JavaShape, little_endian: bool, stack_chunk: Sequence[Optional[int]]) -> ObjectLayout:
    """Return the native form, with numbers in the bounds that the native library counts on."""
    offsets = (shape.mirror_size_offset, shape.mirror_static_count_offset, *stack_chunk)
    settled = [offset if offset is not None and 0 <= offset < 1 << 16 else ADDRESS_MASK for offset in offsets]
    return ObjectLayout(
        little_endian,
        shape.oop_base & ADDRESS_MASK,
        shape.oop_shift & 31,
        4 if shape.oop_bytes == 4 else 8,
        min(shape.class_offset & ADDRESS_MASK, 8),
        shape.class_bytes if shape.class_bytes in (0, 4) else 8,
        shape.mark_class_shift & 63,
        shape.alignment_bytes if shape.alignment_bytes in (8, 16, 32, 64, 128, 256) else 8,
        min(shape.array_length_offset & ADDRESS_MASK, 1 << 16),
        *settled,
    )


def _settle_parts(parts: Iterable[Range], unit: int) -> "array[int]":
    """Return begin and end of the parts that lie within the span of the lowest, sorted, without overlap, in whole units."""
    bounds = array("Q")
    for begin, end in sorted(parts):
        begin, end = max(-(-begin // unit) * unit, bounds[-1] if bounds else 0), end // unit * unit
        if begin < end <= min((bounds[0] if bounds else begin) + (1 << SPAN_BITS), 1 << 63):
            bounds.extend((begin, end))
    return bounds
