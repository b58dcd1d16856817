"""By what an object is known that may hold an allocator: where a target has none of it, nothing of that allocator is imported."""

from typing import FrozenSet, Mapping, NamedTuple, Optional, Pattern, Sequence, Tuple

from gdbheapx.allocators import fingerprints
from gdbheapx.allocators.fingerprints import Fingerprint, TextFingerprint
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
        return owner is not None and owner.module.is_executable and bool(fingerprints.find(target, owner.module, self.texts))

    def hidden_in(self, target: Target) -> Sequence[Module]:
        """The objects that have its texts."""
        large = [module for module in target.modules() if _data_bytes(target, module) >= (self.least_data_bytes or 0)]
        return [module for module in large if fingerprints.find(target, module, self.texts)]


def _data_bytes(target: Target, module: Module) -> int:
    return sum(end - start for start, _, end in target.writable_segments(module))


FORKS = (("moz_arena_malloc", "mozjemalloc"),)
"""As fingerprints.BY_FUNCTION: descendants of an allocator that is read, too far from it to be read (Firefox's, memory/build)."""
