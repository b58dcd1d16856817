"""What V8 keeps in malloc's blocks of each ArrayBuffer, and so of each of node's Buffers (backing-store.h, V8 11.3)."""

from typing import Iterable, List, Optional

from gdbheapx.analysis.census.places import BUFFER
from gdbheapx.analysis.census.world import SHAPE, Ask, Recogniser, RuntimeLabels, Signature, World
from gdbheapx.analysis.memory import runtimes, shapes
from gdbheapx.kernel.blocks.signatures import AT_LEAST, AT_MOST, EQUAL, FIELD, Condition, SignatureRow

STORE = "v8::BackingStore"
STORE_BYTES = (48, 88)
LOWEST, HIGHEST, MOST_LENGTH = 1 << 16, (1 << 47) - 1, 1 << 40


class V8(Recogniser):
    """A backing store begins {start, length, longest, capacity}: the last three are the same unless the buffer can grow."""

    module, has_buffers = "v8", True
    table = RuntimeLabels(
        "V8",
        "",
        "",
        "malloc: other blocks in use (node itself, addons, libraries)",
        "malloc: blocks in use",
    )

    def is_here(self, world: World) -> bool:
        """The objects that have V8's heap have it."""
        return world.word_bytes == 8 and world.little_endian and runtimes.V8 in shapes.present(world.target)

    def line_in_tables(self, signature: Signature) -> Optional[str]:
        """Return the line also of blocks with the words of a string, which buffers have (BackingStore, src/objects/backing-store.h)."""
        return "malloc: memory of Buffers and ArrayBuffers, strings of C++" if signature == BUFFER else super().line_in_tables(signature)

    def asks(self, world: World) -> Iterable[Ask]:
        """Three numbers that are the same, behind a pointer."""
        same = [Condition(at, 8, EQUAL, 0, FIELD, other=8) for at in (16, 24)]
        begin = [Condition(0, 8, AT_LEAST, LOWEST), Condition(0, 8, AT_MOST, HIGHEST), Condition(0, 8, EQUAL, 0, mask=7)]
        length = [Condition(8, 8, AT_LEAST, 1), Condition(8, 8, AT_MOST, MOST_LENGTH)]
        row = SignatureRow([*begin, *length, *same], *STORE_BYTES)
        yield Ask(row, lambda key: Signature(STORE, self.module, SHAPE), order=40)


RECOGNISERS: List[Recogniser] = [V8()]
