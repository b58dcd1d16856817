"""Pools of cells: which are used.

Files: kernel/blocks/slots.py.
"""

import random
from array import array
from typing import Dict, List, Tuple

import pytest

from gdbheapx.common.budget import Budget
from gdbheapx.inferior.base import BytesSource
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks.stream import CLASS_USED

HERE = 0x100000


def world(seed: int, order: str, bytes_: int) -> Tuple[bytes, List[Tuple[int, int]], Dict[str, int]]:
    """Pools with holes, wholly free ones, and two that are none; their used cells, and sums."""
    rng, data, used, sums = random.Random(seed), bytearray(), [], dict.fromkeys(("used", "free", "lost", "free pools", "bad"), 0)
    for number in range(12):
        at, class_ = HERE + len(data), rng.randrange(32)
        size = (class_ + 1) * 16
        cells = (bytes_ - 48) // size
        carved = rng.choice((cells, rng.randint(1, cells)))
        free = rng.sample(range(carved), carved if number == 3 else rng.randrange(carved))
        pool = bytearray(rng.getrandbits(8) for _ in range(bytes_))
        links = [at + 48 + cell * size for cell in free] + [0]
        for cell, link in zip(free, links[1:]):
            pool[48 + cell * size : 56 + cell * size] = link.to_bytes(8, order)  # type: ignore[arg-type]
        last = bytes_ - size - (8 if number == 5 else 0)
        for place, width, value in ((0, 4, carved - len(free)), (8, 8, links[0]), (36, 4, class_), (40, 4, 48 + carved * size), (44, 4, last)):
            pool[place : place + width] = value.to_bytes(width, order)  # type: ignore[arg-type]
        data += pool
        if number == 5:
            sums["bad"] += 1
        elif len(free) == carved:
            sums["free pools"] += 1
        else:
            used += [(at + 48 + cell * size, size) for cell in range(carved) if cell not in free]
            sums["used"] += (carved - len(free)) * size
            sums["free"] += (cells - carved + len(free)) * size
            sums["lost"] += bytes_ - cells * size
    return bytes(data), used, sums


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("pool_bytes", [4096, 16384])
@pytest.mark.parametrize("seed", range(3))
def test_used_cells_and_sums(c_kernel: CKernel, seed: int, pool_bytes: int, order: str) -> None:
    """The used cells are those that were carved and are on no list; sums tell the same of headers alone."""
    data, used, sums = world(seed, order, pool_bytes)
    half = HERE + 7 * pool_bytes
    runs = ((HERE, half), (half, HERE + len(data)))
    pools = c_kernel.pools(BytesSource(((HERE, data),)), pool_bytes, order == "little", runs, Budget())
    batches = list(pools.blocks())
    assert [pair for batch in batches for pair in zip(batch.addresses, batch.usable_bytes)] == used
    assert {class_ for batch in batches for class_ in batch.classes} == {CLASS_USED}
    found = pools.sums()
    assert (found.pools, found.bad, found.free_pools) == (12, sums["bad"], sums["free pools"])
    assert (found.used_bytes, found.free_bytes, found.lost_bytes) == (sums["used"], sums["free"], sums["lost"])


def by_definition(data: bytes) -> Tuple[Dict[str, int], List[Tuple[int, int]]]:
    """Sums and used cells of little-endian pools of 4 KiB, of whatever bytes."""
    sums, used = dict.fromkeys(("pools", "used", "free", "lost", "free pools", "bad"), 0), []
    for at in range(0, 12 * 4096, 4096):
        pool = data[at : at + 4096]
        in_use, class_, behind, last = (int.from_bytes(pool[place : place + 4], "little") for place in (0, 36, 40, 44))
        size = 16 * (class_ + 1)
        cells, (carved, rest) = 4048 // size, divmod(behind - 48, size)
        sums["pools"] += 1
        if len(pool) < 48 or class_ >= 64 or last != 4096 - size or behind < 48 or rest or not in_use <= carved <= cells:
            sums["bad"] += 1
        elif not in_use:
            sums["free pools"] += 1
        else:
            for what, bytes_ in (("used", in_use * size), ("free", (cells - in_use) * size), ("lost", 4096 - cells * size)):
                sums[what] += bytes_
            free: List[int] = []
            link = int.from_bytes(pool[8:16], "little") - HERE - at - 48
            while link >= 0 and not link % size and link < carved * size and link not in free and link + 56 <= len(pool):
                free.append(link)
                link = int.from_bytes(pool[link + 48 : link + 56], "little") - HERE - at - 48
            used += [(HERE + at + 48 + cell, size) for cell in range(0, carved * size, size) if cell not in free]
    return sums, used


@pytest.mark.parametrize("seed", range(20))
def test_damaged_pools(c_kernel: CKernel, seed: int) -> None:
    """Random bytes in pools, and memory that ends inside one: headers that are none count as bad, a broken list ends."""
    data, _, _ = world(seed, "little", 4096)
    rng, damaged = random.Random(seed), bytearray(data)
    for _ in range(200):
        pool = rng.randrange(12) * 4096
        damaged[pool + rng.choice((rng.randrange(48), rng.randrange(4096)))] = rng.getrandbits(8)
    there = bytes(damaged[: -rng.randrange(9000)])
    pools = c_kernel.pools(BytesSource(((HERE, there),)), 4096, True, ((HERE, HERE + len(data)),), Budget())
    sums, used = by_definition(there)
    assert list(pools.sums()) == list(sums.values())
    assert [pair for batch in pools.blocks() for pair in zip(batch.addresses, batch.usable_bytes)] == used


@pytest.mark.parametrize("seed", range(4))
def test_cells_of_runs_are_those_with_a_label(c_kernel: CKernel, seed: int) -> None:
    """Cells stand side by side, run after run; where labels are fewer than cells, the rest is left out; without labels all are told."""
    rng = random.Random(seed)
    runs = [(HERE + number * 0x10000, 8 * rng.randint(1, 80), rng.randrange(200)) for number in range(6)]
    every = [(start + size * cell, size) for start, size, count in runs for cell in range(count)]
    labels = array("I", [rng.choice((0, 0, 1, 7)) for _ in range(max(0, len(every) - 40))])
    assert list(zip(*c_kernel.cells(runs))) == every
    assert list(zip(*c_kernel.cells(runs, labels))) == [cell for cell, label in zip(every, labels) if label]


def lists(seed: int) -> Tuple[List[Tuple[int, int, int]], List[int], List[int], bytearray]:
    """Runs side by side, heads of lists through some of their cells, these cells in order, and the memory of all."""
    rng = random.Random(seed)
    runs = [(HERE + number * 0x4000, 8 * rng.randint(1, 80), rng.randint(1, 0x4000 // 640)) for number in range(6)]
    cells = [start + size * cell for start, size, count in runs for cell in range(count)]
    free, data = rng.sample(cells, len(cells) // 2), bytearray(0x18000)
    bounds = sorted(rng.sample(range(len(free)), 3))
    parts = [free[start:end] for start, end in zip([0, *bounds], [*bounds, len(free)])]
    for part in parts:
        for cell, link in zip(part, [*part[1:], 0]):
            data[cell - HERE : cell - HERE + 8] = link.to_bytes(8, "little")
    return runs, [part[0] if part else 0 for part in parts], free, data


@pytest.mark.parametrize("seed", range(4))
def test_cells_in_lists_are_not_in_use(c_kernel: CKernel, seed: int) -> None:
    """Those of all lists lose their labels, the others keep them."""
    runs, heads, free, data = lists(seed)
    labels = c_kernel.unlisted(BytesSource(((HERE, bytes(data)),)), runs, heads, len(free), Budget())
    assert labels is not None and sum(labels) == len(labels) - len(free)
    kept, _ = c_kernel.cells(runs, labels)
    assert set(kept) == {start + size * cell for start, size, count in runs for cell in range(count)} - set(free)


@pytest.mark.parametrize("damage", ["most", "between", "outside", "twice", "cycle", "unread", "empty", "size"])
def test_a_list_that_is_none(c_kernel: CKernel, damage: str) -> None:
    """It leads between cells, out of all runs, to a cell twice or to what cannot be read, or has no end: none is called free."""
    runs, heads, free, data = lists(1)
    most, whole = len(free), BytesSource(((HERE, bytes(data)),))
    assert c_kernel.unlisted(whole, runs, heads, most, Budget()) is not None
    last = free[-1] - HERE
    wrong = {"between": free[0] + 4, "outside": HERE + 0x100000, "twice": free[0], "cycle": free[-1]}.get(damage, 0)
    data[last : last + 8] = wrong.to_bytes(8, "little")
    if damage == "unread":
        whole = BytesSource(((HERE, bytes(data)[:last]),))
    elif damage == "size":
        runs = [(start, 0 if start <= free[-1] else size, count) for start, size, count in runs]
    else:
        whole = BytesSource(((HERE, bytes(data)),))
    found = c_kernel.unlisted(whole, [] if damage == "empty" else runs, heads, most - (damage == "most"), Budget())
    assert found is None
