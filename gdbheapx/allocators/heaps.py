"""The heaps that one command is about."""

from typing import Callable, List, Optional, Sequence, Tuple

from gdbheapx import problems
from gdbheapx.allocators.discovery import Discovery, Listed
from gdbheapx.allocators.heap import Heap
from gdbheapx.allocators.records import Answered, HeapContext, Unread
from gdbheapx.errors import HeapxError, UsageError
from gdbheapx.layout.pack import Pack
from gdbheapx.problems import ALLOCATOR_UNREAD, NO_ALLOCATOR, Note

HOW_TO_SEE = "see `gdbheapx doctor`"


class Heaps:
    """Opened when they are asked for, once each."""

    def __init__(self, discovery: Discovery, around: Callable[[], HeapContext], note: Note, allocator_id: Optional[str]) -> None:
        self.discovery = discovery
        self.allocator_id = allocator_id
        """What --allocator names."""
        self.may_be_none = False
        """The command has an answer where no allocator can be read."""
        self._around, self._note = around, note
        self._all: Optional[List[Heap]] = None

    def all(self) -> Sequence[Heap]:
        """Those that the command is about: all that can be read, or the one that --allocator names; the owner of malloc first; at least
        one, but for `may_be_none`."""
        if self._all is None:
            found = [self.open(one) for one in self.discovery.copies() if self.allocator_id in (None, one.located.id)]
            if not found:
                self._about_nothing()
            self._about_unread(bool(found))
            self._all = sorted(found, key=lambda heap: heap.info.owns_malloc is not True)
        return self._all

    def open(self, one: Listed) -> Heap:
        """An uncached heap."""
        if one.located.unlisted:
            self._note(problems.UNLISTED_RELEASE, None, one.located.unlisted, "check for a newer gdbheapx", partial=False)
        return one.allocator.open(one.located, self._around()._replace(others=lambda: self._held_by_others(one)))

    def one(self) -> Heap:
        """The one heap that a command about a single one shows: --allocator's, else the one in use."""
        return _in_use(self.all())

    def with_capability(self, capability: str, rather: Optional[str] = None) -> List[Heap]:
        """Those of them that have this capability; HeapxError where none has. `rather`: the command for the others."""
        found = [heap for heap in self.all() if capability in heap.capabilities]
        if not found:
            raise self._none_has(capability, rather)
        return found

    def one_with_capability(self, capability: str, rather: Optional[str] = None, for_owner: bool = False) -> Heap:
        """The one in use among them. `for_owner`: the capability serves the program's own malloc; HeapxError where that has `rather`,
        unless --allocator names this one all the same."""
        found = _in_use(self.with_capability(capability, rather))
        owner = _in_use(self.all())
        if for_owner and owner.info.owns_malloc and not found.info.owns_malloc and rather in owner.capabilities:
            hint = "use `gdbheapx %s --dry-run`; --allocator %s asks about the other heap" % (rather, found.info.id)
            raise HeapxError("%s owns malloc here" % owner.kind, hint, code=NO_ALLOCATOR)
        return found

    def in_question(self, capability: str) -> List[Heap]:
        """For a command about one sort of allocator: may be empty, and needs no other to be readable; one of the sort that cannot be read
        makes the answer partial."""
        copies = [
            one
            for one in self.discovery.copies()
            if capability in one.allocator.known_capabilities and self.allocator_id in (None, one.located.id)
        ]
        heaps = [heap for heap in self.all() if capability in heap.capabilities] if copies or self.allocator_id is not None else []
        for unread in self.unread_with_capability(capability) if self.allocator_id is None else ():
            self._tell(unread, partial=True)
        return heaps

    def together(self, capability: str) -> Answered:
        """One answer for all heaps of the sort that has this capability, those that cannot be read among them."""
        heaps = self.in_question(capability)
        allocator, target = self.discovery.with_capability(capability)[0], self.discovery.target
        unsure = not heaps and (bool(self.discovery.found(allocator).missing) or target.lost_bytes() != 0)
        return allocator.together(
            capability, [(heap.info, heap.capabilities[capability]()) for heap in heaps], self.unread_with_capability(capability), unsure
        )

    def pack(self) -> Pack:
        """The pack of the copy that --allocator names, else of the one in use, of those that packs can be made of."""
        able = self.discovery.with_capability("pack")
        named = [one for one in able if self.allocator_id is not None and one.name == self.allocator_id.split("#")[0]]
        there = [
            one
            for one in able
            if self.discovery.found(one).located or self.discovery.found(one).unread or one.has_traces(self.discovery.target)
        ]
        for allocator in named or there or able[-1:]:
            return allocator.pack(self.discovery.target, self.discovery.found(allocator), self.allocator_id)
        raise self._none_has("pack", None)

    def unread_with_capability(self, capability: str) -> List[Unread]:
        """Allocators that are there and not read, and would have this capability."""
        return [one for allocator in self.discovery.with_capability(capability) for one in self.discovery.found(allocator).unread]

    def _none_has(self, capability: str, rather: Optional[str]) -> HeapxError:
        """Why the command does not apply here, and what does."""
        for unread in self.unread_with_capability(capability):
            return HeapxError(unread.what, unread.hint, code=ALLOCATOR_UNREAD)
        names = " or ".join(allocator.name for allocator in self.discovery.with_capability(capability))
        others = [heap.kind for heap in self.all() if rather in heap.capabilities]
        hint = "for %s use `gdbheapx %s`" % (others[0], rather) if others else HOW_TO_SEE
        return HeapxError("no %s in this target: this command requires it" % names, hint, code=NO_ALLOCATOR)

    def _owns_malloc(self, unread: Unread) -> bool:
        owner = self.discovery.owner
        return owner is not None and owner.module.base == unread.module.base

    def _tell(self, unread: Unread, partial: bool) -> None:
        """Notes one that is there and not read."""
        what = unread.what + ("; it owns malloc" if self._owns_malloc(unread) else "")
        self._note(problems.ALLOCATOR_UNREAD, unread.module.file_name, what, unread.hint, partial=partial)

    def _held_by_others(self, one: Listed) -> List[Tuple[int, int]]:
        """Ranges that allocators of another sort hold."""
        name = one.allocator.name
        opened = (
            self._all if self._all is not None else [self.open(other) for other in self.discovery.copies() if other.allocator.name != name]
        )
        return [(claim.start, claim.end) for heap in opened if heap.kind != name for claim in heap.claims()]

    def _about_nothing(self) -> None:
        """There is nothing to read: an error, or, for a command that has more to say, a note of what is there."""
        from gdbheapx.allocators import nothing

        error = nothing.why(self.discovery, self.allocator_id)
        if isinstance(error, UsageError) or not (self.may_be_none and self.allocator_id is None):
            raise error
        known = [*self.discovery.unread(), *self.discovery.unused()]
        if not known and self.discovery.foreign_owner() is None and self.discovery.runtime is None:
            self._note(problems.NO_ALLOCATOR, None, error.message, error.hint)

    def _about_unread(self, are_others: bool) -> None:
        """Notes what is there and not read: it makes the answer partial only if malloc belongs to it."""
        if self.allocator_id is not None:
            return
        foreign = self.discovery.foreign_owner()
        for one in self.discovery.unread():
            self._tell(one, partial=self._owns_malloc(one) or not are_others)
        if foreign is not None and not any(map(self._owns_malloc, self.discovery.unread())):
            text = "%s (%s) owns malloc, and this version cannot read it"
            text += ": the figures include only the other allocators" if are_others else ": what it holds is unknown"
            self._note(
                problems.OWNER_UNREAD,
                foreign.file,
                text % (foreign.allocator or "another allocator", foreign.file),
                foreign.hint or "use that allocator's own statistics",
            )


def _in_use(heaps: Sequence[Heap]) -> Heap:
    return next((heap for heap in heaps if heap.info.owns_malloc), heaps[0])
