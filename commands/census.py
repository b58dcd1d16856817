"""heapx census"""

from typing import List, Optional

from gdbheapx.command import NAMES, SHORT_STOP, Answer, Options, argument, command, count
from gdbheapx.session import Session
from gdbheapx.stops import Reads

HELP = """What the used blocks are: by class, type, header or shape, the largest first.

A block is named by what stands in it, without symbols: classes of C++ by their vtables, objects of Python by their types, headers
that runtimes write. What no rule knows is named by the one thing that points to it (`Session+0x18`: the pointer 24 bytes into a
Session; a place, no type), else only its size is told. `sure` says what a name rests on.
"""


@command(
    "census",
    arguments=[
        argument(
            "--by",
            choices=("signature", "module", "size", "owner"),
            default="signature",
            help="what the rows distinguish (default: signature); size: of malloc's blocks alone",
        ),
        argument("--like", metavar="TEXT", help="only what has TEXT in its name"),
        argument("--limit", type=count, metavar="N", help="at most N rows (default: 30 in text)"),
        argument("--show-data", action="store_true", help="with texts of the example blocks: data of the program"),
        *NAMES,
        *SHORT_STOP,
    ],
    reads=Reads.CENSUS,
    help=HELP,
    snapshot=True,
    needs=(
        "gdbheapx.analysis.census.find",
        "gdbheapx.analysis.census.by_owner",
        "gdbheapx.analysis.census.samples",
        "gdbheapx.report.census_text",
    ),
)
def census(session: Session, options: Options) -> Answer:
    """The command `census`."""
    from gdbheapx.analysis.census import by_owner, find, samples
    from gdbheapx.analysis.census.world import World
    from gdbheapx.report import census_text

    session.without_names = options.no_names
    world = World(session) if session.target.has_memory else None
    looks: List[find.Looked] = []
    told: Optional[List[samples.Sample]] = None
    if options.by == "owner":
        answer = by_owner.by_owner(session)
        answer = answer._replace(rows=[row for row in answer.rows if find.is_like(row, options.like)])
    else:

        def look() -> find.Census:
            looks.append(find.take(session, world, owning=False))
            return looks[0].census

        answer = session.kept("census", find.Census, look)
        answer = answer._replace(rows=find.chosen_rows(session, answer, options.by, options.like))
    limit = options.limit
    if options.show_data:
        reach = looks[0].reach if looks else None
        shown = census_text.MOST_ROWS if limit is None else limit
        told = samples.find(session, answer, shown, world, reach.graph if reach is not None else None)
    return Answer(lambda: census_text.data(answer, limit, told), lambda style: census_text.lines(style, answer, limit, told), read=True)
