"""Stop, look, act; where it cannot be done at this moment, let the process run a little and stop again, a bounded number of times."""

import time
from typing import TYPE_CHECKING, Callable, List, NamedTuple, Sequence, TypeVar

from gdbheapx.allocators.plan import in_time
from gdbheapx.budget import Budget
from gdbheapx.errors import Busy, HeapxError, OutOfTime, Refusal, StopOver
from gdbheapx.problems import STOP_LIMIT

if TYPE_CHECKING:
    from gdbheapx.inferior.gdb.call import GdbControl

Done = TypeVar("Done")
PAUSES_S = (0.003, 0.007, 0.013, 0.023, 0.041)
"""Between two stops; of different length, so that what is periodic is not met at the same place again."""


class Tries(NamedTuple):
    """Record of the attempts until it could be done."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a record
    reasons: Sequence[str]


def attempt_action(control: "GdbControl", waits: int, budget: Budget, act: Callable[[Tries], Done], last: Callable[[Tries], Done]) -> Done:
    """Hold the process and act; `act` raises Busy where it cannot be done now. `last` has its turn when all waiting was in vain.

    The process runs on after every outcome. OutOfTime where Ctrl-C or --max-seconds comes while it waits, or where it has stood still for
    --max-stop before anything was begun.
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
    except StopOver:
        raise make_out_of_time(control)
    except HeapxError as error:
        if error.code == STOP_LIMIT or control.is_cut:  # what it says may be for lack of what was not read any more
            raise make_out_of_time(control)
        raise
    finally:
        control.let_go()
    raise AssertionError


def begin_action(control: "GdbControl") -> None:
    """Something is about to be called or written: the last moment at which it is still left undone for --max-stop."""
    if control.is_late:
        raise make_out_of_time(control)
    control.commit()


def make_out_of_time(control: "GdbControl") -> OutOfTime:
    """The process stood still for as long as it may."""
    limit_s = control.target.max_stop_s or 0.0
    what = "process %d was let go after --max-stop %g, before everything was checked: nothing was changed" % (control.pid, limit_s)
    return OutOfTime(what, "allow more with --max-stop %d" % max(1, round(2 * limit_s + 0.5)), code=STOP_LIMIT)
