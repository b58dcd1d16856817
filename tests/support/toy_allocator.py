"""A third allocator, as small as one can be, with its folder of the kernel (toy_kernel): it reads the malloc of tests/programs/tiny_malloc.c, which never gives a block out again."""

from typing import Annotated, Any, Iterator, List, NamedTuple, Optional, Sequence

from gdbheapx.allocators.heap import Allocator, AllocatorInstance
from gdbheapx.allocators.plan import DryRun, Held, Plan, Portion, Predicted, SystemCall
from gdbheapx.allocators.records import Facts, HeapContext, Instances, NotRead, Returning
from gdbheapx.common.columns import ADD, BYTES, TEXT, Column
from gdbheapx.common.model import AllocatorInfo, Claim
from gdbheapx.inferior.base import Module, Symbol, Target
from gdbheapx.kernel.blocks.stream import CLASS_FREE, CLASS_USED, EVERYTHING, BlockFilter, BlockShape, NativeBlocks, make_blocks
from gdbheapx.kernel.common.in_ram import UNKNOWN
from tests.support.toy_kernel.tiny.walker import FREED, HEADER_BYTES, TinyRoom, walk

MOST_BLOCKS, RESERVED_BYTES, PAGE = 1 << 20, 1 << 30, 4096
RELEASE = Returning("purge", "purged", "tiny_release")


class Room(NamedTuple):
    allocator: str
    index: Annotated[int, Column("arena", TEXT)]  # type: ignore[assignment]
    held_bytes: Annotated[int, Column("held", BYTES, ADD)]


class Tiny(NamedTuple):
    module: Module
    next: Symbol
    id: str = "tiny"
    owns_malloc: bool = True
    unlisted: Optional[str] = None

    def info(self) -> AllocatorInfo:
        return AllocatorInfo(self.id, "tiny", None, "libtiny.so", self.module.build_id, "table", "symbol", True)


class Release(Plan):
    system_calls = (SystemCall("madvise", (None, None, 4)),)

    def locks(self) -> List[Held]:
        return []


class TinyHeap(AllocatorInstance):
    returning, info, shape = RELEASE, Tiny.info, BlockShape(("used", "idle"), (HEADER_BYTES,) * 2, HEADER_BYTES)

    def __init__(self, tiny: Tiny, around: HeapContext) -> None:
        target, self.tiny, self.around = around.target, tiny, around
        self.info, self._target, self.end = tiny.info(), target, target.read_word(tiny.next.address)
        self.start = next((one.start for one in target.mappings() if one.start < self.end <= one.end), self.end)

    def blocks(self, wanted: BlockFilter = EVERYTHING, arena: Optional[int] = None) -> Iterator[NativeBlocks]:
        kernel, room = self.around.kernel, TinyRoom(self.start, self.end)
        if hasattr(kernel.library, "heapx_tiny_blocks"):  # compiled with the toy's folder
            return walk(kernel, self._target.bulk_source(), room, wanted, self.around.budget)
        return self._by_python(wanted)

    def _by_python(self, wanted: BlockFilter) -> Iterator[NativeBlocks]:
        rows, at = [], self.start
        while at < self.end and len(rows) < MOST_BLOCKS:
            size = self._target.read_word(at)
            is_free = size & FREED
            rows.append((at + HEADER_BYTES, size & ~FREED, CLASS_FREE if is_free else CLASS_USED, is_free, 0))
            at += (size & ~FREED) + HEADER_BYTES
        yield make_blocks([row for row in rows if wanted.has(row[3], row[1] + HEADER_BYTES) and row[0] >= wanted.start])

    def claims(self) -> List[Claim]:
        return [Claim(self.start, self.start + RESERVED_BYTES, "room")]

    def arenas(self) -> Sequence[Room]:
        return [Room("tiny", 0, self.end - self.start)]

    def would_return(self, portion: Portion) -> DryRun:
        free = [row for batch in self.blocks(BlockFilter(kinds=frozenset((FREED,)))) for row in zip(batch.addresses, batch.usable_bytes)]
        pages = [(-(-address // PAGE) * PAGE, (address + size) & -PAGE) for address, size in free]
        released = [(start, end) for start, end in pages if start < end]
        in_ram = self.around.ram.of(released) or UNKNOWN
        predicted = Predicted(sum(end - start for start, end in released), in_ram.resident_bytes, in_ram.exclusive_bytes)
        return DryRun(RELEASE, predicted, (), None, self._target.kind == "live")

    def return_plan(self, portion: Portion) -> Plan:
        return Release(self.around, lambda report: TinyHeap(self.tiny, self.around.anew(report)), portion, self.tiny.module, "tiny_release")


class Toy(Allocator[Tiny, Facts]):
    name, returning, statuses, records = "tiny", RELEASE, ("used", "idle"), {"arenas": "tests.support.toy_allocator.Room"}

    def find(self, target: Target) -> Instances:
        found = [Tiny(one.module, one) for one in target.find_static("next") if "libtiny" in one.module.name]
        unused = [NotRead(one.module, "tiny in %s was never used" % one.module.file_name, None) for one in found if not target.read_word(one.next.address)]
        return Instances([one for one in found if target.read_word(one.next.address)], unused=unused)

    def open(self, located: Any, around: HeapContext) -> AllocatorInstance:
        return TinyHeap(located, around)


ALLOCATOR = Toy()
