"""/proc/PID/smaps as records: one for each mapping, for any kernel that has the file.

What this machine, and one process, say about transparent huge pages and locked memory.
"""

import os
import re
from itertools import repeat
from operator import add
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, cast

from gdbheapx import files
from gdbheapx.inferior.base import HugePages, Mapping, MappingUse, MemoryUse
from gdbheapx.inferior.live import procfs

Column = Sequence[Optional[int]]
"""One value for each mapping; None where the kernel gives none."""

Touched = Callable[[int, int, bool], Optional[int]]
"""How many bytes from an address to another one are in a copy of the process; with those that were in swap, or without."""
SUMS: Tuple[Tuple[str, Tuple[bytes, ...]], ...] = (
    ("resident_bytes", (b"Rss",)),
    ("huge_bytes", (b"AnonHugePages", b"ShmemPmdMapped", b"FilePmdMapped")),
    ("pss_bytes", (b"Pss",)),
    ("shared_bytes", (b"Shared_Clean", b"Shared_Dirty")),
    ("private_clean_bytes", (b"Private_Clean",)),
    ("private_dirty_bytes", (b"Private_Dirty",)),
    ("anonymous_bytes", (b"Anonymous",)),
    ("lazy_free_bytes", (b"LazyFree",)),
    ("hugetlb_bytes", (b"Shared_Hugetlb", b"Private_Hugetlb")),
    ("swapped_bytes", (b"Swap",)),
)
"""Fields of MappingUse in their order, and the keys whose sum each is; those that this kernel lacks count as nothing, unless all are
lacking."""

FLAGS = b"VmFlags"
NEEDED = frozenset(key for _, keys in SUMS for key in keys)
HEX = frozenset(b"0123456789abcdef")
"""What the first line of a mapping begins with; a key begins with a capital letter."""
NO_MAPPING = Mapping(0, 0, False, False, False, False, "", None)
HUGE_BYTES = 2 << 20
"""The smallest that a huge page may have."""
SETTING = "/sys/kernel/mm/transparent_hugepage/enabled"


def parse_smaps(data: bytes, filesystems: Optional[Dict[str, str]] = None) -> List[MappingUse]:
    """The text of a whole smaps file. `filesystems`: type of the file system by device, as `mounts` gives it.

    A mapping whose lines are cut off, because the process went away meanwhile, is left out.
    """
    lines = data.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    table = _by_stride(lines) or _by_line(lines)
    return _make_records(table, filesystems or {})


BYTES_AT_ONCE = 2048
"""The kernel fills a buffer of 4 KiB for each read of smaps, and counts a mapping that does not fit into it again for the next: of a heap
13 ms for each GiB. It does not begin with another mapping behind so many bytes."""


class Texts(NamedTuple):
    """Text of smaps, mountinfo and status at one moment, not parsed yet: many thousand mappings take their time."""

    smaps: bytes
    mounts: bytes
    status: Dict[str, str]


def read_smaps_texts(pid: int) -> Texts:
    """Read the texts of a process of this machine."""
    mounted = procfs.slurp_file("/proc/%d/mountinfo" % procfs.proc_entry_number(pid)) or b""
    return Texts(
        procfs.slurp_file("/proc/%d/smaps" % procfs.proc_entry_number(pid), BYTES_AT_ONCE) or b"", mounted, procfs.read_process_status(pid)
    )


def in_copy(uses: Sequence[MappingUse], mappings: Sequence[Mapping], touched: Touched) -> List[MappingUse]:
    """Return the uses read just before a process was copied, for the mappings that it had then. For a mapping that is another, or of
    which nothing was in memory, the copy gives the numbers.
    """
    known = {use.mapping: use for use in uses}
    made, place = [], 0
    for mapping in mappings:
        use = known.get(mapping)
        if use is None or (mapping.is_untouched_zero and not (use.resident_bytes or use.swapped_bytes)):
            while place < len(uses) and uses[place].mapping.end <= mapping.start:
                place += 1
            is_near = place < len(uses) and uses[place].mapping.start < mapping.end
            present = touched(mapping.start, mapping.end, False) or 0
            swapped = (touched(mapping.start, mapping.end, True) or 0) - present
            own, none = (present, 0) if mapping.is_untouched_zero else (None, None)
            huge = 0 if mapping.size_bytes < HUGE_BYTES else None
            flags, filesystem = (uses[place].flags, uses[place].filesystem) if is_near else (frozenset(), None)
            use = MappingUse(mapping, present, huge, own, none, none, own, own, none, none, swapped, flags, filesystem)
        made.append(use)
    return made


def make_smaps_usage(told: Texts) -> Optional[MemoryUse]:
    """Return the use of every mapping, or None if smaps cannot be read."""
    if not told.smaps:
        return None
    words = (told.status.get(name, "").split() for name in ("VmSwap", "VmSize", "VmPeak", "VmHWM"))
    swapped, virtual, most, peak = (int(field[0]) * 1024 if field else None for field in words)
    return MemoryUse("resident", parse_smaps(told.smaps, map_device_types(told.mounts)), swapped, True, virtual, most, peak)


class SmapsTable:
    """The lines that matter, by column."""

    def __init__(self, heads: Sequence[bytes], columns: Dict[bytes, Column], flags: Sequence[Optional[bytes]]) -> None:
        self.heads = heads
        self.columns = columns
        self.flags = flags


def _by_stride(lines: List[bytes]) -> Optional[SmapsTable]:
    """The usual case: one kernel prints the same keys for every mapping, so each key is every n-th line. None if it is not so."""
    width = next((place for place, line in enumerate(lines[1:], 1) if line and line[0] in HEX), len(lines))
    if not lines or len(lines) % width:
        return None
    heads = lines[0::width]
    if not all(head and head[0] in HEX for head in heads):
        return None
    columns: Dict[bytes, Column] = {}
    flags: Sequence[Optional[bytes]] = [None] * len(heads)
    for place in range(1, width):
        key = lines[place].partition(b":")[0]
        if key in NEEDED:
            values = _parse_numbers(key, lines[place::width])
            if values is None:
                return None
            columns[key] = values
        elif key == FLAGS:
            flags = [line[len(FLAGS) + 1 :] for line in lines[place::width]]
            if not all(map(bytes.startswith, lines[place::width], repeat(FLAGS))):
                return None
    return SmapsTable(heads, columns, flags) if b"Rss" in columns else None


def _parse_numbers(key: bytes, lines: List[bytes]) -> Optional[List[Optional[int]]]:
    """`KEY:   12 kB` of every mapping, in kB, without a step of Python's for each; None if a line is another key's."""
    if lines.count(lines[0]) == len(lines):  # mostly zeros: swap, hugetlb, huge pages of files
        return [_parse_number(lines[0].partition(b":")[2])] * len(lines)
    words = b"".join(lines).replace(key + b":", b" ").split(b"kB")
    try:
        values: List[Optional[int]] = list(map(int, words[:-1]))
    except ValueError:
        return None
    return values if len(values) == len(lines) else None


def _by_line(lines: List[bytes]) -> SmapsTable:
    """Any order of keys, and keys that only some mappings have (Nonlinear of Linux 3.x)."""
    heads: List[bytes] = []
    values: List[Dict[bytes, bytes]] = []
    for line in lines:
        if line and line[0] in HEX:
            heads.append(line)
            values.append({})
        elif values:
            key, colon, rest = line.partition(b":")
            if colon and (key in NEEDED or key == FLAGS):
                values[-1][key] = rest
    kept = [(head, fields) for head, fields in zip(heads, values) if b"Rss" in fields]
    columns: Dict[bytes, Column] = {key: [_parse_number(fields.get(key)) for _, fields in kept] for key in NEEDED}
    return SmapsTable([head for head, _ in kept], columns, [fields.get(FLAGS) for _, fields in kept])


def _parse_number(text: Optional[bytes]) -> Optional[int]:
    """The 12 of `   12 kB`."""
    digits = text.split()[:1] if text is not None else []
    return int(digits[0]) if digits and digits[0].isdigit() else None


def _make_records(table: SmapsTable, filesystems: Dict[str, str]) -> List[MappingUse]:
    parsed = [procfs.parse_maps_line(head) for head in os.fsdecode(b"\n".join(table.heads)).split("\n")]
    mappings = [mapping or NO_MAPPING for mapping in parsed]
    sums = [_sum_columns([table.columns[key] for key in keys if key in table.columns], len(table.heads)) for _, keys in SUMS]
    known = {text: None if text is None else frozenset(os.fsdecode(text).split()) for text in set(table.flags)}  # a handful of combinations
    types = [filesystems.get(mapping.device) if mapping.inode else None for mapping in mappings]
    made = map(MappingUse._make, zip(mappings, *sums, [known[text] for text in table.flags], types))
    if None not in parsed and None not in sums[0]:
        return list(made)
    return [use for use, mapping in zip(made, parsed) if mapping is not None and use.resident_bytes is not None]


def _sum_columns(columns: Sequence[Column], count: int) -> Column:
    """The keys' sum in bytes; None for a mapping that has none of the keys."""
    if not columns:
        return [None] * count
    if any(None in column for column in columns):
        return [None if row.count(None) == len(row) else 1024 * sum(value or 0 for value in row) for row in zip(*columns)]
    known = cast(List[Sequence[int]], columns)
    total = known[0]
    for column in known[1:]:
        total = list(map(add, total, column))
    return list(map((1024).__mul__, total))


def map_device_types(text: bytes) -> Dict[str, str]:
    """Device, as /proc/PID/maps writes it (`fd:01`), -> type of the file system mounted from it where the process sees it, by the process's
    mountinfo."""
    return {"%02x:%02x" % tuple(map(int, mount.device.split(":"))): os.fsdecode(mount.kind) for mount in files.parse_mounts(text)}


def machine_setting() -> Optional[str]:
    """The word in brackets of transparent_hugepage/enabled."""
    text = (procfs.slurp_file(SETTING) or b"").decode("ascii", "replace")
    match = re.search(r"\[(\w+)\]", text)
    return match.group(1) if match else None


def find_huge_pages(pid: int, setting: Optional[str]) -> HugePages:
    """Return the huge page settings and locked bytes of one process."""
    fields = procfs.read_process_status(pid)
    locked = fields.get("VmLck", "").split()
    allowed = fields.get("THP_enabled")
    return HugePages(setting, None if allowed is None else allowed.strip() == "1", int(locked[0]) * 1024 if locked else None)
