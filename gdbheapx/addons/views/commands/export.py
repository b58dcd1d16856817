"""heapx export"""

from typing import Any, List, Optional

from gdbheapx.allocators.session import Session
from gdbheapx.command import SQL, CommandAnswer, Options, declare_argument, declare_command
from gdbheapx.common.errors import HeapxError, UsageError
from gdbheapx.common.hints import hint_command
from gdbheapx.common.problems import NOT_IN_SNAPSHOT, PROFILE_PART, SHELL_ONLY, USAGE
from gdbheapx.common.stops import Reads

HELP = """The heap as a file: flame graph, pprof, CSV, Perfetto.

folded: stacks for flamegraph.pl, inferno and speedscope, a line each, `frame;frame BYTES`. pprof: the same for `go tool pprof`, with
blocks and bytes; of owners also their bytes in RAM and in swap, and the free memory that they keep, where that is known. Of owners:
who keeps a block alive, from global variables and threads down; of the census: module, signature, size; of the profile (pprof, jeprof):
the calls that allocated it, where the allocator samples them (jeprof: as `jeprof EXECUTABLE FILE` reads them, a note says
how much they cover). Of owners and the census the sum is the memory
in use; smaller parts are together in frames named `[smaller]`. csv: every block of malloc's, a row each, in the order of
addresses; --of census: blocks in use alone, with their signature. parquet: the same, by DuckDB (pip install 'gdbheapx[query]'), from a
shell alone. perfetto: blocks, their pointers and roots as a heap graph for ui.perfetto.dev; above 2,000,000 objects, or with --of owners,
those with the same owners are one.
"""


def choose_export_reads(options: Options) -> Reads:
    """Return the data that is read while the process is paused."""
    if options.of == "profile":
        return Reads.STATE
    return Reads.BLOCKS if options.format in ("csv", "parquet") and options.of != "census" else Reads.CENSUS


def check_export_options(session: Session, options: Options) -> None:
    """Before a process is stopped for it."""
    if options.format is None and options.of != "profile":
        raise UsageError("export: --format is required", "try: export --format folded -o heap.folded")


@declare_command(
    "export",
    arguments=[
        declare_argument(
            "--format",
            choices=("folded", "pprof", "csv", "parquet", "perfetto", "jeprof"),
            help="what to write; of the profile: jeprof (default), pprof",
        ),
        declare_argument(
            "--of",
            choices=("owners", "census", "profile", "blocks"),
            help="of what: owners (default), census, profile (of an allocator that samples); csv: blocks, census",
        ),
    ],
    reads=choose_export_reads,
    renders=lambda options: SQL if options.format == "parquet" else None,
    help=HELP,
    examples=("-p 4711 export --format folded -o heap.folded", "--core core.4711 export --format csv -o blocks.csv"),
    snapshot=True,
    before=check_export_options,
    needs=(
        "gdbheapx.analysis.census.find",
        "gdbheapx.analysis.census.owned",
        "gdbheapx.kernel.blocks.stream",
        "gdbheapx.report.encodings",
        "gdbheapx.addons.views.export",
    ),
)
def answer_export(session: Session, options: Options) -> CommandAnswer:
    """The command `export`."""
    from gdbheapx.addons.views import export
    from gdbheapx.addons.views.query import csv_rows
    from gdbheapx.analysis.census import find, owned

    if options.format in (None, "jeprof"):
        return _answer_jeprof(session, options)
    if options.format == "parquet":
        what = "parquet files are written from a shell, not inside gdb"
        raise HeapxError(what, "run: " + hint_command("export --format parquet -o heap.parquet"), code=SHELL_ONLY)
    if options.format == "csv":
        return _answer_csv(session, options)
    if options.format == "perfetto":
        return _answer_perfetto(session, options)
    if options.of == "blocks":
        raise UsageError("%s has no single blocks" % options.format, "use --format csv, parquet or perfetto, or --of owners")
    of = options.of or "owners"
    period: Optional[int] = None
    if options.format == "pprof" and not options.output and not options.json:
        raise UsageError("a profile for pprof is not text", "name the file with -o FILE")
    if of == "profile" and options.format != "pprof":
        raise UsageError("calls have no names yet: pprof finds them", "use --format pprof")
    images: List[owned.CodeImage] = owned.list_images(session.target) if session.target.has_memory else []
    if of == "census":
        stacks = owned.list_census_stacks(session.kept("census", find.Census, lambda: find.find_census(session)))
    elif of == "owners":
        stacks = owned.find_paths(session, by_page=options.format == "pprof").stacks()
    else:
        sampled = session.heaps.one_with_capability("profile").capabilities["profile"]()
        stacks, period = owned.of_calls(sampled.stacks()), sampled.sample_bytes
    if options.format == "folded":
        lines = list(csv_rows.format_folded(stacks))
        return CommandAnswer(lambda: {"stacks": stacks}, lambda style: lines, read=True, document=True)

    def make_profile_text() -> List[str]:
        return [export.encode_stacks(stacks, images, period).decode("utf-8", "surrogateescape")]

    return CommandAnswer(lambda: {"stacks": stacks}, lambda style: make_profile_text(), read=True, document=True, pieces=True)


def _answer_jeprof(session: Session, options: Options) -> CommandAnswer:
    """The live heap profile as the allocator's own dump would be."""
    if options.of != "profile":
        raise UsageError("jeprof reads what an allocator has sampled", "use --of profile, or --format pprof")
    heap = session.heaps.one_with_capability("profile")
    sampled, maps = heap.capabilities["profile"](), session.target.maps_text()
    if sampled.shortfall is not None:
        what, why = sampled.shortfall
        session.problem(PROFILE_PART, None, what, why, partial=False)

    def make_jeprof_document() -> Any:
        text = "\n".join(sampled.lines(maps)) + "\n"
        return {"allocator": heap.info.id, **sampled.data(), "profile": text}

    return CommandAnswer(make_jeprof_document, lambda style: sampled.lines(maps), document=True, read=True)


def _answer_perfetto(session: Session, options: Options) -> CommandAnswer:
    """Objects are written after the process was let go, while the graph is gone through."""
    from gdbheapx.addons.views import export

    if options.json:
        raise HeapxError("--json cannot be used with perfetto", "`%s` says what holds what" % hint_command("owners --json"), code=USAGE)
    if options.of not in (None, "blocks", "owners"):
        raise UsageError("perfetto has blocks, or their owners, and no %s" % options.of, "omit --of, or use --format pprof")
    if not options.output:
        raise UsageError("a trace is not text", "name the file with -o FILE")
    objects = export.find_objects(session, options.of == "owners")
    command = session.target.executable or "?"
    packets = (piece.decode("utf-8", "surrogateescape") for piece in export.trace_pieces(objects, session.target.pid or 1, command))
    return CommandAnswer(dict, lambda style: packets, read=True, document=True, pieces=True)


def _answer_csv(session: Session, options: Options) -> CommandAnswer:
    """Blocks are handed on while they are read; what they are is known only when all were."""
    from gdbheapx.addons.views.query import csv_rows
    from gdbheapx.analysis.census import find
    from gdbheapx.analysis.reachability import heap_graph

    if options.json:
        raise HeapxError("--json cannot be used with csv", "`%s` lists all blocks as JSON" % hint_command("chunks --json"), code=USAGE)
    if options.of not in (None, "blocks", "census"):
        raise UsageError("csv has a row for each block, and none for %s" % options.of, "use --of census, or --format pprof")
    if not session.target.has_memory:
        if options.of != "census" or session.shared(heap_graph.REACH) is None:
            raise HeapxError(
                "snapshots contain only used blocks, if any", "use --of census; or ask the process or its core", code=NOT_IN_SNAPSHOT
            )
        kept = find.label_blocks(session, lambda graph: None)
        return CommandAnswer(dict, lambda style: csv_rows.format_kept_csv(kept), read=True, document=True, pieces=True)
    heaps = session.heaps.all()
    if options.of != "census":
        return CommandAnswer(dict, lambda style: csv_rows.format_csv(session.kernel, heaps), document=True, pieces=True)
    heap_graph.check_owners_fit(session)
    used: List[csv_rows.UsedBlocks] = []
    told = find.label_blocks(session, lambda graph: used.extend(csv_rows.read_used_blocks(heaps)), contents=True)
    signed = csv_rows.read_block_signatures(told)
    return CommandAnswer(
        dict, lambda style: csv_rows.format_signed_csv(session.kernel, used, signed), read=True, document=True, pieces=True
    )
