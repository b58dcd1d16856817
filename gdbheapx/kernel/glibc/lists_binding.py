"""What the C kernel found on lists, as records."""

import ctypes
from array import array
from typing import Any, List, Sequence

from gdbheapx.kernel.common.library import Numbers, at, declared
from gdbheapx.kernel.glibc.list_records import Followed

PROTOTYPES = """
void heapx_lists_result(const struct lists *lists, uint64_t *out);
uint64_t heapx_lists_take(struct lists *lists, uint64_t **values, uint64_t *bytes);
void heapx_numbers_free(uint64_t *values, uint64_t bytes);
uint64_t heapx_lists_apart(const struct lists *lists, int mapped, const uint64_t **values);
"""

COLUMNS = 8


def followed(library: Any, job: int, count: int) -> Followed:
    """The answer for so many lists; its members stay in the C kernel's memory."""
    declared(library, PROTOTYPES)
    out = array("Q", bytes(8 * COLUMNS * count))
    library.heapx_lists_result(job, at(out))
    columns: List[Any] = [out[column * count : (column + 1) * count] for column in range(COLUMNS)]
    return Followed._make([*columns, _members(library, job), _apart(library, job, 0), array("Q", sorted(set(_apart(library, job, 1))))])


def _members(library: Any, job: int) -> Sequence[int]:
    values, size = ctypes.c_void_p(), ctypes.c_uint64()
    count, free = library.heapx_lists_take(job, ctypes.byref(values), ctypes.byref(size)), library.heapx_numbers_free
    address, size_bytes = values.value, size.value
    return Numbers(address, count, lambda: free(address, size_bytes)) if address else array("Q")


def _apart(library: Any, job: int, mapped: int) -> Any:
    values, out = ctypes.c_void_p(), array("Q")
    count = library.heapx_lists_apart(job, mapped, ctypes.byref(values))
    if count:
        out.frombytes((ctypes.c_char * (8 * count)).from_address(values.value or 0))
    return out
