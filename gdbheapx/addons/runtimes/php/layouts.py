"""Where PHP keeps what, by release (Zend/zend.h, zend_compile.h, zend_modules.h)."""

from collections import Counter
from struct import unpack_from
from typing import Iterator, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.census.world import World

MODULE_BYTES, MODULE_NAME, MODULE_VERSION, MODULE_WORDS = 168, 4, 11, 12
"""Of zend_module_entry, in words: {size in the lower half, number of the interface in the upper, ..., name, ..., version}."""
STANDARD = "standard"
"""A module of every interpreter, whose version is the interpreter's own."""
LEAST_MODULES = 4
"""That an interpreter has built in."""
FIRST_DAY, LAST_DAY = 2000_00_00, 2100_00_00
"""Of numbers of interfaces, which are days."""


class Layout(NamedTuple):
    """One release."""

    properties: int
    """Of zend_class_entry: default_properties_count."""
    statics: int
    """Of zend_class_entry: static members as declared, and where those of now are; tables of properties and constants follow."""
    create: int
    """Of zend_class_entry: create_object."""
    guards: int
    """ZEND_ACC_USE_GUARDS: instances have one more value behind their properties."""
    variables: int
    """The word of zend_op_array whose upper half is last_var; what follows it is alike."""


class Release(NamedTuple):
    """What the interpreter says of itself."""

    interface: int
    """ZEND_MODULE_API_NO, which is the same in all of a release."""
    version: Optional[str]
    """`8.4.27`; None where the file is lacking that says it."""


PHP_8_2 = Layout(properties=32, statics=48, create=376, guards=1 << 11, variables=9)
PHP_8_4 = PHP_8_2._replace(create=384, variables=11)
PHP_8_5 = PHP_8_4._replace(guards=1 << 30)
PHP_8_6 = PHP_8_5._replace(properties=36, statics=56, create=392)
LAYOUTS = {20220829: PHP_8_2, 20240924: PHP_8_4, 20250925: PHP_8_5, 20260924: PHP_8_6}
RELEASES = "8.2, 8.4, 8.5 and 8.6"


def release(world: World) -> Optional[Release]:
    """By the modules that the interpreter has built in, which all have the number of its interface; None where there are none."""
    entries = [entry for content, _ in data(world) for entry in _modules(content)]
    numbers = Counter(entry[0] >> 32 for entry in entries).most_common(1)
    if not numbers or numbers[0][1] < LEAST_MODULES:
        return None
    versions = (world.text(entry[MODULE_VERSION]) for entry in entries if world.text(entry[MODULE_NAME]) == STANDARD)
    return Release(numbers[0][0], next(versions, None))


def layout(world: World) -> Optional[Layout]:
    """Of the target's interpreter; None: it is none of these releases, or there is no telling."""
    known = world.once(release)
    return LAYOUTS.get(known.interface) if known is not None else None


def data(world: World) -> Iterator[Tuple[bytes, int]]:
    """The interpreter's data, in words, and where they begin."""
    for module in world.modules():
        if "php" in module.file_name:
            for start, _, end in world.target.writable_segments(module):
                start = -(-start // 8) * 8
                content = world.read(start, end - start)
                yield content[: len(content) & -8], start


def _modules(content: bytes) -> Iterator[Sequence[int]]:
    begin = MODULE_BYTES.to_bytes(4, "little")
    at = content.find(begin)
    while 0 <= at <= len(content) - 8 * MODULE_WORDS:
        entry = unpack_from("<%dQ" % MODULE_WORDS, content, at)
        if not at % 8 and FIRST_DAY < entry[0] >> 32 < LAST_DAY:
            yield entry
        at = content.find(begin, at + 1)
