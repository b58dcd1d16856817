"""Which words of a slot of Ruby's own what they point to, by its flags: no more than the object says that it has.

Files: analysis/census/ruby/owning.py.
"""

import pytest

from gdbheapx.analysis.census.ruby.layouts import RUBY_3_1, RUBY_3_3, USER, Layout
from gdbheapx.analysis.census.ruby.objects import ARRAY, HASH, OBJECT, STRING
from gdbheapx.analysis.census.ruby.owning import by_flags, owning_of_flags, owning_words


@pytest.mark.parametrize(
    "layout, flags, words",
    [
        (RUBY_3_1, ARRAY | USER[1] | 3 << 15, [2, 3, 4]),
        (RUBY_3_3, ARRAY | USER[1] | 5 << 15, [2, 3, 4, 5, 6]),
        (RUBY_3_3, ARRAY | USER[1], []),
        (RUBY_3_3, ARRAY | USER[1] | 78 << 15, list(range(2, 64))),
        (RUBY_3_3, HASH | 2 << 20, [2, 4, 5, 6, 7]),
        (RUBY_3_3, STRING, []),
    ],
)
def test_as_much_as_there_is(layout: Layout, flags: int, words: "list[int]") -> None:
    """The last bit stands for all words behind it."""
    mask = owning_of_flags(layout, flags)
    assert mask is not None and [bit for bit in range(64) if mask >> bit & 1] == words


def test_others_are_told_by_name() -> None:
    """A Hash with a table has its bins and entries; what no row asks for is not told."""
    assert owning_words(RUBY_3_3)["Hash"] == 0b1001000100 and owning_words(RUBY_3_1)["Hash"] == 0b1100
    assert owning_of_flags(RUBY_3_3, OBJECT) is None
    assert {flags & 31 for flags, _, _ in by_flags(RUBY_3_1)} == {ARRAY, STRING}
