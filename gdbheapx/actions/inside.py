"""Whether a thread stands inside an allocator or in a fork: by the addresses of its frames, so that stripped objects are judged as well."""

import re
from typing import List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.target.base import Module
from gdbheapx.target.elf import STT_FUNC
from gdbheapx.target.elf_target import ElfTarget
from gdbheapx.target.standing import Standing

PUBLIC = (
    "malloc",
    "free",
    "realloc",
    "calloc",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "malloc_trim",
    "malloc_usable_size",
    "mallinfo",
    "mallinfo2",
    "malloc_stats",
    "malloc_info",
    "mallopt",
)
"""Exported functions of glibc's malloc.o, which the linker keeps together."""
JEMALLOC_PUBLIC = frozenset(
    ("malloc", "free", "calloc", "realloc", "memalign", "valloc", "pvalloc", "aligned_alloc", "posix_memalign", "malloc_usable_size", "free_sized")
    + ("mallctl", "mallctlnametomib", "mallctlbymib", "malloc_stats_print", "mallocx", "rallocx", "xallocx", "sallocx", "dallocx", "sdallocx", "nallocx")
    + ("__libc_malloc", "__libc_free", "__libc_calloc", "__libc_realloc", "__libc_memalign", "__libc_valloc", "__libc_pvalloc", "__posix_memalign")
    + ("smallocx", "free_aligned_sized")
)
"""Functions with the public prefix (jemalloc.h, jemalloc.c)."""
MARGIN_BYTES = 0x400
"""Beside jemalloc's own functions, where its static ones may begin or go on."""
BELOW, ABOVE = 0x3800, 0x1000
"""malloc.o's static functions lie below its exported ones: within 0x2c00 bytes in 2.31 to 2.43."""
FORKS = ("fork", "__fork", "__libc_fork", "_Fork", "vfork", "__vfork", "posix_spawn", "posix_spawnp", "_dl_runtime_profile")
MAX_STACK_BYTES = 16 << 20
GAP_BYTES = 256 << 10
"""Functions of a linked-in jemalloc that lie closer than this enclose others of it: the static ones of ctl.c alone take 200 KiB."""


class Span(NamedTuple):
    """A run of code."""

    start: int
    end: int
    what: str
    """For messages: `malloc`, `fork`, `jemalloc`."""


class Inside:
    """Knows the code that nobody may stand in."""

    def __init__(self, target: ElfTarget, spans: Sequence[Span]) -> None:
        self.target = target
        self.spans = sorted(spans)

    def what(self, address: int) -> Optional[str]:
        """What the code at this address belongs to; None if it is not the allocator's and no fork."""
        return next((span.what for span in self.spans if span.start <= address < span.end), None)

    def why(self, thread: Standing) -> Optional[str]:
        """One sentence if the thread is inside, or if that cannot be told; None if it surely is outside."""
        for frame in thread.frames:
            for at in (frame.pc, frame.pc - 1):
                found = self.what(at)
                if found is not None:
                    return "%s is inside %s%s" % (thread.who, found, " (%s)" % frame.name if frame.name else "")
        return None if thread.whole else self._by_stack(thread)

    def _by_stack(self, thread: Standing) -> Optional[str]:
        """A stack that cannot be unwound: any return address into the allocator on it counts."""
        span = next((one for one in self.target.mappings() if one.start <= thread.sp < one.end), None)
        if span is None or span.end - thread.sp > MAX_STACK_BYTES:
            return "%s: cannot unwind or search its stack" % thread.who
        data = self.target.read_prefix(thread.sp & -8, span.end - (thread.sp & -8))
        for word in memoryview(data[: len(data) // 8 * 8]).cast("Q"):
            found = self.what(word - 1)
            if found is not None and self._is_call(word):
                return "%s may be inside %s (its stack cannot be unwound, and contains a return address into it)" % (thread.who, found)
        return None

    def _is_call(self, after: int) -> bool:
        """A call instruction ends at this address."""
        code = self.target.read_prefix(after - 7, 7)
        return len(code) == 7 and (code[2] == 0xE8 or any(code[at] == 0xFF and code[at + 1] & 0x38 == 0x10 for at in range(6)))


def forks(target: ElfTarget) -> List[Span]:
    """fork and its like in every loaded object: their handlers hold the allocator's locks."""
    found = []
    for module in target.modules():
        if re.match(r"(libc|libpthread|ld-linux)[.-]", module.name.rsplit("/", 1)[-1]) or module.is_executable:
            for name in FORKS:
                symbol = target.module_symbol(module, name)
                size = target.symbol_bytes(symbol) if symbol is not None else None
                if symbol is not None and size:
                    found.append(Span(symbol.address, symbol.address + size, name.strip("_")))
    return found


def of_glibc(target: ElfTarget, module: Module) -> Optional[List[Span]]:
    """The code of glibc's malloc in this object; None if its functions cannot be found."""
    named = {name: target.module_symbol(module, name) for name in PUBLIC}
    addresses = {name: symbol.address for name, symbol in named.items() if symbol is not None}
    if "malloc" not in addresses or "free" not in addresses:
        return None
    near = [one for one in addresses.values() if abs(one - addresses["malloc"]) < 0x10000]
    low, high = min(near) - BELOW, max(near) + ABOVE
    found = [Span(low, high, "malloc")]
    every = functions(target, module)
    parts = {name for name, start, _ in every if low <= start < high}
    found += [Span(start, end, "malloc") for name, start, end in every if ".cold" in name and name.split(".cold")[0] in parts]
    for other in target.modules():
        if other.name.rsplit("/", 1)[-1].startswith("libc_malloc_debug"):
            found += whole(target, other, "malloc")
    return found


def functions(target: ElfTarget, module: Module) -> List[Tuple[str, int, int]]:
    """(name, start, end) of every function in the object's full symbol table; empty if it is stripped."""
    return sorted((one.name, one.start, one.end) for one in _functions(target, module))


class Function(NamedTuple):
    """One entry of a symbol table."""

    start: int
    end: int
    name: str
    local: bool


def _functions(target: ElfTarget, module: Module) -> List[Function]:
    every = [entry for file in target.symbol_files(module) for entry in file.every_symbol() if entry[1].type == STT_FUNC and entry[1].size_bytes]
    return sorted({Function(module.base + one.value, module.base + one.value + one.size_bytes, name, one.local) for name, one in every})


def whole(target: ElfTarget, module: Module, what: str) -> List[Span]:
    """All code of an object."""
    loaded = target.loaded_at(module.base)
    start, end = loaded.span() if loaded is not None else (0, 0)
    return [Span(one.start, one.end, what) for one in target.mappings() if one.executable and start <= one.start < end]


def of_jemalloc(target: ElfTarget, module: Module, prefix: str, public: Optional[str]) -> Optional[List[Span]]:
    """The code of a jemalloc: all of its library; where it is linked into another object, what its own functions enclose. None if that is not known.

    `prefix`: of its private names, `public`: of malloc and mallctl.
    """
    if module.name.rsplit("/", 1)[-1].startswith("libjemalloc"):
        return whole(target, module, "jemalloc") or None
    return (enclosed(_functions(target, module), prefix, public) if prefix else None) or None


def enclosed(functions: Sequence[Function], prefix: str, public: Optional[str]) -> List[Span]:
    """What functions that bear one of jemalloc's names enclose; `functions` by address.

    Between two of them lie static ones, which have no prefix. A function that others may call and that has none is not jemalloc's, nor is
    one with a name that a C++ or Rust compiler made: no span reaches over it.
    """
    found: List[Span] = []
    barrier, before = 0, 0
    """End of the last function that is not jemalloc's; of those before the span at hand."""
    for one in functions:
        name = one.name.split(".")[0]
        if name.startswith(prefix) or (public is not None and name.startswith(public) and name[len(public) :] in JEMALLOC_PUBLIC):
            if found and one.start - found[-1].end < GAP_BYTES and barrier <= found[-1].end:
                found[-1] = found[-1]._replace(end=max(one.end, found[-1].end))
            else:
                before = barrier
                found.append(Span(max(one.start - MARGIN_BYTES, before), one.end, "jemalloc"))
        elif not one.local or name.startswith(("_Z", "_R")):
            if found and barrier <= found[-1].end:
                found[-1] = found[-1]._replace(end=max(found[-1].end, min(one.start, found[-1].end + MARGIN_BYTES)))
            barrier = max(barrier, one.end)
    if found and barrier <= found[-1].end:
        found[-1] = found[-1]._replace(end=found[-1].end + MARGIN_BYTES)
    return found
