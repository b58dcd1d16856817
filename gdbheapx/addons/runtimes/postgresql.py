"""PostgreSQL's memory contexts: malloc hands a backend nothing but their headers and blocks (src/backend/utils/mmgr/aset.c, 13 to 16)."""

from typing import Iterable, List, Optional

from gdbheapx.analysis.census.world import EXACT, SHAPE, Ask, Recogniser, RuntimeLabels, Signature, World
from gdbheapx.kernel.blocks.signatures import ADDRESS, ALL, AT_LEAST, AT_MOST, EQUAL, FIELD, NOT_EQUAL, Condition, SignatureRow

PARENT, NAME, IDENT = 24, 56, 64
"""Of MemoryContextData (src/include/nodes/memnodes.h)."""
ASET, FREE_POINTER, END_POINTER, BLOCK_HEADER_BYTES = 0, 24, 32, 40
"""Of AllocBlockData."""
HEADER_BYTES = range(160, 296, 8)
"""Of AllocSetContext: its free lists differ by release. The context's first block begins behind it."""
BLOCK_BYTES = [1 << shift for shift in range(10, 24)]
"""Blocks double from the initial size to the largest (ALLOCSET_DEFAULT_MAXSIZE)."""
SLACK_BYTES, PAGE_BYTES = 24, 4096
"""Usable above what was asked for; of a mapping of its own up to a page more."""
LEAST_MAPPED_BYTES = 128 << 10
LEAST_LARGE_BYTES = 8192
MOST_NAME = 64


class MemoryContexts(Recogniser):
    """A header is proven by its first block, which points back to it; a block by its end, which is the malloc block's."""

    module, objects = "postgres", ("postgres",)
    table = RuntimeLabels(
        "PostgreSQL",
        "",
        "",
        "malloc: blocks of no memory context that has a name (libraries, the server's own)",
        "malloc: blocks in use",
    )

    def asks(self, world: World) -> Iterable[Ask]:
        """Headers, blocks of each size, and chunks that are too large for a block and have one of their own."""
        for header in HEADER_BYTES:
            first = [
                Condition(header + ASET, 8, EQUAL, 0, ADDRESS),
                Condition(header + FREE_POINTER, 8, AT_LEAST, header + BLOCK_HEADER_BYTES, ADDRESS),
                Condition(header + FREE_POINTER, 8, AT_MOST, 0, FIELD, other=header + END_POINTER),
            ]
            row = SignatureRow(first, least_usable=header + BLOCK_HEADER_BYTES, key=(header + ASET, 8, ALL))
            yield Ask(row, lambda key: self._of_context(world, key), order=20)
        for size in BLOCK_BYTES:
            conditions = [Condition(END_POINTER, 8, EQUAL, size, ADDRESS), *self._used()]
            most = size + SLACK_BYTES + (PAGE_BYTES if size >= LEAST_MAPPED_BYTES else 0)
            row = SignatureRow(conditions, size, most, key=(ASET, 8, ALL))
            yield Ask(row, lambda key: self._of_context(world, key), order=21)
        large = [Condition(FREE_POINTER, 8, EQUAL, 0, FIELD, other=END_POINTER), *self._used()]
        large.append(Condition(END_POINTER, 8, AT_LEAST, LEAST_LARGE_BYTES, ADDRESS))
        row = SignatureRow(large, least_usable=LEAST_LARGE_BYTES, key=(ASET, 8, ALL))
        yield Ask(row, lambda key: self._of_context(world, key), order=22)

    def _used(self) -> List[Condition]:
        return [
            Condition(ASET, 8, NOT_EQUAL, 0),
            Condition(FREE_POINTER, 8, AT_LEAST, BLOCK_HEADER_BYTES, ADDRESS),
            Condition(FREE_POINTER, 8, AT_MOST, 0, FIELD, other=END_POINTER),
        ]

    def _of_context(self, world: World, context: int) -> Optional[Signature]:
        """By the context's own words; None where it is none."""
        header = world.words(context, IDENT // 8 + 1)
        if header is None or not header[2] or not header[NAME // 8]:
            return None
        name = self._text(world, header[NAME // 8])
        if name == "dynahash":
            name = self._text(world, header[IDENT // 8]) or name
        if name is None and header[PARENT // 8] and world.words(header[PARENT // 8], 1) is None:
            return None
        return Signature("memory context %s" % name, self.module, EXACT) if name else Signature("memory context", self.module, SHAPE)

    def _text(self, world: World, address: int) -> Optional[str]:
        return world.text(address, MOST_NAME) if address else None


RECOGNISERS: List[Recogniser] = [MemoryContexts()]
