"""Native memory that Java objects hold: by class and field, for each object whether it is in use, collectable or garbage.

Java objects by the native library: the walk over the parts of the heap in use, marks from roots, and words that lead out of the heap.
"""

from array import array
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.runtimes.jvm import java_classes
from gdbheapx.addons.runtimes.jvm.java_heap import JavaHeap, JavaShape, VmTables, find_java_heap, read_java_shape, read_vm_tables
from gdbheapx.addons.runtimes.jvm.java_roots import JavaRoots, find_java_roots
from gdbheapx.analysis.census.world import CensusTarget, Inner
from gdbheapx.analysis.reachability.heap_graph import (
    LITTLE_BYTES,
    ManagedClass,
    ManagedField,
    ManagedHeap,
    find_mapped_ranges,
    open_block_source,
)
from gdbheapx.common import problems
from gdbheapx.common.budget import Budget, allowed_bytes
from gdbheapx.common.ranges import Range, RangeIndex, unite_ranges
from gdbheapx.common.units import SentenceSize, make_sentence
from gdbheapx.inferior.base import BulkSource
from gdbheapx.kernel.common.library import ADDRESS_MASK, Kernel, NativeRows, address_of, as_array, flatten_record, run_resumable

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
        classes: Sequence[java_classes.JavaClass],
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
            has_referent = java_class.kind in (java_classes.SOFT, java_classes.FINAL) and referent_offset is not None
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


STRONG, KEPT, NAMED = range(3)
"""Marks: by all references; without those of a Reference whose referent a Cleaner or finalizer ends; the same with parents, for paths."""
IN_USE, COLLECTABLE, GARBAGE = range(3)
"""States of what an object holds: it is reachable; a collection has it freed by a Cleaner or finalizer; nothing frees it."""
MOST_LOADER_ROUNDS = 64
MOST_JUDGED = 1 << 21
"""Addresses of which all holders are compared; of further ones each holder counts by itself."""
HEAP_PER_BYTE = 14
"""Bytes of the Java heap for each byte of bits for its objects: measured at the peak."""
MOST_LISTED = 2000
"""Classes of objects."""
LEAST_UNPARSED = 1 << 16
"""Bytes: as many in a busy JVM are objects that were being made."""
MOST_PATH_STEPS = 20
WITHOUT_MARKS = ("ZGC", "")
"""Collectors of which it is not known which objects are reachable: ZGC's pointers have to be looked up in tables of forwarded objects."""


class FieldTally(NamedTuple):
    """Words that objects of a class have in one field."""

    number: int
    """Among all fields."""
    is_array: bool
    """They are elements."""
    words: "array[int]"
    objects: "array[int]"
    """Of each of `words`."""
    others: "array[int]"
    """Words that objects have by another field, too, and these live longer."""
    lost: "array[int]"
    """Words of garbage alone."""
    counts: List[int]
    """Objects by the state of what they hold."""


class JavaObjects:
    """Objects of one process's Java heap, at one moment."""

    def __init__(self, world: CensusTarget, tables: VmTables, heap: JavaHeap) -> None:
        self._world, self._tables, self.heap = world, tables, heap
        self.shape: JavaShape = read_java_shape(tables)
        self.classes: Sequence[java_classes.JavaClass] = java_classes.read_java_classes(tables)
        self._mirrors = {java_class.mirror: java_class for java_class in self.classes if java_class.mirror}
        klasses = [
            next((java_class.klass for java_class in self.classes if java_class.kind == kind), None)
            for kind in (java_classes.STACK_CHUNK, java_classes.SOFT)
        ]
        chunk, soft = [list(java_classes.list_object_fields(tables, klass)) if klass is not None else [] for klass in klasses]
        chunk_offsets = [next((field.offset for field in chunk if field.name == name), None) for name in ("size", "sp", "flags")]
        referent_offset = next((field.offset for field in soft if field.name == "referent"), None)
        memory = (open_block_source(world.target), self.shape, self.classes, heap.used_parts, world.session.budget)
        self._walker = ObjectWalker(world.session.kernel, *memory, world.little_endian, chunk_offsets, referent_offset)
        self.walked, self._class_objects, self._class_bytes = self._walker.walk_objects()
        self.roots: Optional[JavaRoots] = None
        self.why_unmarked = self._mark_objects()
        self._names: Dict[Tuple[int, int, int], Optional[str]] = {}
        self._has_paths = False

    def _mark_objects(self) -> Optional[str]:
        """Mark what is reachable; return why that cannot be known, or None."""
        if self.heap.collector in WITHOUT_MARKS:
            return "garbage of %s is not distinguished" % (self.heap.collector or "an unknown collector")
        if self.heap.is_collecting is not False:
            return "a collection was under way"
        unwinding = self._world.target.arch.unwinding
        if unwinding is None or unwinding.returns is not None:
            return "Java's stacks are not read on this machine"
        if any(problem.code in (problems.SEVERAL_MOMENTS, problems.STOP_LIMIT) for problem in self._world.session.problems):
            return "its memory was read at several moments"
        if not self.walked.is_whole:
            return "the time was over"
        self.roots = find_java_roots(self._tables, self.shape, self.heap, self.classes)
        if not self.roots.strong:
            return "; ".join(self.roots.problems) or "no roots were found"
        for mark, skipped in ((STRONG, ()), (KEPT, (java_classes.FINAL, java_classes.PHANTOM))):
            if not self._mark_from(self.roots, mark, skipped):
                return "the time was over"
        return None

    def _mark_from(self, roots: JavaRoots, mark: int, skipped: Sequence[int]) -> bool:
        """Mark what the roots lead to, and class loaders of what is reached with it."""
        with_parents = mark == NAMED
        is_whole = self._walker.mark_objects(mark, roots.strong, skipped, with_parents) and self._walker.mark_objects(
            mark, roots.from_stacks, skipped, with_parents
        )
        waiting = dict(roots.loader_handles)
        keys = list(roots.loader_keys)
        for _ in range(MOST_LOADER_ROUNDS):
            marks = self._walker.look_up(keys)
            reached = {roots.loader_keys[key] for key, bits in zip(keys, marks) if bits >> mark & 1}
            reached.update(self.classes[index].loader_data for index in self._walker.list_reached_classes(mark))
            handles = [oop for loader in reached for oop in waiting.pop(loader, ())]
            if not handles or not is_whole:
                break
            is_whole = self._walker.mark_objects(mark, handles, skipped, with_parents)
        return is_whole

    def list_fields_to(self, ranges: Sequence[Range]) -> List[ManagedField]:
        """List the fields by which objects have words that lead into these ranges.

        Several objects may hold a block: a buffer and what frees it once the buffer is collected. The one that lives longest decides.
        """
        tallies: Dict[str, FieldTally] = {}
        lives: Dict[int, Tuple[int, int]] = {}
        numbers, values, objects, states = array("I"), array("Q"), array("Q"), array("B")  # of each word, with the number of its field
        for rows in self._walker.iterate_border(ranges):
            for index, offset, value, address, marks in zip(*rows):
                name, state = self._name_field(index, offset, address), self._find_state(marks)
                if name is None or (offset == ANY_ELEMENT and state == GARBAGE):
                    continue
                if name not in tallies:
                    tallies[name] = FieldTally(
                        len(tallies), offset == ANY_ELEMENT, array("Q"), array("Q"), array("Q"), array("Q"), [0, 0, 0]
                    )
                numbers.append(tallies[name].number)
                values.append(value)
                objects.append(address)
                states.append(state)
                best, worst = lives.get(value, (GARBAGE, IN_USE))
                if len(lives) < MOST_JUDGED or value in lives:
                    lives[value] = min(state, best), max(state, worst)
        fields = list(tallies.values())
        for number, value, address, state in zip(numbers, values, objects, states):
            tally, (best, worst) = fields[number], lives.get(value, (state, state))
            tally.counts[_judge_object(state, best)] += 1
            if best == GARBAGE:
                tally.lost.append(value)
            elif state == (IN_USE if best == IN_USE else worst):  # that of a buffer, not that of what will free it
                tally.words.append(value)
                tally.objects.append(address)
            else:
                tally.others.append(value)
        managed: List[ManagedField] = []
        for name, tally in tallies.items():
            is_known, count = self.why_unmarked is None, sum(tally.counts)
            garbage, collectable = (tally.counts[state] if is_known else None for state in (GARBAGE, COLLECTABLE))
            if tally.words or tally.lost:
                row = ManagedField(name, tally.words, tally.objects, count, garbage, collectable, tally.others, tally.lost, self.find_path)
                managed.append(row._replace(begins_only=tally.is_array))
        return managed

    def _find_state(self, marks: int) -> int:
        if self.why_unmarked is not None or marks >> KEPT & 1:
            return IN_USE
        return COLLECTABLE if marks >> STRONG & 1 else GARBAGE

    def count_garbage(self) -> Optional[int]:
        """Return the bytes of objects that nothing leads to, after list_fields_to(); None if that is unknown."""
        if self.why_unmarked is not None:
            return None
        _, sizes = self._walker.count_marked()
        per_class = len(sizes) // max(1, len(self.classes))
        return sum(size for place, size in enumerate(sizes) if not (place % per_class) >> STRONG & 1)

    def list_classes(self) -> List[ManagedClass]:
        """List the classes with most bytes of objects, after list_fields_to()."""
        objects, sizes = self._walker.count_marked()
        sets = len(sizes) // max(1, len(self.classes))
        unmarked = [number for number in range(sets) if not number >> STRONG & 1]
        order = sorted(range(len(self.classes)), key=lambda index: -self._class_bytes[index])
        rows = []
        for index in order[:MOST_LISTED]:
            counts = [sum(column[sets * index + number] for number in unmarked) for column in (objects, sizes)]
            garbage = (counts[0], counts[1]) if self.why_unmarked is None else (None, None)
            if self._class_objects[index]:
                rows.append(ManagedClass(self.classes[index].name, "Java", self._class_objects[index], self._class_bytes[index], *garbage))
        return rows

    def _name_field(self, index: int, offset: int, address: int) -> Optional[str]:
        """Return `org.rocksdb.ReadOptions.nativeHandle_`; of a java.lang.Class the static field. None of what has no name."""
        java_class = self.classes[index]
        key = (index, offset, address if java_class.kind == java_classes.MIRROR else 0)
        if key not in self._names:
            field, name = java_classes.find_field_at(self._tables, java_class.klass, offset) if offset != ANY_ELEMENT else None, None
            if offset == ANY_ELEMENT:
                name = "elements of %s" % java_class.name
            elif field is not None:
                name = "%s.%s" % (java_class.name, field.name) if field.signature == "J" else None
            elif java_class.kind == java_classes.MIRROR:
                name = self._name_static(address, offset)
            self._names[key] = name
        return self._names[key]

    def _name_static(self, mirror: int, offset: int) -> Optional[str]:
        """Return the static field at an offset of a java.lang.Class."""
        owner = self._mirrors.get(mirror)
        fields = java_classes.list_fields(self._tables, owner.klass) if owner is not None else ()
        name = next((field.name for field in fields if field.is_static and field.offset == offset), None)
        return "%s.%s" % (owner.name, name) if owner is not None and name is not None else None

    def find_path(self, address: int) -> Optional[str]:
        """Return how the program reaches an object: `Store.kept.elementData[3042]`; None if nothing reachable leads there."""
        if self.roots is None or not self._world.target.can_read_on:
            return None
        if not self._has_paths:
            self._mark_from(self.roots, NAMED, (java_classes.FINAL, java_classes.PHANTOM))
            self._has_paths = True
        steps = self._walker.find_path(address)
        if steps is None:
            return None
        text = ""
        for step in steps[-MOST_PATH_STEPS:]:
            text = self._extend_path(text, step)
        if len(steps) > MOST_PATH_STEPS:
            return "... " + text
        root = steps[0].address if steps else address
        thread = next((name for name, oops in self.roots.threads if name and root in oops), None)
        if thread is None or (text and not text.startswith("(")):
            return text
        return "thread %s: %s" % (thread, text) if text else "thread %s" % thread

    def _extend_path(self, text: str, step: ObjectParent) -> str:
        if not 0 <= step.class_index < len(self.classes):
            return "?"
        java_class = self.classes[step.class_index]
        name = self._name_static(step.address, step.place) if java_class.kind == java_classes.MIRROR else None
        if name is not None:
            return name
        start = text or "(%s)" % java_class.name
        if java_class.layout_helper < 0:
            return "%s[%d]" % (start, step.place)
        field = java_classes.find_field_at(self._tables, java_class.klass, step.place)
        return "%s.%s" % (start, field.name if field is not None else "+0x%x" % step.place)


def _judge_object(state: int, state_of_memory: int) -> int:
    """Return as what an object counts. An unreachable one whose memory another object keeps is garbage: a slice, or a buffer of a pool."""
    if state == IN_USE or (state == COLLECTABLE and state_of_memory == IN_USE):
        return IN_USE
    return COLLECTABLE if state_of_memory == COLLECTABLE else GARBAGE


def read_java_memory(world: CensusTarget) -> Optional[Inner]:
    """Return the Java heap, and what its objects hold of the blocks of allocators.

    None where there is none that can be read, or no room for its marks.
    """
    tables = read_vm_tables(world.target)
    heap = find_java_heap(tables) if tables is not None else None
    if tables is None or heap is None or not heap.used_parts:
        return None
    used_bytes, buffer_bytes = (sum(end - start for start, end in parts) for parts in (heap.used_parts, heap.buffers))
    needed, allowed = (used_bytes + buffer_bytes) // HEAP_PER_BYTE, allowed_bytes() - world.session.copied_bytes
    if needed > max(allowed, LITTLE_BYTES):
        text = "the objects of the Java heap were not read: that takes about %s of memory, and this process may use %s"
        sentence = make_sentence(text, SentenceSize(needed), SentenceSize(max(allowed, 0)))
        world.session.problem(problems.RUNTIME_UNREAD, None, sentence, "run it where there is more memory", partial=False)
        return None
    objects = JavaObjects(world, tables, heap)
    bounds = RangeIndex(heap.reserved or heap.used_parts)
    taken = [part for row in world.target.mappings() if row.readable and row.writable for part in bounds.within(row.start, row.end)]
    claims = RangeIndex((claim.start, claim.end) for allocator in world.session.heaps.all() for claim in allocator.claims())
    fields = objects.list_fields_to(find_mapped_ranges(world.target, claims))
    unknown = ["which of its objects are garbage is unknown: %s" % objects.why_unmarked] if objects.why_unmarked is not None else []
    managed = ManagedHeap("Java", "libjvm.so", objects.count_garbage(), fields, objects.list_classes())
    for problem in [*heap.problems, *(objects.roots.problems if objects.roots is not None else ()), *unknown]:
        world.session.problem(problems.RUNTIME_UNREAD, None, "Java heap: %s" % problem, partial=False)
    is_whole = objects.walked.is_whole and not world.session.budget.expired()
    unparsed_bytes = objects.walked.unparsed_bytes if is_whole else used_bytes  # in which objects may hold blocks, too
    if unparsed_bytes >= LEAST_UNPARSED:
        sentence = make_sentence("%s of the Java heap could not be read as objects", SentenceSize(unparsed_bytes))
        world.session.problem(problems.ROOTS_UNREAD, None, sentence, "blocks that only they reference count as leaked")
    free_bytes = max(0, sum(end - start for start, end in taken) - used_bytes - buffer_bytes)
    return Inner(iter(()), "jvm", "Java heap", unite_ranges(taken), free_bytes, buffer_bytes, managed=managed)
