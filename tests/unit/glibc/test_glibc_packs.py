"""A glibc without symbols is read by its pack in every release and geometry; a pack that is wrong is not believed, a damaged heap is no reason.

Files: glibc/detect.py, glibc/arenas.py.
"""

from typing import Any, Tuple

import pytest

from gdbheapx import packs
from gdbheapx.errors import HeapxError
from gdbheapx.glibc import detect
from gdbheapx.glibc.arenas import Glibc
from gdbheapx.layout import pack
from tests.support.builders.process import LIBC, WORLDS, Fake, World, make
from tools import make_packs

NAMES = ("main_arena", "mp_", "__curbrk")


def stripped(world: World, monkeypatch: pytest.MonkeyPatch, **moved: int) -> Tuple[Fake, Glibc]:
    """(a process without symbols whose libc has a bundled pack, that libc as its symbols tell). `moved`: bytes by which a symbol is off."""
    fake = make(world)
    (known,) = detect.find_glibc_copies(fake.target)
    places = {name: (fake.target.symbols[name] + moved.get(name, 0), 8) for name in NAMES}
    made = pack.Pack(
        allocator="glibc",
        version_text=known.version_text,
        build_id=str(LIBC.build_id),
        machine=world.machine,
        word_bytes=world.word_bytes,
        prefix="",
        public_prefix="",
        symbols=places,
        thread_locals={"tcache": (72, 8), "thread_arena": (88, 8)},
        types=known.types,
        constants={},
        made_from="a test",
        exactness="",
    )
    monkeypatch.setattr(packs, "EMBEDDED", {"%s.json" % made.build_id: make_packs.dump(made)})
    fake.target.symbols.clear()
    return fake, known


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_by_its_pack(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses, layouts and release are those that symbols and tables tell."""
    fake, known = stripped(world, monkeypatch)
    (found,) = detect.find_glibc_copies(fake.target)
    assert (found.layout_source, found.main_arena.source, found.version) == ("pack", "pack", known.version)
    assert (found.main_arena.address, found.mp.address) == (known.main_arena.address, known.mp.address)
    assert {name: found.types.structs[name] for name in known.types.structs} == known.types.structs
    assert found.curbrk is not None and known.curbrk is not None and found.curbrk.address == known.curbrk.address


@pytest.mark.parametrize("moved", [{"main_arena": 8}, {"main_arena": -4096}, {"mp_": 64}, {"mp_": -512}], ids=str)
@pytest.mark.parametrize("world", WORLDS[:: len(WORLDS) // 5], ids=str)
def test_wrong_addresses(world: World, moved: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pack whose addresses are off is refused with the reason."""
    fake, _ = stripped(world, monkeypatch, **moved)
    with pytest.raises(HeapxError) as caught:
        detect.find_glibc_copies(fake.target)
    assert "its memory does not match its layout" in caught.value.message


@pytest.mark.parametrize("world", WORLDS[:: len(WORLDS) // 5], ids=str)
def test_a_damaged_heap(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some bins that lead nowhere are damage of the heap: the pack is believed, and what is read with it tells the rest."""
    fake, known = stripped(world, monkeypatch)
    place = known.malloc_state.members["bins"]
    for number in (2, 9, 40):
        fake.target.put_word(known.main_arena.address + place.offset + number * place.size_bytes, 0x1234560)
    assert [one.layout_source for one in detect.find_glibc_copies(fake.target)] == ["pack"]
