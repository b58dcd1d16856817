"""Applies the rows of `runtimes.py`: which of them are in this process, and whose a mapping is by how it lies.

Probes: a few words that tell whose a mapping is, where its length and place do not.
"""

import struct
from typing import Callable, Dict, List, Optional, Sequence

from gdbheapx.analysis.memory.kinds import JIT, NAMED, RUNTIME, SHARED, Owner, given_name
from gdbheapx.analysis.memory.places import Places
from gdbheapx.analysis.memory.runtimes import NAMES, RUNTIMES, Runtime, Shape
from gdbheapx.inferior.base import Module, Target
from gdbheapx.model import CERTAIN, GUESS, LIKELY
from gdbheapx.ranges import Range

Read = Callable[[int, int], bytes]

SAMPLES = 6
POOL_SIZES = (16 << 10, 4 << 10)
"""Objects/obmalloc.c: POOL_SIZE from 3.10 on, and before."""
HEADER = struct.Struct("<IIQQQIIII")
"""struct pool_header on 64-bit machines."""
MAX_CLASS = 32


def is_pool(data: bytes, pool_bytes: int) -> bool:
    """A pool_header whose numbers agree: how many blocks, how large, how far it was cut up (Objects/obmalloc.c: init_pool)."""
    if len(data) < HEADER.size:
        return False
    count, _, _, _, _, _, size_class, next_offset, max_offset = HEADER.unpack_from(data)
    if size_class >= MAX_CLASS:
        return False
    size = 16 * (size_class + 1)
    cut = next_offset - HEADER.size
    return bool(
        max_offset == pool_bytes - size and cut >= size and cut % size == 0 and next_offset <= pool_bytes and count <= cut // size
    )


def samples(gaps: Sequence[Range], step: int) -> List[int]:
    """Up to SAMPLES addresses, multiples of `step`, spread over the ranges."""
    addresses: List[int] = []
    total = sum(end - start for start, end in gaps)
    for start, end in gaps:
        first = -(-start // step) * step
        steps = (end - first) // step
        count = min(max(1, SAMPLES * (end - start) // (total or 1)), steps)
        addresses += [first + step * (steps * number // count) for number in range(count)]
    return addresses[:SAMPLES]


def has_cpython_pools(gaps: Sequence[Range], read: Read) -> bool:
    """Most of the places where pools would begin have the header of one. What is empty or not in memory says nothing."""
    for pool_bytes in POOL_SIZES:
        seen = [data for data in (read(address, HEADER.size) for address in samples(gaps, pool_bytes)) if data.strip(b"\0")]
        good = sum(is_pool(data, pool_bytes) for data in seen)
        if good and 2 * good >= len(seen):
            return True
    return False


PROBES: Dict[str, Callable[[Sequence[Range], Read], bool]] = {"cpython-pools": has_cpython_pools}


def present(target: Target) -> List[Runtime]:
    """The runtimes that the loaded objects show."""
    modules = target.modules()
    names = [module.file_name for module in modules]
    executables = [module for module in modules if module.is_executable]
    return [runtime for runtime in RUNTIMES if _is_here(target, runtime, names, executables)]


def _is_here(target: Target, runtime: Runtime, names: Sequence[str], executables: Sequence[Module]) -> bool:
    if runtime.section is not None:
        return any(target.has_section(module, runtime.section) for module in executables)
    return any(name.startswith(runtime.objects) for name in names)


def fits(shape: Shape, places: Places, place: int, gaps: Callable[[], Sequence[Range]], read: Read) -> bool:
    """The mapping has every property of the shape. `gaps`: what of it no allocator claims; `read`: costs the process nothing."""
    mapping = places.uses[place].mapping
    size = mapping.size_bytes
    if mapping.start % shape.align_bytes or mapping.end % shape.end_align_bytes or size % shape.multiple_bytes or size < shape.min_bytes:
        return False
    if (shape.max_bytes is not None and size > shape.max_bytes) or (shape.below is not None and mapping.end > shape.below):
        return False
    flags = places.uses[place].flags
    if flags is not None and not shape.flags <= flags:
        return False
    if shape.reserve_above and not places.reserve_above(place):
        return False
    if shape.reach is not None and not shape.reach[0] <= size + places.reserve_above(place) <= shape.reach[1]:
        return False
    if shape.run_align_bytes > 1 or shape.min_run_bytes:
        start, end = places.run(place)
        if start % shape.run_align_bytes or end % shape.run_align_bytes or end - start < shape.min_run_bytes:
            return False
    return shape.probe is None or PROBES[shape.probe](gaps(), read)


def by_shape(here: Sequence[Runtime], places: Places, place: int, gaps: Callable[[], Sequence[Range]], read: Read) -> Optional[Owner]:
    """Whose private anonymous memory it is."""
    for runtime in here:
        for shape in runtime.shapes:
            if fits(shape, places, place, gaps, read):
                sure = CERTAIN if shape.probe is not None else shape.sure
                return Owner(RUNTIME, "%s: %s" % (runtime.name, shape.what), sure, program=runtime.name)
    rest = next((runtime for runtime in here if runtime.rest is not None), None)
    return Owner(RUNTIME, "%s: %s" % (rest.name, rest.rest), GUESS, program=rest.name) if rest is not None else None


def code(here: Sequence[Runtime]) -> Owner:
    """Executable anonymous memory."""
    runtime = next((runtime for runtime in here if runtime.code is not None), None)
    if runtime is None:
        return Owner(JIT, "generated code (executable anonymous memory)")
    return Owner(JIT, "%s: %s (executable anonymous memory)" % (runtime.name, runtime.code), LIKELY, program=runtime.name)


def shared(here: Sequence[Runtime], label: str, owner: Owner) -> Owner:
    """Shared memory, with what a runtime that is here uses such for."""
    for runtime in here:
        for start, what in runtime.shared:
            if label.startswith(start):
                return Owner(SHARED, "%s, %s: %s" % (owner.name, runtime.name, what), LIKELY, program=runtime.name)
    return owner


def named(label: str) -> Owner:
    """Memory that the program gave a name to."""
    name = given_name(label)
    program = next((program for start, program in NAMES if name.startswith(start)), None)
    return Owner(RUNTIME if program else NAMED, name, CERTAIN, program=program)
