"""heapx refs"""

from gdbheapx.command import NAMES, SHORT_STOP, Answer, Options, address_or_printed, argument, command, count
from gdbheapx.errors import HeapxError
from gdbheapx.problems import NOT_FOUND
from gdbheapx.session import Session
from gdbheapx.stops import Reads

HELP = """What points to a block, and so on back to the roots.

Each line is one pointer; the chain ends at a global variable, a stack, thread-local storage or a register, or where nothing
leads on (the block is lost with all that is in the chain). Where names lead there, `Path` says how the program itself gets to the block:
`shop._cache["u:1234"].items[3]` in Python, `g_sessions["u:1234"][3]` through containers of C++.
"""

ADDR = "an address in the block, or a name that `owners` prints; in gdb also an expression"


@command(
    "refs",
    arguments=[
        argument("address", type=address_or_printed, metavar="ADDR|NAME", help=ADDR),
        argument("--depth", type=count, metavar="N", default=20, help="at most N steps of each chain, without its middle (default 20)"),
        argument("--limit", type=count, metavar="N", default=10, help="at most N chains (default 10)"),
        *NAMES,
        *SHORT_STOP,
    ],
    reads=Reads.OWNERS,
    help=HELP,
    examples=("-p 4711 refs 0x55d0c0ffee10",),
    snapshot=True,
    needs=(
        "gdbheapx.analysis.reachability.refs",
        "gdbheapx.report.reach_text",
        "gdbheapx.analysis.census.named",
        "gdbheapx.analysis.census.block",
    ),
)
def refs(session: Session, options: Options) -> Answer:
    """The command `refs`."""
    from gdbheapx.analysis.census import block, named
    from gdbheapx.analysis.reachability import heap_graph, memory_budget
    from gdbheapx.analysis.reachability import refs as model
    from gdbheapx.report import reach_text

    memory_budget.check(session)
    session.without_names = options.no_names
    address = named.find_address(session, options.address)
    graph = named.make(session)
    answer = model.find(graph.reach, graph.names, address, paths=graph.paths)
    heap_graph.check_time(session)
    if answer is not None and block.can_tell(session):
        told = block.signatures(session, model.blocks(graph.reach, answer))
        answer = model.named(answer, {address: signature.name for address, signature in told.items()})
    if answer is not None:
        answer = model.with_containers(answer, block.pointers(session, graph.reach, model.pointers(answer, options.limit)))
    if answer is None:
        hint = "`gdbheapx whatis 0x%x` says what is there" % address
        raise HeapxError("no block in use has the address 0x%x" % address, hint, code=NOT_FOUND)
    return Answer(
        lambda: reach_text.data(answer, options.limit, options.depth),
        lambda style: reach_text.lines(style, answer, options.limit, options.depth),
        read=True,
        record=lambda: answer,
    )
