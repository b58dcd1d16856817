"""One copy of glibc malloc in the target: what detect.py found of it, and what follows from that."""

from typing import TYPE_CHECKING, NamedTuple, Optional, Tuple

from gdbheapx.errors import Unreadable
from gdbheapx.glibc import layouts
from gdbheapx.inferior.base import Module, Symbol, Target, ThreadLocal
from gdbheapx.inferior.types import StructType, TypeSet
from gdbheapx.kernel.glibc.records import Geometry
from gdbheapx.layout.pack import Pack
from gdbheapx.layout.view import View, read_view
from gdbheapx.model import AllocatorInfo

if TYPE_CHECKING:
    from gdbheapx.glibc.structure.find import ArenaPlace
    from gdbheapx.glibc.structure.threads import Locals


class Glibc(NamedTuple):
    """One copy of glibc malloc in the target and all that is constant about it."""

    id: str
    module: Module
    version: Optional[Tuple[int, int]]
    version_text: Optional[str]
    main_arena: Symbol
    mp: Symbol
    geometry: Geometry
    traits: layouts.Traits
    types: TypeSet
    """The structs of layouts.py, by their tags; tcache_perthread_struct is left out if this build has no thread cache."""
    layout_source: str
    curbrk: Optional[Symbol]
    """`__curbrk`, the break as libc knows it."""
    owns_malloc: Optional[bool]
    is_provisional: bool = False
    """Its release was guessed from a process that ran: to be told again when that stands still."""
    pack: Optional[Pack] = None
    """What its types and addresses come from where no symbol table has them."""
    place: "Optional[ArenaPlace]" = None
    """What its types and addresses come from where no pack has them either: what memory looks like."""
    locals: "Optional[Locals]" = None
    """Where its threads have their variables by structure, where symbols or a pack have all but these."""
    is_untouched: bool = False
    """It was never used, so that no thread has any; told only where nothing leads to them."""

    @property
    def malloc_state(self) -> StructType:
        """struct malloc_state: an arena."""
        return self.types.structs[layouts.MALLOC_STATE.name]

    @property
    def malloc_par(self) -> StructType:
        """struct malloc_par: mp_."""
        return self.types.structs[layouts.MALLOC_PAR.name]

    @property
    def heap_info(self) -> StructType:
        """struct _heap_info: the head of a thread arena's heap."""
        return self.types.structs[layouts.HEAP_INFO.name]

    @property
    def tcache(self) -> Optional[StructType]:
        """struct tcache_perthread_struct; None if this build has no thread cache."""
        return self.types.structs.get(layouts.TCACHE.name)

    @property
    def unlisted(self) -> Optional[str]:
        """What to mind about a release newer than any that was tried; None for a listed one."""
        if layouts.is_listed(self.version):
            return None
        newest = "%d.%d" % layouts.NEWEST_KNOWN
        return (
            "glibc %s is newer than %s, the newest tested: where debug information is missing, gdbheapx assumes that nothing has changed"
            % (self.version_text, newest)
        )

    def info(self) -> AllocatorInfo:
        """The entry of the envelope."""
        name = self.module.file_name
        return AllocatorInfo(
            self.id, "glibc", self.version_text, name, self.module.build_id, self.layout_source, self.main_arena.source, self.owns_malloc
        )

    def break_address(self, target: Target) -> Optional[int]:
        """The program break as libc knows it (`__curbrk`); None if it is not known."""
        try:
            return target.read_word(self.curbrk.address) if self.curbrk is not None else None
        except Unreadable:
            return None

    def thread_local(self, target: Target, name: str) -> Optional[ThreadLocal]:
        """Where each thread has its copy of `tcache` or `thread_arena`; None if that cannot be told."""
        if self.is_untouched or (self.place is not None and not self.place.bins):  # malloc was never used: no thread has either
            return ThreadLocal({thread.lwp: None for thread in target.threads()}, "static-tls")
        found = self.named_local(target, name) if self.place is None else None
        own = self.place.locals if self.place is not None else self.locals
        if found is not None or own is None:
            return found
        distance = own.tcache if name == "tcache" else own.thread_arena
        return None if distance is None else target.beside_thread_pointer(distance)

    def named_local(self, target: Target, name: str) -> Optional[ThreadLocal]:
        """The same by the variable's place in the object's block, which symbols or the pack know, and the object's own relocations."""
        if self.pack is None:
            return target.thread_local(name, self.main_arena)
        place = self.pack.thread_locals.get(name)
        return None if place is None else target.thread_local_at(self.module, place[0])

    def prepare(self, target: Target) -> None:
        """Look up, before the process is stopped, what is needed then."""
        if self.place is not None:
            return
        if self.pack is None:
            target.prepare_thread_local(("tcache", "thread_arena"), self.main_arena)
        else:
            target.prepare_thread_local_at(self.module)

    def read_mp(self, target: Target) -> View:
        """`mp_` as it is now. Unreadable if it cannot be read."""
        return read_view(target, self.types, layouts.MALLOC_PAR.name, self.mp.address)
