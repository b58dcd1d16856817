"""A mapping is a runtime's where it has each property of a shape; without any one of them it is not.

Files: analysis/memory/kinds.py, analysis/memory/attribute.py.
"""

from types import SimpleNamespace
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import pytest

from gdbheapx.analysis.memory import attribute
from gdbheapx.analysis.memory.kinds import GIB, KIB, RUNTIMES, KnownRuntime, MappingShape

pytestmark = pytest.mark.once  # pure functions
PAGE = 4 * KIB
SHAPES = [(runtime, shape) for runtime in RUNTIMES for shape in runtime.shapes]


class Place(NamedTuple):
    """A mapping, and what lies around it."""

    start: int
    size: int
    reserved: int
    run: Tuple[int, int]
    flags: Optional[frozenset]  # type: ignore[type-arg]

    def fits(self, shape: MappingShape, holds_pools: bool = True) -> bool:
        mapping = SimpleNamespace(start=self.start, end=self.start + self.size, size_bytes=self.size)
        places: Any = SimpleNamespace(
            uses=[SimpleNamespace(mapping=mapping, flags=self.flags)], reserve_above=lambda place: self.reserved, run=lambda place: self.run
        )
        return attribute.fits_shape(shape._replace(probe=None) if holds_pools else shape, places, 0, lambda: (), lambda address, size: b"")


def positive(shape: MappingShape) -> Place:
    """The least that has every property."""
    start = GIB if shape.below is not None else 1 << 40
    size = max(shape.min_bytes, shape.multiple_bytes, shape.end_align_bytes, PAGE)
    reserved = shape.reach[0] - size if shape.reach is not None else PAGE if shape.reserve_above else 0
    return Place(start, size, reserved, (start, start + max(shape.min_run_bytes, shape.run_align_bytes, size)), shape.flags)


def negatives(shape: MappingShape) -> Dict[str, Place]:
    """By the property that each lacks, one alone."""
    good = positive(shape)
    low, high = good.run
    made = {
        "align_bytes": good._replace(start=good.start + PAGE),
        "end_align_bytes": good._replace(size=good.size + PAGE),
        "multiple_bytes": good._replace(size=good.size + PAGE),
        "min_bytes": good._replace(size=shape.min_bytes - max(shape.multiple_bytes, PAGE)),
        "max_bytes": good._replace(size=(shape.max_bytes or 0) + max(shape.multiple_bytes, PAGE)),
        "below": good._replace(start=shape.below or 0),
        "run_align_bytes": good._replace(run=(low + PAGE, high)),
        "min_run_bytes": good._replace(run=(low, high - PAGE)),
        "reserve_above": good._replace(reserved=0),
        "reach": good._replace(reserved=0),
        "flags": good._replace(flags=frozenset()),
    }
    return {name: place for name, place in made.items() if getattr(shape, name) != MappingShape._field_defaults[name]}


@pytest.mark.parametrize("runtime, shape", SHAPES, ids=["%s-%d" % (one.name, number) for number, (one, _) in enumerate(SHAPES)])
def test_every_property_counts(runtime: KnownRuntime, shape: MappingShape) -> None:
    """WebAssembly, V8, Go, the JVM and all others; a probe that finds nothing refuses, too."""
    good = positive(shape)
    assert good.fits(shape)
    lacking = negatives(shape)
    assert (lacking or shape.probe) and not [name for name, place in lacking.items() if place.fits(shape)]
    assert shape.probe is None or not good.fits(shape, holds_pools=False)
    if shape.reach is not None:
        assert not good._replace(reserved=shape.reach[1]).fits(shape), "a sandbox's page has more behind it"


@pytest.mark.parametrize("names", [["app", "libc.so.6"], ["xlibjvm.so"], ["my-node"], []])
def test_no_runtime_where_its_objects_are_not(names: List[str]) -> None:
    """Whatever its mappings look like, a program without them has none: and then nothing is a runtime's by shape."""
    modules = [SimpleNamespace(file_name=name, is_executable=not number) for number, name in enumerate(names)]
    target: Any = SimpleNamespace(modules=lambda: modules, has_section=lambda module, section: False)
    assert (
        not attribute.find_present_runtimes(target)
        and attribute.find_owner_by_shape((), None, 0, lambda: (), lambda address, size: b"") is None
    )  # type: ignore[arg-type]
