"""heapx what-if"""

from typing import Any

from gdbheapx.command import Answer, Options, Style, command
from gdbheapx.session import Session
from gdbheapx.stops import Reads

HELP = """How much memory a setting would save, before anybody restarts.

For each setting: RSS as it would be at the same point of the program's work, had the process begun with it; what that rests on; and
what it costs. `exact` follows from the heap as it is: what a trim or purge returns, larger pages. `bounded` depends on time and order
(arenas, thresholds, thread caches, background threads, huge pages, a restart, another allocator): RSS is between the two ends. Both
leave room for what two runs of one program usually differ by. `?`: that end is not known. `in force`: it would change nothing. Of a
program that was started with other rights than its caller's no variable is shown, for none is heeded. A core does not tell RSS: only
what a setting would save at most is shown. docs/how-to/what-if.md has what was measured.
"""


@command("what-if", reads=Reads.BLOCKS, help=HELP, snapshot=True)
def what_if(session: Session, options: Options) -> Answer:
    """The command `what-if`."""
    from gdbheapx.analysis import what_if as model

    found = model.what_if(session)

    def text(style: Style) -> Any:
        from gdbheapx.report import what_if_text
        from gdbheapx.report.text import show

        return show(style, what_if_text.lines(found))

    return Answer(lambda: found, text, read=True)
