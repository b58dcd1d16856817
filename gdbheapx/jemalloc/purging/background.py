"""jemalloc's background threads: how many run, how often they ran, how long they sleep."""

from typing import List, NamedTuple, Optional

from gdbheapx.errors import Unreadable
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.detection.traces import BACKGROUND_NAME
from gdbheapx.jemalloc.heap import mutexes
from gdbheapx.layout.view import View

STATES = ("stopped", "started", "paused")
"""background_thread_state_t, the same in every release of 5."""
MAX_THREADS = 4096
"""More than MALLOCX_ARENA_LIMIT (4,095) is damage."""


class BackgroundThread(NamedTuple):
    """One background_thread_info_t."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    """Serves the arenas whose index is this modulo max_background_threads."""
    state: Optional[str]
    """`stopped`, `started` or `paused`."""
    pthread: Optional[int]
    """pthread_t, with nptl the thread pointer; None in builds without such threads."""
    runs: int
    """tot_n_runs."""
    sleep_ns: int
    """tot_sleep_time."""
    mutex: mutexes.Counters


class Background(NamedTuple):
    """All of them."""

    enabled: Optional[bool]
    """background_thread_enabled_state; None if this build has none or it cannot be read."""
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a record
    """n_background_threads."""
    threads: List[BackgroundThread]
    """One for each of max_background_threads, whatever its state."""
    named: int = 0
    """Where no variable tells of them: living threads that have their name."""

    @property
    def running(self) -> List[BackgroundThread]:
        """Those that were started."""
        return [thread for thread in self.threads if thread.state != "stopped"]

    def of_arena(self, index: int) -> Optional[BackgroundThread]:
        """The one that serves an arena (arena_background_thread_info_get); None if there are none."""
        return self.threads[index % len(self.threads)] if self.threads else None

    @property
    def runs(self) -> Optional[int]:
        """stats.background_thread.num_runs; None where no variable tells of them."""
        return None if self.named else sum(thread.runs for thread in self.running)

    @property
    def run_interval_ns(self) -> Optional[int]:
        """stats.background_thread.run_interval: mean sleep (background_thread.c: background_thread_stats_read)."""
        return None if self.runs is None else sum(thread.sleep_ns for thread in self.running) // self.runs if self.runs else 0


def read(context: Context) -> Background:
    """The state of background threads. What cannot be read is reported and missing."""
    if context.symbols.by_structure:
        names = [thread.name for thread in context.target.threads()]
        named = names.count(BACKGROUND_NAME)
        would_show = context.symbols.texts.names_threads and names and None not in names
        return Background(True if named else False if would_show else None, named, [], named)
    enabled = context.variable("background_thread_enabled_state", 1)
    count = context.variable("n_background_threads") or 0
    pointer, most = context.variable("background_thread_info"), context.variable("max_background_threads")
    if most is None:
        most = context.variable("ncpus", 4)  # 5.0.x: one for each CPU
    threads: List[BackgroundThread] = []
    if pointer and most and "background_thread_info_s" in context.types.structs:
        size = context.types.size_bytes("background_thread_info_s")
        try:
            data = context.target.read(pointer, min(most, MAX_THREADS) * size)
        except Unreadable as problem:
            context.report(codes.BACKGROUND_UNREADABLE, problem.address, "cannot read the state of the background threads", None)
            data = b""
        for index in range(len(data) // size):
            part = data[index * size : (index + 1) * size]
            place = pointer + index * size
            threads.append(_thread(index, View(context.types, "background_thread_info_s", place, part, context.geometry.little_endian)))
    return Background(None if enabled is None else bool(enabled), count, threads)


def _thread(index: int, view: View) -> BackgroundThread:
    state = view["state"]
    return BackgroundThread(
        index=index,
        state=STATES[state] if state < len(STATES) else None,
        pthread=view.get("thread"),
        runs=view["tot_n_runs"],
        sleep_ns=view["tot_sleep_time.ns"],
        mutex=mutexes.counters(view, "mtx"),
    )
