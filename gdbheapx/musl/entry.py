"""musl's malloc as the registry has it."""

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, List, Optional, Sequence

from gdbheapx.allocators.fingerprints import Fingerprint, TextFingerprint
from gdbheapx.allocators.heap import Allocator, Heap
from gdbheapx.allocators.records import HeapContext, Instances, Judged, NeverReturns, Page, Surroundings
from gdbheapx.inferior.base import Target

if TYPE_CHECKING:
    from gdbheapx.musl.detect import Musl
    from gdbheapx.musl.records import MuslFacts

OBJECTS = ("ld-musl-", "libc.musl-")
"""Beginnings of its objects' names; it may also be called libc.so."""
HINT = "its malloc is found by its structure: `gdbheapx doctor` says what is missing"
LIBRARY = TextFingerprint(
    "musl", (b"musl libc (", b"Dynamic Program Loader"), True, HINT, re.compile(rb"\0(\d+\.\d+\.\d+)[^\0]{0,40}\0").pattern
)
"""musl's libc.so, which is its dynamic linker as well: ldso/dynlink.c; the version of version.h stands beside."""
STATIC = TextFingerprint("musl", (b"No error information",), True, HINT)
"""Linked into a program: src/errno/__strerror.h, the text of error 0. Debian's musl 1.2.3, Alpine's 1.2.5."""

NEVER_RETURNS = NeverReturns(
    "musl's malloc returns nothing when it is asked: it unmaps a group of slots as soon as the last block in it is freed",
    "`gdbheapx pins` shows which blocks keep free slots; free these, or allocate what lives long before what lives short",
)


class Entry(Allocator["Musl", "MuslFacts"]):
    """musl's mallocng."""

    name = "musl"
    fingerprint = Fingerprint(variables=("__malloc_context",), texts=(STATIC,), library_texts=(LIBRARY,))
    statuses = ("used", "free", "metadata")
    never_returns = NEVER_RETURNS
    has_caches = False
    known_capabilities = frozenset(("meter", "exact-reading"))
    records = MappingProxyType({"arenas": "gdbheapx.musl.records.MuslArena", "bins": "gdbheapx.musl.records.MuslBin"})

    def find(self, target: Target, pack_directories: Sequence[str]) -> Instances:
        """Every copy, by its secret."""
        modules = target.modules()
        names = [module.file_name for module in modules]
        is_static = len(modules) == 1 and modules[0].is_executable
        if not is_static and not any(name.startswith(OBJECTS) or name == "libc.so" for name in names):
            return Instances(())
        from gdbheapx.musl import detect

        return detect.find(target)

    def confirm(self, target: Target, located: "Musl") -> "Optional[Musl]":
        """The proof, again."""
        from gdbheapx.musl import detect

        return detect.confirm(target, located)

    def open(self, located: "Musl", around: HeapContext) -> Heap:
        """One copy."""
        from gdbheapx.musl.allocator import MuslMalloc

        return MuslMalloc(located, around)

    def part_name(self, allocator_id: str, is_alone: bool) -> str:
        """For most people it is malloc."""
        return "%s (groups and metas)" % ("malloc" if is_alone else allocator_id)

    def judge(self, facts: "Sequence[MuslFacts]", around: Surroundings) -> List[Judged]:
        """Each by itself."""
        from gdbheapx.musl.messages.verdict import judge

        return [judge(one, around) for one in facts]

    def page(self, name: str, answer: Any) -> Page:
        """One line per size class; it has no settings."""
        from gdbheapx.allocators.heap import plain_page

        return plain_page(answer, {}) if name == "bins" and answer else ["musl's malloc has no %s" % name]


ALLOCATOR = Entry()
