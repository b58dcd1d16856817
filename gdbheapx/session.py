"""One look at one target: what was found in it, what went wrong, how long it may take."""

from typing import TYPE_CHECKING, List, Optional, Sequence

from gdbheapx import kernel as kernels
from gdbheapx.budget import Budget
from gdbheapx.errors import HeapxError, UsageError
from gdbheapx.model import AllocatorInfo, Problem
from gdbheapx.target.base import Target

if TYPE_CHECKING:
    from gdbheapx.analysis.owner import Owner
    from gdbheapx.glibc.allocator import GlibcMalloc
    from gdbheapx.glibc.detect import Glibc
    from gdbheapx.kernel.base import Kernel

MAX_PROBLEMS = 100
"""Problems kept; a ruined heap can have millions."""


class Session:
    """Everything a command may ask for. Made anew for every command; nothing outlives it but what the target caches."""

    def __init__(self, target: Optional[Target], budget: Optional[Budget] = None, allocator_id: Optional[str] = None) -> None:
        self._target = target
        self.budget = budget or Budget()
        self.allocator_id = allocator_id
        self.debugger_version: Optional[str] = None
        """Version of the gdb that serves; None without gdb."""
        self.problems: List[Problem] = []
        self.partial = False
        self._kernel: Optional[Kernel] = None
        self._found: Optional[List[Glibc]] = None
        self._owner: Optional[Owner] = None
        self._mallocs: Optional[List[GlibcMalloc]] = None

    @property
    def target(self) -> Target:
        """The process or core; HeapxError if there is none."""
        if self._target is None:
            raise HeapxError("no process and no core to look at", "give --pid N or --core FILE; in gdb: attach or core-file first")
        return self._target

    @property
    def has_target(self) -> bool:
        """False for `doctor` without a target."""
        return self._target is not None

    @property
    def kernel(self) -> "Kernel":
        """The C kernel, or its Python twin where that could not be built."""
        if self._kernel is None:
            self._kernel = kernels.load()
        return self._kernel

    def problem(self, where: Optional[str], what: str, hint: Optional[str] = None, partial: bool = True, first: bool = False) -> None:
        """Record what could not be read or does not hold; partial unless it leaves the answer whole. `first`: the cause of others."""
        self.partial = self.partial or partial
        entry = Problem(where, what, hint)
        if entry not in self.problems and len(self.problems) < MAX_PROBLEMS:
            self.problems.insert(0 if first else len(self.problems), entry)

    def report(self, address: Optional[int], what: str, hint: Optional[str]) -> None:
        """As `problem`, from the models: with the address in the target, and always partial."""
        self.problem(None if address is None else "0x%x" % address, what, hint)

    def glibcs(self) -> "List[Glibc]":
        """Every copy of glibc malloc in the target."""
        if self._found is None:
            from gdbheapx.analysis import owner
            from gdbheapx.glibc import detect

            self._found = detect.find(self.target)
            self._owner = owner.find(self.target)
        return self._found

    @property
    def owner(self) -> "Optional[Owner]":
        """Whose malloc the process calls."""
        self.glibcs()
        return self._owner

    def foreign_owner(self) -> "Optional[Owner]":
        """The owner of malloc, if it is an allocator that this version cannot read."""
        found = self.owner
        return found if found is not None and found.module not in [glibc.module for glibc in self.glibcs()] and found.allocator != "glibc" else None

    def allocators(self) -> List[AllocatorInfo]:
        """What the envelope lists."""
        found = [glibc.info() for glibc in self.glibcs()]
        foreign = self.foreign_owner()
        if foreign is not None:
            name = foreign.allocator or "unknown"
            found.append(AllocatorInfo(name, name, None, foreign.file, foreign.module.build_id, None, None, True))
        return found

    def prepare(self) -> None:
        """Do now, before a live process is stopped, whatever does not need it stopped (symbols, types, addresses)."""
        self.glibcs()
        _ = self.kernel
        for glibc in self.glibcs():
            self.target.prepare_thread_local(("tcache", "thread_arena"), glibc.main_arena)

    def mallocs(self) -> "Sequence[GlibcMalloc]":
        """The glibc mallocs that the command is about: all, or the one that --allocator names; at least one."""
        if self._mallocs is None:
            from gdbheapx.glibc.allocator import GlibcMalloc

            chosen = [glibc for glibc in self.glibcs() if self.allocator_id in (None, glibc.id)]
            if not chosen:
                self._explain_nothing()
            foreign = self.foreign_owner()
            if foreign is not None and self.allocator_id is None:
                text = "malloc belongs to %s (%s), which this version cannot read: the figures are those of glibc alone"
                self.problem(foreign.file, text % (foreign.allocator or "another allocator", foreign.file), "use that allocator's own statistics")
            for glibc in chosen:
                if glibc.unlisted:
                    self.problem(None, glibc.unlisted, "look for a newer gdbheapx", partial=False)
            self._mallocs = [GlibcMalloc(self.target, glibc, self.kernel, self.budget, self.report) for glibc in chosen]
        return self._mallocs

    def malloc(self) -> "GlibcMalloc":
        """The one glibc malloc that a command about a single one shows: --allocator's, else the one in use."""
        mallocs = self.mallocs()
        return next((malloc for malloc in mallocs if malloc.glibc.owns_malloc), mallocs[0])

    def _explain_nothing(self) -> None:
        """Raises the error for a target in which there is nothing to read."""
        known = [glibc.id for glibc in self.glibcs()]
        if known:
            raise UsageError("no allocator %s here" % self.allocator_id, "there is: %s" % ", ".join(known))
        for module in self.target.modules():
            if module.name.rsplit("/", 1)[-1].startswith(("libc.so", "libc-2")):
                hint = self.target.debug_hint(module).line()
                raise HeapxError("no debug symbols for %s (build-id %s)" % (module.name, module.build_id or "unknown"), hint)
        foreign = self._owner
        if foreign is not None:
            raise HeapxError("no glibc malloc here: malloc belongs to %s in %s" % (foreign.allocator or "an unknown allocator", foreign.file))
        raise HeapxError("no glibc malloc was found in this target", "see `gdbheapx doctor`")
