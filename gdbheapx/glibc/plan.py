"""The plan of a malloc_trim."""

from typing import Callable, List

from gdbheapx.allocators.plan import FUTEX, Held, Plan, Span, SystemCall, Troubles, in_time
from gdbheapx.allocators.predicted import Predicted, total
from gdbheapx.allocators.records import HeapContext
from gdbheapx.errors import Refusal
from gdbheapx.glibc import code
from gdbheapx.glibc.arenas import Glibc
from gdbheapx.glibc.detect import debug_hint
from gdbheapx.problems import Report

DONTNEED = 4


class Trim(Plan):
    """malloc_trim(pad) of one glibc."""

    system_calls = (SystemCall("madvise", (None, None, DONTNEED)), SystemCall("brk"), *FUTEX)
    """mtrim and systrim (malloc.c). sbrk does not bear that brk fails with an error: it takes the number for the new break."""

    def __init__(self, around: HeapContext, glibc: Glibc, look: Callable[[Report, int], List[Predicted]], pad: int) -> None:
        self.target, self.budget, self.glibc, self.pad, self._look = around.target, around.budget, glibc, pad, look
        self.shown, self.arguments = "malloc_trim(%d)" % pad, [pad]
        function = self.target.module_symbol(glibc.module, "malloc_trim")
        if function is None:
            raise Refusal("malloc_trim not found in %s" % glibc.module.name, "see `gdbheapx doctor`")
        self.address = function.address
        entry = self.target.module_symbol(glibc.module, "malloc")
        self.entries = [entry.address] if entry is not None else []

    def spans(self) -> List[Span]:
        if self.glibc.pack is not None or self.glibc.place is not None:
            module, source, lacks = self.glibc.module, "structure", "does not tell where malloc's functions and all its locks are"
            if self.glibc.pack is not None:
                source, lacks = "a pack", "does not include malloc's functions"
            debug = debug_hint(self.target, module).line()
            fetched = "get its debug file: %s; or name its folder" % debug if debug else "give its debug file"
            raise Refusal(
                "%s (build-id %s) is read by %s, which %s, so gdbheapx cannot determine whether a thread is inside one"
                % (module.name, module.build_id or "unknown", source, lacks),
                fetched + ": --debug-dir DIR; trim --dry-run predicts what malloc_trim would return",
            )
        found = code.spans(self.target, self.glibc.module)
        if found is None:
            raise Refusal(
                "malloc's functions in %s were not found, so gdbheapx cannot determine whether a thread is inside one"
                % self.glibc.module.name
            )
        return found

    def locks(self) -> List[Held]:
        return code.locks(self.target, self.glibc)

    def predict(self) -> Predicted:
        troubles = Troubles()
        found = self._look(troubles.report, self.pad)
        in_time(self.budget)
        troubles.refuse("the heap", "malloc_trim would abort the process", "see `gdbheapx arenas` and `gdbheapx chunks`")
        return Predicted(
            sum(one.bytes for one in found), total([one.resident_bytes for one in found]), total([one.exclusive_bytes for one in found])
        )
