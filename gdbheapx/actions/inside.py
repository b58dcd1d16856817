"""Decide whether a thread is inside an allocator or in a fork: by the addresses of its frames, so that stripped objects are judged as
well.
"""

import re
from typing import List, Optional, Sequence

from gdbheapx.allocators.plan import Span
from gdbheapx.inferior.standing import StoppedThread
from gdbheapx.inferior.target import ElfTarget

FORKS = ("fork", "__fork", "__libc_fork", "_Fork", "vfork", "__vfork", "posix_spawn", "posix_spawnp", "_dl_runtime_profile")
MAX_STACK_BYTES = 16 << 20


class ThreadsInside:
    """Knows the code that nobody may stand in."""

    def __init__(self, target: ElfTarget, spans: Sequence[Span]) -> None:
        self.target = target
        self.spans = sorted(spans)

    def what(self, address: int) -> Optional[str]:
        """Describe the owner of the code at this address; None if it is neither the allocator's nor a fork."""
        return next((span.what for span in self.spans if span.start <= address < span.end), None)

    def why(self, thread: StoppedThread) -> Optional[str]:
        """Return one sentence if the thread is inside, or if that is not known; None if it surely is outside."""
        for frame in thread.frames:
            for at in (frame.pc, frame.pc - 1):
                whose = self.what(at)
                if whose is not None:
                    return "%s is inside %s%s" % (thread.who, whose, " (%s)" % frame.name if frame.name else "")
        return None if thread.whole else self._by_stack(thread)

    def _by_stack(self, thread: StoppedThread) -> Optional[str]:
        """A stack that cannot be unwound: any return address into the allocator on it counts."""
        span = next((mapping for mapping in self.target.mappings() if mapping.start <= thread.sp < mapping.end), None)
        if span is None or span.end - thread.sp > MAX_STACK_BYTES:
            return "%s: cannot unwind or search its stack" % thread.who
        data = self.target.read_prefix(thread.sp & -8, span.end - (thread.sp & -8))
        for word in memoryview(data[: len(data) // 8 * 8]).cast("Q"):
            word &= self.target.arch.return_mask
            whose = self.what(word - 1)
            if whose is not None and self._is_call(word):
                return "%s may be inside %s (its stack cannot be unwound, and contains a return address into it)" % (thread.who, whose)
        return None

    def _is_call(self, after: int) -> bool:
        """A call instruction ends at this address, or may."""
        machine = self.target.arch.calling
        return machine is None or machine.ends_call(self.target.read_prefix(after - machine.call_bytes, machine.call_bytes))


def find_fork_spans(target: ElfTarget) -> List[Span]:
    """fork and its like in every loaded object: their handlers hold the allocator's locks."""
    spans = []
    for module in target.modules():
        if re.match(r"(libc|libpthread|ld-linux)[.-]", module.file_name) or module.is_executable:
            for name in FORKS:
                symbol = target.module_symbol(module, name)
                size = target.symbol_bytes(symbol) if symbol is not None else None
                if symbol is not None and size:
                    spans.append(Span(symbol.address, symbol.address + size, name.strip("_")))
    return spans
