"""How often `census --sites` is right: its candidates against the functions that were recorded (bench/sites.c).

    python -m bench.sites build FOLDER                     makes FOLDER/sites.so
    SITES_RECORD=FOLDER LD_PRELOAD=FOLDER/sites.so PROGRAM
    python -m bench.sites FOLDER PID [PID ...]             one line for each, and its largest rows

A candidate is right for a block if it is one of the first three functions that were active when the block was allocated, after the
recorder, malloc and its like, and functions that only hand their size on to them. One that ends in a jump to such a function leaves
no return address of its own: the call that led to it tells it.
"""

import os
import struct
import subprocess
import sys
from bisect import bisect_right
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import gdbheapx
from gdbheapx.addons.labs.sites.join import at_size
from gdbheapx.allocators.session import Session
from gdbheapx.analysis.addon_answers import FEW, Joined, Scan
from gdbheapx.command import CommandAnswer, Options
from gdbheapx.common.stops import Reads
from gdbheapx.inferior.base import Target

HERE = Path(__file__).parent
ENTRY = struct.Struct("<16Q")
ENTRIES = 1 << 16
MASK = (1 << 64) - 1
FRAMES = 3
CALL_BYTES = 5
MOST_ROWS = 12


def build(folder: Path) -> None:
    """The recorder."""
    subprocess.run(
        ["gcc", "-O2", "-fPIC", "-shared", "-o", str(folder / "sites.so"), str(HERE / "sites.c"), "-ldl", "-pthread"], check=True
    )


def record(path: Path) -> Dict[int, List[int]]:
    """By block the return addresses."""
    made: Dict[int, List[int]] = {}
    with path.open("rb") as file:
        while True:
            data = file.read(ENTRY.size * ENTRIES)
            if not data:
                return made
            for entry in ENTRY.iter_unpack(data) if any(data) else ():
                if entry[0] > 1:
                    made[entry[0] ^ MASK] = [frame for frame in entry[2:] if frame]


class Functions:
    """Where the function of an address begins."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._starts: List[int] = []
        self._names: Dict[int, str] = {}
        for module in target.modules():
            code = target.code(module)
            self._starts += [module.base + start for start, _ in (code.functions if code is not None else ())]
            self._names.update((one.start, one.name) for one in target.functions(module, exported=True))
        self._starts.sort()
        self._known: Dict[int, int] = {}

    def at(self, address: int) -> int:
        """0 where there is none."""
        if address not in self._known:
            place = bisect_right(self._starts, address) - 1
            self._known[address] = self._starts[place] if place >= 0 else 0
        return self._known[address]

    def name(self, start: int) -> str:
        """By the symbol table, else the address."""
        return self._names.get(start) or "0x%x" % start

    def called(self, after: int) -> int:
        """The function that the call before a return address leads to, by its bytes; 0 where they do not tell."""
        data = self._target.read_prefix(after - CALL_BYTES, CALL_BYTES)
        target = after + int.from_bytes(data[1:], "little", signed=True) if data[:1] == b"\xe8" and len(data) == CALL_BYTES else 0
        return target if target and self.at(target) == target else 0


def makers(frames: Sequence[int], functions: Functions, scan: Scan) -> Iterator[int]:
    """The functions that count as true."""
    left = FRAMES
    for frame in frames:
        for start in (functions.called(frame), functions.at(frame - 1)):
            if start and start not in scan.wrappers:
                yield start
        left -= functions.at(frame - 1) not in scan.wrappers
        if not left:
            return


def measure(pid: int, folder: Path) -> Tuple[Joined, List[Tuple[Any, ...]], Dict[str, int]]:
    """Of one process."""

    def run(session: Session, options: Options) -> CommandAnswer:
        from gdbheapx.addons.labs.sites.join import join_sites
        from gdbheapx.addons.labs.sites.scan import read_object_code, scan_code
        from gdbheapx.analysis.census import find
        from gdbheapx.analysis.census.world import EXACT, SHAPE, CensusTarget
        from gdbheapx.common.budget import allowed_bytes

        world = CensusTarget.of(session)
        look = find.take_census(session, world, owning=False)
        told, truth, functions = look.told, record(folder / str(pid)), Functions(session.target)
        assert told is not None
        found = scan_code(session.target, session.budget, read_object_code(session.target, allowed_bytes()))
        joined = join_sites(look.census.rows, told, world, found)
        blocks: Dict[Any, List[Tuple[int, int]]] = {}
        for place, block in enumerate(told.reach.graph.blocks(range(told.reach.numbers.blocks))):
            name = told.names[told.labels[place] - 1] if told.labels[place] else None
            if name is not None:
                blocks.setdefault((name.name, name.module), []).append(block)
        in_classes = any(heap.shape.in_size_classes for heap in session.heaps.all())
        sums = dict.fromkeys(("typed", "few", "right", "wrong"), 0)
        rows = []
        for row, sites in zip(look.census.rows, joined.rows):
            if row.sure not in (EXACT, SHAPE):
                continue
            own = dict.fromkeys(("typed", "few", "right", "wrong"), 0)
            makes: Counter[str] = Counter()
            for address, usable in blocks.get((row.signature, row.module), ()):
                own["typed"] += usable
                some = {int(site.address) for site in at_size(row, sites.sites, usable, in_classes)}
                true = list(makers(truth[address], functions, found)) if address in truth else []
                if 0 < len(some) <= FEW:
                    own["few"] += usable
                    if true:
                        own["right" if not some.isdisjoint(true) else "wrong"] += usable
                if true and some.isdisjoint(true):
                    makes[" < ".join(functions.name(start) for start in true)] += 1
            rows.append(
                (
                    row.signature,
                    row.module,
                    own,
                    [site.function or str(site.address) for site in sites.sites[: FEW + 1]],
                    makes.most_common(2),
                )
            )
            for key, value in own.items():
                sums[key] += value
        return CommandAnswer(lambda: (joined, rows, sums), lambda style: [], read=True)

    found: Tuple[Joined, List[Tuple[Any, ...]], Dict[str, int]] = gdbheapx.open(pid=pid).look("sites", Reads.CENSUS, run).data
    return found


def main() -> None:
    """See above."""
    if sys.argv[1:2] == ["build"]:
        build(Path(sys.argv[2]))
        return
    folder = Path(sys.argv[1])
    for pid in map(int, sys.argv[2:]):
        joined, rows, sums = measure(pid, folder)
        known = sums["right"] + sums["wrong"]
        print(
            "%s: %d calls, %d typed bytes, %.1f %% with one to %d candidates; of the %d bytes of these that were recorded %.1f %% are right"
            % (
                os.path.basename(os.readlink("/proc/%d/exe" % pid)),
                joined.calls,
                sums["typed"],
                100.0 * sums["few"] / max(1, sums["typed"]),
                FEW,
                known,
                100.0 * sums["right"] / max(1, known),
            )
        )
        rows.sort(key=lambda row: -row[2]["typed"])
        for name, module, own, sites, makes in [
            row for place, row in enumerate(rows) if place < MOST_ROWS or row[2]["wrong"] > known / 200
        ]:
            print("   ", name[:70], module, own, sites, makes, flush=True)


if __name__ == "__main__":
    main()
