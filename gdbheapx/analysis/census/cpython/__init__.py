"""Objects of CPython, by their types; and the blocks that its own allocator cuts."""

from typing import Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from gdbheapx.analysis.census.cpython import pools
from gdbheapx.analysis.census.cpython import types as objects
from gdbheapx.analysis.census.cpython.types import Body, PyType, Types
from gdbheapx.analysis.census.signature import EXACT, Ask, Signature
from gdbheapx.analysis.census.world import Inner, Recogniser, World
from gdbheapx.kernel.blocks.signatures import ALL, AT_LEAST, EQUAL, IN_SET, Condition, NumberSet, SignatureRow

MODULE = "python"
STEPS = (512, 256, 128, 64, 48, 32, 16)
"""A row asks for so many bytes at least: types are put where all their objects have them."""
LOW_HALF, HIGH_HALF = 0xFFFFFFFF, ALL ^ 0xFFFFFFFF


class Python:
    """What was found in one process. Takes one pass over the heap."""

    def __init__(self, world: World, memory: Sequence[objects.Segment], root: objects.Root) -> None:
        of_types, of_pools = objects.heap_type_rows(), pools.rows()
        found = world.find([*of_types, *of_pools])
        self.types = Types(world, memory, root, [one for one in found if one.row < len(of_types)])
        tables = [one._replace(row=one.row - len(of_types)) for one in found if 0 <= one.row - len(of_types) < len(of_pools)]
        self.arenas = pools.arenas(world, tables)
        self.has_flags_in_counts = objects.counts_have_flags(world, memory)

    def bodies(self) -> Iterator[Body]:
        """What objects own beside themselves, of all types."""
        return (body for one in self.types.all.values() for body in objects.bodies(self.types, one))


class Root:
    """`type` of a process, and the memory that it was found in; `root` None: there is no CPython."""

    def __init__(self, world: World) -> None:
        self.memory = list(objects.segments(world)) if world.word_bytes == objects.WORD else []
        self.root = objects.find_root(world, self.memory)
        if self.root is None:
            self.memory = []


def _python(world: World) -> Python:
    """Types and arenas of a process that has a `type`."""
    found = world.once(Root)
    assert found.root is not None
    return Python(world, found.memory, found.root)


class CPython(Recogniser):
    """3.8 to 3.14 with 64-bit words; not free-threaded builds, whose heads are others."""

    module = MODULE

    def is_here(self, world: World) -> bool:
        """The data of some module hold `type`."""
        return world.once(Root).root is not None

    def look(self, world: World) -> Optional[Python]:
        """Types and arenas; None where there is no CPython."""
        return world.once(_python) if world.once(Root).root is not None else None

    def asks(self, world: World) -> Iterable[Ask]:
        """One row for each place of the head and each least size: reference count, and a type that demands just this."""
        python = self.look(world)
        if python is None:
            return
        types = python.types
        by_place: Dict[int, Dict[int, List[PyType]]] = {}
        for one in types.all.values():
            step = next(size for size in STEPS if size <= one.least_bytes)
            by_place.setdefault(one.head_bytes, {}).setdefault(step, []).append(one)
        name = namer(types)
        for shift in types.shifts:
            for head, by_step in sorted(by_place.items()):
                at = shift + head
                counts = [Condition(at, 8, AT_LEAST, 1, mask=LOW_HALF)]
                counts += [] if python.has_flags_in_counts else [Condition(at, 8, EQUAL, 0, mask=HIGH_HALF)]
                for step, some in sorted(by_step.items()):
                    conditions = [*objects.debug_head(shift), Condition(at + 8, 8, IN_SET, 0), *counts]
                    row = SignatureRow(conditions, least_usable=shift + max(step, head + 16), key=(at + 8, 8, ALL))
                    yield Ask(row, name, [NumberSet([one.address for one in some])], order=20)

    def inner(self, world: World) -> Sequence[Inner]:
        """The pools."""
        python = self.look(world)
        return [pools.inner(world, python.arenas)] if python and python.arenas else []

    def fields(self, world: World) -> Mapping[Tuple[str, int], str]:
        """What objects own beside themselves."""
        python = self.look(world)
        if python is None:
            return {}
        return {(python.types.all[body.type].name, body.offset): body.name for body in python.bodies()}


def namer(types: Types) -> Callable[[int], Optional[Signature]]:
    """What a row's key is."""

    def name(key: int) -> Optional[Signature]:
        one = types.all.get(key)
        return Signature(one.name, MODULE, EXACT) if one else None

    return name


RECOGNISERS: List[Recogniser] = [CPython()]
