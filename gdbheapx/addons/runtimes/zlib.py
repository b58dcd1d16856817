"""Streams of zlib: what each keeps from deflateInit() or inflateInit() to its end (deflate.h: internal_state; inflate.h: inflate_state).

Of zlib 1.2.9 to 1.3.1, and of Chromium's, which node 20 has: node writes the size before each block (node_zlib.cc: AllocForBrotli).
"""

from typing import Iterable, List, Mapping, Tuple

from gdbheapx.analysis.census.world import EXACT, Ask, Recogniser, Signature, World
from gdbheapx.kernel.blocks.signatures import AT_LEAST, AT_MOST, ELEMENT, EQUAL, FIELD, NOT_EQUAL, Condition, SignatureRow

COMPRESSOR, DECOMPRESSOR = "state of a stream that compresses", "state of a stream that decompresses"
BEFORE = (0, 8, 16)
"""Bytes that stand before a state."""
WINDOWS = (80, 160)
"""Of a compressor's state: where w_size is; Chromium's has checksums before it."""
COMPRESSOR_BYTES, DECOMPRESSOR_BYTES = (5800, 6400), (7050, 9200)
"""That a block with a state has; Chromium's has larger tables of codes."""
BUFFERS = {
    (COMPRESSOR, 8 * ELEMENT): "buffers of a stream that compresses",
    (DECOMPRESSOR, 8 * ELEMENT): "window of a stream that decompresses",
}
"""A state is so large that the place of a pointer in it is not told."""


class Zlib(Recogniser):
    """The window's size, its power and its mask fit each other; the method is 8; states have numbers of their own."""

    module, line_of_library = "zlib", "malloc: streams of zlib"

    def is_here(self, world: World) -> bool:
        """Any program may have it inside, and no name shows that: what a state must have proves it."""
        return world.word_bytes == 8 and world.little_endian

    def asks(self, world: World) -> Iterable[Ask]:
        """Both sorts, with and without a word before."""
        for before in BEFORE:
            for window in WINDOWS:
                row = SignatureRow(_compressor(before, before + window), *COMPRESSOR_BYTES)
                yield Ask(row, lambda key: Signature(COMPRESSOR, self.module, EXACT), order=15)
            row = SignatureRow(_decompressor(before), *DECOMPRESSOR_BYTES)
            yield Ask(row, lambda key: Signature(DECOMPRESSOR, self.module, EXACT), order=15)

    def fields(self, world: World) -> Mapping[Tuple[str, int], str]:
        """What a stream keeps beside its state: 256 KiB of a compressor with the usual level, 32 KiB or more of a decompressor."""
        return BUFFERS


def _compressor(at: int, window: int) -> List[Condition]:
    """strm, status (42 to 666), pending_buf; method; w_size, w_bits, w_mask and window."""
    return [
        *(Condition(at, 8, NOT_EQUAL, 0), Condition(at + 8, 4, AT_LEAST, 42), Condition(at + 8, 4, AT_MOST, 666)),
        *(Condition(at + 16, 8, NOT_EQUAL, 0), Condition(at + 72, 1, EQUAL, 8), Condition(window + 16, 8, NOT_EQUAL, 0)),
        *(Condition(window + 4, 4, AT_LEAST, 8), Condition(window + 4, 4, AT_MOST, 15), Condition(window, 4, AT_LEAST, 256)),
        Condition(window + 8, 4, EQUAL, -1, FIELD, other=window),
    ]


def _decompressor(at: int) -> List[Condition]:
    """strm; mode, from HEAD to SYNC; last, wrap; dmax, at most 32 KiB; wbits."""
    return [
        *(Condition(at, 8, NOT_EQUAL, 0), Condition(at + 8, 4, AT_LEAST, 16180), Condition(at + 8, 4, AT_MOST, 16211)),
        *(Condition(at + 12, 4, AT_MOST, 1), Condition(at + 16, 4, AT_MOST, 7)),
        *(Condition(at + 28, 4, AT_MOST, 32768), Condition(at + 28, 4, NOT_EQUAL, 0), Condition(at + 56, 4, AT_MOST, 15)),
    ]


RECOGNISERS: List[Recogniser] = [Zlib()]
