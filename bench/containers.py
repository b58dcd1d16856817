"""Containers whose variable owns 95 to 105 % of their bytes by `owners`, and false collapses: of the programs of tests/programs, and of random ones.

python -m bench.containers PROGRAM..., of ten_containers, counter_graphs, std_containers, glib_containers, rust_containers, flux, random; each
is asked live, in a core by gdb, or stripped. Exit code 1 where less than 98 % are right, or more than 1 of 30 graphs is collapsed that must not be.
"""

import argparse
import collections
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Counter, Dict, List, Optional

from tests.support.gcores import gcore
from tests.support.owned import Verdict, disagreeing, facts, judged
from tests.support.paths import PROGRAMS
from tests.support.processes import Builder, Process, Stage
from tests.support.random_containers import program as random_program

ALLOCATORS = {"glibc": "", "jemalloc": "libjemalloc.so.2", "mimalloc": "libmimalloc.so.2", "tcmalloc": "libtcmalloc.so.4"}
PROGRAMS_KNOWN = ("ten_containers", "counter_graphs", "std_containers", "glib_containers", "rust_containers", "flux", "random")
LOOKS = 5
"""At a program that changes, while it lives."""
WRONG_NAMED = 3
"""So many are asked by name, too."""


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.containers")
    parser.add_argument("programs", nargs="+", choices=PROGRAMS_KNOWN, metavar="PROGRAM")
    parser.add_argument("--seed", type=int, default=1, help="of the first random program")
    parser.add_argument("--count", type=int, default=8, help="random programs")
    parser.add_argument("--elements", type=int, default=20000)
    parser.add_argument("--most", type=int, default=3000, help="elements of a random container")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--kind", choices=("live", "gcore", "stripped"), default="live")
    parser.add_argument("--allocator", choices=sorted(ALLOCATORS), default="glibc")
    parser.add_argument("--tool", help="another gdbheapx")
    parser.add_argument("--named", action="store_true", help="ask some by --of NAME, too")
    parser.add_argument("--all", action="store_true", help="show what is right as well")
    return parser.parse_args()


def loaded(allocator: str) -> Dict[str, str]:
    """The environment with another allocator."""
    if allocator == "glibc":
        return {}
    path = next((one for one in Path("/usr/lib").glob("*-linux-gnu*/" + ALLOCATORS[allocator])), None)
    if path is None:
        raise SystemExit("%s is not installed" % ALLOCATORS[allocator])
    return {"LD_PRELOAD": str(path)}


class Board:
    """What was right and wrong so far."""

    def __init__(self, chosen: argparse.Namespace, stage: Stage) -> None:
        self.chosen, self.stage = chosen, stage
        self.good, self.all, self.most, self.collapsed = 0, 0, 0, 0
        self.forms: Dict[str, Counter[bool]] = collections.defaultdict(collections.Counter)

    def started(self, name: str, seed: int) -> Process:
        """A program, ready."""
        chosen = self.chosen
        flags = ["-I" + str(PROGRAMS)] + ["-s"] * (chosen.kind == "stripped")
        arguments = [str(chosen.elements)] * name.endswith("_containers") + [str(chosen.threads)]
        source = name
        if name == "random":
            source = str(self.stage.folder() / ("random%d" % seed))
            Path(source + ".c").write_text(random_program(seed, chosen.most))
        return self.stage.start(source, *arguments, env=loaded(chosen.allocator), flags=flags)

    def look(self, name: str, seed: int) -> None:
        """One program, judged."""
        process = self.started(name, seed)
        target = ["--core", str(gcore(process))] if self.chosen.kind == "gcore" else ["--pid", str(process.pid)]
        known = [fact for fact in facts(process.record_path) if self.chosen.kind != "stripped" or fact.how == "owns"]
        tool = [self.chosen.tool] if self.chosen.tool else None
        for _ in range(LOOKS if name == "flux" and self.chosen.kind != "gcore" else 1):
            verdicts = judged(target, known, tool)
            self.count(name, seed, verdicts)
        if self.chosen.named and self.chosen.kind != "stripped":
            owned = [one for one in verdicts if one.fact.how == "owns"][:WRONG_NAMED]
            for line in disagreeing(target, owned, tool):
                print("%s %d: by --of %s" % (name, seed, line))
        process.end()

    def count(self, name: str, seed: int, verdicts: List[Verdict]) -> None:
        """More of them."""
        comments = form_of(seed, self.chosen.most) if name == "random" else {}
        for verdict in verdicts:
            most = verdict.fact.how == "most"
            self.most += most
            self.all += not most
            self.good += verdict.good and not most
            self.collapsed += verdict.false_collapse
            told = comments.get(re.sub(r"\D", "", verdict.fact.name), "")
            self.forms[(told or name).split(",")[0]][verdict.good] += 1
            if self.chosen.all or not verdict.good:
                print("%s %d %s: %s  %s" % (name, seed, "ok" if verdict.good else "WRONG", verdict.line(), told), flush=True)

    def close(self) -> bool:
        """The last lines; whether it is enough."""
        for name, counted in sorted(self.forms.items(), key=lambda one: -one[1][False]):
            if counted[False]:
                print("%-40s %d of %d right" % (name, counted[True], counted[True] + counted[False]))
        share = 100.0 * self.good / max(1, self.all)
        chosen = self.chosen
        print(
            "%s, %s, %s, %d threads: %d of %d containers owned within 5 %% (%.1f %%); %d false collapses beside %d variables that own nothing alone"
            % (
                " ".join(chosen.programs),
                chosen.kind,
                chosen.allocator,
                chosen.threads,
                self.good,
                self.all,
                share,
                self.collapsed,
                self.most,
            )
        )
        return share >= 98 and self.collapsed * 30 <= self.most


def form_of(seed: int, most: int) -> Dict[str, str]:
    """By number: the comment of each container of a random program."""
    found: Dict[str, str] = {}
    comment: Optional[str] = None
    for line in random_program(seed, most).splitlines():
        if line.startswith("/* "):
            comment = line[3:-3]
        built = re.match(r"static void build(\d+)", line)
        if built and comment:
            found[built.group(1)] = comment
    return found


def main() -> int:
    """Judge what was asked for."""
    chosen = options()
    with tempfile.TemporaryDirectory(prefix="gdbheapx-bench-") as folder:
        stage = Stage(Builder(Path(folder)))
        board = Board(chosen, stage)
        try:
            for name in chosen.programs:
                seeds = range(chosen.seed, chosen.seed + chosen.count) if name == "random" else [0]
                for seed in seeds:
                    board.look(name, seed)
                    for folder_made in stage.folders:
                        shutil.rmtree(folder_made, ignore_errors=True)
        finally:
            stage.close()
    return 0 if board.close() else 1


if __name__ == "__main__":
    os.environ.setdefault("COLUMNS", "80")
    sys.exit(main())
