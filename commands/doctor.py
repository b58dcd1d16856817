"""heapx doctor"""

from typing import Any

from gdbheapx.command import Answer, command
from gdbheapx.session import Session

HELP = """What was found in the target and what is missing to answer more; never writes.

Allocators with versions and build-ids, where each layout and address came from, threads and thread-local storage, completeness
of a core, missing debug files and how to get them; without a target what this machine offers.
"""


@command("doctor", needs_target=False, help=HELP)
def doctor(session: Session, options: Any) -> Answer:
    """The command `doctor`."""
    from gdbheapx.analysis.checkup import checkup

    found = checkup(session)

    def text(style: Any) -> Any:
        from gdbheapx.report import pages

        return pages.checks(found)

    return Answer(lambda: {"checks": found}, text, read=True)
