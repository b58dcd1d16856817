"""heapx whatis"""

from typing import TYPE_CHECKING, Any, Iterator, Optional, Tuple

from gdbheapx import command
from gdbheapx.allocators.session import Session
from gdbheapx.command import NAMES, SHORT_STOP, CommandAnswer, Options, TextStyle, declare_argument, declare_command
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.hints import hint_command
from gdbheapx.common.problems import NOT_FOUND
from gdbheapx.common.stops import Reads

if TYPE_CHECKING:
    from gdbheapx.analysis.census.block import Location
    from gdbheapx.analysis.reachability.refs import Refs

HELP = """An address: its block, the holders, the neighbours.

Where no heap holds it: the mapping, the object with its nearest symbol, the thread's stack or thread-local storage. `offset` counts from
the address that malloc returned; below zero it is in the block's header.

Below are the pointers to the block, and the pointers to those, back to the roots: each line is one pointer; the chain ends at a global
variable, a stack, thread-local storage or a register, or where nothing references the last block (then all in the chain is leaked). `Path`
is the program's own expression for the block, where there is one: `shop._cache["u:1234"].items[3]` in Python,
`g_sessions["u:1234"][3]` through containers of C++. --no-holders reads less, and pauses a process for less; it is the default for
heaps of more than 2 GiB.
"""
ADDR = "hex with 0x, decimal, or a name that `owners` prints; in gdb also an expression, such as $sp or &var"
LEAST_CUT_BYTES = 4096
"""No runtime cuts up smaller blocks of malloc's."""
CHAINS, FEW_CHAINS = 10, 3
"""Shown by --chains, and below what is at the address."""


def choose_reads(options: Options) -> Reads:
    """Return what the command reads while the process is stopped."""
    by_name = isinstance(options.address, str) and options.holders is False
    return Reads.OWNERS if options.chains or by_name else Reads.REPORT if options.holders is False else Reads.CENSUS


@declare_command(
    "whatis",
    needs=(
        "gdbheapx.report.analysis_text",
        "gdbheapx.report.reach_text",
        "gdbheapx.analysis.reachability.refs",
        "gdbheapx.analysis.census.block",
        "gdbheapx.analysis.census.registry",
    ),
    arguments=[
        declare_argument("address", type=command.address_or_printed, metavar="ADDR|NAME", help=ADDR),
        declare_argument(
            *("--holders", "--no-holders"), action=command.Switch, help="type and holders of the block (default: heaps of up to 2 GiB)"
        ),
        declare_argument("--chains", action="store_true", help="only the pointers to the block, back to the roots"),
        declare_argument("--limit", type=command.parse_count, metavar="N", help="at most N chains (default: 3; 10 with --chains)"),
        declare_argument(
            "--depth",
            type=command.parse_count,
            metavar="N",
            default=20,
            help="at most N steps of each chain, without its middle (default 20)",
        ),
        *NAMES,
        *SHORT_STOP,
    ],
    reads=choose_reads,
    help=HELP,
    examples=("-p 4711 whatis 0x55d0c0ffee10", "--core core.4711 whatis 0x55d0c0ffee10 --chains"),
    snapshot=True,
)
def answer_whatis(session: Session, options: Options) -> CommandAnswer:
    """The command `whatis`."""
    from gdbheapx.analysis.census import block
    from gdbheapx.analysis.reachability import heap_graph, refs
    from gdbheapx.report import analysis_text as shown
    from gdbheapx.report import reach_text
    from gdbheapx.report.text import format_page

    session.without_names = options.no_names
    place = block.find_address(session, options.address)
    limit = options.limit if options.limit is not None else CHAINS if options.chains else FEW_CHAINS
    if options.chains:
        heap_graph.check_owners_fit(session)
        found = find_chains(session, place, limit)
        if found is None:
            hint = "`%s` says what is there" % hint_command("whatis 0x%x", place)
            raise HeapxError("no block in use has the address 0x%x" % place, hint, code=NOT_FOUND)
        return CommandAnswer(
            lambda: reach_text.make_refs_data(found, limit, options.depth),
            lambda style: reach_text.format_refs(style, found, limit, options.depth),
            read=True,
            record=lambda: found,
        )
    location, is_wanted = locate_address(session, place, options.holders)
    chains = None
    if is_wanted and heap_graph.check_fit(session, heap_graph.OWNERS_BYTES) is None:
        try:
            chains = find_chains(session, place, limit)
        except HeapxError:  # what is there was found without it
            if session.budget.expired():
                raise
        location = location._replace(held_by=refs.choose_holder(chains) if chains is not None else None)

    def data() -> Any:
        return {**location._asdict(), "refs": None if chains is None else reach_text.make_refs_data(chains, limit, options.depth)}

    def text(style: TextStyle) -> Iterator[str]:
        yield from format_page(style, shown.make_location_page(location))
        if chains is not None:
            yield ""
            yield from reach_text.format_refs(style, chains, limit, options.depth)

    return CommandAnswer(data, text, read=True, record=lambda: location)


def find_chains(session: Session, at: int, limit: int) -> "Optional[Refs]":
    """Return the chains of pointers from roots to the block at an address, or None if there is no block in use."""
    from gdbheapx.analysis.census import block
    from gdbheapx.analysis.reachability import heap_graph
    from gdbheapx.analysis.reachability import refs as model

    graph, marks = block.make_graph_with_containers(session)
    found = model.find_refs(graph.reach, graph.names, at, marks, graph.paths)
    heap_graph.check_time(session)
    if found is not None and block.can_tell(session):
        told = block.find_signatures(session, model.list_chain_blocks(graph.reach, found))
        found = model.add_refs_types(found, {address: signature.name for address, signature in told.items()})
    if found is None:
        return None
    containers = block.find_pointed_containers(session, graph.reach, model.list_pointers(found, limit))
    return model.add_refs_containers(found, containers)


def locate_address(session: Session, place: int, has_holders: Optional[bool]) -> "Tuple[Location, bool]":
    """Return the place of an address, and True if its holders are to be searched."""
    from gdbheapx.analysis.census import block, find, registry
    from gdbheapx.analysis.reachability import heap_graph

    if not session.target.has_memory:
        kept = block.locate_in_snapshot(find.label_blocks(session, lambda graph: None), place)
        return kept, kept.used is not None and has_holders is not False
    session.heaps.may_be_none = True
    location = block.locate_in_heaps(session.target, session.heaps.all(), place)
    words = {heap.info.id: heap.shape.in_use for heap in session.heaps.all()}
    in_use = [at.block for at in location.places if at.block is not None and at.block.status in words[at.allocator]]
    used = [(known.address, known.usable_bytes) for known in in_use]
    if not location.places or any(usable >= LEAST_CUT_BYTES for _, usable in used):
        piece = registry.find_piece_at(session, place)
        location = block.add_runtime_piece(location, piece)
        if piece is not None:
            used = [(piece.address, piece.usable_bytes)] if piece.address is not None and piece.usable_bytes is not None else []
    is_wanted = bool(used) and (heap_graph.is_small_heap(session, asked=True) if has_holders is None else has_holders)
    if is_wanted:
        what = block.find_signatures(session, used[:1]).get(used[0][0])
        location = location._replace(signature=block.describe_signature(what) if what is not None else None)
    return location, is_wanted
