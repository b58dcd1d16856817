"""Small copies of debug files for the tests of packs: types, variables and symbols stay, code is blanked.

    python -m tools.make_pack_testdata DEBUGFILE OUT.xz

Sections about code are left out; in .debug_info, what entries say of code places and source lines is overwritten with zeros, and so are
strings that nothing refers to. The structure of the DWARF stays as the compiler wrote it.
"""

import lzma
import re
import subprocess
import sys
import tempfile
from typing import Any, Iterator, Set, Tuple

from elftools.elf.elffile import ELFFile

LEFT_OUT = (".debug_line", ".debug_loc", ".debug_loclists", ".debug_ranges", ".debug_rnglists", ".debug_macro", ".debug_aranges", ".comment")
BLANK = re.compile(r"DW_AT_(low_pc|high_pc|entry_pc|ranges|call_.*|decl_line|decl_column|decl_file|GNU_.*|stmt_list|macros|GNU_macros|frame_base)")
IN_CODE = re.compile(r"DW_AT_(location|const_value)")
FIXED = {"DW_FORM_data1": 1, "DW_FORM_data2": 2, "DW_FORM_data4": 4, "DW_FORM_data8": 8, "DW_FORM_sec_offset": 4, "DW_FORM_addr": 8}
KEPT_MACROS = re.compile(rb"(JEMALLOC_VERSION|LG_PAGE|LG_VADDR) ")


def entries(die: Any, in_code: bool) -> Iterator[Tuple[Any, bool]]:
    """Every entry below, and whether it is inside a function."""
    yield die, in_code
    for child in die.iter_children():
        yield from entries(child, in_code or child.tag == "DW_TAG_subprogram")


def blank(unit: Any, data: bytearray, start: int, used: Set[int]) -> None:
    """Zeros for what one unit says of code; notes the strings that it refers to."""
    for die, in_code in entries(unit.get_top_DIE(), False):
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
        for unit in elf.get_dwarf_info().iter_CUs():
            blank(unit, data, elf.get_section_by_name(".debug_info")["sh_offset"], used)
        section = elf.get_section_by_name(".debug_str")
        start, text, at = section["sh_offset"], section.data(), 0
        wanted = sorted(used)
        for string in text.split(b"\0")[:-1]:
            end = at + len(string)
            if not KEPT_MACROS.match(string) and not any_within(wanted, at, end):
                data[start + at : start + end] = bytes(len(string))
            at = end + 1
    return bytes(data)


def any_within(wanted: Any, first: int, last: int) -> bool:
    """One of these sorted numbers lies between: tails of strings are shared."""
    from bisect import bisect_left

    place = bisect_left(wanted, first)
    return place < len(wanted) and wanted[place] <= last


def main() -> int:
    """Write the copy."""
    source, destination = sys.argv[1:]
    with tempfile.NamedTemporaryFile() as plain:
        words = ["objcopy", "--decompress-debug-sections"]
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
