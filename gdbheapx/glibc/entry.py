"""glibc's malloc as the registry has it."""

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Sequence, cast

from gdbheapx.allocators.fingerprints import Fingerprint, TextFingerprint
from gdbheapx.allocators.heap import Allocator, AllocatorInstance
from gdbheapx.allocators.records import AllocatorJudgement, ArenaRow, HeapContext, Instances, NotRead, Page, Surroundings
from gdbheapx.glibc.help import TRIM
from gdbheapx.inferior.base import Target

if TYPE_CHECKING:
    from gdbheapx.glibc.arenas import Glibc
    from gdbheapx.glibc.records import ArenaTotals, GlibcFacts

UNNAMED = TextFingerprint(
    "glibc",
    (b"free(): invalid pointer", b"corrupted size vs. prev_size"),
    True,
    "its malloc is found by symbols, and this program has none: "
    "give the unstripped file of the same build with --exe FILE, or its debug file with --debug-dir DIR",
)
"""In static programs without symbols: glibc 2.26 to 2.43, malloc.c, malloc_printerr."""
OBJECTS = re.compile(r"libc\.so\.6|libc-\d|libc_malloc_debug")
"""Its objects' names; other C libraries are called libc.so or libc.musl-ARCH.so.1."""


class GlibcEntry(Allocator["Glibc", "GlibcFacts"]):
    """glibc's malloc."""

    name = "glibc"
    fingerprint = Fingerprint(files=OBJECTS, variables=("main_arena", "mp_"), texts=(UNNAMED,))
    statuses = ("used", "tcache", "fast", "free", "top", "mmapped", "overhead")
    known_capabilities = frozenset(("native-info", "native-stats", "meter", "exact-reading"))
    returning = TRIM
    records = MappingProxyType(
        {
            "arenas": "gdbheapx.glibc.records.ArenaTotals",
            "bins": "gdbheapx.glibc.records.BinRow",
            "tunables": "gdbheapx.glibc.text.GlibcTunables",
        }
    )

    def find(self, target: Target) -> Instances:
        """Every copy, by symbols, packs or structure."""
        from gdbheapx.glibc import detect

        try:
            located = detect.find_glibc_copies(target)
        except detect.NoLayout as error:
            return Instances((), (NotRead(error.module, "cannot read glibc's malloc: %s" % error.message, error.hint),))
        known = [copy.module for copy in located]
        unread = [module for module in target.modules() if OBJECTS.match(module.file_name) and module not in known]
        missing = []
        for module in unread:  # its symbols do not lead to its malloc
            hint, debug_file = detect.debug_hint(target, module)
            where = "; looked for %s" % debug_file if debug_file else ""
            what = "no debug symbols for %s (build-id %s)%s" % (module.name, module.build_id or "unknown", where)
            missing.append(NotRead(module, what, hint or None))
        return Instances(located, (), missing)

    def warm(self) -> None:
        """Nearly every process has it."""
        from gdbheapx.glibc import allocator  # noqa: F401

    def prepare(self, target: Target, located: "Glibc") -> None:
        """Look up the thread-local variables before the stop."""
        located.prepare(target)

    def find_locks(self, target: Target, located: "Glibc") -> Sequence[int]:
        """The mutexes of its arenas."""
        from gdbheapx.glibc.arenas import read_ring

        ring = read_ring(target, located, lambda code, address, message, hint: None)
        return [arena.state.address_of("mutex") for arena in ring]

    def open(self, located: "Glibc", around: HeapContext) -> AllocatorInstance:
        """Open one malloc as a heap."""
        from gdbheapx.glibc.allocator import GlibcMalloc

        return GlibcMalloc(located, around)

    def part_name(self, allocator_id: str, is_alone: bool) -> str:
        """Return the name of malloc's memory in the split of RSS."""
        return "%s (arenas and mmapped chunks)" % ("malloc" if is_alone else allocator_id)

    def arenas_page(self, rows: Sequence[ArenaRow], totals: Mapping[str, Optional[int]]) -> Page:
        """Return the page of `arenas`."""
        from gdbheapx.glibc.text import make_glibc_arenas_page

        return make_glibc_arenas_page(cast("Sequence[ArenaTotals]", rows), totals)

    def page(self, name: str, answer: Any) -> Page:
        """Return the page of `bins` or `tunables`."""
        from gdbheapx.glibc.text import make_glibc_bins_page, make_glibc_tunables_page

        return make_glibc_bins_page(answer) if name == "bins" else make_glibc_tunables_page(answer)

    def judge(self, facts: "Sequence[GlibcFacts]", around: Surroundings) -> List[AllocatorJudgement]:
        """Judge all glibc mallocs of a process together."""
        from gdbheapx.glibc.verdict import judge_glibc

        return judge_glibc(facts, around)


ALLOCATOR = GlibcEntry()
