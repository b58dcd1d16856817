"""Slots of equal size as blocks: those of masks, of lists and of both, nested ones, in address order, resumed, in parts, and counted.

Files: kernel/blocks/slots.py, kernel/blocks/slots.py.
"""

import random
from array import array
from typing import Any, Dict, List, Tuple

import pytest

from gdbheapx.budget import Budget
from gdbheapx.kernel.blocks.slots import SLOT_STRAY, SLOT_TWICE, Frees, SlotRun, SlotTally, SlotWalker
from gdbheapx.kernel.blocks.stream import CLASS_CACHED, CLASS_FREE, CLASS_OVERHEAD, CLASS_USED, BlockFilter, make_blocks
from gdbheapx.kernel.common.library import STOP_END, Kernel

USED, FREE, CACHED, OWN = range(4)
CLASSES = (CLASS_USED, CLASS_FREE, CLASS_CACHED, CLASS_OVERHEAD)
LABELS = 5
Row = Tuple[int, int, int, int, int]


def flat(runs: List[SlotRun]) -> "array[int]":
    """As the kernel takes them."""
    return array("Q", [number for run in runs for number in run])


class Made:
    """Random runs, some right behind each other, with masks and lists; `rows`: what each slot is, by plain definition."""

    def __init__(self, seed: int, count: int = 30, most_slots: int = 200) -> None:
        rng, at = random.Random(seed), 0x10000
        self.runs: List[SlotRun] = []
        self.rows: List[Row] = []
        frees: Dict[int, int] = {}
        self.sums = [[0] * len(SlotTally._fields) for _ in range(LABELS)]
        for index in range(count):
            at += rng.choice((0, 16, 4096, 1 << 20))
            size, slots = 16 * rng.randrange(1, 40), rng.choice((1, 1, 5, 32, 64, most_slots))
            usable, mask = size - rng.choice((0, 4, 8)), rng.getrandbits(64)
            run = SlotRun(at, size, slots, usable, index, index % LABELS, rng.choice((USED, OWN)), FREE, mask, 7, True, 0)
            self.runs.append(run)
            for slot in range(slots):
                address = at + size * slot
                if rng.random() < 0.2:
                    frees[address] = rng.choice((FREE, CACHED))
                is_masked = slot < 64 and bool(mask >> slot & 1)
                kind = frees.get(address, FREE if is_masked else run.kind)
                self.rows.append((address, usable, CLASSES[kind], kind, index))
                sums, listed = self.sums[run.label], address in frees
                is_used = not listed and not is_masked
                for place, more in enumerate((is_used, is_masked and not listed, listed, usable * is_used, usable * (not is_used), size)):
                    sums[place] += more
            at += size * slots
        addresses = sorted(frees)
        self.frees = Frees(array("Q", addresses), array("B", [frees[address] for address in addresses]))

    def walker(self, kernel: Kernel, budget: Any = None) -> SlotWalker:
        """Over all of them."""
        return SlotWalker(kernel, None, flat(self.runs), CLASSES, LABELS, budget or Budget(), self.frees)


def rows(stream: Any) -> List[Row]:
    """All of them, one by one."""
    return [row for blocks in stream for row in zip(*blocks)]


@pytest.mark.parametrize("seed", range(12))
def test_slots_come_in_address_order_as_masks_and_lists_have_them(kernel: Kernel, seed: int) -> None:
    """Each slot once, with its status and what it belongs to; and the sums of all by label."""
    made = Made(seed)
    stream = made.walker(kernel).blocks()
    assert rows(stream) == made.rows
    assert stream.result is not None and stream.result.stop == STOP_END
    tallies = made.walker(kernel).tally()
    assert tallies.is_whole and not tallies.problem_count and not tallies.strays
    assert [list(row) for row in tallies.tallies] == made.sums


@pytest.mark.parametrize("seed", range(4))
def test_a_stream_begins_where_it_is_asked_to_and_leaves_out_what_is_not_wanted(kernel: Kernel, seed: int) -> None:
    """From any address, of any kinds and sizes, with blocks that lie apart."""
    made, rng = Made(seed), random.Random(seed)
    apart = make_blocks([(0x10000 - 64, 8, CLASS_OVERHEAD, OWN, 0), (made.rows[-1][0] + (1 << 30), 8, CLASS_OVERHEAD, OWN, 0)])
    for start in [0, 1 << 50] + [rng.choice(made.rows)[0] + rng.choice((-1, 0, 1)) for _ in range(20)]:
        wanted = BlockFilter(frozenset((USED, CACHED)), rng.randrange(300), rng.choice((None, 400)), start)
        expected = [row for row in made.rows if row[0] >= start and wanted.has(row[3], row[1])]
        expected += [row for row in zip(*apart) if row[0] >= start]
        assert rows(made.walker(kernel).blocks(wanted, apart)) == sorted(expected)


def test_addresses_of_a_list_that_are_no_slots_are_told(kernel: Kernel) -> None:
    """Inside a slot, between runs, behind all of them, and twice: each is named, and the others count."""
    run = SlotRun(0x1000, 32, 4, 32, 0, 0, USED, FREE, 0, 0, True, 0)
    addresses = [0x800, 0x1010, 0x1020, 0x1020, 0x1040, 0x9000]
    walker = SlotWalker(kernel, None, flat([run]), CLASSES, 1, Budget(), Frees(array("Q", addresses), array("B", [FREE] * 6)))
    tallies = walker.tally()
    codes = {(problem.address, problem.code) for problem in tallies.problems}
    assert codes == {(0x800, SLOT_STRAY), (0x1010, SLOT_STRAY), (0x1020, SLOT_TWICE), (0x9000, SLOT_STRAY)}
    assert (tallies.strays, tallies.problem_count) == (4, 4)
    assert tallies.tallies[0] == SlotTally(2, 0, 2, 64, 64, 128, 0)


@pytest.mark.parametrize(
    "runs",
    [
        [(0x1000, 32, 4), (0x1070, 16, 1)],
        [(0x2000, 32, 4), (0x1000, 16, 1)],
        [(0x1000, 0, 4)],
        [(0x1000, 32, 0)],
        [((1 << 64) - 32, 32, 2)],
    ],
)
def test_runs_that_overlap_or_leave_the_address_space_are_refused(kernel: Kernel, runs: Any) -> None:
    """The walks rely on it; so are labels and kinds that there are none of, and a list whose kinds are lacking."""
    made = [SlotRun(*run, run[1], 0, 0, USED, FREE, 0, 0, True, 0) for run in runs]
    with pytest.raises(ValueError):
        SlotWalker(kernel, None, flat(made), CLASSES, 1, Budget())
    good = SlotRun(0x1000, 32, 4, 32, 0, 0, USED, FREE, 0, 0, True, 0)
    for bad in (good._replace(label=1), good._replace(kind=64), good._replace(usable_bytes=33)):
        with pytest.raises(ValueError):
            SlotWalker(kernel, None, flat([bad]), CLASSES, 1, Budget())
    with pytest.raises(ValueError):
        SlotWalker(kernel, None, flat([good]), CLASSES, 1, Budget(), Frees(array("Q", [0x1000])))
