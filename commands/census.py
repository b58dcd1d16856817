"""heapx census"""

from typing import List, Optional, Sequence

from gdbheapx.allocators.session import Session
from gdbheapx.command import NAMES, SHORT_STOP, CommandAnswer, Options, declare_argument, declare_command, parse_count
from gdbheapx.common import addon_loader
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.problems import USAGE
from gdbheapx.common.stops import Reads

HELP = """Memory in use by type: class, object, header, size.

A block is named by its content, without symbols: classes of C++ by their vtables, objects of Python by their types, headers
that runtimes write. Other blocks are named by the one thing that points to them (`Session+0x18`: the pointer 24 bytes into a
Session; a place, no type), else they show by size. `confidence` says how well a name is supported.

--copies: blocks of 64 usable bytes and more with the same bytes, headers and unused bytes at their ends included, four of them
or 64 KiB together. They are compared byte by byte, which takes up to 36 bytes of memory for each block.

--by-text: the objects of --like, grouped by a text inside them, behind one of their pointers, or in one of their attributes.
Texts are data of the program.
"""
SITES_HELP = """--sites: which functions may have allocated the blocks of a row, by the code of the loaded files: calls of malloc and
operator new that store in the new block the same words as these blocks have (a vtable, a type of Python, a pointer into themselves or to
the next of them), or that hand it to the functions that link nodes of C++'s containers. Nothing was recorded: they are candidates, no
stack. Other blocks have none. It takes seconds to minutes, 24 bytes of memory for each byte of code, and gdbheapx[sites].
"""


def check_options(session: Session, options: Options) -> None:
    """Before a process is stopped for it."""
    if options.sites:
        if options.copies or options.by_text is not None or options.by != "signature":
            raise HeapxError("--sites cannot be combined with --copies, --by-text or --by", "use --sites alone", code=USAGE)
        addon_loader.load_capability("sites", "census --sites").require_code_reader(session)


@declare_command(
    "census",
    arguments=[
        declare_argument(
            "--by",
            choices=("signature", "module", "size", "owner"),
            default="signature",
            help="group rows by this (default: signature); size: of malloc's blocks alone",
        ),
        declare_argument(
            "--copies", action="store_true", help="contents that several blocks have, what one copy of each would save most first"
        ),
        declare_argument(
            "--by-text",
            nargs="?",
            const="",
            metavar="FIELD",
            help="with --like: by the text at FIELD (+0x18, attribute, or a text of one); else where texts tell most",
        ),
        declare_argument(
            "--sites",
            action="store_true",
            capability="sites",
            help="with functions that may have allocated the blocks, by the program's code",
        ),
        declare_argument("--like", metavar="TEXT", help="only rows with TEXT in their name"),
        declare_argument("--limit", type=parse_count, metavar="N", help="at most N rows (default: 30 in text)"),
        declare_argument("--show-data", action="store_true", help="with texts of the example blocks: data of the program"),
        *NAMES,
        *SHORT_STOP,
    ],
    reads=Reads.CENSUS,
    help=HELP,
    help_of={"sites": SITES_HELP},
    examples=("-p 4711 census", "-p 4711 census --by size", "--core core.4711 census --like Session"),
    snapshot=True,
    before=check_options,
    needs=(
        "gdbheapx.analysis.memory_verdict",
        "gdbheapx.analysis.census.find",
        "gdbheapx.analysis.census.owned",
        "gdbheapx.analysis.census.contents",
        "gdbheapx.report.census_text",
    ),
)
def answer_census(session: Session, options: Options) -> CommandAnswer:
    """The command `census`."""
    from gdbheapx.analysis import memory_verdict
    from gdbheapx.analysis.census import contents, find, owned
    from gdbheapx.analysis.census.world import CensusTarget
    from gdbheapx.kernel.blocks.graph import NativeSum
    from gdbheapx.report import census_text
    from gdbheapx.report.text import format_page

    session.without_names = options.no_names
    world = CensusTarget(session) if session.target.has_memory else None
    looks: List[find.CensusLook] = []
    limit = options.limit
    shown = census_text.MOST_ROWS if limit is None else limit

    def texts(examples: Sequence[contents.TextBlock]) -> Optional[Sequence[contents.SampleText]]:
        graph = looks[0].told.reach.graph if looks and looks[0].told is not None else None
        return contents.find_sample_texts(session, examples, world, graph) if options.show_data else None

    def look() -> find.Census:
        looks.append(find.take_census(session, world))
        return looks[0].census

    if sum((options.copies, options.by_text is not None, options.by != find.SIGNATURE)) > 1:
        raise HeapxError("--copies, --by-text and --by cannot be combined", "use one of them", code=USAGE)
    looked_at = memory_verdict.tell_coverage(session)
    if options.by_text is not None:
        by = contents.by_text(session, options.like, options.by_text, world)
        return CommandAnswer(
            lambda: census_text.make_by_text_data(by, limit),
            lambda style: format_page(style, census_text.make_by_text_page(by, limit)),
            read=True,
        )
    if options.copies:
        found, looked = contents.find_copies(session, options.like, world)
        looks.append(looked)
        told = texts([contents.TextBlock(row.sample, row.size_bytes, row.signature) for row in found.rows[:shown]])
        return CommandAnswer(
            lambda: census_text.make_copies_data(found, limit, told),
            lambda style: format_page(style, census_text.make_copies_page(found, limit, told)),
            read=True,
        )
    if options.by == "owner":
        answer = owned.by_owner(session)
        answer = answer._replace(rows=[row for row in answer.rows if find.has_in_name(row.signature, options.like)])
    else:
        answer = session.kept("census", find.Census, look)
        objects = [row for row in answer.objects if find.has_in_name(row.name, options.like)]
        answer = answer._replace(rows=find.chosen_rows(session, answer, options.by, options.like), objects=objects)
    told = texts(contents.list_census_examples(answer, shown, looks[0].told if looks and options.show_data else None))
    joined = None
    if options.sites and world is not None:
        told_of = looks[0].told if looks else session.shared(find.TOLD)
        joined = addon_loader.load_capability("sites", "census --sites").find_sites(session, answer.rows[:limit], told_of, world)
    return CommandAnswer(
        lambda: {
            **census_text.make_census_data(answer, limit, told, joined),
            "used": memory_verdict.count_sum(NativeSum(answer.blocks, answer.bytes), looked_at),
        },
        lambda style: format_page(style, census_text.make_census_page(answer, limit, told, joined)),
        read=True,
        record=lambda: answer,
    )
