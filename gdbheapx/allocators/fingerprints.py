"""Recognise an allocator or a runtime in an object: by functions it exports, names of its files, variables, texts in its constants.

Allocators that are read have their fingerprints in their own folders; those here are not read. A static program has neither a dynamic
linker's list nor a name `malloc`, and a libc may export malloc and no name that identifies it: texts are left, which no strip removes.
"""

import re
from typing import Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Pattern, Sequence, Tuple

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
    """All of them are in its constants."""
    is_malloc: bool
    """It is what malloc calls; False for a runtime without malloc, and for an allocator that a library has for itself."""
    hint: str
    pattern: Optional[bytes] = None
    """What its group 1 matches is the version."""


class Fingerprint(NamedTuple):
    """Names, variables and texts by which an object is known to hold this allocator's malloc."""

    functions: Sequence[str] = ()
    """Exported by no other allocator."""
    files: Optional[Pattern[str]] = None
    """Names of its own libraries."""
    variables: Sequence[str] = ()
    """All of them are in the symbol table of a static program that has it."""
    texts: Sequence[TextFingerprint] = ()
    """In the constants of a static program without symbols."""
    library_texts: Sequence[TextFingerprint] = ()
    """In the constants of a library that exports malloc, and no name that shows whose it is."""


GO = TextFingerprint(
    "Go",
    (b"mallocgc called with gcphase == _GCmarktermination",),
    False,
    "ask its runtime: go tool pprof http://HOST:PORT/debug/pprof/heap, or GODEBUG=gctrace=1",
)
"""Go 1.5 to 1.26: runtime/malloc.go."""


class TextMatch(NamedTuple):
    """A text fingerprint found in an object."""

    known: TextFingerprint
    version: Optional[str]


def match_fingerprints(target: Target, module: Module, fingerprints: Iterable[TextFingerprint]) -> List[TextMatch]:
    """Return the fingerprints whose texts are in the object's constants; none where these cannot be read."""
    sought = [(known, set(known.texts)) for known in fingerprints]
    versions: Dict[TextFingerprint, str] = {}
    for data in target.constant_data(module):
        for known, missing in sought:
            missing.difference_update([text for text in missing if text in data])
            match = re.search(known.pattern, data) if known.pattern is not None and known not in versions else None
            if match is not None:
                versions[known] = match.group(1).decode("ascii", "replace")
    return [TextMatch(known, versions.get(known) or None) for known, missing in sought if not missing]


def find_executable(modules: Sequence[Module]) -> Optional[Module]:
    """The program itself."""
    return next((module for module in modules if module.is_executable), None)


class Gate(NamedTuple):
    """Decides whether a module of the registry is imported for a target. A static program may hold any allocator."""

    name: str
    """The allocator's."""
    fingerprint: Fingerprint
    files: Pattern[str]
    """Beginnings of its objects' names."""
    texts: Tuple[TextFingerprint, ...] = ()
    """Of a program that has malloc itself; no other object is asked for them, but see least_data_bytes."""
    capabilities: FrozenSet[str] = frozenset(("meter", "exact-reading"))
    """Allocator.known_capabilities."""
    returns: Optional[str] = None
    """The command that returns its memory."""
    least_data_bytes: Optional[int] = None
    """It hides in libraries and programs: every object with as much writable memory is asked for its texts."""
    help: Mapping[str, str] = {}
    """Paragraphs for the help of commands, by command."""

    def may_be_in(self, target: Target) -> bool:
        """The target has an object that is worth a closer look."""
        modules = target.modules()
        if self.least_data_bytes is not None:
            return bool(self.hidden_in(target))
        if len(modules) == 1 and modules[0].is_executable or any(self.files.match(module.file_name) for module in modules):
            return True
        if any(target.dynamic_symbol(function) is not None for function in self.fingerprint.functions):
            return True
        owner = target.dynamic_symbol("malloc") if self.texts else None
        return owner is not None and owner.module.is_executable and bool(match_fingerprints(target, owner.module, self.texts))

    def hidden_in(self, target: Target) -> Sequence[Module]:
        """The objects that have its texts."""
        least, hiding = self.least_data_bytes or 0, []
        for module in target.modules():
            data_bytes = sum(end - start for start, _, end in target.writable_segments(module))
            if data_bytes >= least and match_fingerprints(target, module, self.texts):
                hiding.append(module)
        return hiding


FORK_FUNCTIONS = (("moz_arena_malloc", "mozjemalloc"),)
"""As fingerprints.BY_FUNCTION: descendants of an allocator that is read, too far from it to be read (Firefox's, memory/build)."""
