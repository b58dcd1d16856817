"""Memory that holds pointers to blocks in every process, and that a core must therefore have: without it anything may look leaked.

Writable segments of each loaded object by its own headers, without the part that is read-only once it is relocated (PT_GNU_RELRO), and of
each thread the stack at its stack pointer and what its thread pointer points to. How much of them was dumped does not matter here: the
kernel dumps no mapping that was never written to, and what a cut file lacks is known.
"""

from typing import Iterator, List, Sequence, Tuple

from gdbheapx.inferior.base import Thread
from gdbheapx.inferior.core.file import CoreFile, writable_segments
from gdbheapx.inferior.elf.file import PF_R, PF_W, PT_GNU_RELRO
from gdbheapx.inferior.elf.link_map import Loaded
from gdbheapx.problems import ROOTS_MISSING, Diagnostic
from gdbheapx.ranges import Ranges, subtract

FAULTS = (7, 11)
"""SIGBUS and SIGSEGV: the stack pointer of the thread that died may be what went wrong."""


def find_missing(core: CoreFile, objects: Sequence[Loaded], threads: Sequence[Thread], page: int) -> List[Diagnostic]:
    """The first data segment of an object and the first stack that the core does not have; nothing where program headers were cut off."""
    if core.missing_headers > 0:
        return []
    mapped = Ranges((load.start, load.end) for load in core.loads)
    writable = Ranges((load.start, load.end) for load in core.loads if load.flags & PF_W and load.flags & PF_R)
    # gdb gives no header to what of a file nobody has written to
    clean = Ranges(() if core.is_by_kernel else ((file.start, file.end) for file in core.notes().files))
    checks = (_data(objects, mapped, writable, clean, page), _stacks(threads, writable))
    found = [next(check, None) for check in checks]
    hint = "without it no block can be called leaked: copy the core again, or take a new one"
    return [Diagnostic(ROOTS_MISSING, one[0], one[1], hint) for one in found if one is not None]


def _data(objects: Sequence[Loaded], mapped: Ranges, writable: Ranges, clean: Ranges, page: int) -> Iterator[Tuple[int, str]]:
    for loaded in objects:
        headers = loaded.program_headers()
        relro = Ranges(
            ((loaded.base + entry.vaddr) & -page, (loaded.base + entry.vaddr + entry.memsz) & -page)
            for entry in headers
            if entry.type == PT_GNU_RELRO
        )
        for segment in writable_segments(headers, loaded.base):
            start, middle, end = segment.start & -page, -(-segment.file_end // page) * page, -(-segment.end // page) * page
            # .bss is a mapping of its own
            for low, high in [part for span in ((start, middle), (middle, end)) for part in subtract([span], list(relro))]:
                lost = [part for hole in mapped.outside(low, high) for part in clean.outside(*hole)]
                name = loaded.name or "the program"
                if lost:
                    yield lost[0][0], "%d bytes of variables of %s are not in the core" % (sum(last - first for first, last in lost), name)
                elif mapped.meets(low, high) and not writable.meets(low, high):  # parts of it a program may protect
                    yield low, "variables of %s cannot be read and written by their mapping's rights" % name


def _stacks(threads: Sequence[Thread], writable: Ranges) -> Iterator[Tuple[int, str]]:
    for thread in threads:
        pointer, storage = thread.stack_pointer, thread.thread_pointer
        if pointer and thread.signal not in FAULTS and not writable.meets(pointer, pointer + 1):
            yield pointer, "the stack of thread %d is not in the core" % thread.lwp
        if storage and not writable.meets(storage - 1, storage + 1):  # some machines' pointers are the end of the control block
            yield storage, "the thread-local storage of thread %d is not in the core" % thread.lwp
