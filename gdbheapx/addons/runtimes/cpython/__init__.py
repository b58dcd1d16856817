"""Objects of CPython, by their types, whose names may be in no file but in the heap; and the blocks that its own allocator cuts.

CPython's own allocator of small blocks, obmalloc: its table of arenas is a used block of malloc's, and each arena's first pool has its
index (Objects/obmalloc.c: struct arena_object, the same from 3.6 to 3.14).
"""

from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.runtimes.cpython import interpreter, objects
from gdbheapx.addons.runtimes.cpython.objects import (
    DEBUG_HEAD,
    HEADS,
    LIST,
    LOW_HALF,
    NEWEST,
    TP_ALLOC,
    PyBody,
    PyType,
    PyTypes,
    PyValues,
    make_python_layout,
)
from gdbheapx.addons.runtimes.cpython.paths import PyNamer
from gdbheapx.analysis.census.world import EXACT, Ask, CensusTarget, Inner, Length, Recogniser, RuntimeLabels, Signature
from gdbheapx.analysis.reachability.paths import Namer
from gdbheapx.kernel.blocks.signatures import ALL, AT_LEAST, AT_MOST, EQUAL, FIELD, IN_SET, Condition, NumberSet, SignatureRow, Signed
from gdbheapx.kernel.blocks.slots import POOL_HEADER_BYTES

ENTRY = 48
FIRST_ENTRIES = 16
"""The table has never had fewer."""
LOOKED_AT = 8
"""So many of its entries may be asked for; the first ones are free only in a process that has shrunk."""
POOLS = 64
"""In an arena; one less where the system's page was no pool's begin."""
POOL_SIZES = (4 << 10, 16 << 10, 32 << 10)
"""To 3.9, and later; an arena is 64 times that."""
MODULE = "python"
STEPS = (512, 256, 128, 64, 48, 32, 16)
"""A row asks for so many bytes at least: types are put where all their objects have them."""


OF_TYPES = {
    "FunctionType": "function", "MethodType": "method", "CellType": "cell", "CodeType": "code", "GeneratorType": "generator",
    "CoroutineType": "coroutine", "AsyncGeneratorType": "async_generator", "MappingProxyType": "mappingproxy",
    "BuiltinFunctionType": "builtin_function_or_method", "FrameType": "frame", "TracebackType": "traceback", "ModuleType": "module",
    "NoneType": "NoneType", "GetSetDescriptorType": "getset_descriptor", "MemberDescriptorType": "member_descriptor",
    "MethodDescriptorType": "method_descriptor", "WrapperDescriptorType": "wrapper_descriptor",
}  # fmt: skip
"""What `types` calls them, and what they call themselves (tp_name)."""
OF_MODULES: Mapping[str, Mapping[str, str]] = {
    "types": OF_TYPES,
    "_weakref": {name: "weakref.%s" % name for name in ("ReferenceType", "ProxyType", "CallableProxyType")},
    "_collections": {name: "collections.%s" % name for name in ("deque", "OrderedDict", "defaultdict")},
    "_functools": {"partial": "functools.partial", "_lru_cache_wrapper": "functools._lru_cache_wrapper"},
}
BEFORE_3_10 = {"ReferenceType": "weakref", "ProxyType": "weakproxy", "CallableProxyType": "weakcallableproxy"}
"""What those of `_weakref` call themselves there."""
MODULE_DICT, CLASS_DICT = 16, 264
"""Of a module its dict, of a type tp_dict."""


class ObmallocArena(NamedTuple):
    """Arena of obmalloc in use."""

    start: int
    end: int
    first_pool: int
    next_pool: int
    """Where no pool has been yet."""
    pools: int


def arena_table_rows() -> List[SignatureRow]:
    """Return rows for blocks that may be the table, keyed by the first arena that they name; those with the head of PYTHONMALLOC=debug
    come second.
    """
    rows = []
    for shift in (0, DEBUG_HEAD):
        for at in range(shift, shift + LOOKED_AT * ENTRY, ENTRY):
            conditions = [
                Condition(at + 20, 4, AT_LEAST, POOLS - 1),
                Condition(at + 20, 4, AT_MOST, POOLS),
                Condition(at + 16, 4, AT_MOST, 0, FIELD, other=at + 20),
                Condition(at, 8, AT_LEAST, 0x10000),
                Condition(at, 8, EQUAL, 0, mask=0xFFF),
                Condition(at + 8, 8, EQUAL, 0, mask=0xFFF),
                Condition(at + 8, 8, AT_LEAST, 0, FIELD, other=at),
                Condition(at + 8, 8, AT_MOST, POOLS * POOL_SIZES[-1], FIELD, other=at),
            ]
            rows.append(SignatureRow(conditions, least_usable=shift + FIRST_ENTRIES * ENTRY, key=(at, 8, (1 << 64) - 1)))
    return rows


def find_obmalloc_arenas(world: CensusTarget, matches: Sequence[Signed]) -> List[ObmallocArena]:
    """Return the arenas of all tables by address; sub-interpreters may have a table each."""
    arenas: List[ObmallocArena] = []
    for match in matches:
        shift = DEBUG_HEAD * (match.row >= LOOKED_AT)
        arenas += arenas_of_table(world, match.sample + shift, match.bytes // match.blocks - shift)
    return sorted(set(arenas))


def arenas_of_table(world: CensusTarget, address: int, size_bytes: int) -> List[ObmallocArena]:
    """Return the arenas of one table; none if it is no table."""
    data = world.read(address, size_bytes)
    order = world.target.byte_order
    pool_bytes: Optional[int] = None
    arenas = []
    for index in range(len(data) // ENTRY):
        entry = data[index * ENTRY : index * ENTRY + ENTRY]
        start, following = (int.from_bytes(entry[at : at + 8], order) for at in (0, 8))
        free, pools = (int.from_bytes(entry[at : at + 4], order) for at in (16, 20))
        if not start or start & 0xFFF or pools not in (POOLS - 1, POOLS) or free > pools:
            continue
        if pool_bytes is None:
            sizes = (size for size in POOL_SIZES if is_first_obmalloc_pool(world, -(-start // size) * size, index, size))
            pool_bytes = next(sizes, None)
        if pool_bytes is None:
            continue
        first, end = -(-start // pool_bytes) * pool_bytes, start + POOLS * pool_bytes
        if first <= following <= end and (following == first or is_first_obmalloc_pool(world, first, index, pool_bytes)):
            arenas.append(ObmallocArena(start, end, first, following, pools))
    return arenas


def is_first_obmalloc_pool(world: CensusTarget, at: int, index: int, pool_bytes: int) -> bool:
    """Return whether a pool has the arena's index, and cells that end where a pool of this size does."""
    data = world.read(at, POOL_HEADER_BYTES)
    order = world.target.byte_order
    of, class_, _, last = (int.from_bytes(data[place : place + 4], order) for place in (32, 36, 40, 44))
    return len(data) == POOL_HEADER_BYTES and of == index and last == pool_bytes - 16 * (class_ + 1)


def read_obmalloc_arenas(world: CensusTarget, arenas: Sequence[ObmallocArena]) -> Inner:
    """Return the cells of arenas."""
    pool_bytes = (arenas[0].end - arenas[0].start) // POOLS
    runs: List[Tuple[int, int]] = [(arena.first_pool, arena.next_pool) for arena in arenas if arena.next_pool > arena.first_pool]
    pools = world.session.kernel.pools(world.target.bulk_source(), pool_bytes, world.little_endian, runs, world.session.budget)
    sums = pools.sums()
    never = sum(arena.pools * pool_bytes - (arena.next_pool - arena.first_pool) for arena in arenas)
    beside = sum(arena.end - arena.start - arena.pools * pool_bytes for arena in arenas)
    return Inner(
        blocks=pools.blocks(),
        module="python",
        name="block of a pool",
        taken=[(arena.start, arena.end) for arena in arenas],
        free_bytes=sums.free_bytes + sums.free_pools * pool_bytes + never,
        overhead_bytes=sums.lost_bytes + sums.bad * pool_bytes + beside,
    )


STATE = 0x7C
STATES = ((0x64, True, 1), (0x24, False, 1), (0x28, False, 2), (0x30, False, 4))
"""Of a compact str: (kind, compact, ascii in its state; is ASCII; bytes of a character)."""


def name_static_types(values: PyValues, modules: Mapping[str, int]) -> Dict[int, str]:
    """Return names of static types without one, by address."""
    found: Dict[int, str] = {}
    dicts = {module: values.word(address + MODULE_DICT) for module, address in modules.items()}
    hexversion = values.integer(values.get(dicts.get("sys", 0), "hexversion"))
    of_modules = {**OF_MODULES, "_weakref": BEFORE_3_10} if hexversion is not None and hexversion < 0x030A0000 else OF_MODULES
    for module, names in (("builtins", None), *of_modules.items()):
        for key, value in values.entries(dicts.get(module, 0)):
            py_type = values.types.all.get(value)
            if py_type is None or py_type.flags & objects.HEAP_TYPE or not py_type.name.startswith(objects.UNNAMED):
                continue
            text = values.text(key) or ""
            name = text if names is None else names.get(text)
            if name is not None and text.isidentifier():
                found.setdefault(value, name)
    return found


def separate_names(values: PyValues) -> Dict[int, str]:
    """Return classes that share a name with their modules: `numbers.Number`, `shop.Number`."""
    by_name: Dict[str, List[int]] = {}
    for address, py_type in values.types.all.items():
        by_name.setdefault(py_type.name, []).append(address)
    found: Dict[int, str] = {}
    for name, addresses in by_name.items():
        for address in addresses if len(addresses) > 1 else ():
            module = values.text(values.get(values.word(address + CLASS_DICT), "__module__"), 256)
            if values.types.all[address].flags & objects.HEAP_TYPE and module and module.isprintable():
                found[address] = "%s.%s" % (module, name)
    return found


class PythonProcess:
    """Types and arenas of one process; takes one pass over the heap."""

    def __init__(self, world: CensusTarget, memory: Sequence[objects.PySegment], root: objects.TypeRoot) -> None:
        of_types, of_pools = objects.heap_type_rows(), arena_table_rows()
        matches = world.find([*of_types, *of_pools])
        self.types = PyTypes(world, memory, root, [match for match in matches if match.row < len(of_types)])
        tables = [match._replace(row=match.row - len(of_types)) for match in matches if 0 <= match.row - len(of_types) < len(of_pools)]
        self.arenas = find_obmalloc_arenas(world, tables)
        self.minor_version = objects.minor_version(world, memory)
        self.has_flags_in_counts = (self.minor_version or 0) >= objects.FLAGS_IN_COUNTS

    def values(self, world: CensusTarget) -> PyValues:
        return PyValues(world, self.types, make_python_layout(self.types, self.minor_version))

    def bodies(self) -> Iterator[PyBody]:
        return (body for py_type in self.types.all.values() for body in objects.list_bodies(self.types, py_type))


class PythonRoot:
    """`type` of a process, and the memory that it was found in; `root` None: there is no CPython."""

    def __init__(self, world: CensusTarget) -> None:
        self.memory = list(objects.read_py_segments(world)) if world.word_bytes == objects.WORD else []
        self.root = objects.find_root(world, self.memory)
        if self.root is None:
            self.memory = []


def _make_python_process(world: CensusTarget) -> PythonProcess:
    """Return types and arenas of a process that has a `type`."""
    root = world.once(PythonRoot)
    assert root.root is not None
    python = PythonProcess(world, root.memory, root.root)
    values = python.values(world)
    python.types.rename(separate_names(values))
    if any(py_type.name.startswith(objects.UNNAMED) for py_type in python.types.all.values()):
        interpreters = interpreter.find_interpreters(values, root.memory)
        modules = {name: module for each in interpreters[::-1] for name, module in interpreter.list_python_modules(values, each)}
        python.types.rename(name_static_types(values, modules))
    return python


class CPython(Recogniser):
    """3.8 to 3.15 with 64-bit words; not free-threaded builds, whose heads are others."""

    module, counts_references, object_heads, allocator_in_type = MODULE, True, HEADS, TP_ALLOC
    table = RuntimeLabels(
        "CPython",
        "obmalloc",
        "malloc: blocks that Python objects are or own",
        "malloc: other blocks in use (extensions, libraries)",
        "malloc: blocks in use",
    )

    def is_here(self, world: CensusTarget) -> bool:
        """Return True if the data of some module hold `type`."""
        return world.once(PythonRoot).root is not None

    def python(self, world: CensusTarget) -> Optional[PythonProcess]:
        """Return types and arenas, or None if there is no CPython."""
        return world.once(_make_python_process) if world.once(PythonRoot).root is not None else None

    def asks(self, world: CensusTarget) -> Iterable[Ask]:
        python = self.python(world)
        if python is None:
            return
        types = python.types
        by_place: Dict[int, Dict[int, List[PyType]]] = {}
        for py_type in types.all.values():
            step = next(size for size in STEPS if size <= py_type.least_bytes)
            by_place.setdefault(py_type.head_bytes, {}).setdefault(step, []).append(py_type)
        names = {address: Signature(py_type.name, MODULE, EXACT) for address, py_type in types.all.items()}
        for shift in types.shifts:
            for head, by_step in sorted(by_place.items()):
                at = shift + head
                counts = [Condition(at, 8, AT_LEAST, 1, mask=LOW_HALF)]
                counts.append(Condition(at, 8, EQUAL, 0, mask=objects.OVERFLOW if python.has_flags_in_counts else objects.HIGH_HALF))
                for step, some in sorted(by_step.items()):
                    conditions = [*objects.debug_head(shift), Condition(at + 8, 8, IN_SET, 0), *counts]
                    row = SignatureRow(conditions, least_usable=shift + max(step, head + 16), key=(at + 8, 8, ALL))
                    yield Ask(row, names.get, [NumberSet([py_type.address for py_type in some])], order=20)

    def inner(self, world: CensusTarget) -> Sequence[Inner]:
        """Return the pools of pymalloc."""
        python = self.python(world)
        return [read_obmalloc_arenas(world, python.arenas)] if python and python.arenas else []

    def fields(self, world: CensusTarget) -> Mapping[Tuple[str, int], str]:
        python = self.python(world)
        if python is None:
            return {}
        return {(python.types.all[body.type].name, body.offset): body.name for body in python.bodies()}

    def lengths(self, world: CensusTarget) -> Iterator[Length]:
        python = self.python(world)
        if python is None or python.types.shifts != (0,):  # PYTHONMALLOC=debug writes before and behind each block
            return
        layout = make_python_layout(python.types, python.minor_version)
        yield Length("bytes", 16, 33)
        for state, text, unit in STATES:
            yield Length("str", 16, (layout.ascii_text if text else layout.wide_text) + unit, unit, test=(32, STATE, state))
        for py_type in python.types.all.values():
            head = py_type.head_bytes
            if py_type.flags & LIST:
                yield Length(py_type.name, head + 16, 0, 8, head + 24)
            elif any(kin.name == "bytearray" for kin in python.types.family(py_type)):
                yield Length(py_type.name, head + 16, 1, 1, head + 32)

    def namer(self, world: CensusTarget) -> Optional[Namer]:
        python = self.python(world)
        if python is None or (python.minor_version or 0) > NEWEST:
            return None
        return PyNamer(python.values(world), world.once(PythonRoot).memory)


RECOGNISERS: List[Recogniser] = [CPython()]
