"""heapx owners"""

from typing import TYPE_CHECKING, Sequence

from gdbheapx.allocators.session import Session
from gdbheapx.command import NAMES, SHORT_STOP, CommandAnswer, Options, address_or_name, declare_argument, declare_command, parse_count
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.hints import hint_command
from gdbheapx.common.problems import NOT_FOUND
from gdbheapx.common.stops import Reads

if TYPE_CHECKING:
    from gdbheapx.analysis.reachability.owners import OwnedMemory

HELP = """Which variables, threads, blocks keep memory alive.

`retained` is the memory that would be leaked without this owner: nothing else references it. `reachable` includes memory that others
reference, too. Memory of several owners is retained by none of them; it is `shared` where one block or container is above it. Linked blocks
(a list, a tree, a hash table) are one container, owned by the pointer to the first of them; pointers to a few elements are users. Below a
container, elements that are alike are one row, and `g_queue[3]` is the fourth of a list. A suspect keeps a fifth of the heap or more; it
is followed down to a container or the largest block. A block has its path as its name where one is known, such as
`g_sessions["u:1234"][3]`.
"""


@declare_command(
    "owners",
    arguments=[
        declare_argument("--of", type=address_or_name, metavar="ADDR|SYMBOL|PATH", help="what this block, global variable or path owns"),
        declare_argument("--by", choices=("class",), help="below each owner its memory by class"),
        declare_argument("--depth", type=parse_count, metavar="N", default=1, help="show N levels (default 1)"),
        declare_argument("--limit", type=parse_count, metavar="N", default=20, help="at most N rows of each (default 20)"),
        *NAMES,
        *SHORT_STOP,
    ],
    reads=Reads.OWNERS,
    help=HELP,
    examples=("-p 4711 owners", "-p 4711 owners --of g_sessions --depth 2", "--core core.4711 owners --by class"),
    snapshot=True,
    needs=(
        "gdbheapx.analysis.memory_verdict",
        "gdbheapx.analysis.reachability.dominance",
        "gdbheapx.analysis.reachability.owners",
        "gdbheapx.report.reach_text",
        "gdbheapx.analysis.census.block",
        "gdbheapx.analysis.reachability.paths",
        "gdbheapx.analysis.census.owned",
    ),
)
def answer_owners(session: Session, options: Options) -> CommandAnswer:
    """The command `owners`."""
    from gdbheapx.analysis import memory_verdict
    from gdbheapx.analysis.census import block, owned
    from gdbheapx.analysis.reachability import dominance, heap_graph, paths
    from gdbheapx.analysis.reachability import owners as model
    from gdbheapx.report import reach_text
    from gdbheapx.report.text import format_page

    limit = max(1, options.limit)
    session.without_names = options.no_names

    def read() -> dominance.OwnerTally:
        heap_graph.check_owners_fit(session)
        return dominance.tally_owners(session, *block.make_named_graph(session))

    def find() -> model.Owners:
        tallied = read()
        made = block.with_names(session, tallied, dominance.find_owners(tallied, options.depth, limit))
        garbage = paths.find_garbage(session, tallied.reach, tallied.paths)
        heap_graph.check_time(session)
        has_garbage = tallied.paths is not None and tallied.paths.has_garbage
        made = made._replace(leaked_is_upper_bound=has_garbage or heap_graph.lacks_holders(session), garbage=garbage)
        return made._replace(leaked=None) if heap_graph.is_leak_unknown(session, made.leaked) else made

    def answer_rows(rows: "Sequence[OwnedMemory]") -> CommandAnswer:
        data = {"suspects": [], "owners": rows, "shared_bytes": None}
        return CommandAnswer(lambda: data, lambda style: reach_text.format_owner_rows(style, rows), read=True)

    looked_at = memory_verdict.tell_coverage(session)
    if options.by is not None:
        rows = owned.by_class(session, limit)
        heap_graph.check_time(session)
        return answer_rows(rows)
    if options.of is None:
        answer = model.cut_owners(session.kept("owners", model.Owners, find), options.depth, limit)
        answer = answer._replace(used=memory_verdict.hide_unread_zero(answer.used, looked_at))
        return CommandAnswer(lambda: answer, lambda style: format_page(style, reach_text.make_owners_page(answer)), read=True)
    name, address = (options.of, None) if isinstance(options.of, str) else ("0x%x" % options.of, options.of)
    if session.store is not None and session.shared(heap_graph.REACH) is None:
        owned_row = model.find_listed_owner(session.kept("owners", model.Owners, find), name, address, options.depth, limit)
    else:
        tallied = read()
        owned_row = dominance.find_one_owner(tallied, name, address, options.depth, limit)
        if owned_row is not None:
            alone = model.Owners([], [owned_row], tallied.used, tallied.leaked, 0)
            owned_row = block.with_names(session, tallied, alone).owners[0]
        heap_graph.check_time(session)
    if owned_row is None:
        hint = "`%s` lists the owners there are; of a class: `%s`" % (hint_command("owners"), hint_command("census --by owner --like NAME"))
        raise HeapxError("no used block or symbol matches %s" % name, hint, code=NOT_FOUND)
    return answer_rows([owned_row])
