"""tcmalloc's settings by flag and by environment, and advice that is not in force already."""

import struct
from types import SimpleNamespace
from typing import Any, Dict, Optional

import pytest

from gdbheapx import verdict
from gdbheapx.addons.allocators.tcmalloc import entry, heap
from gdbheapx.addons.allocators.tcmalloc.records import TcArena, TcFacts
from gdbheapx.allocators.records import Surroundings
from gdbheapx.hints import hint_command
from gdbheapx.model import AllocatorInfo

MB = 1 << 20


class Flags:
    """An object with one flag, in an environment."""

    def __init__(self, name: Optional[str], environment: Dict[str, str]) -> None:
        self._symbol, self.environment_variable = name, environment.get

    def module_symbol(self, module: Any, name: str) -> Any:
        return SimpleNamespace(address=8) if name == self._symbol else None

    def read_prefix(self, address: int, size: int) -> bytes:
        return struct.pack("<d", 2.5)[:size]


def test_a_setting_is_what_is_in_force() -> None:
    """By its flag, which the program can change; else by the environment; unknown is None."""
    name = "_ZN62FLAG__namespace_do_not_use_directly_use_DECLARE_double_instead27FLAGS_tcmalloc_release_rateE"
    target: Any = Flags(name, {"TCMALLOC_RELEASE_RATE": "10", "TCMALLOC_HEAP_LIMIT_MB": "512"})
    rows = {row.name: row for row in heap.read_tcmalloc_tunables(target, target).tunables}
    assert (rows["TCMALLOC_RELEASE_RATE"].value, rows["TCMALLOC_RELEASE_RATE"].environment) == (2.5, "10")
    assert rows["TCMALLOC_HEAP_LIMIT_MB"].value == "512" and rows["TCMALLOC_AGGRESSIVE_DECOMMIT"].value is None


@pytest.mark.parametrize("is_aggressive", [False, True])
def test_what_is_in_force_is_not_advised(is_aggressive: bool) -> None:
    """Free spans: a purge, and the setting that returns them at once unless it is set; the rate helps nobody who sleeps."""
    made: Any = TcArena("tcmalloc", *([0] * (len(TcArena._fields) - 1)))  # type: ignore[arg-type]
    row = made._replace(system_bytes=100 * MB, used_bytes=MB, free_bytes=99 * MB, free_resident_bytes=99 * MB)
    info = AllocatorInfo("tcmalloc", "tcmalloc", "2.10", "libtcmalloc.so.4", None, "table", "probe", True)
    facts = TcFacts(info, [row], {}, (), (), is_aggressive=is_aggressive)
    (judged,) = entry.ALLOCATOR.judge([facts], Surroundings(1, [], None, taken_bytes={"tcmalloc": 100 * MB}))
    said = [*judged.next_steps, *(finding.hint for finding in judged.findings)]
    assert judged.verdict.kind == verdict.KEPT and any("purge" in line for line in said)
    assert not any(hint_command("purge") in str(line) for line in said)  # nothing says that it would not be refused: a core is no process
    advisable = {"tcmalloc": frozenset(["purge"])}
    (judged,) = entry.ALLOCATOR.judge([facts], Surroundings(1, [], None, taken_bytes={"tcmalloc": 100 * MB}, advisable=advisable))
    assert any(hint_command("purge") in str(finding.hint) for finding in judged.findings)
    assert any("AGGRESSIVE_DECOMMIT" in line for line in said) != is_aggressive and not any("RELEASE_RATE=10" in line for line in said)
