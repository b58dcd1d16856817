"""Applies the rows of `runtimes.py`: which of them are in this process, and whose a mapping is by how it lies."""

from typing import Callable, List, Optional, Sequence

from gdbheapx.analysis.memory import pools
from gdbheapx.analysis.memory.kinds import JIT, NAMED, RUNTIME, SHARED, Owner, given_name
from gdbheapx.analysis.memory.places import Places
from gdbheapx.analysis.memory.pools import Read
from gdbheapx.analysis.memory.runtimes import NAMES, RUNTIMES, Runtime, Shape
from gdbheapx.inferior.base import Module, Target
from gdbheapx.model import CERTAIN, GUESS, LIKELY
from gdbheapx.ranges import Range


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
    if shape.run_align_bytes > 1 or shape.min_run_bytes:
        start, end = places.run(place)
        if start % shape.run_align_bytes or end % shape.run_align_bytes or end - start < shape.min_run_bytes:
            return False
    return shape.probe is None or pools.PROBES[shape.probe](gaps(), read)


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
    found = next((runtime for runtime in here if runtime.code is not None), None)
    if found is None:
        return Owner(JIT, "generated code (executable anonymous memory)")
    return Owner(JIT, "%s: %s (executable anonymous memory)" % (found.name, found.code), LIKELY, program=found.name)


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
