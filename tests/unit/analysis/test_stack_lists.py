"""Ended threads by the C library's lists: nobody has joined them, or their stacks are kept for reuse.

Files: analysis/memory/attribute.py, analysis/memory/stacks.py.
"""

import struct
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest

from gdbheapx.analysis import memory_verdict
from gdbheapx.analysis.split import Split
from gdbheapx.common import findings as codes
from gdbheapx.inferior.base import Module, Thread
from tests.support.builders.recorded import Recorded, divide, use

pytestmark = pytest.mark.once  # pure functions
LIST_AT, TID_AT, START_AT, BLOCK_AT = 704, 720, 1592, 1680
BLOCK_BYTES, STACK_BYTES, GUARD_BYTES = 0x940, 0x10000, 0x1000
DATA, MAIN, STACKS, CODE = 0x600000, 0x700740, 0x7F0000000000, 0x400000
JOINED = -1
BESIDE = {"used": DATA + 0x100, "user": DATA + 0x110, "cache": DATA + 0x120}, DATA + 0x130
APART = {"cache": DATA + 0x100, "used": DATA + 0x110, "user": DATA + 0x800}, DATA + 0xA00
Layout = Tuple[Dict[str, int], int]


def pointer(number: int) -> int:
    """Of a thread's control block, at the end of its stack."""
    return STACKS + (number + 1) * STACK_BYTES - BLOCK_BYTES


class Service(Recorded):
    """A process whose C library's variables and control blocks can be read."""

    words: Dict[int, int]

    def writable_segments(self, module: Module) -> List[Tuple[int, int, int]]:
        return [(DATA, DATA + 0x1000, DATA + 0x1000)]

    def read_prefix(self, address: int, size_bytes: int) -> bytes:
        data = struct.pack("<%dQ" % (-(-size_bytes // 8) + 1), *(self.words.get((address & -8) + at * 8, 0) for at in range(-(-size_bytes // 8) + 1)))
        return data[address % 8 : address % 8 + size_bytes]


def service(layout: Layout, lists: Dict[str, Sequence[int]], living: Sequence[int], tids: Optional[Dict[int, int]] = None, guards: bool = True) -> Service:
    """Of one release: which stacks are on which list, and which of them have a thread."""
    heads, sum_at = layout
    words = {sum_at: len(lists.get("cache", ())) * STACK_BYTES, MAIN: MAIN, MAIN + 16: MAIN}
    for name, head in heads.items():
        nodes = [head, *(pointer(number) + LIST_AT for number in lists.get(name, ())), *([MAIN + LIST_AT] if name == "user" else [])]
        for before, after in zip(nodes, [*nodes[1:], head]):
            words[before], words[after + 8] = after, before
        for number in lists.get(name, ()):
            block, start = pointer(number), STACKS + number * STACK_BYTES
            words.update({block: block, block + 16: block, block + START_AT: CODE + 0x1189})
            words[block + TID_AT] = (tids or {}).get(number, 0) & 0xFFFFFFFF
            words.update({block + BLOCK_AT: start, block + BLOCK_AT + 8: STACK_BYTES, block + BLOCK_AT + 16: GUARD_BYTES})
    uses = [use(CODE, CODE + 0x2000, "r-xp", "/srv/app"), use(DATA, DATA + 0x1000, "rw-p", "/lib/libc.so.6", 0x1000), use(0x700000, 0x701000, resident=0x1000)]
    numbers = sorted(number for name in lists for number in lists[name])
    for number in numbers:
        start = STACKS + number * STACK_BYTES
        if guards:
            uses += [use(start, start + GUARD_BYTES, "---p"), use(start + GUARD_BYTES, start + STACK_BYTES, resident=STACK_BYTES - GUARD_BYTES)]
    if numbers and not guards:
        uses.append(use(STACKS, STACKS + (numbers[-1] + 1) * STACK_BYTES, resident=(numbers[-1] + 1) * STACK_BYTES))
    threads = [Thread(100, "main", MAIN, 0x7FFF00000000, 0), *(Thread(101 + number, None, pointer(number), pointer(number) - 0x200, 0) for number in living)]
    made = Service(uses, ["/srv/app", "/lib/libc.so.6"], threads, [(CODE, CODE + 0x2000)])
    made.words = words
    return made


def rows(found: Split) -> Dict[str, int]:
    """What each sort of stacks has of RSS."""
    return {part.name: part.resident_bytes or 0 for part in found.parts if part.kind == "stack"}


CASES: Dict[str, Tuple[Dict[str, Sequence[int]], Sequence[int], Dict[int, int], Tuple[int, int]]] = {
    "nobody joins": ({"used": range(20)}, [], {}, (20, 0)),
    "all were joined": ({"cache": range(4)}, [], dict.fromkeys(range(4), JOINED), (0, 4)),
    "all were detached": ({"cache": range(4)}, [], {}, (0, 4)),
    "some live": ({"used": range(6), "cache": [6, 7]}, [0, 3], {6: JOINED, 7: JOINED}, (4, 2)),
    "as many of both": ({"used": range(4), "cache": range(4, 8)}, [], dict.fromkeys(range(4, 8), JOINED), (4, 4)),
    "on stacks of the program's": ({"user": range(3)}, [1], {}, (2, 0)),
    "none": ({}, [], {}, (0, 0)),
}


@pytest.mark.parametrize("guards", [True, False], ids=["guards", "joined mappings"])
@pytest.mark.parametrize("layout", [BESIDE, APART], ids=["since 2.34", "before"])
@pytest.mark.parametrize("case", CASES)
def test_each_list_says_what_became_of_its_threads(case: str, layout: Layout, guards: bool) -> None:
    """Whichever release it is, whether others live, and whether the kernel has joined the stacks' mappings."""
    lists, living, tids, (unjoined, cached) = CASES[case]
    found = divide(service(layout, lists, living, tids, guards))
    ended = found.memory.ended_threads
    assert ended is not None and (ended.unjoined, ended.cached) == (unjoined, cached)
    assert (ended.unjoined_virtual_bytes, ended.cached_virtual_bytes) == (unjoined * STACK_BYTES, cached * STACK_BYTES)
    assert [start.threads for start in ended.starts] == [unjoined][: unjoined > 0]
    per_stack = STACK_BYTES - GUARD_BYTES if guards else STACK_BYTES
    kinds = (("never joined", unjoined), ("cached for reuse", cached), ("thread stacks", len(living)))
    assert {word: sum(size for name, size in rows(found).items() if word in name) for word, _ in kinds} == {word: count * per_stack for word, count in kinds}
    findings = [finding for finding in memory_verdict.find_memory_findings(found) if finding.code == codes.NEVER_JOINED]
    assert [finding.what.split(" ")[0] for finding in findings] == ["20"][: unjoined == 20]


def test_detached_threads_beside_unjoined_ones() -> None:
    """Both lists have the same sum, and no thread of the cache was joined: since 2.34 the word behind the heads decides."""
    found = divide(service(BESIDE, {"used": range(4), "cache": range(4, 8)}, []))
    assert found.memory.ended_threads is not None and found.memory.ended_threads[:1] == (4,) and found.memory.ended_threads.cached == 4


def broken(words: Dict[int, int]) -> Any:
    target = service(BESIDE, {"used": range(3), "user": [3]}, [])
    target.words.update(words)
    return divide(target)


@pytest.mark.parametrize("at", [MAIN + LIST_AT, MAIN + LIST_AT + 8, BESIDE[0]["user"], BESIDE[0]["user"] + 8, pointer(3) + LIST_AT + 8])
def test_links_that_do_not_agree(at: int) -> None:
    """No list is believed, and it is not known who was joined; stacks are known by the control blocks that they hold."""
    found = broken({at: DATA + 0x40})
    assert found.memory.ended_threads is None and set(rows(found)) == {"stacks of exited threads, joined or not"}


@pytest.mark.parametrize("target", [pointer(0) + LIST_AT, pointer(1) + LIST_AT, 0, 8, (1 << 64) - 8])
def test_a_list_that_leads_elsewhere_ends(target: int) -> None:
    """A circle, no address, or the last one: the other lists stand."""
    found = broken({pointer(1) + LIST_AT: target})
    assert found.memory.ended_threads is not None and found.memory.ended_threads.unjoined == 1
