"""What a core with zeros tells of its memory: pages that hold something, reserved addresses, what no time was left for.

Files: kernel/common/sift.c.
"""

from typing import List, NamedTuple, Sequence, Tuple

from gdbheapx.analysis.memory.attribute import drop_untouched
from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BytesSource, Mapping, MappingUse, MemoryUse
from gdbheapx.kernel import load_native_library

PAGE = 4096
BASE = 0x7F0000000000


class Core(NamedTuple):
    """A core that is all zeros but for some pages."""

    memory: bytes
    page_bytes: int = PAGE

    def bulk_source(self) -> BytesSource:
        return BytesSource(((BASE, self.memory),))

    def data_ranges(self, ranges: Sequence[Tuple[int, int]]) -> List[Tuple[int, int]]:
        return list(ranges)


def use(first: int, pages: int, rights: str, name: str = "") -> MappingUse:
    start, end = BASE + first * PAGE, BASE + (first + pages) * PAGE
    return MappingUse(Mapping(start, end, "r" in rights, "w" in rights, "x" in rights, False, name, pages * PAGE), pages * PAGE)


MAPPINGS = [use(0, 4, "rw"), use(4, 8, "r"), use(12, 2, "r"), use(14, 2, "rw", "/memfd:frames (deleted)")]
MEMORY = bytearray(16 * PAGE)
for _page in (1, 13, 15):
    MEMORY[_page * PAGE + 7] = 1


def test_a_core_by_gdb() -> None:
    """Only pages that hold something count; addresses that gdb calls readable, and that hold nothing, are reserved."""
    core = MemoryUse("dumped", MAPPINGS, None, False)
    left, pages, zero_bytes, until = drop_untouched(Core(bytes(MEMORY)), load_native_library(), core, Budget())  # type: ignore[arg-type]
    assert [one.resident_bytes // PAGE for one in left.mappings] == [1, 0, 1, 1]
    assert [one.mapping.readable for one in left.mappings] == [True, False, True, True]
    assert zero_bytes == 13 * PAGE and until is None
    assert pages is not None and pages.bytes_in([(BASE, BASE + PAGE + 5), (BASE + 13 * PAGE - 3, BASE + 14 * PAGE - 9)]) == 5 + PAGE - 9


def test_a_core_by_the_kernel() -> None:
    """Its holes tell of private memory, whatever the pages hold; of shared memory they do not."""
    core = MemoryUse("dumped", MAPPINGS, None, True)
    left, _, zero_bytes, _ = drop_untouched(Core(bytes(MEMORY)), load_native_library(), core, Budget())  # type: ignore[arg-type]
    assert [one.resident_bytes // PAGE for one in left.mappings] == [4, 8, 2, 1] and zero_bytes == PAGE
    assert [one.mapping.readable for one in left.mappings] == [True] * 4


def test_a_process_is_left_as_it_is() -> None:
    """Its page table tells."""
    live = MemoryUse("resident", MAPPINGS, 0)
    assert drop_untouched(Core(b""), load_native_library(), live, Budget()) == (live, None, None, None)  # type: ignore[arg-type]
