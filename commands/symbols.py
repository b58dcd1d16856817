"""heapx symbols"""

from gdbheapx.command import Answer, Options, argument, command, name_a_target
from gdbheapx.errors import UsageError
from gdbheapx.hints import ask
from gdbheapx.session import Session

HELP = """Packs: layouts for hosts without debug files.

A pack has types, relative addresses and constants, and the vtables of the C++ classes of any build. On a host that has the debug
files, `export -o BUILDID.json` writes the pack of the target's allocator (--allocator selects one of several). `--module NAME`
exports from that module, a library or the executable, its allocator, if it has one, and the vtables of its C++ classes, which
need the module's file alone, stripped or not. On other hosts pass `--symbols DIR`, or in gdb `set heapx symbols-path DIR`. Packs are
matched by build-id and, those of an allocator, verified against the target's memory before use, like debug information. Bundled
packs, for builds of Debian's, are tried last.
`list` needs no target.
"""


@command(
    "symbols",
    [
        argument(
            "action",
            choices=("export", "list"),
            help="export: write the pack of an allocator or module in the target; list: show the packs found",
        ),
        argument("--module", metavar="NAME", help="export: the pack of this module (base name, path or build-id)"),
    ],
    needs_target=False,
    help=HELP,
    examples=("-p 4711 symbols export -o BUILDID.json", "symbols list"),
)
def symbols(session: Session, options: Options) -> Answer:
    """The command `symbols`."""
    if options.action == "list":
        from gdbheapx.analysis import packs
        from gdbheapx.report import pages

        if options.module is not None:
            raise UsageError("--module is for symbols export", ask("symbols export --module NAME"))
        rows = packs.listed(session)
        return Answer(lambda: {"packs": rows}, lambda style: pages.packs(rows))
    if not session.has_target:
        raise UsageError("symbols export requires a process or a core", name_a_target("symbols export"))
    from gdbheapx.analysis import packs
    from gdbheapx.layout import pack

    made = packs.export(session, options.module)
    return Answer(lambda: {"pack": pack.tree(made)}, lambda style: pack.dump(made).splitlines(), document=True)
