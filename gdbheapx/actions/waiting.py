"""Stop, look, act; where it cannot be done at this moment, let the process run a little and stop again, a bounded number of times."""

import time
from typing import TYPE_CHECKING, Callable, List, NamedTuple, Sequence, TypeVar

from gdbheapx.allocators.plan import in_time
from gdbheapx.budget import Budget
from gdbheapx.errors import Busy, Refusal

if TYPE_CHECKING:
    from gdbheapx.inferior.gdb.call import Control

Done = TypeVar("Done")
PAUSES_S = (0.003, 0.007, 0.013, 0.023, 0.041)
"""Between two stops; of different length, so that what is periodic is not met at the same place again."""


class Tries(NamedTuple):
    """How it went until it could be done."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a record
    reasons: Sequence[str]


def attempt(control: "Control", waits: int, budget: Budget, act: Callable[[Tries], Done], last: Callable[[Tries], Done]) -> Done:
    """Hold the process and act; `act` raises Busy where it cannot be done now. `last` has its turn when all waiting was in vain.

    The process runs on after every outcome. OutOfTime where Ctrl-C or --max-seconds comes while it waits.
    """
    reasons: List[str] = []
    try:
        for count in range(waits + 1):
            control.hold()
            tries = Tries(count + 1, list(reasons))
            try:
                return act(tries)
            except Busy as busy:
                reasons.append(busy.message)
                if not control.ours:
                    raise Refusal(busy.message, "continue the process for a moment, stop it again, then retry")
                if count == waits:
                    return last(Tries(count + 1, list(reasons)))
                control.let_go()
            in_time(budget)
            time.sleep(PAUSES_S[count % len(PAUSES_S)])
    finally:
        control.let_go()
    raise AssertionError
