"""gperftools' settings: variables of the environment, most of them copied into flags that the full library exports (DEFINE_*)."""

import struct
from typing import List, NamedTuple, Optional, Sequence, Tuple, Union

from gdbheapx.allocators.records import Page
from gdbheapx.columns import TEXT, Column, Table
from gdbheapx.inferior.base import Module, Target

LETTERS = {"bool": "<?", "double": "<d", "int64": "<q", "int64_t": "<q"}
INT64 = ("int64", "int64_t")
"""The latter since 2.16."""
Flag = Tuple[str, Sequence[str]]
"""Name, and types that it has in the releases (DEFINE_int64, src/base/commandlineflags.h)."""
SETTINGS: Sequence[Tuple[str, Optional[Flag], str]] = (
    ("TCMALLOC_RELEASE_RATE", ("tcmalloc_release_rate", ("double",)), "free spans are returned while others are freed; 0: never"),
    ("TCMALLOC_AGGRESSIVE_DECOMMIT", None, "true: each free span is returned at once"),
    ("TCMALLOC_DISABLE_MEMORY_RELEASE", ("malloc_disable_memory_release", ("bool",)), "true: nothing is returned"),
    ("TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES", None, "limits what all thread caches keep"),
    ("TCMALLOC_HEAP_LIMIT_MB", ("tcmalloc_heap_limit_mb", INT64), "free spans are returned from this size of the heap on; 0: no limit"),
    ("TCMALLOC_SAMPLE_PARAMETER", ("tcmalloc_sample_parameter", INT64), "one block in about so many bytes is sampled; 0: none"),
    ("TCMALLOC_SKIP_MMAP", ("malloc_skip_mmap", ("bool",)), ""),
    ("TCMALLOC_SKIP_SBRK", ("malloc_skip_sbrk", ("bool",)), ""),
)
YES = ("1", "t", "y")
"""How true begins (EnvToBool, src/base/commandlineflags.h)."""


class TcSetting(NamedTuple):
    """One setting."""

    name: str
    """The variable of the environment."""
    value: Union[bool, int, float, str, None]
    """In force, by its flag; else as the environment has it; None where neither tells."""
    environment: Optional[str]
    """None: not set, or not known."""
    meaning: str


class TcTunables(NamedTuple):
    """All of them."""

    tunables: List[TcSetting]


def symbols(name: str, types: Sequence[str]) -> List[Tuple[str, str]]:
    """Type and mangled name of a flag."""
    made = [(kind, "FLAG__namespace_do_not_use_directly_use_DECLARE_%s_instead" % kind) for kind in types]
    return [(kind, "_ZN%d%s%dFLAGS_%sE" % (len(space), space, len(name) + 6, name)) for kind, space in made]


def flag(target: Target, module: Module, name: str, types: Sequence[str]) -> Union[bool, int, float, None]:
    """The value of a flag; None where the object does not name it."""
    for kind, symbol in symbols(name, types):
        place, size = target.module_symbol(module, symbol), struct.calcsize(LETTERS[kind])
        data = target.read_prefix(place.address, size) if place is not None else b""
        if len(data) == size:
            return struct.unpack(LETTERS[kind], data)[0]  # type: ignore[no-any-return]
    return None


def read(target: Target, module: Module) -> TcTunables:
    """What is in force, as far as it can be seen."""
    rows = []
    for name, known, meaning in SETTINGS:
        text = target.environment_variable(name)
        value = flag(target, module, *known) if known is not None else None
        rows.append(TcSetting(name, value if value is not None else text, text, meaning))
    return TcTunables(rows)


def is_aggressive(target: Target) -> bool:
    """Free spans are returned at once, by the environment."""
    return (target.environment_variable("TCMALLOC_AGGRESSIVE_DECOMMIT") or "")[:1].lower() in YES


_COLUMNS = (Column("name", TEXT, field="name"), Column("value", TEXT, field="value"), Column("meaning", TEXT, field="meaning"))


def page(found: TcTunables) -> Page:
    """One line per setting."""
    yield "values in force; -: not set, or not to be seen in this build"
    yield Table(_COLUMNS, [{**row._asdict(), "value": "-" if row.value is None else str(row.value).lower()} for row in found.tunables])
