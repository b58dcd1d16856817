"""Discover the allocators of a target, those that can be read and those that cannot, the owner of malloc, and the heaps that a command is
about. The malloc that the process calls is recognized by each allocator's fingerprint, and by those of other allocators that are not read
here.
"""

from functools import cached_property
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx import allocators
from gdbheapx.allocators import fingerprints
from gdbheapx.allocators.heap import Allocator, AllocatorInstance
from gdbheapx.allocators.records import Answered, HeapContext, Instance, Instances, NotRead, Returning, Unread
from gdbheapx.common import addon_loader, problems
from gdbheapx.common.errors import HeapxError, UsageError
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import AllocatorInfo
from gdbheapx.common.problems import ALLOCATOR_UNREAD, NO_ALLOCATOR, OWNER_UNREAD, ProblemSink
from gdbheapx.inferior.base import Module, Target

if TYPE_CHECKING:
    from gdbheapx.allocators.plan import Portion

HOW_TO_SEE = "see " + hint_command("doctor")
LOCK_BYTES = 4
"""A futex, which is 0 where no one holds it."""


class Owner(NamedTuple):
    """The definition of malloc that the dynamic linker chose, or the one in a static program."""

    module: Module
    allocator: Optional[str]
    """Its name; None if it exports no telling name."""
    version: Optional[str] = None
    """Where a text names it."""
    hint: Optional[str] = None
    """What to do instead of reading it, where it is known only by a text; None where symbols name it."""
    is_anywhere: bool = False
    """What it holds may look like any other memory, generated code for one."""

    @property
    def file(self) -> str:
        """File name of the object."""
        return self.module.file_name


def find_owner(target: Target, allocators: Sequence[Allocator[Any, Any]]) -> Optional[Owner]:
    """Return the object whose malloc the process calls; None if there is none or its tables cannot be read."""
    files = (mapping for mapping in target.mappings() if mapping.name)
    tool = next((mapping for mapping in files if fingerprints.VALGRIND.fullmatch(mapping.name.rsplit("/", 1)[-1])), None)
    if tool is not None:  # no list of the dynamic linker leads there: the process is the tool's, which loads the program itself
        module = Module(tool.name, tool.start - tool.offset, False, None, None)
        return Owner(module, "Valgrind", None, fingerprints.VALGRIND_HINT, is_anywhere=True)
    symbol = target.dynamic_symbol("malloc")
    if symbol is None:
        return _find_static_owner(target, allocators)
    name = symbol.module.file_name
    for allocator in allocators:
        if allocator.fingerprint.files is not None and allocator.fingerprint.files.match(name):
            return Owner(symbol.module, allocator.name)
    missing = addon_loader.missing_allocator_of_file(name)
    if missing is not None:
        return Owner(symbol.module, missing[0], None, missing[1])
    own = [(name, allocator.name) for allocator in allocators for name in allocator.fingerprint.functions]
    for function, owner in (*own, *fingerprints.BY_FUNCTION, *fingerprints.FORK_FUNCTIONS):
        exported = target.dynamic_symbol(function)
        if exported is not None and exported.module == symbol.module:
            return Owner(symbol.module, owner)
    texts = [text for allocator in allocators for text in allocator.fingerprint.library_texts]
    for known, version in fingerprints.match_fingerprints(target, symbol.module, texts):
        return Owner(symbol.module, known.name, version, known.hint)
    return Owner(symbol.module, None)


def _find_static_owner(target: Target, allocators: Sequence[Allocator[Any, Any]]) -> Optional[Owner]:
    """The malloc that is linked into a program without dynamic linking; None for a program that has one."""
    program = fingerprints.find_executable(target.modules())
    if program is None or len(target.modules()) > 1:
        return None
    for allocator in allocators:
        variables = allocator.fingerprint.variables
        if variables and all(target.module_symbol(program, name) is not None for name in variables):
            return Owner(program, allocator.name)
    texts = [text for allocator in allocators for text in allocator.fingerprint.texts]
    for known, version in fingerprints.match_fingerprints(target, program, texts):
        return Owner(program, known.name, version, known.hint)
    return Owner(program, None) if target.module_symbol(program, "malloc") is not None else None


class FoundInstance(NamedTuple):
    """An allocator instance with its allocator."""

    allocator: Allocator[Any, Any]
    located: Instance


class Discovery:
    """Looks for allocators in one state of the target, each when it is asked for."""

    def __init__(self, target: Target) -> None:
        self.target = target
        """Where it looks."""
        self._found: Dict[str, Instances] = {}
        self._locks: Set[int] = set()

    def found(self, allocator: Allocator[Any, Any]) -> Instances:
        """Every copy of one allocator."""
        if allocator.name not in self._found:
            self._found[allocator.name] = allocator.find(self.target)
        return self._found[allocator.name]

    def copies(self) -> List[FoundInstance]:
        """Return the instances that can be read, in the registry's order."""
        return [FoundInstance(allocator, copy) for allocator in allocators.all_allocators() for copy in self.found(allocator).located]

    def with_capability(self, capability: str) -> List[Allocator[Any, Any]]:
        """Allocators that may have a capability."""
        return [allocator for allocator in allocators.all_allocators() if allocator.can(capability)]

    def unread(self) -> List[Unread]:
        """Return the instances that cannot be read."""
        return [unread for allocator in allocators.all_allocators() for unread in self.found(allocator).unread]

    def missing(self) -> List[NotRead]:
        """Return what is missing to look for allocators of which no instance was found."""
        known = [self.found(allocator) for allocator in allocators.all_allocators()]
        return [lacking for instances in known if not instances.located for lacking in instances.missing]

    def unused(self) -> List[NotRead]:
        """Return the instances that nothing was ever allocated from."""
        return [unused for allocator in allocators.all_allocators() for unused in self.found(allocator).unused]

    @cached_property
    def owner(self) -> Optional[Owner]:
        """Return the object whose malloc the process calls."""
        return find_owner(self.target, allocators.all_allocators())

    def foreign_owner(self) -> Optional[Owner]:
        """The owner of malloc, if it is an allocator that cannot be read here, and not for lack of a file alone."""
        owner = self.owner
        if owner is None:
            return None
        instances = [self.found(allocator) for allocator in allocators.all_allocators()]
        known = [copy.module for of_one in instances for copy in of_one.located]
        known += [not_read.module for of_one in instances for not_read in (*of_one.missing, *of_one.unused)]
        return owner if owner.module not in known else None

    def may_be_hidden(self) -> bool:
        """Malloc may belong to an allocator of which nothing was seen: what is loaded is not known, or what a core lacks has it."""
        if not self.target.knows_objects():
            return True
        return self.target.lost_bytes() != 0 and self.owner is None and self.runtime is None

    @cached_property
    def runtime(self) -> Optional[str]:
        """The runtime of a program that has no malloc at all, such as `Go`; None where that is not so, or not known."""
        program = fingerprints.find_executable(self.target.modules()) if self.owner is None else None
        matches = fingerprints.match_fingerprints(self.target, program, (fingerprints.GO,)) if program is not None else []
        return matches[0].known.name if matches else None

    def infos(self) -> List[AllocatorInfo]:
        """Return the envelope's entries, the owner of malloc first."""
        infos = [copy.located.info() for copy in self.copies()]
        foreign = self.foreign_owner()
        if foreign is not None:
            name = foreign.allocator or "unknown"
            infos.append(AllocatorInfo(name, name, foreign.version, foreign.file, foreign.module.build_id, None, None, True))
        return sorted(infos, key=lambda info: info.owns_malloc is not True)

    def prepare(self) -> None:
        """Do now, before a live process is stopped, whatever does not need it stopped (symbols, types, addresses)."""
        _ = self.owner, self.runtime
        for copy in self.copies():
            copy.allocator.prepare(self.target, copy.located)
            self._locks.update(copy.allocator.find_locks(self.target, copy.located))

    def is_locked(self) -> bool:
        """Return True if a lock is held that prepare() has found: a thread was stopped in the middle of a change of a heap."""
        return any(self.target.read_prefix(address, LOCK_BYTES).strip(b"\0") for address in self._locks)


class Heaps:
    """Opened when they are asked for, once each."""

    def __init__(self, discovery: Discovery, around: Callable[[], HeapContext], note: ProblemSink, allocator_id: Optional[str]) -> None:
        self.discovery = discovery
        self.allocator_id = allocator_id
        """What --allocator names."""
        self.may_be_none = False
        """The command has an answer where no allocator can be read."""
        self._around, self._note = around, note
        self._all: Optional[List[AllocatorInstance]] = None

    def all(self) -> Sequence[AllocatorInstance]:
        """Return the heaps that the command is about, the owner of malloc first: the one that --allocator names, or all that can be read.
        At least one, unless `may_be_none`.
        """
        if self._all is None:
            heaps = [self.open(copy) for copy in self.discovery.copies() if self.allocator_id in (None, copy.located.id)]
            if not heaps:
                error = explain_no_allocator(self.discovery, self.allocator_id)
                if isinstance(error, UsageError) or not self.may_be_none or self.allocator_id is not None:
                    raise error
                known = [*self.discovery.unread(), *self.discovery.unused()]
                if not known and self.discovery.foreign_owner() is None and self.discovery.runtime is None:
                    self._note(problems.NO_ALLOCATOR, None, error.message, error.hint)
            self._about_unread(bool(heaps))
            self._all = sorted(heaps, key=lambda heap: heap.info.owns_malloc is not True)
        return self._all

    def open(self, copy: FoundInstance) -> AllocatorInstance:
        """An uncached heap."""
        if copy.located.unlisted:
            self._note(problems.UNLISTED_RELEASE, None, copy.located.unlisted, "check for a newer gdbheapx", partial=False)
        return copy.allocator.open(copy.located, self._around()._replace(others=lambda: self._held_by_others(copy)))

    def one(self) -> AllocatorInstance:
        """The one heap that a command about a single one shows: --allocator's, else the one in use."""
        return _in_use(self.all())

    def with_capability(self, capability: str) -> List[AllocatorInstance]:
        """Return the heaps that have this capability; HeapxError if none has."""
        able = [heap for heap in self.all() if heap.can(capability)]
        if not able:
            raise self.none_has(capability)
        return able

    def one_with_capability(self, capability: str) -> AllocatorInstance:
        """The one in use among them."""
        return _in_use(self.with_capability(capability))

    def with_own_account(self, capability: str, command: str) -> AllocatorInstance:
        """The one whose own account of itself a command prints; HeapxError where malloc belongs to one that gives none here, unless
        --allocator names another all the same."""
        able = [heap for heap in self.all() if heap.can(capability)]
        owner = self.one().info if able or (self.all() and not self.unread_with_capability(capability)) else None
        if self.allocator_id is None and owner is not None and owner.owns_malloc and owner.id not in [heap.info.id for heap in able]:
            what = "%s owns malloc here, and %s has no form for it" % (owner.id, command)
            hint = "use `%s` and `%s`" % (hint_command("arenas"), hint_command("bins"))
            hint += "; --allocator %s asks about the other heap" % _in_use(able).info.id if able else ""
            raise HeapxError(what, hint, code=NO_ALLOCATOR)
        return self.one_with_capability(capability)

    def returning(self, command: str, portion: "Portion") -> AllocatorInstance:
        """The one whose memory this command returns; HeapxError where that would do nothing for the program's own malloc, which has
        another command, unless --allocator names this one all the same."""
        heap = self.one_with_capability(command)
        other = self._better_returning(heap)
        if other is not None:
            hint = "use `%s`; --allocator %s asks about the other heap" % (hint_command(other.command + " --dry-run"), heap.info.id)
            raise HeapxError("%s owns malloc here" % self.one().kind, hint, code=NO_ALLOCATOR)
        from gdbheapx.allocators.plan import require_returning

        return require_returning(heap, portion)

    def dry_run(self, heap: AllocatorInstance) -> Optional[str]:
        """The command that shows what this heap would return to the OS; None where there is none, or it has no answer here."""
        if heap.returning is None or self._better_returning(heap) is not None:
            return None
        return "%s --dry-run" % heap.returning.command

    def _better_returning(self, heap: AllocatorInstance) -> Optional[Returning]:
        """Return how the program's own malloc returns memory, if this heap's way has no effect on it."""
        owner = self.one().info.owns_malloc and not heap.info.owns_malloc
        return self.one().returning if owner and heap.returning is not None and heap.returning.is_owners else None

    def in_question(self, capability: str) -> List[AllocatorInstance]:
        """Return the heaps of one sort of allocator, perhaps none; an unreadable one of the sort makes the answer partial."""
        able = [copy for copy in self.discovery.copies() if copy.allocator.can(capability)]
        copies = [copy for copy in able if self.allocator_id in (None, copy.located.id)]
        heaps = [heap for heap in self.all() if heap.can(capability)] if copies or self.allocator_id is not None else []
        for unread in self.unread_with_capability(capability) if self.allocator_id is None else ():
            self._note_unread(unread, partial=True)
        return heaps

    def together(self, capability: str) -> Answered:
        """Make one answer of all heaps that have this capability, with those that cannot be read."""
        heaps = self.in_question(capability)
        allocator, target = self.discovery.with_capability(capability)[0], self.discovery.target
        unsure = not heaps and (bool(self.discovery.found(allocator).missing) or target.lost_bytes() != 0)
        told = [(heap.info, heap.capabilities[capability]()) for heap in heaps]
        return allocator.together(capability, told, self.unread_with_capability(capability), unsure)

    def unread_with_capability(self, capability: str) -> List[Unread]:
        """Allocators that are there and not read, and would have this capability."""
        return [unread for allocator in self.discovery.with_capability(capability) for unread in self.discovery.found(allocator).unread]

    def none_has(self, capability: str) -> HeapxError:
        """Make the error of a command that applies to no heap here, with one that does."""
        for unread in self.unread_with_capability(capability):
            return HeapxError(unread.what, unread.hint, code=ALLOCATOR_UNREAD)
        able = self.discovery.with_capability(capability)
        returns = any(allocator.returning is not None and allocator.returning.command == capability for allocator in able)
        known = allocators.by_name()
        for why_not in [heap.never_returns or known[heap.kind].never_returns for heap in self.all() if returns and heap.kind in known]:
            if why_not is not None:
                return HeapxError(why_not.what, why_not.hint, code=NO_ALLOCATOR)
        ways = [(heap, heap.returning) for heap in self.all() if returns and heap.returning is not None]
        others = [(heap.kind, way.command) for heap, way in ways if heap.info.owns_malloc is not False or not way.is_owners]
        hint = "for %s use `%s`" % (others[0][0], hint_command(others[0][1])) if others else HOW_TO_SEE
        names = " or ".join(allocator.name for allocator in able)
        return HeapxError("no %s in this target: this command requires it" % names, hint, code=NO_ALLOCATOR)

    def _owns_malloc(self, unread: Unread) -> bool:
        owner = self.discovery.owner
        return owner is not None and owner.module.base == unread.module.base

    def _note_unread(self, unread: Unread, partial: bool) -> None:
        """Notes one that is there and not read."""
        what = unread.what + ("; it owns malloc" if self._owns_malloc(unread) else "")
        self._note(problems.ALLOCATOR_UNREAD, unread.module.file_name, what, unread.hint, partial=partial)

    def _held_by_others(self, copy: FoundInstance) -> List[Tuple[int, int]]:
        """Ranges that allocators of another sort hold."""
        name, heaps = copy.allocator.name, self._all
        if heaps is None:
            heaps = [self.open(other) for other in self.discovery.copies() if other.allocator.name != name]
        return [(claim.start, claim.end) for heap in heaps if heap.kind != name for claim in heap.claims()]

    def _about_unread(self, are_others: bool) -> None:
        """Notes what is there and not read: it makes the answer partial only if malloc belongs to it."""
        if self.allocator_id is not None:
            return
        foreign = self.discovery.foreign_owner()
        for unread in self.discovery.unread():
            self._note_unread(unread, partial=self._owns_malloc(unread) or not are_others)
        if foreign is not None and not any(map(self._owns_malloc, self.discovery.unread())):
            text = "%s (%s) owns malloc, and this version cannot read it"
            text += ": the figures include only the other allocators" if are_others else ": how much it holds is unknown"
            what, hint = text % (foreign.allocator or "another allocator", foreign.file), "use that allocator's own statistics"
            self._note(problems.OWNER_UNREAD, foreign.file, what, foreign.hint or hint)


def _in_use(heaps: Sequence[AllocatorInstance]) -> AllocatorInstance:
    return next((heap for heap in heaps if heap.info.owns_malloc), heaps[0])


def explain_no_allocator(discovery: Discovery, allocator_id: Optional[str]) -> HeapxError:
    """The error for a command that needs an allocator; UsageError where only the one that --allocator names is missing."""
    asked = allocators.by_name().get(allocator_id.split("#")[0]) if allocator_id is not None else None
    lacking: List[Unread] = [*discovery.found(asked).unread] if asked is not None else []
    known = [copy.located.id for copy in discovery.copies()]
    if known and not lacking:
        return UsageError("allocator %s not found" % allocator_id, "found: %s" % ", ".join(known))
    for unread in [*lacking, *discovery.unread(), *discovery.missing()]:
        return HeapxError(unread.what, unread.hint, code=ALLOCATOR_UNREAD)
    for unused in discovery.unused():
        return HeapxError(unused.what, unused.hint, code=NO_ALLOCATOR)
    owner = discovery.owner
    if owner is not None:
        what = "no readable allocator: %s in %s owns malloc" % (owner.allocator or "an unknown allocator", owner.file)
        return HeapxError(what, owner.hint or "report shows the rest of the memory", code=OWNER_UNREAD)
    if discovery.runtime is not None:
        what = "no malloc here: this is a pure %s program, which manages its memory itself" % discovery.runtime
        return HeapxError(what, "report shows how much memory it holds", code=NO_ALLOCATOR)
    return _unknown_owner_error(discovery.target)


def _unknown_owner_error(target: Target) -> HeapxError:
    """Neither symbol nor text shows an allocator."""
    modules = target.modules()
    for complaint in target.problems() if not modules else ():
        return HeapxError(complaint.what, complaint.hint, code=complaint.code)
    if target.is_being_loaded():
        what = "the program is not loaded yet: it stands in the dynamic linker, before the library that has malloc"
        hint = "make the core later, when main() runs" if target.kind == "core" else "let it run until main() begins, then look again"
    elif len(modules) != 1:
        what, hint = "no readable allocator found in this target", HOW_TO_SEE
    elif target.module_file(modules[0]) is None:
        what = "cannot search for an allocator: %s is linked statically, and its file was not found" % modules[0].file_name
        hint = "give the file with --exe FILE"
    else:
        what = "no allocator found: %s is linked statically, and no symbol or text in it identifies one" % modules[0].file_name
        hint = "give the unstripped file of the same build with --exe FILE"
    return HeapxError(what, hint, code=NO_ALLOCATOR)
