"""heapx doctor"""

from typing import Any

from gdbheapx.allocators.session import Session
from gdbheapx.command import CommandAnswer, Options, TextStyle, declare_command
from gdbheapx.common.stops import Reads

HELP = """Which parts were found, and which are missing.

Shows allocators with versions and build-ids, where each layout and address came from, threads and thread-local storage, whether a
core is complete, and which debug files are missing and how to get them. Without a target it shows what this machine has.
"""


@declare_command(
    "doctor",
    needs_target=False,
    reads=Reads.STATE,
    tells_of_gdb=True,
    help=HELP,
    examples=("-p 4711 doctor", "--core core.4711 doctor"),
    needs=("gdbheapx.analysis.checkup",),
)
def answer_doctor(session: Session, options: Options) -> CommandAnswer:
    """The command `doctor`."""
    from gdbheapx.analysis.checkup import run_checkup

    checks = run_checkup(session)

    def text(style: TextStyle) -> Any:
        from gdbheapx.report import pages

        return pages.format_checks(checks)

    return CommandAnswer(lambda: {"checks": checks}, text, read=True)
