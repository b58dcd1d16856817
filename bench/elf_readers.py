"""CPU ms of gdbheapx's own ELF readers and of pyelftools for the same jobs: `python -m bench.elf_readers [LIBRARY DEBUGFILE]`.

LIBRARY is the C library of this machine unless it is given, DEBUGFILE its separate debug file. The figures in the docstrings of
gdbheapx/inferior/elf/file.py, core_file.py, dwarf.py and whole_file.py are the best of three runs of this.
"""

import os
import struct
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable

from tabulate import tabulate

from gdbheapx.inferior.core_file import CoreFile
from gdbheapx.inferior.elf.dwarf import DwarfUnits, TypeWalk
from gdbheapx.inferior.elf.file import ElfFile, gnu_build_id_path

LIBRARY = "/lib/x86_64-linux-gnu/libc.so.6"
STRUCTS = ("malloc_state", "malloc_par", "_heap_info", "tcache_perthread_struct")
LOADS, THREADS, FILES = 60000, 1000, 15000


def cpu_ms(step: Callable[[], Any]) -> float:
    """The best of three."""
    found = []
    for _ in range(3):
        began = time.process_time()
        step()
        found.append((time.process_time() - began) * 1000)
    return min(found)


def core(path: str, loads: int, threads: int, files: int) -> str:
    """A core with many mappings, threads and files, without content."""
    word = lambda *numbers: struct.pack("<%dQ" % len(numbers), *numbers)  # noqa: E731
    note = lambda kind, desc: struct.pack("<III8s", 5, len(desc), kind, b"CORE") + desc + bytes(-len(desc) % 4)  # noqa: E731
    named = word(files, 1) + b"".join(word(one << 14, (one << 14) + 4096, 0) for one in range(files)) + b"/usr/lib/some/library.so\0" * files
    notes, at = note(1, bytes(336)) * threads + note(0x46494C45, named), 64 + 56 * (loads + 1)
    with open(path, "wb") as file:
        file.write(b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 4, 62, 1, 0, 64, 0, 0, 64, 56, loads + 1, 0, 0, 0))
        file.write(struct.pack("<II6Q", 4, 0, at, 0, 0, len(notes), 0, 4))
        file.write(b"".join(struct.pack("<II6Q", 1, 6, at + len(notes), one << 12, 0, 0, 4096, 4096) for one in range(16, loads + 16)) + notes)
    return path


def unit_by_elftools(path: str, address: int) -> Any:
    """The structs of one unit as whole_file.py reads them, if it read no other."""
    from tools.whole_file import WholeReader, open_elftools

    class Single(WholeReader):
        def __init__(self, elf: Any) -> None:
            self.producer, self._variables, self._enumerators, self._constants = "", {}, {}, {}
            dwarf = elf.get_dwarf_info()
            self._types = self._unit(dwarf.get_CU_at(dwarf.get_aranges().cu_offset_at_addr(address)).get_top_DIE()).types

    return TypeWalk(Single(open_elftools(path)), "").collect(STRUCTS, (), ())


def main() -> None:
    """Print the table."""
    library = sys.argv[1] if len(sys.argv) > 1 else LIBRARY
    debug = sys.argv[2] if len(sys.argv) > 2 else "/usr/lib/debug/" + gnu_build_id_path(str(ElfFile(library).build_id()))
    script = "import time; t = time.process_time(); import elftools.elf.elffile; print((time.process_time() - t) * 1000)"
    imports = min(float(subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True).stdout) for _ in range(3))
    from tools.whole_file import open_elftools

    address = ElfFile(debug).symbols("malloc_info")[0].value
    with tempfile.TemporaryDirectory() as folder:
        wide, full = core(os.path.join(folder, "wide"), LOADS, 1, 1), core(os.path.join(folder, "full"), 1, THREADS, FILES)
        jobs = [
            ("program headers", lambda: ElfFile(library).program_headers(), lambda: list(open_elftools(library).iter_segments())),
            ("sections", lambda: ElfFile(debug).sections(), lambda: list(open_elftools(debug).iter_sections())),
            ("build-id", lambda: ElfFile(debug).build_id(), lambda: list(open_elftools(debug).get_section_by_name(".note.gnu.build-id").iter_notes())),
            ("one symbol by name", lambda: ElfFile(debug).symbols("main_arena"), lambda: open_elftools(debug).get_section_by_name(".symtab").get_symbol_by_name("main_arena")),
            ("every symbol", lambda: list(ElfFile(debug).every_symbol()), lambda: list(open_elftools(debug).get_section_by_name(".symtab").iter_symbols())),
            ("core: %d PT_LOAD" % LOADS, lambda: CoreFile(wide), lambda: [one["p_vaddr"] for one in open_elftools(wide).iter_segments()]),
            ("core: notes of %d threads, %d files" % (THREADS, FILES), lambda: CoreFile(full).notes(), lambda: [list(open_elftools(full).get_segment(0).iter_notes())]),
            ("types of one unit", lambda: TypeWalk(DwarfUnits().reader(ElfFile(debug), address), "").collect(STRUCTS, (), ()), lambda: unit_by_elftools(debug, address)),
        ]
        rows = [("import", "", "%.1f" % imports)] + [(name, "%.2f" % cpu_ms(own), "%.2f" % cpu_ms(theirs)) for name, own, theirs in jobs]
    print(tabulate(rows, ["job", "own ms", "pyelftools ms"], disable_numparse=True, colalign=("left", "right", "right")))


if __name__ == "__main__":
    main()
