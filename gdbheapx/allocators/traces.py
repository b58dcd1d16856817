"""Allocators and runtimes that leave no symbol in a program: told by texts in its constants, which no strip takes away.

A static program has neither a dynamic linker's list nor a name `malloc`; musl's libc exports malloc and no name that tells whose it is.
"""

import re
from typing import Iterable, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.inferior.base import Module, Target


class Known(NamedTuple):
    """One of them."""

    name: str
    texts: Tuple[bytes, ...]
    """All of them stand in its constants."""
    is_malloc: bool
    """It is what malloc calls; False for a runtime that manages memory without malloc."""
    hint: str
    pattern: Optional[bytes] = None
    """What its group 1 matches is the version."""


MUSL_HINT = (
    "musl's malloc (mallocng since 1.2.1) keeps no figures to read: "
    "preload or link an allocator that gdbheapx can read, or count in the program"
)
MUSL = Known("musl", (b"musl libc (", b"Dynamic Program Loader"), True, MUSL_HINT, re.compile(rb"\0(\d+\.\d+\.\d+)[^\0]{0,40}\0").pattern)
"""musl's libc.so, which is its dynamic linker as well: ldso/dynlink.c; the version of version.h stands beside."""
STATIC_MUSL = Known("musl", (b"No error information",), True, MUSL_HINT)
"""Linked into a program: src/errno/__strerror.h, the text of error 0. Debian's musl 1.2.3, Alpine's 1.2.5."""
GO = Known(
    "Go",
    (b"mallocgc called with gcphase == _GCmarktermination",),
    False,
    "ask its runtime: go tool pprof http://HOST:PORT/debug/pprof/heap, or GODEBUG=gctrace=1",
)
"""Go 1.5 to 1.26: runtime/malloc.go."""


MALLOCNG = "__malloc_size_classes"
"""A variable of musl's mallocng (src/malloc/mallocng/malloc.c), in programs that are not stripped."""


class Trace(NamedTuple):
    """One that was found in an object."""

    known: Known
    version: Optional[str]


def find(target: Target, module: Module, wanted: Iterable[Known]) -> List[Trace]:
    """Those of the wanted ones that stand in the object's constants; empty where these are not at hand."""
    every = list(wanted)
    missing = [set(known.texts) for known in every]
    versions: List[Optional[bytes]] = [None for _ in every]
    for data in target.constant_data(module):
        for place, known in enumerate(every):
            missing[place].difference_update([text for text in missing[place] if text in data])
            if known.pattern is not None and versions[place] is None:
                match = re.search(known.pattern, data)
                versions[place] = match.group(1) if match else None
    return [
        Trace(known, (version or b"").decode("ascii", "replace") or None)
        for known, left, version in zip(every, missing, versions)
        if not left
    ]


def executable(modules: Sequence[Module]) -> Optional[Module]:
    """The program itself."""
    return next((module for module in modules if module.is_executable), None)
