"""Prediction of the memory that a malloc_trim would give back, and the plan of that call."""

from typing import Any, List, Sequence

from gdbheapx.allocators.plan import FUTEX, Held, Plan, Span, SystemCall
from gdbheapx.allocators.returning import DryRun, Portion, Predicted
from gdbheapx.columns import ColumnsTable, add_values, columns_of
from gdbheapx.errors import Refusal
from gdbheapx.glibc import code
from gdbheapx.glibc.arenas import Glibc
from gdbheapx.glibc.detect import debug_hint
from gdbheapx.glibc.help import TRIM
from gdbheapx.glibc.trim import ArenaTrim
from gdbheapx.hints import hint_command

DONTNEED = 4


def predict_malloc_trim(arenas: Sequence[ArenaTrim], is_live: bool) -> DryRun:
    """Return the prediction for all arenas together."""
    resident, exclusive = add_values(row.resident_bytes for row in arenas), add_values(row.exclusive_bytes for row in arenas)
    predicted = Predicted(sum(row.bytes for row in arenas), resident, exclusive)
    columns = [column for column in columns_of(ArenaTrim) if resident is not None or column.field != "resident_bytes"]
    return DryRun(TRIM, predicted, arenas, ColumnsTable(columns, arenas), is_live, also=())


class Trim(Plan):
    """malloc_trim(pad) of one glibc."""

    system_calls = (SystemCall("madvise", (None, None, DONTNEED)), SystemCall("brk"), *FUTEX)
    """mtrim and systrim (malloc.c). sbrk does not bear that brk fails with an error: it takes the number for the new break."""
    damaged = ("the heap", "malloc_trim would abort the process", "see `%s` and `%s`" % (hint_command("arenas"), hint_command("chunks")))

    def __init__(self, around: Any, anew: Any, portion: Portion, glibc: Glibc) -> None:
        super().__init__(around, anew, portion, glibc.module, "malloc_trim")
        self.glibc, self.arguments = glibc, [portion.pad_bytes]
        self.shown = "malloc_trim(%d)" % portion.pad_bytes

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
        return self.known(code.find_glibc_code_spans(self.target, self.glibc.module), "malloc")

    def locks(self) -> List[Held]:
        return code.find_glibc_held_locks(self.target, self.glibc)

    def look(self, heap: Any) -> Predicted:
        predicted = super().look(heap)
        heap.bins()
        return predicted
