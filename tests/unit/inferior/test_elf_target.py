"""A target read from ELF files alone; vtables of stock libraries and of damaged files.

Files: inferior/core_file.py, inferior/elf/file.py, inferior/elf/images.py, inferior/elf/link_map.py, inferior/source.py, inferior/target.py, inferior/elf/demangle.py.
"""

import os
import random
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Optional, Tuple

import pytest

from gdbheapx.inferior import arch, core_file
from gdbheapx.inferior.base import Segment
from gdbheapx.inferior.elf import demangle, images, link_map
from gdbheapx.inferior.elf.file import PT_LOAD, ElfFile, ProgramHeader
from gdbheapx.inferior.live.stopper import Stopper
from gdbheapx.inferior.source import CoreSource, find_load_bias
from gdbheapx.inferior.target import ElfTarget, open_elf_target
from tests.support.programs import need

PAGE, BASE = 4096, 0x7F0000000000


@pytest.fixture(params=["core", "live"])
def both(request: pytest.FixtureRequest) -> Any:
    """(target, truth), as a core and as a stopped process."""
    if request.param == "core":
        path, specimen = request.getfixturevalue("core")
        yield open_elf_target(core=path), specimen
        return
    specimen = request.getfixturevalue("live")
    target = open_elf_target(pid=specimen.popen.pid)
    target.stop()
    yield target, specimen
    target.let_go()


Both = Tuple[ElfTarget, Any]


def test_modules_in_order(both: Both) -> None:
    """The executable comes first, then the libraries, the dlopened one last; each with its build-id."""
    target, specimen = both
    modules = target.modules()
    assert modules[0].is_executable and modules[0].name == specimen.executable
    assert modules[-1].name == specimen.plugin
    assert any("libc.so" in module.name or "libc-" in module.name for module in modules)
    assert all(module.build_id for module in modules)


@pytest.mark.parametrize("name", ["malloc", "getpid", "plugin_where"])
def test_dynamic_symbols_are_those_of_dlsym(both: Both, name: str) -> None:
    """A dynamic symbol is found where dlsym found it."""
    target, specimen = both
    found = target.dynamic_symbol(name)
    assert found is not None and found.address == specimen.truth[name]


@pytest.mark.parametrize("name", ["specimen_global", "hidden_static"])
def test_statics_are_found(both: Both, name: str) -> None:
    """A variable is found at its address, exported or not, and holds its value."""
    target, specimen = both
    (found,) = target.find_static(name)
    assert found.address == specimen.truth[name]
    assert int.from_bytes(target.read(found.address, 4), "little") == 0x5EED


@pytest.mark.parametrize("name, home, way", [("local_exec", "specimen_global", "static-tls"), ("plugin_tls", "plugin_where", "dtv")])
def test_thread_locals(both: Both, name: str, home: str, way: str) -> None:
    """Each thread's copy of a thread-local variable is found: the executable's at a fixed offset, a dlopened library's through the dtv."""
    target, specimen = both
    (near,) = target.find_static(home)
    found = target.thread_local(name, near)
    assert found is not None and found.way == way
    assert found.addresses == {entry["lwp"]: entry[name] for entry in specimen.truth["threads"]}


def test_thread_locals_by_their_offset(both: Both) -> None:
    """With its offset known from elsewhere, a thread-local variable needs no symbol; of a module without such data there is none."""
    target, specimen = both
    (near,) = target.find_static("plugin_where")
    by_name, by_offset = target.thread_local("plugin_tls", near), target.thread_local_at(near.module, 0)
    assert by_offset is not None and by_offset == by_name
    assert target.thread_local_at(near.module._replace(base=near.module.base + 1), 0) is None


def test_names_by_their_ending(both: Both) -> None:
    """Names are found by how they end, local ones and exported ones, each with its module; what is only used is not defined."""
    target, _ = both
    assert [(name, module.is_executable) for name, module in target.names_ending("den_static")] == [("hidden_static", True)]
    assert ("plugin_where", target.modules()[-1]) in target.names_ending("_where")
    assert not [module for name, module in target.names_ending("dlopen") if module.is_executable]
    assert target.names_ending("no_such_ending_anywhere") == []
    assert target.names_starting(target.modules()[0], "hidden_st") == ["hidden_static"]


def test_variables_of_a_module(both: Both) -> None:
    """Every variable of a symbol table with its size: thread-local ones by their offset, the others by their address."""
    target, specimen = both
    executable, plugin = target.modules()[0], target.modules()[-1]
    every = {one[0]: one[1:] for one in target.variables(executable)}
    assert every["hidden_static"] == (specimen.truth["hidden_static"] - executable.base, 4, False)
    assert every["local_exec"][1:] == (8, True) and "main" not in every
    assert {one[0]: one[1:] for one in target.variables(plugin)}["plugin_tls"] == (0, 8, True)
    for name, size_bytes in (("hidden_static", 4), ("specimen_global", 4)):
        (symbol,) = target.find_static(name)
        assert target.symbol_bytes(symbol) == size_bytes


def test_exported_names_need_no_file(core: Any) -> None:
    """Without the module's file, names of what it exports are found in memory."""
    path, _ = core
    target = open_elf_target(core=path)
    target.symbol_files = lambda module: []  # type: ignore[method-assign]
    plugin = target.modules()[-1]
    assert ("plugin_where", plugin) in target.names_ending("_where")
    assert target.names_ending("hidden_static") == []


def test_what_a_stripped_file_keeps(programs: Path, tmp_path: Path) -> None:
    """`strip` takes .symtab, and leaves what the dynamic linker needs: the exported names, which come only where they are asked for."""
    need("strip")
    stripped = tmp_path / "stripped.so"
    subprocess.run(["strip", "--strip-all", "-o", str(stripped), str(programs / "plugin.so")], check=True)
    before, after = ElfFile(str(programs / "plugin.so")), ElfFile(str(stripped))
    exported = dict(after.every_symbol(exported=True))
    assert list(after.every_symbol()) == [] and {"plugin_tls", "plugin_where"} <= set(exported)
    assert all((name, symbol) in set(before.every_symbol()) for name, symbol in exported.items())


def test_exported_variables_of_a_core_alone(core: Any) -> None:
    """The first page of a small object is in the core, with its .dynsym: variables and functions have names without any file."""
    path, specimen = core
    source = CoreSource(path)
    target = ElfTarget(source, ())
    source.sysroot = "/nowhere"
    plugin = target.modules()[-1]
    assert target.module_file(plugin) is None and target.symbol_files(plugin) == []
    assert target.variables(plugin) == [("plugin_tls", 0, 8, True)]
    here = specimen.truth["plugin_where"]
    assert [one.name for one in target.functions(plugin, exported=True) if one.start <= here < one.end] == ["plugin_where"]
    assert target.functions(plugin) == []


def test_a_table_of_exported_names_that_lies(core: Any) -> None:
    """A string table elsewhere, or a .dynsym without end, gives no names: neither raises, and nothing is read without a bound."""
    path, _ = core
    target = open_elf_target(core=path)
    plugin = target.loaded_at(target.modules()[-1].base)
    assert plugin is not None and len(list(plugin.exported_symbols())) >= 2
    known = dict(plugin.dynamic())
    for tag, value in ((10, 0), (5, (1 << 64) - 8), (6, known[5])):
        plugin._dynamic = {**known, tag: value}
        assert list(plugin.exported_symbols()) == [], tag


def test_names_after_link_time_optimization(programs: Path, tmp_path: Path) -> None:
    """A variable that link-time optimization renamed is found under its own name; one whose name merely begins so is not."""
    need("objcopy")
    renamed = tmp_path / "renamed"
    words = ["--redefine-sym", "hidden_static=hidden_static.lto_priv.0", "--redefine-sym", "specimen_global=specimen_global.lto_priv.x"]
    subprocess.run(["objcopy", *words, str(programs / "specimen"), str(renamed)], check=True)
    before, after = ElfFile(str(programs / "specimen")), ElfFile(str(renamed))
    assert before.symbols("hidden_static") == after.symbols("hidden_static") != []
    assert before.symbols("specimen_global") != [] and after.symbols("specimen_global") == []


def test_clean_code_comes_from_the_file(core: Any) -> None:
    """Code pages that the core leaves out are read from the file that was mapped; its own bytes are those of the live process."""
    path, specimen = core
    target = open_elf_target(core=path)
    code = target.read(specimen.truth["malloc"], 64)
    assert code.strip(b"\0") and target.source.read_own(specimen.truth["malloc"], 64) == b""


def test_another_file_is_not_believed(core: Any, tmp_path: Path) -> None:
    """A file whose build-id differs from the core's is not read, and that is told."""
    path, specimen = core
    target = ElfTarget(CoreSource(path, "/bin/sh"))
    assert any("does not match the core" in one.what for one in target.problems())
    assert list(target.find_static("hidden_static")) == []


def test_written_pages_never_come_from_a_file(core: Any, tmp_path: Path) -> None:
    """With its end cut off, a core's writable variables are unreadable: the file's initial values would be a lie."""
    path, specimen = core
    data = Path(path).read_bytes()
    whole = open_elf_target(core=path)
    assert isinstance(whole.source, CoreSource)
    load = whole.source.core.find(specimen.truth["specimen_global"])
    cut = tmp_path / "cut.core"
    cut.write_bytes(data[: load.offset])
    target = open_elf_target(core=str(cut))
    assert target.read_prefix(specimen.truth["specimen_global"], 4) == b""
    assert any(one.code == "core-truncated" for one in target.problems())


def test_a_cycle_in_the_link_map_ends(core: Any) -> None:
    """A list of loaded objects that runs in a circle is followed once round and reported."""
    path, _ = core
    target = open_elf_target(core=path)
    honest = target.source.read_prefix
    assert len(target.link_map().objects()) > 1
    nodes = []

    def lying(address: int, size_bytes: int) -> bytes:
        data = honest(address, size_bytes)
        if size_bytes == 32 and len(data) == 32:  # a node: its l_next leads back to the first
            nodes.append(address)
            return data[:24] + nodes[0].to_bytes(8, "little")
        return data

    target.source.read_prefix = lying  # type: ignore[method-assign]
    target.forget()
    assert len(target.modules()) >= 1
    assert any(one.code == "objects-incomplete" for one in target.problems())


def test_memory_use_adds_up(both: Both) -> None:
    """Each mapping's use is at most its size; a core's never exceeds the file. A process's is read once for each look, a core's once."""
    target, _ = both
    use = target.memory_use()
    assert use is not None and use.measure == ("dumped" if target.kind == "core" else "resident")
    assert all(0 <= one.resident_bytes <= one.mapping.size_bytes for one in use.mappings)
    assert sum(one.resident_bytes for one in use.mappings) > 4096
    assert target.memory_use() is use
    target.forget()
    assert (target.memory_use() is use) == (target.kind == "core")


def test_stopping_keeps_what_was_found(live: Any) -> None:
    """stop() says that the same objects are loaded; the time it took is known once the process was let go."""
    target = open_elf_target(pid=live.popen.pid)
    target.find_static("hidden_static")
    assert target.stop() is True
    assert all(thread.thread_pointer for thread in target.threads())
    target.let_go()
    assert target.stopped_ms is not None and 0 < target.stopped_ms < 5000
    assert not Stopper(live.popen.pid).held


# ---------------------------------------------------------------------------------------------------- what stands in an object's image


def test_constants_come_from_the_file(both: Both) -> None:
    """The program's own texts are among them, live and on a core that has none of them."""
    target, _ = both
    found = b"".join(target.constant_data(target.modules()[0]))
    assert b'"specimen_global": %ld' in found
    assert not any(b'"specimen_global": %ld' in data for module in target.modules()[1:] for data in target.constant_data(module))


def test_constants_are_not_mapped_into_a_process(live: Any) -> None:
    """Reading all constants of all objects leaves what the process has in memory as it was."""

    def resident() -> str:
        return next(line for line in Path("/proc/%d/status" % live.popen.pid).read_text().splitlines() if line.startswith("VmRSS"))

    target = open_elf_target(pid=live.popen.pid)
    modules, before = target.modules(), resident()
    assert sum(len(data) for module in modules for data in target.constant_data(module)) > 100_000
    assert resident() == before


def test_a_core_without_files_has_few_constants(core: Any) -> None:
    """Only pages that were dumped, which are those of headers: never what could not be read."""
    path, _ = core
    source = CoreSource(path)
    target = ElfTarget(source)
    source.sysroot = "/nowhere"
    for module in target.modules():
        assert sum(len(data) for data in target.constant_data(module)) < 16384, module.name
        assert not target.has_all_constants(module)


def test_all_constants_are_those_of_every_read_only_segment(both: Both) -> None:
    """The files are here, so that they have all; gdb's core without them has the first segment whole and not the others."""
    target, _ = both
    assert all(target.has_all_constants(module) for module in target.modules() if target.module_file(module))
    loads = [
        ProgramHeader(PT_LOAD, flags, 0, start, size, size, PAGE)
        for flags, start, size in ((4, 0, 0x5D50), (5, 0x6000, 0x75675), (4, 0x7C000, 0xD918), (6, 0x8A080, 0x52F1))
    ]
    whole = [Segment(BASE + one.vaddr, one.filesz, one.vaddr) for one in loads]
    assert core_file.find_dumped_constants(loads, BASE, whole[:3])[1]
    for lost in range(3):
        assert not core_file.find_dumped_constants(loads, BASE, [one for one in whole if one is not whole[lost]])[1]
        cut = [one._replace(size_bytes=one.size_bytes - (one is whole[lost])) for one in whole]
        assert not core_file.find_dumped_constants(loads, BASE, cut)[1]
    assert core_file.find_dumped_constants(loads[3:], BASE, whole) == ([], True)


def test_the_thread_local_image(both: Both) -> None:
    """What each thread's block begins with, of the program and of the dlopened object; empty for objects without."""
    target, _ = both
    first, last = target.modules()[0], target.modules()[-1]
    assert target.thread_local_image(first) == (0x7E57).to_bytes(8, "little")
    assert target.thread_local_image(last) == (42).to_bytes(8, "little")
    assert target.thread_local_image(next(module for module in target.modules() if "ld-linux" in module.name)) == b""


@pytest.mark.parametrize(
    "words, offset, is_known",
    [
        ({0x1000: 0x1000, 0x1010: 0x1000}, -64, True),  # glibc
        ({0x1000: 0x1000, 0x1010: 0x7777}, -64, True),  # musl
        ({0x1000: 0x1000, 0x1010: 0x7777}, None, False),  # its vector of blocks is another
        ({0x1000: 0x7777, 0x1010: 0x7777}, -64, False),
        ({}, -64, False),
    ],
)
def test_a_thread_pointer_of_any_libc_leads_to_itself(words: Dict[int, int], offset: Optional[int], is_known: bool) -> None:
    """The machine's ABI wants it in the first word of the control block; glibc has it in the third one, too."""
    memory: Any = SimpleNamespace(word_bytes=8, header=SimpleNamespace(arch=arch.architecture_named("i386:x86-64")), word=words.get)
    address, why_unknown = link_map.find_tls_block((link_map.STATIC_TLS, offset) if offset else (link_map.DTV, 1), 0x1000, memory)
    assert (address == 0x1000 - 64) == is_known and (why_unknown is None) == is_known


@pytest.mark.parametrize("page", [4096, 16384, 65536])
def test_where_a_file_was_loaded_by_any_part_of_it(page: int) -> None:
    """The kernel maps whole pages of its own: a segment's mapping begins before the segment, by more where pages are larger."""
    segments = [SimpleNamespace(type=PT_LOAD, offset=0, vaddr=0, filesz=0x80000), SimpleNamespace(type=PT_LOAD, offset=0x8A6E8, vaddr=0x9A6E8, filesz=0x5E88)]
    library: Any = SimpleNamespace(program_headers=lambda: segments)
    start = BASE + 0x9A6E8 & -page
    assert find_load_bias(library, 0, BASE, page) == BASE
    assert find_load_bias(library, 0x8A6E8 & -page, start, page) == BASE


@pytest.mark.parametrize("auxv, ignores", [({23: 1}, True), ({23: 0}, False), ({6: 4096}, None)])
def test_who_ignores_the_environment(auxv: Dict[int, int], ignores: Optional[bool]) -> None:
    """AT_SECURE of the auxiliary vector; what is not there is not known."""
    target: Any = SimpleNamespace(auxv=lambda: auxv)
    assert ElfTarget.ignores_environment(target) is ignores


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
