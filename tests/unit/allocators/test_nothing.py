"""What the registry says: why nothing can be read, whose malloc the process calls, what heaps have, which settings were measured.

Files: allocators/records.py, allocators/discovery.py, allocators/fingerprints.py, glibc/allocator.py.
"""

from types import SimpleNamespace
from typing import Any, List, NamedTuple, Optional

import pytest

from gdbheapx import allocators
from gdbheapx.allocators import discovery
from gdbheapx.allocators.records import Instances
from gdbheapx.common.errors import HeapxError, UsageError
from gdbheapx.common.hints import hint_command
from gdbheapx.glibc import allocator as glibc
from gdbheapx.inferior.base import Module
from gdbheapx.jemalloc import allocator as jemalloc


class Told(NamedTuple):
    """What is not read, or a problem of the target."""

    what: str
    hint: Optional[str]
    code: Any = None


class Owner(NamedTuple):
    """Who owns malloc."""

    allocator: Optional[str]
    file: str
    hint: Optional[str]


class Looked(NamedTuple):
    """What was discovered, and the target at once."""

    names: List[str] = []
    files: bool = True
    owner: Any = None
    runtime: Optional[str] = None
    not_read: List[Any] = []
    known: List[str] = []
    told: List[Any] = []
    lacking: List[Any] = []
    loading: bool = False
    kind: str = "live"

    @property
    def target(self) -> Any:
        return self

    def found(self, allocator: Any) -> Instances:
        return Instances((), self.not_read if allocator.name == "jemalloc" else ())

    def unused(self) -> List[Any]:
        return []

    def unread(self) -> List[Any]:
        return self.not_read

    def missing(self) -> List[Any]:
        return self.lacking

    def copies(self) -> List[Any]:
        return [SimpleNamespace(located=SimpleNamespace(id=name)) for name in self.known]

    def modules(self) -> List[Module]:
        return [Module(name, 0x1000, True, None, None) for name in self.names]

    def module_file(self, module: Module) -> Any:
        return module if self.files else None

    def is_being_loaded(self) -> bool:
        return self.loading

    def problems(self) -> List[Any]:
        return self.told


UNREAD = Told("no debug information for libjemalloc.so.2", "get it")
LACKING = Told("no debug symbols for /lib/libc.so.6 (build-id unknown)", "apt-get install libc6-dbg")
CASES = {
    "a jemalloc that was asked for": (Looked(not_read=[UNREAD], known=["glibc"]), "jemalloc", HeapxError, "no debug information for libjemalloc.so.2", "get it"),
    "another allocator was asked for": (Looked(known=["glibc", "glibc#2"]), "glibc#3", UsageError, "allocator glibc#3 not found", "found: glibc, glibc#2"),
    "only an unread jemalloc": (Looked(not_read=[UNREAD]), None, HeapxError, "no debug information", "get it"),
    "libc without symbols": (Looked(lacking=[LACKING]), None, HeapxError, "no debug symbols for /lib/libc.so.6", "libc6-dbg"),
    "an allocator that is not read": (Looked(["/srv/app", "/x.so"], owner=Owner("tcmalloc", "/x.so", None)), None, HeapxError, "tcmalloc in /x.so owns malloc", "report shows"),
    "one that nobody knows": (Looked(["/srv/app"], owner=Owner(None, "/srv/app", "ask it")), None, HeapxError, "an unknown allocator in /srv/app", "ask it"),
    "a runtime": (Looked(["/srv/app"], runtime="Go"), None, HeapxError, "this is a pure Go program", "report shows"),
    "a core that is cut": (Looked(told=[Told("the core is cut", "take another")]), None, HeapxError, "the core is cut", "take another"),
    "nothing at all": (Looked(), None, HeapxError, "no readable allocator found in this target", "doctor"),
    "a program in ld.so": (Looked(["/srv/app"], loading=True), None, HeapxError, "is not loaded yet", "let it run until main"),
    "a core made in ld.so": (Looked(["/srv/app"], loading=True, kind="core"), None, HeapxError, "is not loaded yet", "make the core later"),
    "a static program": (Looked(["/srv/app"]), None, HeapxError, "app is linked statically, and no symbol", "--exe FILE"),
    "a static program without its file": (Looked(["/srv/app"], files=False), None, HeapxError, "app is linked statically, and its file was not found", "--exe FILE"),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_reason_is_told(name: str) -> None:
    """With what to do; only a wrong --allocator is wrong usage."""
    session, asked, kind, what, hint = CASES[name]
    error = discovery.explain_no_allocator(session, asked)  # type: ignore[arg-type]
    assert type(error) is kind and what in str(error) and hint in (error.hint or "")
    assert "None" not in str(error)


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


def test_statuses_are_those_of_the_blocks() -> None:
    """`chunks --status` takes every word that a listing may show, and no other."""
    known = allocators.by_name()
    for name, words in (("glibc", glibc.WORDS), ("jemalloc", jemalloc.WORDS)):
        assert set(known[name].statuses) == set(words)
