"""By what an allocator or a runtime is known in an object: functions it exports, names of its files, variables, texts in its constants.

Those that are read here say theirs in their own folder; what stands here are those that are not. A static program has neither a dynamic
linker's list nor a name `malloc`, and a libc may export malloc and no name that tells whose it is: texts are left, which no strip takes
away.
"""

import re
from typing import Iterable, List, NamedTuple, Optional, Pattern, Sequence, Tuple

from gdbheapx.inferior.base import Module, Target

BY_FUNCTION = (
    ("rpmalloc", "rpmalloc"),
    ("scalable_malloc", "tbbmalloc"),
    ("hoard_malloc", "Hoard"),
    ("__asan_init", "AddressSanitizer"),
    ("__tsan_init", "ThreadSanitizer"),
    ("__msan_init", "MemorySanitizer"),
    ("__lsan_init", "LeakSanitizer"),
)
"""Functions that only that allocator exports; none of these is read here."""
VALGRIND = re.compile(r"vgpreload_(?!core-)[^/]+\.so")
"""What a tool of Valgrind that replaces malloc has preloaded (coregrind/m_initimg): memcheck, massif, dhat, helgrind, drd. It exports no
`malloc`: Valgrind redirects the calls while it translates the code. Tools that leave malloc alone load vgpreload_core by itself."""
VALGRIND_HINT = "use Valgrind's own report: memcheck's --leak-check=full, massif or dhat; or look at the program without Valgrind"


class TextFingerprint(NamedTuple):
    """An allocator or runtime that leaves no symbol, by its constants."""

    name: str
    texts: Tuple[bytes, ...]
    """All of them stand in its constants."""
    is_malloc: bool
    """It is what malloc calls; False for a runtime without malloc, and for an allocator that a library has for itself."""
    hint: str
    pattern: Optional[bytes] = None
    """What its group 1 matches is the version."""


class Fingerprint(NamedTuple):
    """By what an object is known to hold this allocator's malloc."""

    functions: Sequence[str] = ()
    """Exported by no other allocator."""
    files: Optional[Pattern[str]] = None
    """Names of its own libraries."""
    variables: Sequence[str] = ()
    """All of them are in the symbol table of a static program that has it."""
    texts: Sequence[TextFingerprint] = ()
    """In the constants of a static program without symbols."""
    library_texts: Sequence[TextFingerprint] = ()
    """In the constants of a library that exports malloc, and no name that tells whose it is."""


GO = TextFingerprint(
    "Go",
    (b"mallocgc called with gcphase == _GCmarktermination",),
    False,
    "ask its runtime: go tool pprof http://HOST:PORT/debug/pprof/heap, or GODEBUG=gctrace=1",
)
"""Go 1.5 to 1.26: runtime/malloc.go."""


class TextMatch(NamedTuple):
    """One that was found in an object."""

    known: TextFingerprint
    version: Optional[str]


def find(target: Target, module: Module, fingerprints: Iterable[TextFingerprint]) -> List[TextMatch]:
    """Those that stand in the object's constants; empty where these are not at hand."""
    sought = list(fingerprints)
    missing = [set(known.texts) for known in sought]
    versions: List[Optional[bytes]] = [None for _ in sought]
    for data in target.constant_data(module):
        for place, known in enumerate(sought):
            missing[place].difference_update([text for text in missing[place] if text in data])
            if known.pattern is not None and versions[place] is None:
                match = re.search(known.pattern, data)
                versions[place] = match.group(1) if match else None
    return [
        TextMatch(known, (version or b"").decode("ascii", "replace") or None)
        for known, left, version in zip(sought, missing, versions)
        if not left
    ]


def executable(modules: Sequence[Module]) -> Optional[Module]:
    """The program itself."""
    return next((module for module in modules if module.is_executable), None)
