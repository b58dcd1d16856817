"""One look at one target: what was found in it, what went wrong, how long it may take."""

from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Tuple, Union

from gdbheapx import kernel as kernels
from gdbheapx import problems
from gdbheapx.budget import Budget
from gdbheapx.errors import HeapxError
from gdbheapx.looks import Looks
from gdbheapx.model import AllocatorInfo, JemallocBuild, Problem
from gdbheapx.problems import Code
from gdbheapx.target.base import Target

if TYPE_CHECKING:
    from gdbheapx.analysis.inner import Inner
    from gdbheapx.analysis.owner import Owner
    from gdbheapx.glibc.allocator import GlibcMalloc
    from gdbheapx.glibc.detect import Glibc
    from gdbheapx.jemalloc.allocator import JemallocMalloc
    from gdbheapx.jemalloc.detect import Found
    from gdbheapx.kernel.base import Kernel
    from gdbheapx.kernel.in_ram import Ram

    Malloc = Union[GlibcMalloc, JemallocMalloc]

MAX_PROBLEMS = 100
"""Problems kept; a ruined heap can have millions."""


class Session:
    """Everything a command may ask for. Made anew for every command; nothing outlives it but what the target caches."""

    def __init__(
        self, target: Optional[Target], budget: Optional[Budget] = None, allocator_id: Optional[str] = None, looks: Optional[Looks] = None
    ) -> None:
        self._target = target
        self.looks = looks or Looks()
        self.budget = budget or Budget()
        self.allocator_id = allocator_id
        self.debugger_version: Optional[str] = None
        """Version of the gdb that serves; None without gdb."""
        self.problems: List[Problem] = []
        self.partial = False
        self.passing = False
        """Some of the problems come from the moment of the look."""
        self._kernel: Optional[Kernel] = None
        self._ram: Optional[Ram] = None
        self.pack_directories: Sequence[str] = ()
        """Where packs of jemalloc builds are looked for, before those that are shipped."""
        self._glibcs: Optional[List[Glibc]] = None
        self._glibc_error: Optional[HeapxError] = None
        self._jemallocs: Optional[Found] = None
        self._owner: Optional[Owner] = None
        self._owner_known = False
        self._inner: List[Sequence[Inner]] = []
        """At most one: shared with the rehearsal, which looks before the process is stopped if its command wants to know."""
        self._mallocs: Optional[List[Malloc]] = None
        self.may_be_none = False
        """The command has an answer where no allocator can be read."""
        self._runtime: Optional[str] = None

    @property
    def target(self) -> Target:
        """The process or core; HeapxError if there is none."""
        if self._target is None:
            raise HeapxError("no process or core to read", "give --pid N or --core FILE; in gdb: attach or core-file first")
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

    @property
    def ram(self) -> "Ram":
        """What tells what is in RAM."""
        if self._ram is None:
            from gdbheapx.kernel.in_ram import Ram

            self._ram = Ram(self.target, self.kernel)
        return self._ram

    def about_ram(self) -> None:
        """Notes what could not be told of the pages that were asked for."""
        if self._ram is not None and self._ram.was_missed:
            self.problem(problems.PAGEMAP_UNREADABLE, None, "cannot read /proc/%s/pagemap" % self.target.pid, "so it is unknown what is in RAM; run as root")
        if self._ram is not None and self._ram.left_open:
            what = "without root this kernel does not show whether pages are shared with a forked process or are the zero page: what is in RAM is unknown"
            self.problem(problems.SHARED_PAGES_UNKNOWN, None, what, "run as root, or on Linux 6.7 or later", partial=False)

    def about_swap(self, swapped_in_bytes: Optional[int]) -> None:
        """Notes what reading has brought in from swap."""
        if swapped_in_bytes:
            what = "reading brought %s KiB of the process's memory back from swap into RAM" % "{:,}".format(swapped_in_bytes // 1024)
            self.problem(problems.SWAPPED_IN, None, what, None, partial=False)

    def problem(
        self,
        code: Code,
        where: Optional[str],
        what: str,
        hint: Optional[str] = None,
        partial: bool = True,
        first: bool = False,
    ) -> None:
        """Record what could not be read or does not hold; partial unless it leaves the answer whole. `first`: the cause of others."""
        self.partial = self.partial or partial
        entry = Problem(code, where, what, hint)
        if entry not in self.problems and len(self.problems) < MAX_PROBLEMS:
            self.problems.insert(0 if first else len(self.problems), entry)

    def report(self, code: Code, address: Optional[int], what: str, hint: Optional[str], is_passing: bool = False) -> None:
        """As `problem`, from the models: with the address in the target, and always partial."""
        self.passing = self.passing or is_passing
        self.problem(code, None if address is None else "0x%x" % address, what, hint)

    def glibcs(self) -> "List[Glibc]":
        """Every copy of glibc malloc in the target. HeapxError where one was found and its layout is not known."""
        if self._glibc_error is not None:
            raise self._glibc_error
        if self._glibcs is None:
            from gdbheapx.glibc import detect

            try:
                self._glibcs = detect.find(self.target, self.pack_directories)
            except HeapxError as error:
                self._glibc_error = error
                raise
        return self._glibcs

    def jemallocs(self) -> "Found":
        """Every jemalloc in the target, and those that are there and cannot be read."""
        if self._jemallocs is None:
            from gdbheapx.jemalloc import detect

            self._jemallocs = detect.find(self.target, self.pack_directories)
        return self._jemallocs

    @property
    def owner(self) -> "Optional[Owner]":
        """Whose malloc the process calls."""
        if not self._owner_known:
            from gdbheapx.analysis import owner

            self._owner, self._owner_known = owner.find(self.target), True
        return self._owner

    def inner_allocators(self) -> "Sequence[Inner]":
        """Allocators inside a library, for its own use, that this version does not read."""
        if not self._inner:
            from gdbheapx.analysis import inner

            self._inner.append([one for one in inner.find(self.target) if self.owner is None or one.module != self.owner.module])
        return self._inner[0]

    def foreign_owner(self) -> "Optional[Owner]":
        """The owner of malloc, if it is an allocator that this version cannot read here."""
        found = self.owner
        if found is None or (found.allocator == "glibc" and found.hint is None):
            return None
        readable = [one.module for one in self._readable_glibcs()] + [one.module for one in self.jemallocs().jemallocs]
        return found if found.module not in readable else None

    def _readable_glibcs(self) -> "List[Glibc]":
        try:
            return self.glibcs()
        except HeapxError:
            return []

    def allocators(self) -> List[AllocatorInfo]:
        """What the envelope lists, the owner of malloc first."""
        found = [one.info() for one in self.jemallocs().jemallocs]
        if found:
            found += [one.info() for one in self._readable_glibcs()]
        else:
            found = [one.info() for one in self.glibcs()]
        foreign = self.foreign_owner()
        if foreign is not None:
            name = foreign.allocator or "unknown"
            found.append(AllocatorInfo(name, name, foreign.version, foreign.file, foreign.module.build_id, None, None, True))
        return sorted(found, key=lambda info: info.owns_malloc is not True)

    def again(self) -> "Session":
        """A session that knows nothing of what this one saw, for a process that ran meanwhile."""
        self.target.forget()
        found = Session(self.target, self.budget, self.allocator_id)
        found.debugger_version, found.pack_directories = self.debugger_version, self.pack_directories
        found.prepare()
        return found

    def rehearsal(self) -> "Session":
        """A session that knows what this one has found, and has no time for any walk."""
        found = Session(self.target, Budget(-1.0), self.allocator_id)
        found.debugger_version, found.pack_directories = self.debugger_version, self.pack_directories
        found._kernel, found._glibcs, found._glibc_error, found._jemallocs = self._kernel, self._glibcs, self._glibc_error, self._jemallocs
        found._owner, found._owner_known, found._inner, found._runtime = self._owner, self._owner_known, self._inner, self._runtime
        return found

    def prepare(self) -> None:
        """Do now, before a live process is stopped, whatever does not need it stopped (symbols, types, addresses)."""
        _ = self.kernel, self.owner, self.runtime
        for one in self.jemallocs().jemallocs:
            one.symbols.prepare()
        for glibc in self.glibcs():
            glibc.prepare(self.target)
        if any(glibc.is_provisional for glibc in self.glibcs()):
            self._glibcs = None

    def mallocs(self) -> "Sequence[Malloc]":
        """The allocators that the command is about: all that can be read, or the one that --allocator names; the owner of malloc first; at least one, but for `may_be_none`."""
        if self._mallocs is None:
            found: List[Malloc] = []
            for one in self.jemallocs().jemallocs:
                if self.allocator_id in (None, one.id):
                    found.append(self._jemalloc(one))
            try:
                glibcs = self.glibcs()
            except HeapxError as error:
                if not found and not self._may_do_without:
                    raise
                glibcs = []
                if self.allocator_id is None:
                    self.problem(problems.ALLOCATOR_UNREAD, None, "cannot read glibc's malloc: %s" % error.message, error.hint, partial=not found)
            for glibc in glibcs:
                if self.allocator_id in (None, glibc.id):
                    found.append(self._glibc(glibc))
            if not found:
                self._about_nothing()
            self._about_unread(bool(found))
            self._mallocs = sorted(found, key=lambda malloc: malloc.info.owns_malloc is not True)
        return self._mallocs

    def _jemalloc(self, one: Any) -> "JemallocMalloc":
        from gdbheapx.jemalloc.allocator import JemallocMalloc

        if one.unlisted:
            self.problem(problems.UNLISTED_RELEASE, None, one.unlisted, "check for a newer gdbheapx", partial=False)
        return JemallocMalloc(self.target, one, self.kernel, self.budget, self.report, self.ram)

    def _glibc(self, glibc: "Glibc") -> "GlibcMalloc":
        from gdbheapx.glibc.allocator import GlibcMalloc

        if glibc.unlisted:
            self.problem(problems.UNLISTED_RELEASE, None, glibc.unlisted, "check for a newer gdbheapx", partial=False)
        return GlibcMalloc(self.target, glibc, self.kernel, self.budget, self.report, self.ram, self.looks, lambda: self._held_by_others(glibc.id))

    def _held_by_others(self, allocator_id: str) -> "List[Tuple[int, int]]":
        """Ranges that the other allocators which can be read hold."""
        others = [self._jemalloc(one) for one in self.jemallocs().jemallocs] if self._mallocs is None else self._mallocs
        return [(claim.start, claim.end) for malloc in others if malloc.kind != "glibc" and malloc.info.id != allocator_id for claim in malloc.claims()]

    def _about_unread(self, are_others: bool) -> None:
        """Notes what is there and not read: it makes the answer partial only if malloc belongs to it."""
        if self.allocator_id is not None:
            return
        foreign = self.foreign_owner()
        for one in self.jemallocs().unread:
            owns = foreign is not None and foreign.module.base == one.module.base
            self.problem(problems.ALLOCATOR_UNREAD, one.module.name.rsplit("/", 1)[-1], one.what + ("; it owns malloc" if owns else ""), one.hint, partial=owns)
            if owns:
                foreign = None
        if foreign is not None:
            text = "%s (%s) owns malloc, and this version cannot read it"
            text += ": the figures include only the other allocators" if are_others else ": what it holds is unknown"
            self.problem(problems.OWNER_UNREAD, foreign.file, text % (foreign.allocator or "another allocator", foreign.file), foreign.hint or "use that allocator's own statistics")

    def glibc_mallocs(self) -> "List[GlibcMalloc]":
        """The glibc mallocs that the command is about; HeapxError if there is none."""
        found = [malloc for malloc in self.mallocs() if malloc.kind == "glibc"]
        if not found:
            raise HeapxError("no readable glibc malloc in this target: this command requires glibc's malloc", "see `gdbheapx doctor`")
        return found  # type: ignore[return-value]

    def glibc_malloc(self) -> "GlibcMalloc":
        """The one glibc malloc that a command about a single one shows: --allocator's, else the one in use."""
        found = self.glibc_mallocs()
        return next((malloc for malloc in found if malloc.glibc.owns_malloc), found[0])

    def jemalloc_mallocs(self) -> "List[JemallocMalloc]":
        """The jemallocs that the command is about; may be empty."""
        return [malloc for malloc in self.mallocs() if malloc.kind == "jemalloc"]  # type: ignore[misc]

    def jemallocs_in_question(self) -> "List[JemallocMalloc]":
        """For a command about jemalloc alone: may be empty, and does not need glibc to be readable; one that cannot be read makes the answer partial."""
        found = self.jemallocs()
        mallocs = self.jemalloc_mallocs() if found.jemallocs or self.allocator_id is not None else []
        for one in found.unread if self.allocator_id is None else ():
            where = one.module.name.rsplit("/", 1)[-1]
            if not any((problem.code, problem.where) == (problems.ALLOCATOR_UNREAD, where) for problem in self.problems):
                self.problem(problems.ALLOCATOR_UNREAD, where, one.what, one.hint)
            self.partial = True
        return mallocs

    def no_jemalloc(self, about: str) -> HeapxError:
        """For a command that needs one: names the jemalloc that is there and is not read, else says what the command is `about`."""
        for one in self.jemallocs().unread:
            return HeapxError(one.what, one.hint)
        return HeapxError("no jemalloc in this target: %s" % about, "see `gdbheapx doctor`")

    def malloc(self) -> "Malloc":
        """The one allocator that a command about a single one shows: --allocator's, else the one in use."""
        mallocs = self.mallocs()
        return next((malloc for malloc in mallocs if malloc.info.owns_malloc), mallocs[0])

    def jemalloc_builds(self) -> List[JemallocBuild]:
        """How each jemalloc that can be read was built."""
        return [self._jemalloc(one).build() for one in self.jemallocs().jemallocs]

    def _about_nothing(self) -> None:
        """There is nothing to read: an error, or, for a command that has more to say, a note of what is there."""
        from gdbheapx.analysis import nothing

        error = nothing.why(self, self.allocator_id)
        if not self._may_do_without:
            raise error
        if self._glibc_error is None and self.foreign_owner() is None and self.runtime is None:
            self.problem(problems.NO_ALLOCATOR, None, error.message, error.hint)

    def readable(self) -> List[str]:
        """Ids of the allocators that can be read."""
        return [one.id for one in self.jemallocs().jemallocs] + [glibc.id for glibc in self._readable_glibcs()]

    @property
    def _may_do_without(self) -> bool:
        return self.may_be_none and self.allocator_id is None

    @property
    def runtime(self) -> "Optional[str]":
        """The runtime of a program that has no malloc at all, such as `Go`; None where that is not so, or not known."""
        if self._runtime is None:
            from gdbheapx.analysis import traces

            program = traces.executable(self.target.modules()) if self.owner is None else None
            found = traces.find(self.target, program, (traces.GO,)) if program is not None else []
            self._runtime = found[0].known.name if found else ""
        return self._runtime or None
