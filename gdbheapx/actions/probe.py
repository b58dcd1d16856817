"""Whether gdb can write this process's registers and set them back: tried on one bit of a vector register, and set back at once."""

from typing import Callable, Tuple, TypeVar

from gdbheapx import problems
from gdbheapx.actions import preflight
from gdbheapx.session import Session

Found = TypeVar("Found")


def run(session: Session, look: Callable[[], Found]) -> Tuple[bool, Found]:
    """(True if it can, what `look` gives while the process is still held). False is reported with the reason; Refusal where there is
    nothing to try it on."""
    target = preflight.require_live(session, "probed", "trim --dry-run predicts what malloc_trim would return")
    from gdbheapx.inferior.gdb.call import Control  # without gdb there is no such module, and the refusal was said
    from gdbheapx.inferior.gdb.target import setting

    preflight.require_permitted(setting, call=False)
    preflight.callable_here(target)
    control = Control(target)
    control.prepare()
    try:
        control.hold()
        threads = control.threads()
        chosen = next((one for one in threads if one.in_system_call), threads[0])
        broken = control.probe(chosen.lwp)
        found = look()
    finally:
        control.let_go()
    if broken is not None:
        session.problem(
            problems.NO_REGISTER_CALLS,
            None,
            "gdb cannot write and restore registers here: %s" % broken,
            "use gdb 16 or newer; with this gdb, trim calls with general registers only, or refuses",
            partial=False,
        )
    return broken is None, found
