"""Whose malloc the process calls.

Files: allocators/discovery.py, allocators/fingerprints.py.
"""

from types import SimpleNamespace
from typing import Any, Optional

import pytest

from gdbheapx.allocators import discovery
from gdbheapx.allocators.records import Instances
from gdbheapx.hints import hint_command


def process(mapped: Optional[str]) -> Any:
    """Without symbols: nobody is known to answer calls of malloc."""
    mappings = [SimpleNamespace(name=None, start=0x1000, offset=0), SimpleNamespace(name=mapped, start=0x5000, offset=0x1000)]
    return SimpleNamespace(mappings=lambda: mappings, modules=list, dynamic_symbol=lambda name: None)


@pytest.mark.parametrize("tool", ["memcheck", "massif", "dhat", "helgrind", "drd"])
def test_valgrind(tool: str) -> None:
    """A tool of Valgrind that replaces malloc is known by what it preloads; what it holds may look like anything."""
    found = discovery.find_owner(process("/usr/libexec/valgrind/vgpreload_%s-amd64-linux.so" % tool), ())
    assert found is not None and (found.allocator, found.is_anywhere, found.module.base) == ("Valgrind", True, 0x4000) and found.hint


@pytest.mark.parametrize("name", ["/usr/libexec/valgrind/vgpreload_core-amd64-linux.so", "/data/vgpreload_memcheck", None])
def test_others(name: Optional[str]) -> None:
    """Tools that leave malloc alone preload the core alone."""
    assert discovery.find_owner(process(name), ()) is None


TRIM = "for glibc use `%s`" % hint_command("trim")


@pytest.mark.parametrize("owns, hint", [(True, TRIM), (None, TRIM), (False, "see " + hint_command("doctor"))], ids=["owner", "unknown", "other"])
def test_a_command_that_would_be_refused_is_not_advised(owns: Optional[bool], hint: str) -> None:
    """Another heap's way to return memory is named where it could do something: it owns malloc, or nobody knows who does."""
    heaps: Any = discovery.Heaps.__new__(discovery.Heaps)
    returning = SimpleNamespace(command="trim", is_owners=True)
    heaps._all = [SimpleNamespace(kind="glibc", info=SimpleNamespace(owns_malloc=owns), returning=returning, never_returns=None)]
    jemalloc = SimpleNamespace(name="jemalloc", returning=SimpleNamespace(command="purge"))
    heaps.discovery = SimpleNamespace(with_capability=lambda capability: [jemalloc], found=lambda allocator: Instances(()))
    assert heaps.none_has("purge").hint == hint
