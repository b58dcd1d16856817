"""Where Ruby keeps what, by release (gc.c, shape.h, internal/class.h, internal/hash.h, vm_core.h; include/ruby/internal/core)."""

import re
from struct import unpack
from typing import NamedTuple, Optional, Tuple

from gdbheapx.analysis.census.world import World

USER = [1 << (12 + number) for number in range(20)]
"""RUBY_FL_USER0 and the following: what they mean depends on the type."""
VERSION_NUMBERS = 3
LIBRARY = re.compile(r"^libruby[-.](?:so\.)?([0-9]{1,3})\.([0-9]{1,3})")
"""`libruby-3.1.so.3.1.2`, and `libruby.so.3.1` of who has configured it otherwise."""


class Layout(NamedTuple):
    """One release. Offsets are words of a slot, unless it says otherwise."""

    page_bytes: int
    start_word: int
    """Of struct heap_page: where its slots begin."""
    undef: int
    singleton: int
    """The flag of classes that are made for one object."""
    most_embedded: int
    """A mask: values that an Array may have in its slot; of a Struct the same."""
    text_length: Optional[int]
    """Of a String that has its characters in its slot; None: in its flags."""
    text: int
    """Where these begin."""
    pairs: Optional[int]
    """Of a Hash of up to eight entries, in its slot; None: a block has them."""
    table: Optional[int]
    """Of a larger Hash: its st_table, in its slot; None: a block."""
    variables: int
    """Of an Object: the pointer to its variables."""
    has_shapes: bool
    """Shapes name variables; else a table of the class does, and an Object has their number."""
    class_variables: Optional[int]
    """Of a Class: the pointer to the values that its shape names; None: see Objects.extension()."""
    constants: int
    class_path: Optional[int]
    most_variables: Optional[int]
    """How many variables an object of the class had at most."""
    embeds_data: bool
    """What C code keeps may be in the slot, behind its head."""
    has_transient_heap: bool
    frame_words: int
    """Of rb_control_frame_t {pc, sp, iseq, self, ep, ...}."""
    local_table: int
    """Bytes, of the body of an instruction sequence."""
    local_table_size: int


RUBY_3_1 = Layout(
    page_bytes=16 << 10,
    start_word=4,
    undef=0x34,
    singleton=USER[0],
    most_embedded=3,
    text_length=None,
    text=2,
    pairs=None,
    table=None,
    variables=3,
    has_shapes=False,
    class_variables=None,
    constants=3,
    class_path=None,
    most_variables=None,
    embeds_data=False,
    has_transient_heap=True,
    frame_words=8,
    local_table=152,
    local_table_size=240,
)
RUBY_3_3 = Layout(
    page_bytes=64 << 10,
    start_word=4,
    undef=0x24,
    singleton=USER[0],
    most_embedded=127,
    text_length=2,
    text=3,
    pairs=4,
    table=3,
    variables=2,
    has_shapes=True,
    class_variables=4,
    constants=5,
    class_path=19,
    most_variables=18,
    embeds_data=True,
    has_transient_heap=False,
    frame_words=7,
    local_table=144,
    local_table_size=232,
)
RUBY_3_4 = RUBY_3_3._replace(start_word=5, singleton=USER[1])
LAYOUTS = {(3, 1): RUBY_3_1, (3, 3): RUBY_3_3, (3, 4): RUBY_3_4}
RELEASES = ", ".join("%d.%d" % release for release in sorted(LAYOUTS))


def release(world: World) -> Optional[Tuple[int, int]]:
    """Of the interpreter, by ruby_api_version, which it exports for extensions, or, where no file has that any more, by its library's name;
    None where neither says it."""
    symbol = world.target.dynamic_symbol("ruby_api_version")
    data = world.read(symbol.address, 4 * VERSION_NUMBERS) if symbol is not None else b""
    if len(data) == 4 * VERSION_NUMBERS:
        return unpack("<3i", data)[:2]
    names = (LIBRARY.search(module.file_name) for module in world.modules())
    return next(((int(name[1]), int(name[2])) for name in names if name), None)


def layout(world: World) -> Optional[Layout]:
    """Of the target's interpreter; None: it is none of these releases, or there is no telling."""
    known = release(world)
    return LAYOUTS.get(known) if known is not None else None
