"""Small copies of debug files for the tests of packs: types, variables and symbols stay, code is blanked.

    python -m tools.make_pack_testdata DEBUGFILE OUT.xz [LIBRARY]

Sections about code are left out; in .debug_info, what entries say of code places and source lines is overwritten with zeros, and so are
strings that nothing refers to. The structure of the DWARF stays as the compiler wrote it.

Of a libc, whose debug file is that of 1,600 units, one unit stays, with those that it refers to: the others are zeros behind their headers, as
are all symbols but a pack's. LIBRARY, the libc itself, has the text that names its release: it becomes the section .libc.banner.
"""

import lzma
import re
import subprocess
import sys
import tempfile
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from elftools.elf.elffile import ELFFile

from gdbheapx.glibc.detect import STRUCTS
from tools.make_packs import BANNER, BANNER_SECTION
from tools.pack_glibc import THREAD_LOCALS, VARIABLES
from tools.whole_file import read_die_name

LEFT_OUT = (
    ".debug_line",
    ".debug_loc",
    ".debug_loclists",
    ".debug_ranges",
    ".debug_rnglists",
    ".debug_macro",
    ".debug_aranges",
    ".comment",
)
BLANK = re.compile(
    r"DW_AT_(low_pc|high_pc|entry_pc|ranges|call_.*|decl_line|decl_column|decl_file|GNU_.*|stmt_list|macros|GNU_macros|frame_base)"
)
UNITS = ("DW_TAG_compile_unit", "DW_TAG_partial_unit")
IN_CODE = re.compile(r"DW_AT_(location|const_value)")
FIXED = {"DW_FORM_data1": 1, "DW_FORM_data2": 2, "DW_FORM_data4": 4, "DW_FORM_data8": 8, "DW_FORM_sec_offset": 4, "DW_FORM_addr": 8}
KEPT_MACROS = re.compile(rb"(JEMALLOC_VERSION|LG_PAGE|LG_VADDR) ")


def entries(die: Any, in_code: bool) -> Iterator[Tuple[Any, bool]]:
    """Every entry below, and whether it is inside a function."""
    yield die, in_code
    for child in die.iter_children():
        yield from entries(child, in_code or child.tag == "DW_TAG_subprogram")


def blank(unit: Any, data: bytearray, start: int, used: Set[int], end: int = sys.maxsize) -> None:
    """Zeros for what one unit says of code, up to the entry at `end`; notes the strings that it refers to."""
    for die, in_code in entries(unit.get_top_DIE(), False):
        if die.offset >= end:
            break
        for name, attribute in die.attributes.items():
            at = start + attribute.offset
            if attribute.form == "DW_FORM_strp":
                used.add(attribute.raw_value)
            elif BLANK.match(str(name)) or (in_code and IN_CODE.match(str(name))):
                if attribute.form in FIXED:
                    data[at : at + FIXED[attribute.form]] = bytes(FIXED[attribute.form])
                elif attribute.form == "DW_FORM_exprloc" and len(attribute.value) < 128:
                    data[at + 1 : at + 1 + len(attribute.value)] = bytes(len(attribute.value))


def shrink(path: str) -> bytes:
    """The small copy."""
    with open(path, "rb") as file:
        data = bytearray(file.read())
        elf = ELFFile(file)
        used: Set[int] = set()
        start = elf.get_section_by_name(".debug_info")["sh_offset"]
        if elf.get_section_by_name(BANNER_SECTION) is not None:
            used.update(only_malloc(elf, data, start))
        else:
            for unit in elf.get_dwarf_info().iter_CUs():
                blank(unit, data, start, used)
        blank_strings(elf, data, ".debug_str", used)
    return bytes(data)


def blank_strings(elf: Any, data: bytearray, name: str, used: Set[int]) -> None:
    """Zeros for the strings of a section that nothing refers to."""
    section = elf.get_section_by_name(name)
    start, text, at = section["sh_offset"], section.data(), 0
    offsets = sorted(used)
    for string in text.split(b"\0")[:-1]:
        end = at + len(string)
        if not KEPT_MACROS.match(string) and not any_within(offsets, at, end):
            data[start + at : start + end] = bytes(len(string))
        at = end + 1


def only_malloc(elf: Any, data: bytearray, start: int) -> Set[int]:
    """Zeros for everything in a libc but what the structs and symbols of a pack are made of; the strings that are left in use."""
    wanted: Dict[int, Any] = {}
    for unit in elf.get_dwarf_info().iter_CUs():
        tops = list(unit.get_top_DIE().iter_children())
        if any(die.tag == "DW_TAG_variable" and read_die_name(die) == "main_arena" for die in tops):
            pending = [die for die in tops if read_die_name(die) in STRUCTS + VARIABLES + THREAD_LOCALS]
            while pending:
                die = pending.pop()
                if die.offset not in wanted:
                    wanted[die.offset] = die
                    pending += [die.get_parent() or die, *die.iter_children()] if die.tag not in UNITS else []
                    pending += [die.get_DIE_from_attribute("DW_AT_type")] if "DW_AT_type" in die.attributes else []
                    pending += [one for one in tops if one.tag == "DW_TAG_imported_unit"]
                    pending += [die.get_DIE_from_attribute("DW_AT_import")] if "DW_AT_import" in die.attributes else []
    used: Dict[str, Set[int]] = {"DW_FORM_strp": set(), "DW_FORM_line_strp": set()}
    abbreviations = keep_units(elf, data, start, wanted, used)
    keep_abbreviations(elf, data, abbreviations)
    keep_symbols(elf, data)
    if elf.get_section_by_name(".debug_line_str") is not None:
        blank_strings(elf, data, ".debug_line_str", used["DW_FORM_line_strp"])
    return used["DW_FORM_strp"]


def keep_units(elf: Any, data: bytearray, start: int, wanted: Dict[int, Any], used: Dict[str, Set[int]]) -> Set[int]:
    """Zeros for what is behind the last wanted entry of a unit; units without any become one with the next of these, which is all zeros
    behind its header. Gives the abbreviations in use, and in `used` the strings, by form."""
    found = set()
    empty: Optional[int] = None
    for unit in elf.get_dwarf_info().iter_CUs():
        end = unit.cu_offset + unit["unit_length"] + unit.structs.initial_length_field_size()
        inside = [die for die in wanted.values() if unit.cu_offset <= die.offset < end and die.tag not in UNITS]
        kept = max((die.offset + die.size for die in inside), default=unit.cu_die_offset)
        if inside:
            found.add(unit["debug_abbrev_offset"])
            blank(unit, data, start, set(), kept)
            for die in unit.iter_DIEs():
                for one in die.attributes.values() if die.offset < kept else ():
                    if one.form in used:
                        used[one.form].add(one.raw_value)
        if not inside and empty is not None:
            kept = unit.cu_offset
            data[start + empty : start + empty + 4] = (end - empty - 4).to_bytes(4, "little")
        empty = None if inside else unit.cu_offset if empty is None else empty
        data[start + kept : start + end] = bytes(end - kept)
    return found


def keep_abbreviations(elf: Any, data: bytearray, offsets: Set[int]) -> None:
    """Zeros for the tables of abbreviations that no unit needs any more."""
    section = elf.get_section_by_name(".debug_abbrev")
    every = sorted({unit["debug_abbrev_offset"] for unit in elf.get_dwarf_info().iter_CUs()} | {section["sh_size"]})
    for first, end in zip(every, every[1:]):
        if first not in offsets:
            data[section["sh_offset"] + first : section["sh_offset"] + end] = bytes(end - first)


def keep_symbols(elf: Any, data: bytearray) -> None:
    """Zeros for all symbols that are in no pack, and for their names."""
    table = elf.get_section_by_name(".symtab")
    names = elf.get_section(table["sh_link"])
    text = bytearray(names["sh_size"])
    for number, symbol in enumerate(table.iter_symbols()):
        at = table["sh_offset"] + number * table["sh_entsize"]
        if symbol.name in VARIABLES + THREAD_LOCALS:
            text[symbol["st_name"] : symbol["st_name"] + len(symbol.name)] = symbol.name.encode()
        else:
            data[at : at + table["sh_entsize"]] = bytes(table["sh_entsize"])
    data[names["sh_offset"] : names["sh_offset"] + len(text)] = text


def any_within(wanted: Any, first: int, last: int) -> bool:
    """One of these sorted numbers lies between: tails of strings are shared."""
    from bisect import bisect_left

    place = bisect_left(wanted, first)
    return place < len(wanted) and wanted[place] <= last


def main() -> int:
    """Write the copy."""
    source, destination, *library = sys.argv[1:]
    with tempfile.NamedTemporaryFile() as plain, tempfile.NamedTemporaryFile() as banner:
        words: List[str] = ["objcopy", "--decompress-debug-sections"]
        for path in library:
            with open(path, "rb") as file:
                match = BANNER.search(file.read())
            if match is None:
                raise SystemExit("%s is no libc: no text in it names its release" % path)
            banner.write(match.group())
            banner.flush()
            words += ["--add-section", "%s=%s" % (BANNER_SECTION, banner.name)]
        for name in LEFT_OUT:
            words += ["-R", name]
        subprocess.run([*words, source, plain.name], check=True)
        packed = lzma.compress(shrink(plain.name), preset=9 | lzma.PRESET_EXTREME)
    with open(destination, "wb") as out:
        out.write(packed)
    print("%s: %d bytes" % (destination, len(packed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
