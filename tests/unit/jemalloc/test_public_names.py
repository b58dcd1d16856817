"""By which names a program reaches its jemalloc: found in symbol tables and constants, never assumed; and whether its build can profile.

Files: jemalloc/symbols.py, jemalloc/options.py.
"""

from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest

from gdbheapx.inferior.base import Module, Symbol
from gdbheapx.jemalloc import options
from gdbheapx.jemalloc.records import PublicNames
from gdbheapx.jemalloc.symbols import PROFILER, JemallocSymbols
from gdbheapx.jemalloc.traces import ObjectTexts
from gdbheapx.layout.pack import Pack
from tests.support.builders.jemalloc import LIBRARY, FakeMemory, JemallocMemory

TEXTS = b"\0".join(b"<jemalloc>: message %d" % number for number in range(20))
PROGRAM = Module("/srv/service", 0x400000, True, None, False)


class Named(FakeMemory):
    """An object with a symbol table and constants; the program may define names too."""

    def __init__(self, names: Dict[str, int], variables: bytes = b"", exported: Tuple[str, ...] = (), of_program: Optional[Dict[str, int]] = None) -> None:
        super().__init__()
        self.names, self.variables_text, self.exports, self.of_program = names, variables, exported, of_program or {}

    def names_ending(self, suffix: str, only: Optional[Module] = None) -> List[Tuple[str, Module]]:
        return [(name, LIBRARY) for name in sorted(self.names) if name.endswith(suffix)]

    def module_symbol(self, module: Module, name: str) -> Optional[Symbol]:
        return Symbol(name, self.names[name], LIBRARY, "symbol") if name in self.names else None

    def exported(self, module: Module, name: str) -> Optional[Symbol]:
        return self.module_symbol(module, name) if name in self.exports else None

    def dynamic_symbol(self, name: str) -> Any:
        if name in self.of_program:
            return Symbol(name, self.of_program[name], PROGRAM, "symbol")
        return self.exported(LIBRARY, name)

    def constant_data(self, module: Module) -> Iterator[bytes]:
        return iter([TEXTS + b"\0" + self.variables_text + b"\0"])


def both(prefix: str) -> Dict[str, int]:
    """malloc and mallctl."""
    return {prefix + "malloc": 1, prefix + "mallctl": 2}


@pytest.mark.parametrize(
    "names, variables, private, expected",
    [
        (both("je_arrow_"), b"JE_ARROW_MALLOC_CONF", "je_arrow_private_je_", PublicNames("je_arrow_", "JE_ARROW_MALLOC_CONF")),
        (both("duckdb_je_"), b"DUCKDB_JE_MALLOC_CONF", "duckdb_je_", PublicNames("duckdb_je_", "DUCKDB_JE_MALLOC_CONF")),
        (both(""), b"MALLOC_CONF", "je_", PublicNames("", "MALLOC_CONF")),
        ({}, b"_RJEM_MALLOC_CONF", "_rjem_je_", PublicNames("_rjem_", "_RJEM_MALLOC_CONF")),
        (both("xy_"), b"", "xy_je_", PublicNames("xy_", "XY_MALLOC_CONF")),
        (both("xy_"), b"MALLOC_CONF", "xy_je_", PublicNames("xy_", "MALLOC_CONF")),
        ({**both("xy_"), **both("")}, b"XY_MALLOC_CONF\0MALLOC_CONF", "xy_je_", PublicNames("xy_", "XY_MALLOC_CONF")),
        ({"mallctl": 1, **both("je_")}, b"", "je_", PublicNames("je_", "JE_MALLOC_CONF")),
        ({}, b"A_MALLOC_CONF\0B_MALLOC_CONF", "je_", PublicNames(None, None)),
        ({}, b"", "je_", PublicNames(None, None)),
    ],
)
def test_the_prefix_is_found(names: Dict[str, int], variables: bytes, private: str, expected: PublicNames) -> None:
    """By the name before mallctl that goes with the private prefix, else by the environment variable's; nothing is assumed where neither tells."""
    symbols = JemallocSymbols(Named(names, variables), LIBRARY, private, None)
    assert symbols.public_names == expected
    found = symbols.public("mallctl")
    assert (found.name if found is not None else None) == (None if not names else (expected.prefix or "") + "mallctl")


def test_advice_without_a_known_prefix_says_so() -> None:
    """No name is made up."""
    known, unknown = PublicNames("je_arrow_", "JE_ARROW_MALLOC_CONF"), PublicNames(None, None)
    assert known.call('"epoch"') == 'je_arrow_mallctl("epoch")' and known.setting("prof:true") == "JE_ARROW_MALLOC_CONF=prof:true"
    assert "unknown" in unknown.call('"epoch"') and "unknown" in unknown.setting("prof:true")


def test_the_programs_own_malloc_conf_is_the_one_in_force() -> None:
    """A library's is weak: what the dynamic linker binds to counts. One that the object keeps to itself cannot be replaced."""
    exporting = Named({**both(""), "malloc_conf": 5}, exported=("malloc_conf",), of_program={"malloc_conf": 9})
    found = JemallocSymbols(exporting, LIBRARY, "je_", None).find("malloc_conf")
    assert found is not None and found.address == 9
    keeping = Named({**both("xy_"), "xy_malloc_conf": 5}, of_program={"xy_malloc_conf": 9})
    found = JemallocSymbols(keeping, LIBRARY, "xy_je_", None).find("malloc_conf")
    assert found is not None and found.address == 5
    assert JemallocSymbols(Named({**both("xy_"), "malloc_conf": 5}), LIBRARY, "xy_je_", None).find("malloc_conf") is None, "another's"


def test_a_packs_prefix_needs_no_file() -> None:
    """A pack knows the prefix of its build."""
    made = Pack("jemalloc", None, "abcd", "i386:x86-64", 8, "je_", "je_", {"malloc_conf": (0x10, 8)}, {}, JemallocMemory((5, 2, 1)).types, {}, "", "")
    symbols = JemallocSymbols(Named({}), LIBRARY, "je_", made)
    found = symbols.find("malloc_conf")
    assert symbols.public_names == PublicNames("je_", "JE_MALLOC_CONF") and found is not None and found.address == LIBRARY.base + 0x10


@pytest.mark.parametrize(
    "version, told, code_bytes, expected",
    [
        ((5, 3, 0), False, None, False),
        ((5, 3, 0), True, None, True),
        ((5, 3, 0), None, 100, None),
        ((5, 2, 1), False, None, False),
        ((5, 2, 1), True, 0, False),
        ((5, 2, 1), True, 200, True),
        ((5, 2, 1), True, None, None),
    ],
)
def test_a_build_can_profile_if_it_kept_the_code_for_it(version: Any, told: Optional[bool], code_bytes: Optional[int], expected: Optional[bool]) -> None:
    """bt2gctx and the rest of the profiler's variables are in builds without it as well (pyarrow's)."""
    world = JemallocMemory(version)
    world.variable("bt2gctx", 0)
    world.variable("narenas_total", 3)
    world.symbols.told = ObjectTexts(20, None, (), told, True)
    if code_bytes is not None:
        world.symbols.places[PROFILER] = (0x5000, code_bytes)
    assert options.can_profile(world.context) is expected
