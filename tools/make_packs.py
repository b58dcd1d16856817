"""Packs of Debian's stripped libjemalloc2 and libc6, from their debug files: `make packs DEBUG=DIR STOCK=LIBRARY`.

Of a libc, LIBRARY is that libc: its own text names its release, which its debug file does not.

Of a jemalloc, a debug file below DIR/.build-id is that of the distributed library. One elsewhere in DIR is that of a rebuild whose code is laid out
otherwise: its pack gets the build-id of LIBRARY, the distributed one, and each variable the place in LIBRARY's section that it has in its own.
If it is a library that was not split from its debug information, its relocations have to be those of LIBRARY.
tests/data/jemalloc and tests/data/glibc hold small copies of the files behind the shipped packs: `make packs` alone makes these anew.
"""

import argparse
import json
import lzma
import os
import re
import sys
import tempfile
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from elftools.elf.elffile import ELFFile
from elftools.elf.enums import ENUM_E_MACHINE

from gdbheapx.common.errors import HeapxError
from gdbheapx.glibc.detect import STRUCTS
from gdbheapx.inferior.arch import of_elf
from gdbheapx.inferior.elf.dwarf import TypeWalk
from gdbheapx.jemalloc import layouts, traces
from gdbheapx.layout.pack import SCHEMA, Pack
from tools import pack_glibc, pack_jemalloc
from tools.whole_file import WholeReader

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EXACTNESS = {
    "3624f54a957d7210121121bd82bfceb06c632b91": "Debian bullseye libjemalloc2 5.2.1-3: the rebuild has the same build-id",
    "1d5163c246dc9cd2b4d339f2ac42efd95c6e0ae1": "Debian bookworm libjemalloc2 5.3.0-1: every loaded section of the rebuild is identical",
    "16d086887ed57ed2350b288be499d57e5e595e73": "Debian trixie libjemalloc2 5.3.0-3: types and variables are identical, functions of the rebuild lie up to 0x40 off",
    "835e4d81a68983c4ab9d75b0efa34947b2f6187a": "Debian sid libjemalloc2 5.3.1-2: types are identical, variables are moved by section from the rebuild",
    "6de2f67281be05e21eacaf53174dc78e153a9d4f": "Debian bookworm libjemalloc2 5.3.0-1 for arm64: every loaded section of the rebuild but the build-id's is identical",
    "a7100f039eecdb20177c55d2b2d5331d7d6f53bd": "Debian trixie libjemalloc2 5.3.0-3 for arm64: .rodata, the places of relocations and what they and "
    "47 addresses in the code say of .data and .bss are identical, code is laid out otherwise",
    "8a5c4d1ef6f136344bf05b887660aa978f0aa3c2": "Debian sid libjemalloc2 5.3.1-2 for arm64, rebuilt by gcc 15.3 without process_madvise: .rodata, the places of "
    "relocations and what they and 45 addresses in the code say of .data and .bss are identical, code is laid out otherwise",
}
"""What is known of the rebuilds behind the shipped packs, by the build-id of the distributed library."""
BANNER = re.compile(rb"GNU C Library \(([^)\n]{1,80})\) stable release version (2\.\d+)")
"""What a libc says of itself (version.c)."""
BANNER_SECTION = ".libc.banner"
"""Of a small copy: the libc's BANNER."""
MACROS = {"lg_page": b"LG_PAGE", "lg_vaddr": b"LG_VADDR"}


def build_id(elf: Any) -> Optional[str]:
    section = elf.get_section_by_name(".note.gnu.build-id")
    notes = list(section.iter_notes()) if section is not None else []
    return str(notes[0]["n_desc"]) if notes else None


def variables(elf: Any) -> List[pack_jemalloc.Variable]:
    """Every variable of .symtab."""
    table = elf.get_section_by_name(".symtab")
    kept = []
    for symbol in table.iter_symbols() if table is not None else ():
        kind = symbol["st_info"]["type"]
        if kind in ("STT_OBJECT", "STT_TLS") and symbol["st_shndx"] != "SHN_UNDEF":
            kept.append(pack_jemalloc.Variable(symbol.name, symbol["st_value"], symbol["st_size"], kind == "STT_TLS"))
    return kept


def moved(elf: Any, stock: Any, variables: List[pack_jemalloc.Variable]) -> List[pack_jemalloc.Variable]:
    """Each at the same place of its section in the distributed library; what lies in a section of another length is left out."""
    shifts = []
    for section in elf.iter_sections():
        other = stock.get_section_by_name(section.name)
        if section["sh_addr"] and other is not None and section["sh_size"] == other["sh_size"]:
            shifts.append((section["sh_addr"], section["sh_addr"] + section["sh_size"], other["sh_addr"] - section["sh_addr"]))
    shifted = []
    for one in variables:
        shift = 0 if one.thread_local else next((shift for start, end, shift in shifts if start <= one.address < end), None)
        if shift is not None:
            shifted.append(one._replace(address=one.address + shift))
    return shifted


def relocations(elf: Any) -> Set[Tuple[int, int, int]]:
    """(place, kind, data that it points to, or 0) of all; none of a file that has their sections without contents, as a debug file has."""
    data = elf.get_section_by_name(".data.rel.ro") or elf.get_section_by_name(".data")
    first = data["sh_addr"] if data is not None else 0
    return {
        (one["r_offset"], one["r_info_type"], one["r_addend"] if one["r_addend"] >= first else 0)
        for section in elf.iter_sections()
        if section["sh_type"] == "SHT_RELA"
        for one in section.iter_relocations()
    }


def names(elf: Any) -> List[str]:
    """Every name of .symtab and .dynsym."""
    tables = [elf.get_section_by_name(name) for name in (".symtab", ".dynsym")]
    return [
        symbol.name
        for table in tables
        if table is not None and table["sh_type"] != "SHT_NOBITS"
        for symbol in table.iter_symbols()
        if symbol["st_shndx"] != "SHN_UNDEF"
    ]


def make_glibc(debug: str, elf: Any, library: Any, own: List[pack_jemalloc.Variable]) -> Pack:
    """The pack of a libc's debug file, which has these variables."""
    identity = build_id(elf)
    if identity is None or build_id(library) != identity:
        raise HeapxError("%s is not the debug file of that library: their build-ids differ" % debug)
    texts = [library.get_section_by_name(name) for name in (BANNER_SECTION, ".rodata")]
    banner = next((found for one in texts if one is not None for found in [BANNER.search(one.data())] if found), None)
    if banner is None:
        raise HeapxError("nothing tells the release of %s" % debug, "give the libc itself with --stock LIBRARY")
    symbols, thread_locals = pack_glibc.places([tuple(one) for one in own])
    reader = WholeReader(elf, "main_arena")
    types = TypeWalk(reader, "").collect(STRUCTS, (), ())
    pack_glibc.check(types, debug)
    return Pack(
        allocator="glibc",
        version_text=banner.group(2).decode(),
        build_id=identity,
        machine=of_elf(ENUM_E_MACHINE[elf.header["e_machine"]], elf.elfclass // 8).name,
        word_bytes=elf.elfclass // 8,
        prefix="",
        public_prefix="",
        symbols=symbols,
        thread_locals=thread_locals,
        types=types,
        constants={},
        made_from=reader.origin,
        exactness="%s: its own debug file" % banner.group(1).decode(),
    )


def make(debug: str, stock: Optional[str] = None) -> Pack:
    """The pack of a debug file."""
    with open(debug, "rb") as file, open(stock or debug, "rb") as other:
        elf, library = ELFFile(file), ELFFile(other)
        own = variables(elf)
        if {"main_arena", "mp_"} <= {one.name for one in own}:
            return make_glibc(debug, elf, library, own)
        known = names(elf)
        prefix = next((name[: -len(traces.PREFIX_MARK)] for name in known if name.endswith(traces.PREFIX_MARK)), None)
        identity = build_id(library)
        if prefix is None or identity is None:
            raise HeapxError("%s is no debug file of a jemalloc with a build-id" % debug)
        if stock and relocations(elf) and relocations(library) and relocations(elf) != relocations(library):
            raise HeapxError("%s: its relocations are not those of %s" % (debug, stock), "its variables lie elsewhere: build it with the same compiler and switches")
        every = moved(elf, library, own) if stock else own
        symbols, thread_locals = pack_jemalloc.places(every, prefix, pack_jemalloc.public_prefix(known))
        machine = of_elf(ENUM_E_MACHINE[elf.header["e_machine"]], elf.elfclass // 8).name
        section = elf.get_section_by_name(".debug_str")
        strings = section.data() if section is not None else b""  # the macros of -g3 stand there as well
        reader = WholeReader(elf, prefix + "arenas")
        types = TypeWalk(reader, prefix).collect(layouts.STRUCTS, sorted(symbols) + sorted(thread_locals), layouts.ENUMERATORS)
    pack_jemalloc.check(types, debug)
    version = re.search(rb'\0JEMALLOC_VERSION "([^"\0]+)"', strings)
    constants: Dict[str, int] = {}
    for name, macro in MACROS.items():
        match = re.search(rb"\0%s (\d+)\0" % macro, strings)
        if match:
            constants[name] = int(match.group(1))
    switches = {name: reader.constant(name) for name in layouts.SWITCHES}
    constants.update({name: one for name, one in switches.items() if one is not None})
    text = version.group(1).decode() if version else None
    word_bytes = elf.elfclass // 8
    exactness = EXACTNESS.get(identity, "")
    return Pack(
        "jemalloc",
        text,
        identity,
        machine,
        word_bytes,
        prefix,
        pack_jemalloc.public_prefix(known),
        symbols,
        thread_locals,
        types,
        constants,
        reader.origin,
        exactness,
    )


def tree(pack: Pack) -> Dict[str, Any]:
    """Return the members of the JSON file."""
    names = ("allocator", "version_text", "build_id", "machine", "word_bytes", "prefix", "public_prefix", "made_from", "exactness")
    members: Dict[str, Any] = {"schema": SCHEMA}
    members.update({name: getattr(pack, name) for name in names})
    members["constants"] = dict(sorted(pack.constants.items()))
    structs = pack.types.structs.items()
    tables: Dict[str, Dict[str, Any]] = {
        "symbols": {name: list(place) for name, place in pack.symbols.items()},
        "thread_locals": {name: list(place) for name, place in pack.thread_locals.items()},
        "variables": {name: list(place)[1:] for name, place in pack.types.variables.items()},
        "enums": {
            name: dict(sorted(values.items(), key=lambda struct: (struct[1], struct[0]))) for name, values in pack.types.enums.items()
        },
        "structs": {name: [struct.size_bytes, {field: list(place) for field, place in struct.members.items()}] for name, struct in structs},
    }
    members.update({name: {key: table[key] for key in sorted(table)} for name, table in tables.items()})
    return members


def dump(pack: Pack) -> str:
    """Return the text of the file: the same for equal packs, one struct or variable a line."""
    lines = []
    for name, value in tree(pack).items():
        if isinstance(value, dict) and name != "constants":
            rows = ",\n".join("%s: %s" % (_json(key), _json(entry)) for key, entry in value.items())
            lines.append("%s: {\n%s\n}" % (_json(name), rows))
        else:
            lines.append("%s: %s" % (_json(name), _json(value)))
    return "{\n%s\n}\n" % ",\n".join(lines)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


class Source(NamedTuple):
    """What one pack is made of."""

    debug: str
    stock: Optional[str]


def sources(directory: str, stock: Optional[str], scratch: str) -> Iterator[Source]:
    """Debug files below a folder; of the small copies in tests/data unpacked ones in `scratch`."""
    for path in sorted(os.path.join(where, name) for where, _, names in os.walk(directory) for name in names):
        if path.endswith(".debug"):
            rebuilt = "/.build-id/" not in path
            if rebuilt and not stock:
                print("%s: left out, as it needs --stock LIBRARY" % path)
                continue
            yield Source(path, stock if rebuilt or is_of(path, stock) else None)
        elif path.endswith(".debug.xz"):
            sections = path.replace(".rebuilt.debug.xz", ".sections.xz")
            yield Source(unpacked(path, scratch), unpacked(sections, scratch) if sections != path else None)


def is_of(debug: str, stock: Optional[str]) -> bool:
    """This is the debug file of the library."""
    if stock is None:
        return False
    with open(debug, "rb") as file, open(stock, "rb") as other:
        return build_id(ELFFile(file)) == build_id(ELFFile(other))


def unpacked(path: str, scratch: str) -> str:
    """A plain copy of an .xz file."""
    plain = os.path.join(scratch, os.path.basename(path)[: -len(".xz")])
    with lzma.open(path) as packed, open(plain, "wb") as out:
        out.write(packed.read())
    return plain


def main() -> int:
    """Write one BUILDID.json each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default=os.path.join(ROOT, "gdbheapx", "packs"), help="folder for the packs")
    parser.add_argument("--stock", help="the distributed library, for debug files that are not below .build-id/, and for that of a libc")
    parser.add_argument("debug", nargs="+", help="folder with the debug files")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for debug, stock in [one for directory in asked.debug for one in sources(directory, asked.stock, scratch)]:
            pack = make(debug, stock)
            destination = os.path.join(asked.out, pack.build_id + ".json")
            with open(destination, "w", encoding="ascii") as out:
                out.write(dump(pack))
            figures = (pack.allocator, pack.version_text, len(pack.types.structs), len(pack.symbols))
            print("%s: %s %s, %d structs, %d variables" % (destination, *figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
