"""By what an object is known that may hold an allocator: where a target has none of it, nothing of that allocator is imported."""

import re
from typing import FrozenSet, Mapping, NamedTuple, Optional, Pattern, Sequence, Tuple

from gdbheapx.allocators import fingerprints
from gdbheapx.allocators.fingerprints import Fingerprint, TextFingerprint
from gdbheapx.hints import ask
from gdbheapx.inferior.base import Module, Target


class Gate(NamedTuple):
    """What stands before a module of the registry. A static program may hold any of them."""

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
        return owner is not None and owner.module.is_executable and bool(fingerprints.find(target, owner.module, self.texts))

    def hidden_in(self, target: Target) -> Sequence[Module]:
        """The objects that have its texts."""
        large = [module for module in target.modules() if _data_bytes(target, module) >= (self.least_data_bytes or 0)]
        return [module for module in large if fingerprints.find(target, module, self.texts)]


def _data_bytes(target: Target, module: Module) -> int:
    return sum(end - start for start, _, end in target.writable_segments(module))


MI_HINT = "mi_stats_print in the program shows what it holds, and so does MIMALLOC_SHOW_STATS=1 when the program exits"
MI_TEXTS = TextFingerprint("mimalloc", (b"mimalloc: error: ", b"mimalloc: warning: "), True, MI_HINT)
"""options.c; in every build seen, stripped Rust programs and wheels included."""

TC_TEXTS = TextFingerprint("tcmalloc", (b"TCMALLOC_RELEASE_RATE", b"MALLOC: + "), True, "look again once the program has allocated memory")
"""In any program that has it: a variable of the environment (src/page_heap.cc), a line of malloc_stats (src/tcmalloc.cc)."""
TC_FILES = re.compile(r"libtcmalloc")
TC_FUNCTION, OF_GOOGLE = "tc_malloc", "MallocExtension_Internal_GetNumericProperty"
"""Exported by gperftools' libraries, and by no other; exported by programs with google's tcmalloc, which has the name and hardly a struct
in common, and is not read."""
GOOGLE_HINT = (
    "print tcmalloc::MallocExtension::GetStats() in the program; Envoy: GET /memory of its admin port; MongoDB: db.serverStatus().tcmalloc"
)
GOOGLE = TextFingerprint("google's tcmalloc", (b"Bytes in per-CPU cache freelist", b"MALLOC: + "), True, GOOGLE_HINT)
"""In any program that has google's, since its first commit of 2020: lines of GetStats() (tcmalloc.cc, later global_stats.cc).
gperftools' has no caches by CPU."""

MUSL_HINT = "its malloc is found by its structure: `%s` says what is missing" % ask("doctor")
MUSL_LIBRARY = TextFingerprint(
    "musl", (b"musl libc (", b"Dynamic Program Loader"), True, MUSL_HINT, re.compile(rb"\0(\d+\.\d+\.\d+)[^\0]{0,40}\0").pattern
)
"""musl's libc.so, which is its dynamic linker as well: ldso/dynlink.c; the version of version.h stands beside."""
MUSL_STATIC = TextFingerprint("musl", (b"No error information",), True, MUSL_HINT)
"""Linked into a program: src/errno/__strerror.h, the text of error 0. Debian's musl 1.2.3, Alpine's 1.2.5."""

REPLACING = (MI_TEXTS, TC_TEXTS, GOOGLE)
"""Allocators that take the place of a C library's malloc in a static program: a text of theirs says that malloc is not the library's."""

FORKS = (("moz_arena_malloc", "mozjemalloc"),)
"""As fingerprints.BY_FUNCTION: descendants of an allocator that is read, too far from it to be read (Firefox's, memory/build)."""

GATES: Mapping[str, Gate] = {
    "gdbheapx.mimalloc.entry": Gate(
        "mimalloc",
        Fingerprint(functions=("mi_malloc",)),
        re.compile(r"libmimalloc"),
        (MI_TEXTS,),
        least_data_bytes=8 << 10,  # its main heap alone takes 3 KiB and more
    ),
    "gdbheapx.tcmalloc.entry": Gate(
        "tcmalloc",
        Fingerprint(functions=(TC_FUNCTION, OF_GOOGLE), files=TC_FILES, texts=(TC_TEXTS, GOOGLE), library_texts=(GOOGLE,)),
        TC_FILES,
        (TC_TEXTS, GOOGLE),
        frozenset(("meter", "exact-reading", "profile")),
        returns="purge",
    ),
    "gdbheapx.musl.entry": Gate(
        "musl",
        Fingerprint(variables=("__malloc_context",), texts=(MUSL_STATIC,), library_texts=(MUSL_LIBRARY,)),
        re.compile(r"ld-musl-|libc\.musl-|libc\.so$"),
    ),
}
"""By the module of the registry; one that has none is imported for every target."""
