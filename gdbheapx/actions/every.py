"""trim again and again: attach, look, act, detach; one JSON line each time."""

import time
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

from gdbheapx.actions import call, preflight
from gdbheapx.actions.preflight import measure_process
from gdbheapx.allocators.returning import Acted, Portion
from gdbheapx.errors import HeapxError, Refusal
from gdbheapx.inferior.live import procfs
from gdbheapx.session import Session

NOTHING = "trimmed: nothing free was in RAM"
NAP_S = 0.2
"""How soon Ctrl-C is heeded."""


def run_rounds(
    session: Session, options: Any, fresh: Callable[[], Session], sleep: Callable[[float], None] = time.sleep
) -> Iterator[Dict[str, Any]]:
    """Yield one entry for each period, until --times is reached or the process ends. `fresh` returns a session without any knowledge of
    the previous one. Times are milliseconds, sizes bytes. Below --above the process is not attached to and not called. It ends as the
    last round would by itself: if that was refused, with its refusal.
    """
    preflight.require_gdb(session.target, "trimmed")
    pid, left = session.target.pid or 0, options.times
    while left is None or left > 0:
        began = time.monotonic()
        if has_process_ended(pid):
            yield {"message": "process %d crashed or exited" % pid, "periodMs": round(options.every * 1000)}
            return
        row, error = one_round(session, options, pid)
        yield row
        left = None if left is None else left - 1
        until = began + options.every
        while left != 0 and time.monotonic() < until and not session.budget.expired():
            sleep(max(0.0, min(NAP_S, until - time.monotonic())))
        if left == 0 or session.budget.expired():
            if error is not None and not has_process_ended(pid):
                raise Refusal(error.message, error.hint, error.address, error.code)
            return
        try:
            session = session if has_process_ended(pid) else fresh()
        except HeapxError:
            if not has_process_ended(pid):
                raise


def has_process_ended(pid: int) -> bool:
    """Return True if there is no such process, or only a zombie that waits to be reaped."""
    return procfs.read_process_status(pid).get("State", "X")[:1] in ("Z", "X")


def gave_nothing(done: Acted) -> bool:
    """No page went, and none was predicted to: the next rounds will be the same until the program frees more."""
    before, after = done.before.anonymous_bytes, done.after.anonymous_bytes
    return not done.predicted.resident_bytes and before is not None and after is not None and after >= before


def one_round(session: Session, options: Any, pid: int) -> Tuple[Dict[str, Any], Optional[HeapxError]]:
    """Run one period: return its entry, and the reason if the action was due and not done."""
    began = time.monotonic()
    now = measure_process(pid)
    done: Optional[Acted] = None
    refusal: Optional[HeapxError] = None
    if now.rss_bytes is None:
        message = "cannot read resident memory"
    elif now.rss_bytes <= options.above:
        message = "below the limit"
    else:
        try:
            done = call.return_heap_memory(session, options, "trim", Portion(options.pad))
            message = done.trouble or (NOTHING if gave_nothing(done) else "trimmed")
        except HeapxError as error:
            message, refusal = error.line(), error
    before, after = (done.before, done.after) if done is not None else (now, now)
    row: Dict[str, Any] = {
        "message": message,
        "periodMs": round(options.every * 1000),
        "elapsedMs": round((time.monotonic() - began) * 1000),
        "rss.before": before.rss_bytes,
        "rss.after": after.rss_bytes,
        "rss.diff": None if before.rss_bytes is None or after.rss_bytes is None else after.rss_bytes - before.rss_bytes,
    }
    if done is not None:
        row.update(done.data)
    return row, refusal
