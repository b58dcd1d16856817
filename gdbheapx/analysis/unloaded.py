"""How many libraries the process has loaded and unloaded: what only their variables held is lost with them."""

import struct
from typing import Optional, Sequence

from gdbheapx import findings as codes
from gdbheapx.hints import ask
from gdbheapx.inferior.base import Target
from gdbheapx.kernel.blocks.graph import Sum
from gdbheapx.model import Finding
from gdbheapx.session import Session
from gdbheapx.units import Size, plural, say

MANY = 4
"""Fewer may be failed loads of optional libraries; and of 2 every second number of blocks is a multiple."""
MOST_NAMESPACES, MUTEX_WORDS, RECURSIVE = 16, 5, 1
MOST_STATE_BYTES = 1 << 14
LOST_SHARE = 0.05


def count(session: Session) -> Optional[int]:
    """None where the dynamic linker's state could not be read, or it has several namespaces."""
    number: Optional[int] = session.kept("unloaded", Optional[int], lambda: _count(session.target))
    return number


def _count(target: Target) -> Optional[int]:
    """Loads that were counted, without the objects that are loaded (sysdeps/generic/ldsodefs.h: struct rtld_global). `_dl_load_adds` stands
    behind the recursive mutexes behind `_dl_nns`, two or three by release; `_ns_nloaded` of the first namespace is the second word."""
    state = target.dynamic_symbol("_rtld_global")
    size = target.symbol_bytes(state) if state is not None else None
    if state is None or size is None or size > MOST_STATE_BYTES or target.word_bytes != 8 or not target.little_endian:
        return None
    data = target.read_prefix(state.address, size & -8)
    words = struct.unpack("<%dQ" % (len(data) // 8), data)
    for at, namespaces in enumerate(words[:-1]):
        end = at + 1
        while _is_unlocked(words[end : end + MUTEX_WORDS]):
            end += MUTEX_WORDS
        if 1 <= namespaces <= MOST_NAMESPACES and end > at + 1 + MUTEX_WORDS and end < len(words):
            gone = words[end] - (words[1] & 0xFFFFFFFF)
            return gone if namespaces == 1 and 0 <= gone < 1 << 32 else None
    return None


def _is_unlocked(words: Sequence[int]) -> bool:
    """A recursive mutex that nobody holds."""
    return len(words) == MUTEX_WORDS and words[2] & 0xFFFFFFFF == RECURSIVE and not any((*words[:2], *words[3:]))


def findings(session: Session, used: Optional[Sum], leaked: Optional[Sum]) -> Sequence[Finding]:
    """Where a twentieth of what is in use is leaked."""
    if used is None or leaked is None or leaked.bytes < LOST_SHARE * used.bytes or not leaked.bytes:
        return []
    gone = count(session)
    if gone is None or gone < MANY:
        return []
    evidence = say("%s in %s are leaked, and may be theirs", Size(leaked.bytes), plural(leaked.blocks, "block"))
    hint = "memory that only a library's variables reference is leaked when dlclose unloads it: `%s` shows whether the numbers agree"
    return [Finding("%s were loaded and unloaded since the process began" % libraries(gone), evidence, hint % ask("leaks"), codes.UNLOADED)]


def libraries(number: int) -> str:
    """`1 library`, `40 libraries`."""
    return "1 library" if number == 1 else "%d libraries" % number
