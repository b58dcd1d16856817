"""heapx pins"""

from gdbheapx.allocators.session import Session
from gdbheapx.command import SHORT_STOP, CommandAnswer, Options, declare_argument, declare_command, parse_count
from gdbheapx.common.stops import Reads

HELP = """Which used blocks keep free memory from being returned.

Free memory returns to the OS in whole pages, or whole slabs, so one small block can keep a page. This counts the
free memory that a trim or purge would leave; `arenas` shows what they would return (reclaimable). Each free byte counts once: for the
blocks that have most of its page or slab. Rows that keep a twentieth of it or more come first, sorted by free bytes for each byte
of the blocks; `alone_bytes` (JSON) is the free memory that only these blocks keep.
"""


@declare_command(
    "pins",
    arguments=[
        declare_argument("--limit", type=parse_count, metavar="N", help="at most N rows (default: 20 in text)"),
        declare_argument("--no-owners", action="store_true", help="skip owners of the blocks and names by references: quicker"),
        *SHORT_STOP,
    ],
    reads=lambda options: Reads.CHECK if options.no_owners else Reads.PINS,
    help=HELP,
    examples=("-p 4711 pins", "--core core.4711 pins --limit 5"),
    snapshot=True,
    needs=("gdbheapx.analysis.pins", "gdbheapx.report.reach_text"),
)
def answer_pins(session: Session, options: Options) -> CommandAnswer:
    """The command `pins`."""
    from gdbheapx.analysis import pins as model
    from gdbheapx.report import reach_text
    from gdbheapx.report.text import format_page

    kept = session.kept("pins", model.PinsAnswer, lambda: model.find_pins(session, not options.no_owners))
    return CommandAnswer(
        lambda: reach_text.make_pins_data(kept, options.limit),
        lambda style: format_page(style, reach_text.make_pins_page(kept, options.limit)),
        read=True,
        record=lambda: kept,
    )
