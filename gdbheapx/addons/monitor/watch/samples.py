"""Takes samples of a process: without stopping it, or with a stop and a whole walk for each (--exact)."""

import gc
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Protocol, Sequence

from gdbheapx.addons.monitor.memory_group import InContainer
from gdbheapx.addons.monitor.watch.counters import ProcessCounters, ProcessPages, open_counters
from gdbheapx.allocators.answers import Figure, Meter, Reading, make_empty_reading
from gdbheapx.allocators.session import Session
from gdbheapx.common.budget import Budget
from gdbheapx.common.errors import HeapxError, StopOver
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import AllocatorInfo
from gdbheapx.common.problems import NO_COUNTERS, NOT_LIVE

PAGES_EVERY_S = 30.0
"""At most so often the kernel is asked to count pages: that holds a lock which the process needs for mmap and page faults."""
WALK_SECONDS = 2.0
"""No estimate takes longer."""
REST, SHORT_REST = 50, 5
"""So many times as long as an estimate took passes before the next: watching costs at most 2 % of one processor for it. The second where
memory went away meanwhile: what is in use shows whether it was freed or returned."""
LEAST_STEP_BYTES, LEAST_STEP_PERCENT = 1 << 20, 2
"""Memory that went away is worth a look if it is at least so large, and so much of the anonymous memory."""
TIDY_EVERY = 32
"""Exact samples after which what the others left is collected."""
STOPS = 4
"""How often the process is stopped for one exact sample while a thread is in the middle of a change."""


PoolMeter = Callable[[], Optional[Mapping[str, int]]]
"""Sums what runtimes have in RAM outside malloc, by name; None where the kernel does not say. The process runs on."""


class Watched(NamedTuple):
    """Allocator that is watched."""

    info: AllocatorInfo
    figures: Sequence[Figure]
    returns_by: Optional[str]
    """The command that says what it would return to the OS."""


class Sample(NamedTuple):
    """Figures of the process at one moment."""

    unix_s: float
    elapsed_s: float
    """Since the first."""
    counters: ProcessCounters
    pages: Optional[ProcessPages]
    """Only now and then."""
    readings: Sequence[Reading]
    """One for each allocator that is watched."""
    stopped_ms: Optional[float]
    """How long the process stood still for it; None: it ran."""
    pools: Optional[Mapping[str, int]] = None
    """What runtimes have in RAM outside the allocators, by name; only now and then."""

    @property
    def used_bytes(self) -> Optional[int]:
        """Return the bytes in use in all allocators."""
        return sum_if_known([reading.used_bytes for reading in self.readings])

    @property
    def kept_bytes(self) -> Optional[int]:
        """Freed and kept by all allocators."""
        return sum_if_known([reading.kept_bytes for reading in self.readings])

    @property
    def held_bytes(self) -> Optional[int]:
        """Both together, also where it is not known which is which."""
        return sum_if_known([reading.held_bytes for reading in self.readings])

    @property
    def returnable_bytes(self) -> Optional[int]:
        """Return the memory that all allocators could return to the OS."""
        return sum_if_known([reading.returnable_bytes for reading in self.readings])


class Watching(Protocol):
    """Description of the watched process: by a sampler, or by a file of its samples."""

    @property
    def name(self) -> str:
        """Return the name that the program gives itself."""

    @property
    def pid(self) -> int:
        """Return the process id."""

    @property
    def is_exact(self) -> bool:
        """Return True if the process is paused for each sample."""

    @property
    def watched(self) -> Sequence[Watched]:
        """Its allocators, in the order of each sample's readings."""


def sum_if_known(parts: Sequence[Optional[int]]) -> Optional[int]:
    """Their sum; None if there is none, or one is unknown."""
    return None if None in parts or not parts else sum(part or 0 for part in parts)


class Sampler:
    """Everything that stays the same between two samples is looked up when it is made."""

    def __init__(self, session: Session, is_exact: bool, pool_meter: Optional[PoolMeter] = None) -> None:
        self.session, self.is_exact, self._pool_meter = session, is_exact, pool_meter
        target = session.target
        counting = open_counters(target)
        if counting is None or target.pid is None:
            raise HeapxError("watch needs a process that runs on this machine", "name it: gdbheapx -p PID watch", code=NOT_LIVE)
        self.pid: int = target.pid
        self._counting = counting
        self.name = counting.name() or "?"
        session.heaps.may_be_none = True
        heaps = [heap for heap in session.heaps.all() if "meter" in heap.capabilities]
        for heap in session.heaps.all():
            if heap not in heaps:
                what = "%s has no counters that can be read while the process runs: its memory is in none of these figures"
                session.problem(
                    NO_COUNTERS, None, what % heap.info.id, "at one moment: " + hint_command("arenas"), heap.info.owns_malloc is not False
                )
        self._meters: List[Meter] = [heap.capabilities["meter"]() for heap in heaps]
        self.watched = [Watched(meter.info, meter.figures, session.heaps.dry_run(heap)) for meter, heap in zip(self._meters, heaps)]
        self._began: Optional[float] = None
        self._pages_at = self._walk_at = self._pools_at = float("-inf")
        self._cost_s = self._pools_cost_s = 0.0
        self._anonymous: Optional[int] = None
        """Of the sample before."""
        self._stops = 0
        self._has_stopped = False
        """It could be stopped once: that it cannot be now will pass."""
        if is_exact:
            self._warm_up()

    def container(self) -> InContainer:
        """Return the container in which the process runs now."""
        return self._counting.container()

    def sample(self) -> Optional[Sample]:
        """The process now; None if it has ended, also while it was sampled."""
        stopped_ms: Optional[float] = None
        now, unix = time.monotonic(), round(time.time(), 3)  # as files have it: what is made of one is equal
        self._began = now if self._began is None else self._began
        counters = self._counting.read()
        if counters is None:
            return None
        pages = None
        if now - self._pages_at >= PAGES_EVERY_S:
            pages, self._pages_at = self._counting.pages(), now
        if self.is_exact:
            readings = self._read_stopped()
            stopped_ms = self.session.target.stopped_ms
        else:
            readings = self._read_running(now, is_step(self._anonymous, counters))
        self._anonymous = counters.anonymous_bytes
        pools = self._read_pool_sizes()
        after = self._counting.read()
        if self.session.target.has_ended() or after is None:
            return None
        if not self.is_exact and (is_step(counters.anonymous_bytes, after) or is_step(after.anonymous_bytes, counters)):
            readings = [reading._replace(used_bytes=None, kept_bytes=None) for reading in readings]  # they may be of either moment
        return Sample(unix, round(now - self._began, 3), counters, pages, readings, stopped_ms, pools)

    @property
    def runs_another_program(self) -> bool:
        """Return True if the process lives, but has replaced the memory that was read before: it called execve."""
        return self._counting.read() is not None and self.session.target.has_ended()

    def _read_pool_sizes(self) -> Optional[Mapping[str, int]]:
        """Counted by the kernel mapping by mapping, so as rarely as walks are made."""
        now = time.monotonic()
        if self._pool_meter is None or now - self._pools_at < self._pools_cost_s * REST:
            return None
        self._pools_at = now
        try:
            return self._pool_meter()
        except (HeapxError, OSError):  # it ends
            return None
        finally:
            self._pools_cost_s = time.monotonic() - now

    def _read_running(self, now: float, is_hurried: bool) -> List[Reading]:
        """Read the allocators from counters, while the process runs."""
        walks = now - self._walk_at >= self._cost_s * (SHORT_REST if is_hurried else REST)
        began = time.monotonic()
        readings = [_read_meter(meter, WALK_SECONDS if walks else 0.0) for meter in self._meters]
        if walks:
            self._walk_at, self._cost_s = now, time.monotonic() - began
        return readings

    def _read_stopped(self) -> List[Reading]:
        """Read the allocators by walks, while the process is paused; all unknown if a thread was in the middle of a change each time."""
        target = self.session.target
        target.stopped_ms = None
        self._stops += 1
        if self._stops % TIDY_EVERY == 0:
            gc.collect()  # sessions that are done with go in circles
        for _ in range(STOPS):
            try:
                session = self.session.again()
            except HeapxError:
                if not self._has_stopped and not target.has_ended():
                    raise
                continue
            session.heaps.may_be_none = True
            readings = self._one_stop(session)
            if readings is not None and not session.partial:
                return [readings.get(watched.info.id, make_empty_reading(watched.figures)) for watched in self.watched]
            if target.has_ended() or (readings is not None and session.budget.is_stop_over):
                break
        return [make_empty_reading(watched.figures) for watched in self.watched]

    def _one_stop(self, session: Session) -> Optional[Dict[str, Reading]]:
        """Return the readings of one stop by allocator; None if the process loaded or unloaded an object before it was paused."""
        target: Any = session.target
        collects = gc.isenabled()
        gc.disable()
        try:
            if not target.stop():
                return None
            self._has_stopped = True
            session.budget = Budget(None, target.still)
            return {
                heap.info.id: heap.capabilities["exact-reading"]() for heap in session.heaps.all() if "exact-reading" in heap.capabilities
            }
        except StopOver:
            session.partial = True
            return {}
        except HeapxError:  # a debugger holds it now, or it ended
            if not self._has_stopped and not target.has_ended():
                raise
            return None
        finally:
            target.let_go()
            if collects:
                gc.enable()

    def _warm_up(self) -> None:
        """Import and look up what a stop needs before the first one."""
        session = self.session.walking(0.0)
        session.heaps.may_be_none = True
        try:
            for heap in session.heaps.all():
                heap.capabilities["exact-reading"]()
        except Exception:  # whatever is wrong shows again when it counts
            pass


def is_step(before_bytes: Optional[int], now: ProcessCounters) -> bool:
    """So much memory went away since that it may have been returned to the OS."""
    return before_bytes is not None and before_bytes - now.anonymous_bytes >= least_step(before_bytes)


def least_step(anonymous_bytes: int) -> int:
    """Return how many bytes of anonymous memory must go away to be worth a look."""
    return max(LEAST_STEP_BYTES, anonymous_bytes * LEAST_STEP_PERCENT // 100)


def find_meter(session: Session) -> Optional[PoolMeter]:
    """Return what sums the mappings of the runtimes that are loaded, such as CPython's arenas or a Java heap, named as `report` names them;
    None where no runtime with memory of its own is loaded."""
    from gdbheapx.analysis.memory import attribute, kinds

    if not any(runtime.shapes or runtime.rest is not None for runtime in attribute.find_present_runtimes(session.target)):
        return None
    counting = open_counters(session.target)

    def read_pools() -> Optional[Mapping[str, int]]:
        use = counting.memory_use() if counting is not None else None
        if use is None:
            return None
        sums: Dict[str, int] = {}
        for piece in attribute.Attribution(session.target, session.kernel, use, {}).pieces():
            if piece.owner.kind == kinds.RUNTIME and piece.owner.program is not None:
                sums[piece.owner.name] = sums.get(piece.owner.name, 0) + piece.taken_bytes
        return sums

    return read_pools


def _read_meter(meter: Meter, walk_seconds: float) -> Reading:
    """Return the meter's reading; an empty one if memory went away meanwhile."""
    try:
        return meter.read(walk_seconds)
    except (HeapxError, KeyError, ValueError, IndexError):
        return make_empty_reading(meter.figures)
