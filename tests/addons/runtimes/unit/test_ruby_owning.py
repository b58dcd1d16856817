"""Which words of a slot of Ruby's own what they point to, by its flags: no more than the object says that it has.

Files: addons/runtimes/ruby/objects.py.
"""

from types import SimpleNamespace
from typing import Any, List, Optional, Tuple

import pytest

from gdbheapx.addons.runtimes.ruby import objects


@pytest.mark.parametrize(
    "layout, flags, words",
    [
        (objects.RUBY_3_1, objects.ARRAY | objects.USER[1] | 3 << 15, [2, 3, 4]),
        (objects.RUBY_3_3, objects.ARRAY | objects.USER[1] | 5 << 15, [2, 3, 4, 5, 6]),
        (objects.RUBY_3_3, objects.ARRAY | objects.USER[1], []),
        (objects.RUBY_3_3, objects.ARRAY | objects.USER[1] | 78 << 15, list(range(2, 64))),
        (objects.RUBY_3_3, objects.HASH | 2 << 20, [2, 4, 5, 6, 7]),
        (objects.RUBY_3_3, objects.STRING, []),
        (objects.RUBY_3_3, objects.IMEMO | 12 << 12, []),
    ],
)
def test_as_much_as_there_is(layout: objects.RubyLayout, flags: int, words: List[int]) -> None:
    """The last bit stands for all words behind it."""
    mask = objects.mask_ruby_flags(layout, flags)
    assert mask is not None and [bit for bit in range(64) if mask >> bit & 1] == words


def test_others_are_told_by_name() -> None:
    """A Hash with a table has its bins and entries; what no row asks for is not told."""
    assert objects.owning_words(objects.RUBY_3_3)["Hash"] == 0b1001000100 and objects.owning_words(objects.RUBY_3_1)["Hash"] == 0b1100
    assert objects.mask_ruby_flags(objects.RUBY_3_3, objects.OBJECT) is None
    assert {flags & 31 for flags, _, _ in objects.by_flags(objects.RUBY_3_1)} == {objects.ARRAY, objects.STRING}


class RubyMemory:
    """Of a core without the interpreter's file: no symbol, and the names of what was mapped."""

    def __init__(self, name: str) -> None:
        self.target = SimpleNamespace(dynamic_symbol=lambda symbol: None)
        self.modules = lambda: [SimpleNamespace(file_name="libc.so.6"), SimpleNamespace(file_name=name)]


@pytest.mark.parametrize(
    "name, release",
    [
        ("libruby-3.1.so.3.1.2", (3, 1)),
        ("libruby.so.3.4", (3, 4)),
        ("libruby-static.a", None),
        ("ruby", None),
        ("libruby-3.2.so.3.2", (3, 2)),
    ],
)
def test_a_library_s_name_says_the_release(name: str, release: "Optional[Tuple[int, int]]") -> None:
    """Where nothing else can; 3.2 is none that is known."""
    world: Any = RubyMemory(name)
    assert objects.read_ruby_release(world) == release
    assert (objects.find_ruby_layout(world) is None) == (release not in objects.LAYOUTS)
