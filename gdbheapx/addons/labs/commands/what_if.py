"""heapx what-if"""

from gdbheapx.allocators.session import Session
from gdbheapx.command import CommandAnswer, Options, declare_command
from gdbheapx.common.stops import Reads

HELP = """How much memory a setting would save, before a restart.

A setting is shown if it was measured to help with such memory (docs/reference/advice.md): with the memory that it acts on; RSS as it would
be at the same point of the program's work, had the process begun with it; the evidence; and the cost. The largest savings come
first. Figures of trim, purge and larger pages follow from the heap as it is. All else depends on time and order: RSS is between
the two ends. Both leave room for what two runs of one program usually differ by. `?`: that end is not known. Below are settings
that are in force, and those that were not measured to help here (a restart, another allocator, no huge pages among them): --json
has their ends. Of a program that was started with other rights than its caller's no variable is shown, for none is heeded. A core
has no RSS: only the most that a setting would save is shown. docs/how-to/what-if.md has the measurements.
"""


@declare_command("what-if", reads=Reads.BLOCKS, help=HELP, examples=("-p 4711 what-if", "--core core.4711 what-if --json"), snapshot=True)
def answer_what_if(session: Session, options: Options) -> CommandAnswer:
    """The command `what-if`."""
    from gdbheapx.addons.labs import what_if
    from gdbheapx.report.text import format_page

    found = what_if.what_if(session)
    return CommandAnswer(lambda: found, lambda style: format_page(style, what_if.format_what_if(found)), read=True)
