"""heapx whatis"""

from gdbheapx.command import NAMES, Answer, Options, Switch, address_or_printed, argument, command
from gdbheapx.session import Session
from gdbheapx.stops import Reads

HELP = """What is at an address: its block, what holds it, neighbours.

Where no heap holds it: the mapping, the object with its nearest symbol, the thread's stack or thread-local storage. `offset` counts from
the address that malloc returned; below zero it is in the block's header.
"""
ADDR = "hex with 0x, decimal, or a name that `owners` prints; in gdb also an expression, such as $sp or &var"
LEAST_CUT_BYTES = 4096
"""No runtime cuts up smaller blocks of malloc's."""


@command(
    "whatis",
    needs=(
        "gdbheapx.report.location",
        "gdbheapx.analysis.census.block",
        "gdbheapx.analysis.census.pieces",
        "gdbheapx.analysis.census.named",
    ),
    arguments=[
        argument("address", type=address_or_printed, metavar="ADDR|NAME", help=ADDR),
        argument(
            *("--holders", "--no-holders"),
            action=Switch,
            help="what the block is, and what holds it (default: cores with up to 2 GiB of heap)",
        ),
        *NAMES,
    ],
    reads=lambda options: Reads.OWNERS if isinstance(options.address, str) else Reads.CENSUS if options.holders else Reads.REPORT,
    help=HELP,
    examples=("-p 4711 whatis 0x55d0c0ffee10", "--core core.4711 whatis 0x55d0c0ffee10 --holders"),
    snapshot=True,
)
def whatis(session: Session, options: Options) -> Answer:
    """The command `whatis`."""
    from gdbheapx.analysis import locate
    from gdbheapx.analysis.census import block, find, named, pieces
    from gdbheapx.analysis.reachability import memory_budget
    from gdbheapx.report import location as shown

    session.without_names = options.no_names
    address = named.find_address(session, options.address)
    if not session.target.has_memory:
        kept = locate.kept(find.label_blocks(session, lambda graph: None), address)
        if kept.used is not None and options.holders is not False:
            kept = kept._replace(held_by=named.find_holders(session, [address]).get(address))
        return Answer(lambda: kept, lambda style: shown.text(style, kept), read=True)
    session.heaps.may_be_none = True
    location = locate.locate(session.target, session.heaps.all(), address)
    words = {heap.info.id: heap.shape.in_use for heap in session.heaps.all()}
    blocks = [place.block for place in location.places if place.block is not None and place.block.status in words[place.allocator]]
    used = [(block.address, block.usable_bytes) for block in blocks]
    if not location.places or any(usable >= LEAST_CUT_BYTES for _, usable in used):
        piece = pieces.at(session, address)
        location = locate.with_piece(location, piece)
        if piece is not None:
            used = [(piece.address, piece.usable_bytes)] if piece.address is not None and piece.usable_bytes is not None else []
    if used and (memory_budget.is_small(session) if options.holders is None else options.holders):
        what = block.signature(session, *used[0])
        location = location._replace(signature=block.words(what) if what is not None else None)
        held = named.find_holders(session, [address])
        location = location._replace(held_by=held.get(address))
    return Answer(lambda: location, lambda style: shown.text(style, location), read=True)
