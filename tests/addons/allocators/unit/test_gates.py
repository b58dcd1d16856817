"""What is known of an allocator before anything of it is imported."""

import importlib
from types import SimpleNamespace
from typing import Any, Sequence

import pytest

from gdbheapx import allocators
from gdbheapx.addons.allocators.gates import GATES
from gdbheapx.inferior.base import Module

PROGRAM, LIBC = Module("/bin/made", 0x1000, True, None, None), Module("/lib/x86_64-linux-gnu/libc.so.6", 0x2000, False, None, None)


def target(*more: str, exported: Sequence[str] = (), owner: Module = LIBC, texts: bytes = b"") -> Any:
    """A program with glibc, and with these objects."""
    modules = [PROGRAM, LIBC, *(Module(name, 0x3000, False, None, None) for name in more)]
    symbols = {"malloc": SimpleNamespace(module=owner), **{name: SimpleNamespace(module=modules[-1]) for name in exported}}
    return SimpleNamespace(
        modules=lambda: modules,
        dynamic_symbol=symbols.get,
        constant_data=lambda module: iter((texts,)),
        writable_segments=lambda module: [(0x4000, 0, 0x4000 + (1 << 14 if module == modules[-1] else 1 << 10))],
        word_bytes=8,
        little_endian=True,
    )


@pytest.mark.parametrize("name", GATES)
def test_a_target_without_it_imports_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked of every allocator is answered by the gate; what is asked of one that is there imports it."""
    imported = importlib.import_module
    monkeypatch.setattr(allocators, "sys", SimpleNamespace(modules={}))
    (behind,) = [one for one in allocators.all_allocators() if one.name == GATES[name].name]
    monkeypatch.setattr(allocators, "importlib", None)
    assert behind.fingerprint == GATES[name].fingerprint and not behind.find(target()).located
    monkeypatch.setattr(allocators, "importlib", SimpleNamespace(import_module=imported))
    for capability in ("meter", "exact-reading", "purge", "trim", "pack"):
        assert behind.can(capability) == imported(name).ALLOCATOR.can(capability)
    assert behind.statuses == imported(name).ALLOCATOR.statuses and imported(name).ALLOCATOR.name == behind.name
    monkeypatch.setattr(allocators, "sys", SimpleNamespace(modules={name: None}))
    assert imported(name).ALLOCATOR in allocators.all_allocators()


def test_what_opens_a_gate() -> None:
    """A file of its name, a function that it exports, its texts in a program that has malloc itself; and a static program, whatever it is."""
    tcmalloc, musl = GATES["gdbheapx.addons.allocators.tcmalloc.entry"], GATES["gdbheapx.addons.allocators.musl.entry"]
    texts = b"TCMALLOC_RELEASE_RATE MALLOC: + "
    assert [one.may_be_in(target("/lib/ld-musl-x86_64.so.1")) for one in (tcmalloc, musl)] == [False, True]
    assert [one.may_be_in(target("/usr/lib/libtcmalloc.so.4")) for one in (tcmalloc, musl)] == [True, False]
    assert tcmalloc.may_be_in(target("/opt/a.so", exported=["tc_malloc"])) and not tcmalloc.may_be_in(target(texts=texts))
    assert [one.may_be_in(target(texts=texts, owner=PROGRAM)) for one in (tcmalloc, musl)] == [True, False]
    alone = SimpleNamespace(modules=lambda: [PROGRAM])
    assert tcmalloc.may_be_in(alone) and musl.may_be_in(alone)


def test_what_hides_is_looked_for_everywhere() -> None:
    """Objects whose texts are those, and whose data could hold its main heap; on any machine, so that one that is not read is named."""
    mimalloc, texts = GATES["gdbheapx.addons.allocators.mimalloc.entry"], b"mimalloc: error: mimalloc: warning: "
    found = mimalloc.hidden_in(target("/opt/wheel.so", texts=texts))
    assert [module.file_name for module in found] == ["wheel.so"] and mimalloc.may_be_in(target("/opt/wheel.so", texts=texts))
    other = target("/opt/wheel.so", texts=texts)
    other.word_bytes = 4
    assert not mimalloc.may_be_in(target("/opt/wheel.so", texts=b"mimalloc: error: ")) and mimalloc.may_be_in(other)
