"""Processes on jemalloc that something can be done about: at rest with free memory, with blind threads."""

from typing import Dict

from tests.support import jemallocs
from tests.support.jemallocs import has_ticker_bug
from tests.support.processes import Process, Stage
from tests.support.tool import heapx

NO_DECAY = "dirty_decay_ms:-1,muzzy_decay_ms:-1,narenas:4"
"""What is freed stays until it is purged."""
BUGGY = "preload" if has_ticker_bug("preload") else "rust-0.4"
"""A jemalloc with the bug: this system's, or else the one in an old Rust program."""


def environment(conf: str) -> Dict[str, str]:
    """This system's jemalloc preloaded."""
    return {"LD_PRELOAD": str(jemallocs.library()), "MALLOC_CONF": conf}


def at_rest(stage: Stage) -> Process:
    """Three threads that left free memory behind and rest, under jemalloc; khugepaged, which would fill that memory between two looks, leaves it alone."""
    return stage.start("victim", "rest", env=environment(NO_DECAY + ",thp:never"))


DECAY_MS = 400


def blind_process(stage: Stage, way: str, work_ms: int = 300) -> Process:
    """One thread that allocated first, and two that freed first: blind in a build with the bug."""
    return jemallocs.start(stage, way, "tickers", str(work_ms), "healthy", "frees-first", "frees-first", conf="dirty_decay_ms:%d,narenas:8" % DECAY_MS)


def verdicts(process: Process) -> Dict[int, str]:
    """By lwp."""
    envelope = heapx(process.target("live"), "tickers", "--json").envelope
    return {thread["lwp"]: thread["verdict"] for thread in envelope["data"]["threads"]}
