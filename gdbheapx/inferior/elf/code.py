"""The code of an ELF file with what it takes to follow its calls: functions by .eh_frame, and what the global offset table will hold."""

from typing import Dict, Optional

from gdbheapx.inferior.base import Code
from gdbheapx.inferior.elf.file import PT_LOAD, ElfFile
from gdbheapx.inferior.elf.unwind import CallFrames
from gdbheapx.inferior.elf.vtables import DT_RELA, DT_RELASZ, Image

DT_PLTRELSZ, DT_JMPREL = 2, 23
MOST_CODE_BYTES = 512 << 20


def find(file: ElfFile) -> Optional[Code]:
    """None for a machine whose code is not read."""
    header = file.header
    if header.arch.code is None or header.arch.relocations is None or header.word_bytes != 8 or not header.little_endian:
        return None
    image, left, parts = Image(file), MOST_CODE_BYTES, []
    for segment in file.program_headers():
        if segment.type == PT_LOAD and segment.executable:
            data = file.pread(segment.offset, min(segment.filesz, left))
            left -= len(data)
            parts.append((segment.vaddr, data))
    slots: Dict[int, str] = {place: imported.name for place, imported in image.imported.items() if not imported.addend}
    pointers = dict(image.own)
    for table in ((DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)):
        for place, info, addend in image.table(*table, header.order + "QQq"):
            if info & 0xFFFFFFFF in header.arch.relocations.slots:
                name, symbol = image.symbol(info >> 32)
                slots[place] = name
                if symbol.section:
                    pointers[place] = symbol.value + addend
    return Code(header.arch, parts, CallFrames(file).functions(), slots, pointers)
