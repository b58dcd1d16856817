"""Whose extent hooks an arena has: jemalloc's own, the program's, or nobody can tell.

Files: jemalloc/plan.py.
"""

from types import SimpleNamespace
from typing import Any, Dict, Optional

import pytest

from gdbheapx.errors import Refusal
from gdbheapx.jemalloc import plan

OWN, BASE = 0x7000, 0x8000


def ask(default: Optional[int], base: Dict[str, int], arena: int = 3) -> None:
    """The check for arena 3, whose base_t has these fields."""
    symbol = SimpleNamespace(address=default) if default is not None else None
    symbols = SimpleNamespace(find=lambda name: symbol if name == "ehooks_default_extent_hooks" else None)
    view = SimpleNamespace(get=lambda *names: next((base[name] for name in names if name in base), None))
    listed: Any = SimpleNamespace(index=3, read=lambda: {"base": BASE})
    context: Any = SimpleNamespace(symbols=symbols, view=lambda name, address: view)
    plan.check_extent_hooks(context, [listed], arena)


@pytest.mark.parametrize("name", ["ehooks.ptr", "extent_hooks"])
def test_of_jemalloc(name: str) -> None:
    """Its own do what is known."""
    ask(OWN, {name: OWN})


@pytest.mark.parametrize("default, base", [(None, {"ehooks.ptr": OWN}), (OWN, {}), (OWN, {"ehooks.ptr": 0})])
def test_unknown_is_refused(default: Optional[int], base: Dict[str, int]) -> None:
    """Neither a build whose default hooks have no name nor an arena whose hooks cannot be read is taken for harmless."""
    with pytest.raises(Refusal, match="cannot determine"):
        ask(default, base)


def test_of_the_program() -> None:
    """The arena is named."""
    with pytest.raises(Refusal, match="arena 3 uses custom extent hooks"):
        ask(OWN, {"ehooks.ptr": OWN + 8})


def test_other_arenas_do_not_matter() -> None:
    """Only those that are purged."""
    ask(OWN, {"ehooks.ptr": OWN + 8}, arena=2)
