"""Damage to the header of a mapped chunk: each a row that says what is written, and what must be told of it."""

import platform
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

PAGE = 4096
RELEASE = tuple(map(int, platform.libc_ver()[1].split(".")))
HAS_TRAILER, IS_SIZE_FIRST = RELEASE >= (2, 43), RELEASE >= (2, 42)
"""Mapped chunks end two words before their mapping; and free() looks at the size before anything else."""
TRAILER_BYTES, CACHED_BYTES = 16 if HAS_TRAILER else 0, 1041 if IS_SIZE_FIRST else 0
SMALL = "free(): invalid size"
WILD = SMALL if IS_SIZE_FIRST else "free(): invalid pointer"
HEADER, SIZE = "mmapped-header", "mmapped-size"
INVALID = "munmap_chunk(): invalid pointer"


class Block(NamedTuple):
    """One mapped chunk of the undamaged process, and the one behind it."""

    chunk: int
    prev_size: int
    field: int
    next_total: int
    """Bytes of the mapping of the chunk right behind; 0 if there is none."""
    trailer: int = TRAILER_BYTES
    """Bytes at the end of the mapping that its size leaves out."""


class Plant(NamedTuple):
    """One kind of damage."""

    name: str
    make: Callable[[Block], Tuple[int, int]]
    """prev_size and size field afterwards."""
    rule: str
    abort: Optional[str]

    def rule_of(self, block: Block) -> str:
        """What is told of it: a block that begins elsewhere than a page does is no longer one of whole pages without its size."""
        return HEADER if self._is_uneven(block) else self.rule

    def abort_of(self, block: Block) -> Optional[str]:
        """What free() says."""
        return INVALID if self._is_uneven(block) else self.abort

    def _is_uneven(self, block: Block) -> bool:
        prev_size, field = self.make(block)
        return self.rule == SIZE and (field & ~7) >= CACHED_BYTES and bool((prev_size + (field & ~7) + block.trailer) % PAGE)


PLANTS: Sequence[Plant] = (
    Plant("size zero", lambda one: (one.prev_size, 0), "mmapped-as-wild", WILD),
    Plant("size zero, flag left", lambda one: (one.prev_size, 2), *(("mmapped-as-wild", WILD) if IS_SIZE_FIRST else (SIZE, None))),
    Plant("size of eight, flag left", lambda one: (one.prev_size, 10), *(("mmapped-as-small", SMALL) if IS_SIZE_FIRST else (HEADER, INVALID))),
    Plant("size small", lambda one: (one.prev_size, 0x52), *((SIZE, None) if IS_SIZE_FIRST else (HEADER, INVALID))),
    Plant("size of eight, flag cleared", lambda one: (one.prev_size, 8), "mmapped-as-small", SMALL),
    Plant("size of text", lambda one: (one.prev_size, 0x4141414141414141), "mmapped-as-used", "double free or corruption (out)"),
    Plant("size of text, flag left", lambda one: (one.prev_size, 0x4242424242424242), HEADER, INVALID),
    Plant("size of all ones", lambda one: (one.prev_size, (1 << 64) - 1), *(("mmapped-as-wild", WILD) if IS_SIZE_FIRST else (HEADER, INVALID))),
    Plant("size wild", lambda one: (one.prev_size, (1 << 64) - PAGE), "mmapped-as-wild", WILD),
    Plant("size larger by a chunk's unit", lambda one: (one.prev_size, one.field + 16), HEADER, INVALID),
    Plant("size larger by the chunk behind", lambda one: (one.prev_size, one.field + one.next_total), SIZE, None),
    Plant("size larger by a page", lambda one: (one.prev_size, one.field + PAGE), SIZE, None),
    # of glibc 2.43 mp_ may count a page more for 256 remappings (mremap_chunk), which looks the same
    Plant("size smaller by a page", lambda one: (one.prev_size, one.field - (0 if HAS_TRAILER else PAGE)), SIZE, None),
    Plant("size of a terabyte", lambda one: (one.prev_size, one.field + (1 << 40)), SIZE, None),
    Plant("IS_MMAPPED cleared", lambda one: (one.prev_size, one.field & ~2), "mmapped-as-used", "double free or corruption (out)"),
    Plant("PREV_INUSE instead", lambda one: (one.prev_size, one.field & ~2 | 1), "mmapped-as-used", "double free or corruption (out)"),
    Plant("PREV_INUSE beside it", lambda one: (one.prev_size, one.field | 1), "mmapped-flags", None),
    Plant("all flags", lambda one: (one.prev_size, one.field | 7), "mmapped-flags", None),
    Plant("prev_size of no unit", lambda one: (one.prev_size + 2, one.field), HEADER, INVALID),
    Plant("prev_size of text", lambda one: (0x4141414141414141, one.field), HEADER, INVALID),
    Plant("prev_size larger by a page", lambda one: (one.prev_size + PAGE, one.field), SIZE, None),
    Plant("both of text", lambda one: (0x4141414141414141, 0x4141414141414141), "mmapped-as-used", "double free or corruption (out)"),
    Plant("both of zeros", lambda one: (0, 0), "mmapped-as-wild", WILD),
)


def blocks(rows: Sequence[Dict[str, object]], read: Callable[[int], int]) -> List[Block]:
    """The mapped chunks of `chunks --json`, by address."""
    chunks = sorted(int(str(row["chunk"]), 16) for row in rows if row["status"] == "mmapped")
    plain = [(chunk, read(chunk), read(chunk + 8)) for chunk in chunks]
    blocks = []
    for place, (chunk, before, field) in enumerate(plain):
        end, following = chunk + (field & ~7) + TRAILER_BYTES, plain[place + 1 : place + 2]
        next_total = next((prev + (size & ~7) for at, prev, size in following if at - prev == end), 0)
        blocks.append(Block(chunk, before, field, next_total))
    return blocks
