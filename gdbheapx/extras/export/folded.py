"""Folded stacks: one line each, `frame;frame;frame BYTES`, as flamegraph.pl, inferno and speedscope read them."""

import re
from typing import Iterator, Sequence

from gdbheapx.analysis.stacks import Stack
from gdbheapx.report.text import DIRECTION

ESCAPED = re.compile("[\x00-\x1f\x7f-\xa0\u2028\u2029\ud800-\udfff%s;]" % DIRECTION)
"""What ends a line or a frame, controls a terminal, turns the reading direction, or is no UTF-8."""
LIKE_A_NUMBER = re.compile(r"\s(?=[0-9.]+$)")
"""Two numbers at the end of a line are a difference of two profiles."""


def hexed(found: "re.Match[str]") -> str:
    """A character as `\\xNN`, beyond those as `\\uNNNN`: a byte that is no UTF-8 has its own number."""
    number = ord(found.group())
    number -= 0xDC00 if 0xDC80 <= number <= 0xDCFF else 0
    return "\\x%02x" % number if number < 256 else "\\u%04x" % number


def frame(name: str) -> str:
    """A name that is one frame and no more, whatever is in it."""
    return LIKE_A_NUMBER.sub("\\\\x20", ESCAPED.sub(hexed, name)) or "[no name]"


def lines(stacks: Sequence[Stack]) -> Iterator[str]:
    """The largest first."""
    for one in sorted(stacks, key=lambda one: -one.bytes):
        if one.bytes:
            yield "%s %d" % (";".join(frame(part.name) for part in one.frames), one.bytes)
