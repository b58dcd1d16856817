"""heapx diff"""

from gdbheapx.allocators.session import Session
from gdbheapx.command import HTML, SHORT_STOP, SIZE_HELP, CommandAnswer, Options, declare_argument, declare_command, parse_count, parse_size
from gdbheapx.common.errors import UsageError
from gdbheapx.common.hints import hint_run
from gdbheapx.common.stops import Reads

HELP = """What grew between two snapshots, cores or processes.

Each of the two is the file of a snapshot, a core, or a process id; of a core or a process a snapshot is taken for this. With --pid or
--core, or inside gdb, OLD alone is compared with that. A line reads `+ GROWTH (NEW - OLD) BLOCKS what`. Owners show their size
before and after (`dict of 20,000 -> 50,000 entries`), and then their classes, as `census --by owner` does.
"""
HTML_HELP = """--html writes the same as a page that a browser shows without a network or scripts; it requires Jinja2.
"""
GATE = "exit code 3 if SIZE or more has grown, 4 if unknown; " + SIZE_HELP
OF = "what --fail-on-growth is about: all parts that grew, used blocks (malloc), or the net RSS"


@declare_command(
    "diff",
    arguments=[
        declare_argument("old", metavar="OLD", help="snapshot, core or process id"),
        declare_argument("new", metavar="NEW", nargs="?", help="later snapshot, core or process id; omitted: what gdbheapx was started on"),
        declare_argument("--limit", type=parse_count, metavar="N", help="at most N rows of each kind (default: 10 in text)"),
        declare_argument("--fail-on-growth", type=parse_size, metavar="SIZE", help=GATE),
        declare_argument("--of", choices=("all", "malloc", "rss"), default="all", help=OF),
        declare_argument("--html", metavar="FILE", capability="html", help="(shell only) write a page to FILE, readable only by you"),
        *SHORT_STOP,
    ],
    needs_target=False,
    reads=lambda options: Reads.SNAPSHOT if options.new is None else Reads.STATE,
    renders=lambda options: HTML if options.html is not None else None,
    help=HELP,
    help_of={"html": HTML_HELP},
    examples=("diff before.snap after.snap", "-p 4711 diff before.snap"),
    needs=("gdbheapx.snapshot.take", "gdbheapx.snapshot.diff", "gdbheapx.report.analysis_text"),
)
def answer_diff(session: Session, options: Options) -> CommandAnswer:
    """The command `diff`."""
    from gdbheapx.common import problems
    from gdbheapx.common.units import SentenceSize, make_sentence
    from gdbheapx.report import analysis_text
    from gdbheapx.snapshot import diff, take

    if options.html is not None:
        raise UsageError("diff --html is for the shell", "run: " + hint_run("diff %s --html diff.html", options.old))
    if options.new is None and not session.has_target:
        raise UsageError("diff requires NEW, or a process or core", "name it: gdbheapx diff OLD NEW, or gdbheapx -p PID diff OLD")
    take.check_source(options.old)
    if options.new is None:
        new, name, form = take.take_current(session)
    else:
        new, name, form = None, options.new, take.detect_source(options.new)
    limits = (("--max-seconds", options.max_seconds), ("--max-stop", options.max_stop))
    more = [word for flag, value in limits if value is not None for word in (flag, str(value))]
    old = take.open_snapshot_source(options.old, more)
    new = new or take.open_snapshot_source(options.new, more)
    graphs = [diff.make_owned(session, record, what) for record, what in ((old, options.old), (new, name))]
    answer = diff.diff_snapshots(old, new, (options.old, name), (take.detect_source(options.old), form), graphs)
    limit, grown = options.fail_on_growth, answer.growth
    failed = limit is not None and grown.at_least(options.of) >= limit
    if limit is not None and not failed and grown.of(options.of) is None:
        known = options.of, SentenceSize(limit), "; ".join(grown.lacking)
        what = make_sentence("the growth of %s is unknown: it may be %s or more (%s)", *known)
        session.problem(problems.GROWTH_UNKNOWN, None, what, "compare two of a kind: two processes, two cores, or snapshots of them")
    return CommandAnswer(
        lambda: analysis_text.make_diff_data(answer, options.limit),
        lambda style: analysis_text.format_diff(style, answer, options.limit),
        finding=failed,
        read=True,
        record=lambda: answer,
    )
