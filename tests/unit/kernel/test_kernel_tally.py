"""Numbers by keys: a target that chooses its keys does not make them stand in one row.

Files: kernel/blocks/tally.h.
"""

import ctypes
from array import array
from pathlib import Path

import pytest

from gdbheapx.kernel import build
from gdbheapx.kernel.common.library import address_of

LONGEST_ROW = """
#include "tally.h"
__attribute__((visibility("default"))) uint32_t longest_row(const uint64_t *keys, uint32_t count);
uint32_t longest_row(const uint64_t *keys, uint32_t count)
{
    struct tally tally;
    uint32_t row = 0, longest = 0;
    if (!tally_open(&tally, 64))
        return UINT32_MAX;
    for (uint32_t i = 0; i < count; i++)
        *tally_at(&tally, keys[i]) = i;
    for (uint32_t i = 0; i < count; i++)
        if (*tally_find(&tally, keys[i]) != i)
            return UINT32_MAX;
    for (uint32_t at = 0; at < tally.room; at++) {
        row = tally.keys[at] ? row + 1 : 0;
        longest = row > longest ? row : longest;
    }
    tally_close(&tally);
    return longest;
}
"""
"""Of the table's places, those in a row that are taken: a look at a key may take as many steps."""
FACTOR, WORD_MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1


def unmixed(place: int) -> int:
    """The key that the function mixed() makes this of."""
    place = place ^ place >> 29 ^ place >> 58
    place = place * pow(FACTOR, -1, 1 << 64) & WORD_MASK
    return place ^ place >> 31 ^ place >> 62


@pytest.mark.parametrize("step", (1 << 24, 1))
def test_chosen_keys_stand_in_no_long_row(tmp_path: Path, step: int) -> None:
    """Keys whose lower bits are all alike when they are mixed in a way that is known, and keys that follow each other."""
    words, texts = build.find_compiler(), build.all_sources()
    if words is None:
        pytest.skip("no C compiler here")
    texts = {path: text for path, text in texts.items() if path.endswith(".h") or path.startswith("common")}
    texts["blocks/longest_row.c"] = LONGEST_ROW
    done = build.compile_into(str(tmp_path / "row.so"), words, texts, 0)
    assert done.returncode == 0, done.stdout
    function = ctypes.CDLL(str(tmp_path / "row.so")).longest_row
    function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_uint32), ctypes.c_uint32
    keys = array("Q", (unmixed(number * step) if step > 1 else number << 16 for number in range(1, 20001)))
    assert function(address_of(keys), len(keys)) < 1000
