"""The shipped packs equal the debug information they came from, as pyelftools reads it. tests/integration/test_packs.py has gdb read it."""

import os
from typing import Any, Iterator, List, Tuple

import pytest

pytest.importorskip("elftools", reason="pyelftools is not installed")

from gdbheapx.layout import pack
from tests.support.paths import ROOT
from tools import make_packs

DATA = ROOT / "tests" / "data" / "jemalloc"

pytestmark = pytest.mark.once  # reads files alone; tests/integration/test_packs.py has an image's gdb read them

BUILD_IDS = sorted({path.name.split(".")[0] for path in DATA.glob("*.debug.xz")})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[List[pack.Pack]]:
    """Packs made from the test data."""
    scratch = str(tmp_path_factory.mktemp("debug"))
    yield [make_packs.make(debug, stock) for debug, stock in make_packs.sources(str(DATA), None, scratch)]


def test_each_pack_has_its_data() -> None:
    """There is debug information for each shipped pack, and a pack for each of these files."""
    assert sorted(one.build_id for one in pack.shipped()) == BUILD_IDS


@pytest.mark.slow
@pytest.mark.parametrize("build_id", BUILD_IDS)
def test_a_pack_equals_its_debug_information(made: List[pack.Pack], build_id: str) -> None:
    """The shipped file is, byte for byte, what `make packs` makes of the debug information."""
    (one,) = [one for one in made if one.build_id == build_id]
    shipped = (ROOT / "gdbheapx" / "packs" / (build_id + ".json")).read_text()
    assert pack.dump(one) == shipped, "run: make packs"


@pytest.mark.slow
@pytest.mark.parametrize("build_id", BUILD_IDS)
def test_a_pack_has_what_no_jemalloc_lacks(made: List[pack.Pack], build_id: str) -> None:
    """Variables and members that every release has are there under jemalloc's own names, and prefixes are gone."""
    (one,) = [one for one in made if one.build_id == build_id]
    for name in ("arenas", "narenas_total", "bin_infos", "sz_index2size_tab", "opt_narenas", "bt2gctx", "h_steps", "tsd_booted"):
        assert name in one.symbols and one.symbols[name][1], name
    assert one.thread_locals["tsd_tls"][1] == one.types.size_bytes("tsd_s")
    for struct, path in (("arena_s", "base"), ("tsd_s", "arena"), ("tsd_s", "state"), ("ctl_arenas_s", "arenas"), ("rtree_s", "root")):
        assert one.types.place(struct, path) is not None, (struct, path)
    every: List[Tuple[str, Any]] = [*one.symbols.items(), *one.thread_locals.items()]
    every += [(name, None) for struct in one.types.structs.values() for name in struct.members]
    assert not [name for name, _ in every if name.startswith(("je_", "cant_access", "use_a_getter"))]
    assert one.types.variables["arenas"] == one.types.variables["arenas"]._replace(offset=0, size_bytes=8, count=4095, kind="pointer")


@pytest.mark.slow
def test_variables_move_with_their_sections(made: List[pack.Pack]) -> None:
    """The pack of a rebuild has the distributed library's addresses: inside its sections, each as far as the section moved."""
    from elftools.elf.elffile import ELFFile

    (sections,) = DATA.glob("*.sections.xz")
    import lzma
    from io import BytesIO

    stock = ELFFile(BytesIO(lzma.open(sections).read()))
    (one,) = [one for one in made if one.build_id == sections.name.split(".")[0]]
    ranges = {section.name: (section["sh_addr"], section["sh_addr"] + section["sh_size"]) for section in stock.iter_sections() if section["sh_addr"]}
    for name, where in (("arenas", ".bss"), ("narenas_total", ".bss"), ("opt_retain", ".data"), ("dss_prec_names", ".data.rel.ro")):
        start, end = ranges[where]
        address, size_bytes = one.symbols[name]
        assert start <= address and address + size_bytes <= end, name
    assert os.path.exists(sections)
