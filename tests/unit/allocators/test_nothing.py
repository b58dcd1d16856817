"""Why nothing can be read: each reason in words, with what to do about it.

Files: allocators/records.py.
"""

from types import SimpleNamespace
from typing import Any, List, NamedTuple, Optional

import pytest

from gdbheapx.allocators import discovery
from gdbheapx.allocators.records import Instances
from gdbheapx.errors import HeapxError, UsageError
from gdbheapx.inferior.base import Module


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
