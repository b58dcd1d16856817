"""`make soak`: a server under load, and redis-server, through many rounds of attach, trim or purge, detach; exit code 1 if anybody was harmed.

The server keeps every CPU but one busy; the last is for the tool. After every round each thread must have gone on, no answer, register or
signal may be wrong or lost. At the end stands the table of what became of the rounds.
`--rounds N` for another number than 1,000, `--redis N` than 100, `--only trim|purge|redis`; by name alone: `looks-redis`, `looks-java`
(soak_looks.py), which change nothing. `--every`: the trims are those of one `trim --every`, which spares starting the tool for each; on an
emulated machine `--max-stop SECONDS` as well.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable, Dict, List, Optional, Tuple

from tabulate import tabulate

from bench import soak_looks
from tests.support import jemallocs, victims
from tests.support.processes import Builder, Stage
from tests.support.servers import redis_under_load
from tests.support.tool import tool_command

EVERY = 10
"""A line of progress after so many rounds."""


class Story:
    """One part of the soak: what came of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rounds = victims.Rounds()
        self.seconds = 0.0
        self.checks = ""

    def run(self, count: int, target: List[str], command: str, check: Callable[[], None]) -> None:
        """COUNT rounds, with a check after each."""
        begun = time.monotonic()
        for number in range(1, count + 1):
            victims.rounds(1, target, [command], check, self.rounds)
            if number % EVERY == 0 or number == count:
                now = self.rounds
                print(
                    "%s: %d of %d rounds, %d done, %d refused, %.0f s"
                    % (self.name, number, count, now.done, sum(now.refused.values()), time.monotonic() - begun),
                    flush=True,
                )
        self.seconds = time.monotonic() - begun

    def run_every(self, count: int, target: List[str], check: Callable[[], None]) -> None:
        """COUNT rounds of one `trim --every`, with a check after each."""
        begun, words = time.monotonic(), ["trim", "--every", "0.2", "--times", str(count), "--above", "0", "--wait", "60", "--yes"]
        with subprocess.Popen([*tool_command(), *target, *words], stdout=subprocess.PIPE) as tool:
            assert tool.stdout is not None
            for number, line in enumerate(tool.stdout, 1):
                row = json.loads(line)
                if "way" in row:
                    self.rounds.note(row)
                else:
                    self.rounds.refused[victims.reason("gdbheapx: " + row["message"])] += 1
                if number % EVERY == 0 or number == count:
                    print("%s: %d of %d rounds, %d done, %.0f s" % (self.name, number, count, self.rounds.done, time.monotonic() - begun), flush=True)
                check()
        self.seconds = time.monotonic() - begun

    def table(self) -> str:
        """For a person, and for docs/explanation/is-it-safe.md."""
        stops = sorted(self.rounds.stopped_ms)
        rows = self.rounds.table()
        if stops:
            rows.append(["process stopped for, median / longest", "%.0f / %.0f ms" % (stops[len(stops) // 2], stops[-1])])
            rows.append(["returned to the OS", "%d MiB" % (self.rounds.given_back_bytes >> 20)])
        rows.append(["checked meanwhile", self.checks])
        return "%s, %.0f s\n\n%s\n" % (
            self.name,
            self.seconds,
            tabulate(rows, headers=["outcome", "rounds"], tablefmt="github", disable_numparse=True),
        )


def server(stage: Stage, command: str, count: int, env: Optional[Dict[str, str]], asked: argparse.Namespace) -> Story:
    """The server that checks itself."""
    story = Story("%s, server under load" % command)
    made = victims.server(stage, env)
    cpus = sorted(os.sched_getaffinity(0))
    for thread in os.listdir("/proc/%d/task" % made.victim.pid):
        os.sched_setaffinity(int(thread), cpus[:-1] or cpus)
    target = ["--pid", str(made.victim.pid), *(["--max-stop", str(asked.max_stop)] if asked.max_stop else [])]
    if asked.every and command == "trim":
        story.run_every(count, target, made.check_well)
    else:
        story.run(count, target, command, made.check_well)
    made.end()
    accounts = made.victim.accounts().values()
    story.checks = "%d rounds of %d threads, %d requests, %d signals: 0 wrong or lost; EINTR %d times" % (
        sum(one.rounds for one in accounts),
        len(accounts),
        made.client.answers,
        made.client.sent,
        made.victim.interrupted(),
    )
    return story


def redis(stage: Stage, count: int) -> Story:
    """redis-server as the distribution has it."""
    story = Story("purge, redis-server")
    served, client = redis_under_load(stage)

    def check() -> None:
        victims.check_free(served.process)
        client.check(served.process)

    story.run(count, served.process.target("live"), "purge", check)
    client.stop()
    story.checks = "%d replies, none wrong" % client.answers
    return story


def main() -> int:
    """The parts that were asked for, one after the other."""
    parser = argparse.ArgumentParser(description="rounds of trim and purge on servers that check themselves")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--redis", type=int, default=100)
    parser.add_argument("--only", choices=["trim", "purge", "redis", *soak_looks.SERVICES])
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--max-stop", type=float)
    asked = parser.parse_args()
    folder = tempfile.TemporaryDirectory(prefix="gdbheapx-soak-")
    stage = Stage(Builder(Path(folder.name)))
    parts: List[Tuple[str, Callable[[], Story]]] = [
        ("trim", lambda: server(stage, "trim", asked.rounds, None, asked)),
        ("purge", lambda: server(stage, "purge", asked.rounds, {"LD_PRELOAD": str(jemallocs.library()), "MALLOC_CONF": "narenas:4"}, asked)),
        ("redis", lambda: redis(stage, asked.redis)),
    ]
    done, code = [], 0
    try:
        if asked.only in soak_looks.SERVICES:
            return soak_looks.run(asked.only, stage, asked.rounds)
        for name, part in parts:
            if asked.only in (None, name):
                try:
                    done.append(part())
                except AssertionError as harm:
                    print("%s: HARM: %s" % (name, harm), flush=True)
                    code = 1
    finally:
        stage.close()
        folder.cleanup()
    print("\n" + "\n".join(story.table() for story in done))
    return code


if __name__ == "__main__":
    sys.exit(main())
