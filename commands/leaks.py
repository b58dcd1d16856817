"""heapx leaks"""

import functools
from typing import TYPE_CHECKING, List

from gdbheapx import command
from gdbheapx.allocators.session import Session
from gdbheapx.command import SHORT_STOP, SIZE_HELP, CommandAnswer, Options, declare_argument, declare_command
from gdbheapx.common.stops import Reads

if TYPE_CHECKING:
    from gdbheapx.analysis.reachability import leaks as model

HELP = """Memory that nothing references any more.

Every block in use is `held` (reachable by pointers to its start from a global variable, a stack, a register or thread-local
storage), `maybe` (only by weaker evidence, such as a pointer to its middle) or `leaked` (not at all). Leaked blocks are
shown as leak roots: leaked blocks that no other leaked block references, with all that is reachable from them; every byte counts
once. References in the kernel (epoll) or in other processes cannot be seen.

In gdb's batch mode `heapx --exit leaks --fail-on-leak 1M` ends gdb with the exit code; without --exit gdb ends with 0.
"""


@declare_command(
    "leaks",
    arguments=[
        declare_argument("--list", action="store_true", help="list every block that is leaked or may be"),
        declare_argument(
            "--limit", type=command.parse_count, metavar="N", help="at most N groups, and N blocks of --list (default: 20 and 100 in text)"
        ),
        declare_argument(
            "--fail-on-leak", type=command.parse_size, metavar="SIZE", help="exit code 3 if SIZE or more is leaked for sure; " + SIZE_HELP
        ),
        declare_argument(
            *("--weak", "--no-weak"), action=command.Switch, help="second pass: packed, unaligned and mangled pointers (default on a core)"
        ),
        declare_argument("--interior-holds", action="store_true", help="count a pointer to any place inside a block as one that holds it"),
        *SHORT_STOP,
    ],
    reads=lambda options: Reads.WEAK if options.weak else Reads.GRAPH,
    help=HELP,
    examples=("-p 4711 leaks", "--core core.4711 leaks --list", "--core core.4711 leaks --fail-on-leak 1M"),
    snapshot=True,
    needs=(
        "gdbheapx.analysis.reachability.leaks",
        "gdbheapx.analysis.memory_verdict",
        "gdbheapx.report.reach_text",
        "gdbheapx.analysis.census.block",
        "gdbheapx.analysis.census.registry",
        "gdbheapx.analysis.reachability.paths",
    ),
)
def answer_leaks(session: Session, options: Options) -> CommandAnswer:
    """The command `leaks`."""
    from gdbheapx.analysis import memory_verdict
    from gdbheapx.analysis.census import block, registry
    from gdbheapx.analysis.reachability import heap_graph, paths
    from gdbheapx.analysis.reachability import leaks as model
    from gdbheapx.common import problems
    from gdbheapx.report import reach_text

    listed: List[model.LeakedBlock] = []

    def find() -> "model.Leaks":
        if session.target.has_memory:
            heap_graph.check_owners_fit(session, heap_graph.LEAKS_BYTES, "census")
        graph = block.make_of_counted(session)
        further = registry.find_further(session, garbage=False) if graph is None else heap_graph.NO_POOLS
        slots = heap_graph.check_fit(session, heap_graph.OWNERS_BYTES) is None
        reach, sums = heap_graph.mark_graph(session, options.weak, further, None if graph is None else graph.reach, slots)
        found = paths.find_cycles(reach, graph.paths) if graph is not None else None
        if found is not None:
            sums = model.subtract_nodes(reach, sums, found[1])
        naming = functools.partial(block.label_by_words, session) if block.can_tell(session) else None
        made = model.find_leaks(reach, options.interior_holds, sums, naming)._replace(garbage=found[0] if found is not None else None)
        made = made._replace(runtime=registry.find_leading_to_all(session))
        garbage = frozenset(found[1] if found is not None else ())
        listed.extend(model.list_leaked_blocks(reach, made, options.interior_holds, garbage) if options.list else ())
        return model.judge_leaks(session, made)

    looked_at = memory_verdict.tell_coverage(session)
    as_kept = not (options.list or options.interior_holds or options.weak is not None)
    answer = session.kept("leaks", model.Leaks, find) if as_kept else find()
    heap_graph.check_time(session)
    has_blocks = session.target.has_memory or session.shared(heap_graph.REACH) is not None
    can_look_again = session.target.kind == "live" and not options.weak and answer.roots is not None
    rows = listed if options.list and answer.roots is not None else None
    is_over = options.fail_on_leak is not None and (answer.leaked is None or answer.leaked.bytes >= options.fail_on_leak)
    if is_over and answer.is_upper_bound:
        what = "whether %d bytes or more are leaked is unknown: not everything that may hold blocks was read" % options.fail_on_leak
        session.problem(problems.LEAK_UNKNOWN, None, what, "the other entries say what that is")
    return CommandAnswer(
        lambda: reach_text.make_leaks_data(answer, rows, options.limit, looked_at),
        lambda style: reach_text.format_leaks(style, answer, rows, options.limit, has_blocks, can_look_again, looked_at),
        finding=is_over and not answer.is_upper_bound,
        read=True,
        record=lambda: answer,
    )
