"""Fields of objects of a runtime with a collector, such as a JVM's, whose words lead to blocks of malloc."""

from typing import Annotated, Callable, List, NamedTuple, Optional, Sequence, Set

from gdbheapx.columns import BYTES, IF_ANY, TEXT, Column
from gdbheapx.kernel.blocks.graph import Graph

MOST_LOST_WORDS = 1 << 20
"""Of garbage, whose blocks are looked up one by one."""


class ManagedField(NamedTuple):
    """Field of a class, whose objects hold blocks by the words that they have there."""

    name: str
    """`org.rocksdb.ReadOptions.nativeHandle_`."""
    words: Sequence[int]
    """One for each object that is reachable, or whose memory a collection frees."""
    objects: Sequence[int]
    """Address of the object of each word."""
    object_count: int = 0
    """Objects that have a word in this field, garbage included."""
    garbage_objects: Optional[int] = None
    """Of these, unreachable ones whose memory no collection frees; None: reachability is unknown."""
    collectable_objects: Optional[int] = None
    """Of these, unreachable ones whose memory the next collection frees (a Cleaner, a finalizer). None: reachability is unknown."""
    other_words: Sequence[int] = ()
    """Words that objects have by another field, too, which live longer."""
    lost_words: Sequence[int] = ()
    """Of unreachable objects whose memory nothing frees."""
    find_path: Callable[[int], Optional[str]] = lambda address: None
    """Returns how the program reaches the object at an address: `Store.kept.elementData[3]`; None where that is unknown."""
    label: Optional[str] = None
    """Name of the field before such a path; None: `name`."""
    begins_only: bool = False
    """Words count only where a block begins: an array has any numbers."""

    def find_object(self, start: int, end: int) -> Optional[int]:
        """Return the first object whose word leads between two addresses, or None."""
        return next((self.objects[place] for place, word in enumerate(self.words) if start <= word < end), None)


class ManagedClass(NamedTuple):
    """Objects of one class in the heap of a runtime with a collector."""

    name: Annotated[str, Column("class", TEXT)]
    runtime: Annotated[str, Column("runtime", TEXT, goes=1)]
    objects: Annotated[int, Column("objects")]
    bytes: Annotated[int, Column("bytes", BYTES)]
    garbage_objects: Annotated[Optional[int], Column("garbage")]
    """Of these, unreachable ones; None: unknown."""
    garbage_bytes: Annotated[Optional[int], Column("of garbage", BYTES)]


class ManagedHeap(NamedTuple):
    """Heap of a runtime with a collector: its objects hold blocks by `fields` alone, and its other words hold nothing."""

    runtime: str
    """`Java`."""
    module: str
    """File name of the runtime's library: its own variables lead to all that its threads ever touched, and explain nothing. Empty if the
    runtime is a part of the program."""
    garbage_bytes: Optional[int]
    """Of unreachable objects; None: reachability is unknown."""
    fields: Sequence[ManagedField] = ()
    classes: Sequence[ManagedClass] = ()
    """Those with most bytes first; none where objects are not counted by class."""


class HeldByField(NamedTuple):
    """Blocks that the objects of a class hold by one field."""

    field: Annotated[str, Column("field", TEXT)]
    runtime: Annotated[str, Column("runtime", TEXT, goes=4)]
    objects: Annotated[int, Column("objects")]
    """With a word that leads to a block."""
    garbage_objects: Annotated[Optional[int], Column("garbage", goes=1)]
    """Of these, unreachable ones whose memory no collection frees; None: unknown."""
    collectable_objects: Annotated[Optional[int], Column("collectable", shown=IF_ANY, goes=2)]
    """Of these, unreachable ones whose memory the next collection frees; None: unknown."""
    blocks: Annotated[int, Column("blocks", goes=3)]
    """That all of them lead to directly."""
    bytes: Annotated[int, Column("bytes", BYTES)]
    garbage_bytes: Annotated[int, Column("of garbage", BYTES, shown=IF_ANY)]
    """Of blocks that only garbage holds."""
    retained_bytes: Annotated[Optional[int], Column("retained", BYTES, shown=IF_ANY)]
    """What only this field keeps alive; None where owners were not looked for."""
    block_bytes: Annotated[Optional[int], Column("size", BYTES, shown=IF_ANY, goes=5)] = None
    """Of each block, where all have one size."""


def measure_field(graph: Graph, blocks: int, heap: ManagedHeap, field: ManagedField, retained_bytes: Optional[int]) -> HeldByField:
    """Count the blocks to which the objects of a class lead by one field. `blocks`: how many blocks the graph has."""
    held = _find_blocks(graph, blocks, [*field.words, *field.other_words], field.begins_only)
    lost = _find_blocks(graph, blocks, field.lost_words[:MOST_LOST_WORDS], field.begins_only) - held
    sizes = [size for _, size in graph.blocks(sorted(held))]
    lost_sizes = [size for _, size in graph.blocks(sorted(lost))]
    all_sizes = {*sizes, *lost_sizes}
    return HeldByField(
        field=field.name,
        runtime=heap.runtime,
        objects=len(held) if field.begins_only else field.object_count,
        garbage_objects=field.garbage_objects,
        collectable_objects=field.collectable_objects,
        blocks=len(sizes) + len(lost_sizes),
        bytes=sum(sizes) + sum(lost_sizes),
        garbage_bytes=sum(lost_sizes),
        retained_bytes=retained_bytes,
        block_bytes=all_sizes.pop() if len(all_sizes) == 1 else None,
    )


def measure_fields(
    graph: Graph, blocks: int, heaps: Sequence[ManagedHeap], retained: Callable[[ManagedField], Optional[int]]
) -> List[HeldByField]:
    """Return a row for each field that leads to blocks, the largest first. `retained`: what only a field keeps alive."""
    measured = [measure_field(graph, blocks, heap, field, retained(field)) for heap in heaps for field in heap.fields]
    holding = [held for held in measured if held.blocks]
    return sorted(holding, key=lambda held: (-max(held.bytes, held.retained_bytes or 0), held.field))


def _find_blocks(graph: Graph, blocks: int, words: Sequence[int], begins_only: bool) -> Set[int]:
    places = (graph.find(word) for word in set(words))
    return {place[0] for place in places if place is not None and place[0] < blocks and not (begins_only and place[1])}
