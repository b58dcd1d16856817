"""The loop of `watch`: one sample each period, until it has enough, the process ends, or somebody stops it."""

import time
from typing import Callable, Iterator, NamedTuple, Optional, Union

from gdbheapx.budget import Budget
from gdbheapx.errors import HeapxError
from gdbheapx.extras.watch.returned import Step
from gdbheapx.extras.watch.samples import Sample, Sampler
from gdbheapx.extras.watch.summary import ENDED, EXECUTED, STOPPED, TIMES, History, Summary

NAP_S = 0.2
"""How soon Ctrl-C is heeded."""


class Over(NamedTuple):
    """The last event."""

    why: str
    summary: Optional[Summary]


Event = Union[Sample, Step, Over]


def events(
    sampler: Sampler, history: History, every_s: float, times: Optional[int], budget: Budget, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Event]:
    """Samples as they are taken, steps at which memory was returned, and one Over. A sample that is late is not made up for."""
    began, turn, taken, missed = time.monotonic(), 0, 0, 0
    why = TIMES
    while times is None or taken < times:
        if budget.expired():
            why = STOPPED
            break
        try:
            sample = sampler.sample()
        except HeapxError:
            if sampler.session.target.has_ended():
                sample = None
            else:
                raise
        if sample is None:
            why = EXECUTED if sampler.runs_another_program else ENDED
            break
        taken += 1
        step = history.add(sample)
        yield sample
        if step is not None:
            yield step
        if taken == times:
            break
        turn += 1
        late = int((time.monotonic() - began) / every_s)
        if late >= turn:
            missed, turn = missed + late + 1 - turn, late + 1
        until = began + turn * every_s
        while not budget.expired() and (left := until - time.monotonic()) > 0:
            sleep(min(NAP_S, left))
    budget.heed()
    yield Over(why, history.summary(why, missed))
