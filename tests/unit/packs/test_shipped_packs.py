"""The shipped packs equal the debug information they came from, as pyelftools reads it."""

import lzma
import os
from io import BytesIO
from pathlib import Path
from typing import Any, Iterator, List, Tuple

import pytest

pytest.importorskip("elftools", reason="pyelftools is not installed")

from gdbheapx.common.errors import HeapxError
from gdbheapx.glibc import layouts
from gdbheapx.glibc.layouts import default_alignment
from gdbheapx.layout import pack
from gdbheapx.layout.view import Shape, lay_out_struct
from tests.support.paths import ROOT
from tools import make_packs

DATA = ROOT / "tests" / "data" / "jemalloc"
GLIBC = ROOT / "tests" / "data" / "glibc"

pytestmark = pytest.mark.once  # reads files alone

BUILD_IDS = sorted({path.name.split(".")[0] for path in DATA.glob("*.debug.xz")})
GLIBC_BUILD_IDS = sorted({path.name.split(".")[0] for path in GLIBC.glob("*.debug.xz")})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[List[pack.Pack]]:
    """Packs made from the test data."""
    scratch = str(tmp_path_factory.mktemp("debug"))
    every = [source for data in (DATA, GLIBC) for source in make_packs.sources(str(data), None, scratch)]
    yield [make_packs.make(debug, stock) for debug, stock in every]


def test_each_pack_has_its_data() -> None:
    """There is debug information for each shipped pack, and a pack for each of these files."""
    assert sorted(one.build_id for one in pack.shipped_packs() if one.allocator == "jemalloc") == BUILD_IDS
    assert sorted(one.build_id for one in pack.shipped_packs() if one.allocator == "glibc") == GLIBC_BUILD_IDS


@pytest.mark.slow
@pytest.mark.parametrize("build_id", BUILD_IDS + GLIBC_BUILD_IDS)
def test_a_pack_equals_its_debug_information(made: List[pack.Pack], build_id: str) -> None:
    """The shipped file is, byte for byte, what `make packs` makes of the debug information."""
    (one,) = [one for one in made if one.build_id == build_id]
    shipped = (ROOT / "gdbheapx" / "packs" / (build_id + ".json")).read_text()
    assert make_packs.dump(one) == shipped, "run: make packs"


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
@pytest.mark.parametrize("build_id", [path.name.split(".")[0] for path in sorted(DATA.glob("*.sections.xz"))])
def test_variables_move_with_their_sections(made: List[pack.Pack], build_id: str) -> None:
    """The pack of a rebuild has the distributed library's addresses: inside its sections, each as far as the section moved."""
    from elftools.elf.elffile import ELFFile

    sections = DATA / (build_id + ".sections.xz")
    stock = ELFFile(BytesIO(lzma.open(sections).read()))
    (one,) = [one for one in made if one.build_id == build_id]
    ranges = {section.name: (section["sh_addr"], section["sh_addr"] + section["sh_size"]) for section in stock.iter_sections() if section["sh_addr"]}
    names = ".data.rel.ro" if str(one.version_text).startswith("5.3.1-") else ".data"  # const since then
    for name, where in (("arenas", ".bss"), ("narenas_total", ".bss"), ("opt_retain", ".data"), ("dss_prec_names", names)):
        start, end = ranges[where]
        address, size_bytes = one.symbols[name]
        assert start <= address and address + size_bytes <= end, name
    assert os.path.exists(sections)


@pytest.mark.slow
@pytest.mark.parametrize("build_id", GLIBC_BUILD_IDS)
def test_a_pack_of_glibc_has_the_layout_of_its_release(made: List[pack.Pack], build_id: str) -> None:
    """What debug information says of each release is what the tables say of it: an error in either would show."""
    (one,) = [one for one in made if one.build_id == build_id]
    version = layouts.parse_version(one.version_text)
    assert version is not None and "Debian GLIBC %d.%d-" % version in one.exactness
    shape = Shape(one.word_bytes, default_alignment(one.word_bytes, one.machine, version))
    for table in (layouts.MALLOC_STATE, layouts.MALLOC_PAR, layouts.HEAP_INFO, layouts.TCACHE):
        mine, theirs = one.types.structs[table.name], lay_out_struct(table, version, shape)
        assert theirs is not None and mine.size_bytes == theirs.size_bytes, table.name
        places = {name: (member.offset, member.size_bytes, member.count) for name, member in mine.members.items()}
        assert places == {name: (member.offset, member.size_bytes, member.count) for name, member in theirs.members.items()}, table.name
    sizes = {name: size_bytes for name, (_, size_bytes) in {**one.symbols, **one.thread_locals}.items()}
    assert sizes == {"main_arena": one.types.size_bytes("malloc_state"), "mp_": one.types.size_bytes("malloc_par"), "__curbrk": 8, "tcache": 8, "thread_arena": 8}


@pytest.mark.parametrize("data, lacks", [(b"", "nothing tells the release"), (b"GNU C Library (Mine) stable release version 2.36.", "")])
def test_the_release_of_a_libc(data: bytes, lacks: str, tmp_path: Path) -> None:
    """A libc's own text names its release; a debug file alone does not, and what to give is said."""
    found = make_packs.BANNER.search(data)
    assert (found is None) == bool(lacks) and (found is None or found.groups() == (b"Mine", b"2.36"))
    if not lacks:
        return
    (small,) = GLIBC.glob(GLIBC_BUILD_IDS[0] + "*")
    debug = tmp_path / "libc.debug"
    debug.write_bytes(lzma.open(small).read().replace(b"GNU C Library (", b"XXX C Library ("))
    with pytest.raises(HeapxError, match=lacks) as caught:
        make_packs.make(str(debug))
    assert "--stock" in str(caught.value.hint)
