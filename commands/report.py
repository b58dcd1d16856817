"""heapx report"""

import functools
from typing import TYPE_CHECKING, Any, Optional, Tuple

from gdbheapx.allocators.session import Session
from gdbheapx.command import HTML, NAMES, CommandAnswer, Options, Switch, TextStyle, declare_argument, declare_command
from gdbheapx.common import addon_loader
from gdbheapx.common.errors import HeapxError, UsageError
from gdbheapx.common.hints import hint_command
from gdbheapx.common.problems import NOT_IN_SNAPSHOT
from gdbheapx.common.stops import Reads, in_stop, predict_ms

if TYPE_CHECKING:
    from gdbheapx.analysis.inside import PageReader
    from gdbheapx.analysis.overview import Overview

MOST_COPIED_BYTES, MOST_PAUSE_MS = 64 << 20, 250
"""Of private memory, and the pause on idle CPUs, up to which all blocks of a live process are looked at without being asked: that takes a
second or two of one CPU and no longer a pause."""

HELP = """Is it a leak, who has memory, and what to do next.

First it splits the memory of the process (RSS), or the bytes of the core, by owner: allocators, runtimes (JVM, V8, Go, BEAM, PHP,
Ruby, CPython), thread stacks, generated code, bss, shared memory, private copies of file pages, page cache. The parts add up to RSS.
`shared` and PSS show memory that other processes map as well; `swapped` is in swap; hugetlb pages are not part of RSS.
docs/explanation/whose-memory.md explains each. Then come a verdict with its evidence, the arenas, the size classes that hold
the most memory, and what a trim would return to the OS.

Kinds of verdict: `in-use` (the program has the memory: normal unless it keeps growing), `leaked` (nothing points to 5 % or 16 MiB of
the memory in use: where all blocks were read), `kept` (free memory that malloc keeps), `fragmented` (free blocks
that blocks in use keep), `runtime` (Python objects, a Java heap, V8, Go ...), `small`, `inconclusive` (unread memory would decide).
`code` says which exactly, `kind_1_0` what release 1.0 called it. `confidence` is `certain`, `likely` or `guess`. `growing` takes two
readings: `diff`.

The first lines say what it comes to: process, time, host, pause, allocator, RSS and its largest parts, verdict, the largest suspect, the
next command; --brief prints no more than that. With --json, --brief gives `allocators`, `memory`, `largest`, `verdict`, `was_looked`,
`suspect` and `next` alone.

A core with up to 2 GiB of heap, and a process with up to 64 MiB of private memory and none in swap, is read block by block
where the program has the memory: for the owners and types of the memory in use. The process is copied for that in a pause of some
10 ms, and the copy is read while it runs on. --deep does it on any target, --no-deep on none. In a process with CPython, a JVM, PostgreSQL,
Ruby, PHP or Perl the same look adds a table in which every byte of RSS, or of the core, stands once, whatever the verdict.
Of BIND's server (9.16, 9.18, 9.20) its memory contexts by name are always shown, with their sum against what malloc has in use.
"""
SITES_HELP = """--sites adds to a page which functions may have allocated the memory in use, by the program's code:
candidates, no stack, as `census --sites` has them. Every block is read then, as by --deep, and code for seconds to minutes; it requires
gdbheapx[sites].
"""
HTML_HELP = """--html writes one page that a browser shows without a network or scripts: verdict, split, arenas, a map of the heap's
pages, size classes, memory in use with its owners (where blocks were read), purging, findings, next steps. It requires Jinja2. With
--json the document that the page was made from is printed. In that document `page` has the data that only the page shows; --page adds it
to --json alone.
"""


def check_page_options(session: Session, options: Options) -> None:
    """Before a process is stopped for it."""
    if options.sites:
        if not options.page or options.deep is False:
            hint = "write a page: %s" % hint_command("report --html report.html --sites")
            raise UsageError("--sites is for a page, and not for --no-deep", hint)
        addon_loader.load_capability("sites", "report --sites").require_code_reader(session)


def decide_depth(session: Session, options: Options) -> None:
    """Have all blocks looked at where that pauses the process for no longer than the rest of the report does: the look itself is at a copy.
    Not where that would bring memory back from swap."""
    process, table = session.process, session.target.page_table()
    if options.deep is not None or process is None or table is None or process.anonymous_bytes > MOST_COPIED_BYTES:
        return
    now = session.target.anonymous_use()
    is_copied = in_stop(Reads.CENSUS, process) == Reads.COPY
    is_short = predict_ms(Reads.COPY, process) <= MOST_PAUSE_MS
    options.unasked = is_copied and is_short and now is not None and not now[1]


@declare_command(
    "report",
    arguments=[
        declare_argument(
            "--deep",
            "--no-deep",
            action=Switch,
            help="read every used block for types and owners (default: cores up to 2 GiB, small processes)",
        ),
        declare_argument("--brief", action="store_true", help="the head alone: at most 12 lines of 80 columns"),
        declare_argument("--html", metavar="FILE", capability="html", help="(shell only) write a page to FILE, readable only by you"),
        declare_argument("--page", action="store_true", capability="page_parts", help="with --json: add the data that only a page shows"),
        declare_argument(
            "--sites",
            action="store_true",
            capability="sites",
            help="for a page: functions that may have allocated the memory in use, by the program's code",
        ),
        *NAMES,
    ],
    reads=lambda options: Reads.CENSUS if options.deep or options.sites or getattr(options, "unasked", False) else Reads.REPORT,
    renders=lambda options: HTML if options.html is not None else None,
    help=HELP,
    help_of={"sites": SITES_HELP, "html": HTML_HELP},
    examples=("-p 4711 report", "-p 4711 report --deep", "--core core.4711 report --html page.html"),
    needs=("gdbheapx.analysis.overview",),
    snapshot=True,
    before=check_page_options,
    settle=decide_depth,
)
def answer_report(session: Session, options: Options) -> CommandAnswer:
    """The command `report`."""
    from gdbheapx.analysis.overview import Overview, shorten_overview

    if options.html is not None:
        raise UsageError("report --html is for the shell", "run: " + hint_command("report --html report.html"))
    if options.page and not options.json:
        raise UsageError("report --page requires --json", "add --json, or write a page: %s" % hint_command("report --html report.html"))
    session.without_names, session.is_copied_whole = options.no_names, getattr(options, "unasked", False)
    if options.sites:
        from gdbheapx.snapshot.record import RecordingSession

        session.store = session.store or RecordingSession()  # what the blocks are is asked once more
    of_page = addon_loader.load_capability("page_parts", "report --page") if options.page else None
    made = functools.cache(functools.partial(walk_heaps, session, options, of_page.ReportPageReader() if of_page is not None else None))
    overview = session.kept("report", Overview, lambda: made()[0])
    if session.refuses is not None:
        overview = overview.without(session.refuses)
    page: Any = None
    if of_page is not None:
        try:
            read = session.kept("page", Optional[of_page.PageParts], lambda: made()[1])
            page = of_page.complete_parts(session, read, options.sites)
        except HeapxError as error:
            if error.code != NOT_IN_SNAPSHOT:
                raise
            cause = "this snapshot has none of the parts that only a page shows"
            session.problem(error.code, None, cause, "take it where the add-on views is installed", partial=False)

    brief = shorten_overview(overview)

    def text(style: TextStyle) -> Any:
        from gdbheapx.report import overview_text
        from gdbheapx.report.text import format_page, format_sentence

        facts = session.target.facts()
        facts = {**facts, "command_line": None, "host": None} if session.without_names else facts
        head = overview_text.format_brief(style, brief, facts)
        yield from (format_sentence(style, line) for line in head)
        if not options.brief:
            yield ""
            yield from format_page(style, overview_text.format_overview(overview))

    def ends(style: TextStyle, lines_before: int) -> Any:
        from gdbheapx.report import overview_text
        from gdbheapx.report.text import format_page

        return format_page(style, overview_text.format_last_lines(style, overview, lines_before))

    def data() -> Any:
        return brief if options.brief else overview if page is None else {**overview._asdict(), "page": page}

    return CommandAnswer(data, text, read=True, ends=None if options.brief else ends, tells_pause=True)


def walk_heaps(session: Session, options: Options, page: "Optional[PageReader]") -> "Tuple[Overview, Any]":
    """Walk every heap once: return its totals, and what `page` has read."""
    from gdbheapx.actions import call
    from gdbheapx.analysis.overview import make_overview

    session.heaps.may_be_none = True
    deep = True if options.sites else options.deep
    overview = make_overview(session, deep, page, lambda heap: call.find_advisable(session, heap))
    return overview, getattr(page, "parts", None)
