"""heapx whatis"""

from gdbheapx.command import Answer, Options, argument, command
from gdbheapx.parse import address
from gdbheapx.session import Session

HELP = """What is at an address: the block that holds it, its arena, bin or cache, and the blocks beside it.

Where no heap holds it: the mapping, the object with its nearest symbol, the thread's stack or thread-local storage. `offset` counts from
the address that malloc returned; below zero it is in the block's header.
"""


@command(
    "whatis",
    needs=("gdbheapx.report.whereabouts",),
    arguments=[argument("address", type=address, metavar="ADDR", help="hex with 0x, or decimal")],
    help=HELP,
)
def whatis(session: Session, options: Options) -> Answer:
    """The command `whatis`."""
    from gdbheapx.analysis import whereabouts
    from gdbheapx.report import whereabouts as shown

    session.heaps.may_be_none = True
    found = whereabouts.look(session.target, session.heaps.all(), options.address)
    return Answer(lambda: found, lambda style: shown.text(style, found), read=True)
