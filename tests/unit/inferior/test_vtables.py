"""Vtables read from files: what the symbols of stock libraries say is found, damaged files are harmless; names are read with and without a runtime.

Files: inferior/elf/demangle.py.
"""

import os
import random
import time
from pathlib import Path

import pytest

from gdbheapx.inferior.elf import demangle, images
from gdbheapx.inferior.elf.file import ElfFile

LIBRARIES = [
    path
    for folder in ("/usr/lib/*-linux-gnu*", "/usr/lib32", "/usr/libx32", "/usr/*-linux-gnu*/lib")
    for path in sorted(Path("/").glob(folder[1:] + "/libstdc++.so.6"))
]
"""libstdc++ for this machine and, if it is installed, for others: 32 bits, the other byte order, other relocations."""


@pytest.mark.parametrize("path", LIBRARIES[:1], ids=str)
def test_without_symbols(path: Path) -> None:
    """The type_infos alone give the same as with symbols: what the symbols add is nothing, but where a class has no function at all."""
    file = ElfFile(os.path.realpath(path))
    image = images.ElfImage(file)
    with_symbols = images.find_raw_vtables(file)
    kinds = images._find_kinds(image, list(images._find_vtable_symbols([file])))
    alone = dict(images._with_type_info(image, images._find_type_infos(image, kinds), []))
    assert set(alone) <= set(with_symbols) and all(with_symbols[at] == one for at, one in alone.items())
    assert len(alone) > 0.9 * len([at for at, one in with_symbols.items() if one[1] == 0])


@pytest.mark.parametrize("path", LIBRARIES[:1], ids=str)
def test_damaged_files(path: Path, tmp_path: Path) -> None:
    """Whatever bytes of headers, relocations and symbols are changed: an answer, or no ELF file; never long."""
    data, damaged = Path(os.path.realpath(path)).read_bytes(), tmp_path / "damaged.so"
    file = ElfFile(os.path.realpath(path))
    places = [(section.offset, section.offset + section.size_bytes) for section in file.sections() if section.name in (".dynamic", ".rela.dyn", ".dynsym")]
    places += [(0, 64), (file.header.phoff, file.header.phoff + 600), (file.header.shoff, len(data))]
    source = random.Random(7)
    for _ in range(60):
        changed = bytearray(data)
        for start, end in source.choices(places, k=8):
            changed[source.randrange(start, min(end, len(data)))] = source.choice([0, 1, 255, source.randrange(256)])
        damaged.write_bytes(changed if source.random() > 0.1 else changed[: source.randrange(len(changed))])
        before = time.process_time()
        try:
            found = images.find_raw_vtables(ElfFile(str(damaged)))
        except ValueError as error:
            assert "is not an ELF file" in str(error)
            continue
        assert all(one[1] >= 0 for one in found.values()) and time.process_time() - before < 10


NAMES = {
    "3foo": "foo",
    "N3foo3barE": "foo::bar",
    "St9exception": "std::exception",
    "NSt6thread6_StateE": "std::thread::_State",
    "N12_GLOBAL__N_16HiddenE": "(anonymous namespace)::Hidden",
    "N10__cxxabiv117__class_type_infoE": "__cxxabiv1::__class_type_info",
}
ONLY_BY_RUNTIME = {
    "6HolderIiLi3EE": "Holder<int, 3>",
    "Z4mainE5Local": "main::Local",
    "NSt7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEEE": "std::__cxx11::basic_stringbuf<char, std::char_traits<char>, std::allocator<char> >",
    "NSt3_V214error_categoryE": "std::_V2::error_category",
}


def test_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain nested names need nothing; the runtime reads the rest, and without one a name stays as it is."""
    for mangled, name in NAMES.items():
        assert demangle.demangle_plain(mangled) == demangle.demangle_class(mangled) == name
    if demangle._load_runtime() is not None:
        for mangled, name in {**NAMES, **ONLY_BY_RUNTIME}.items():
            assert demangle._demangle_by_runtime(mangled) == demangle.demangle_class(mangled) == name
    monkeypatch.setattr(demangle, "_load_runtime", lambda: None)
    assert demangle.demangle_class("6HolderIiLi3EE") == "6HolderIiLi3EE"


@pytest.mark.parametrize("mangled", ["", "3fo", "N3fooE3bar", "0", "99999999999foo", "N", "NE", "3f;o", "é", "1" * 5000, "P" * 4000 + "i", "N" + "1I" * 2000])
def test_what_is_no_name(mangled: str) -> None:
    """Anything else comes back as it is, soon."""
    before = time.process_time()
    assert demangle.demangle_class(mangled) == mangled and time.process_time() - before < 1
