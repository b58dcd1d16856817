"""heapx symbols"""

from typing import Any

from gdbheapx.command import Answer, argument, command
from gdbheapx.errors import UsageError
from gdbheapx.session import Session

HELP = """Packs: types, relative addresses and constants of one build of jemalloc or glibc, for hosts without its debug files.

On a host that has the debug files, `export -o BUILDID.json` writes the pack of the target's jemalloc, or of its glibc if it has no
jemalloc; --allocator selects another. On other hosts pass `--symbols DIR`, or in gdb `set heapx symbols-path DIR`. Packs are matched
by build-id and verified against the target's memory before use, like debug information. Packs for Debian's libjemalloc2 are bundled
and tried last. `list` needs no target.
"""


@command(
    "symbols",
    [argument("action", choices=("export", "list"), help="export: write the pack of an allocator in the target; list: show the packs that were found")],
    needs_target=False,
    help=HELP,
)
def symbols(session: Session, options: Any) -> Answer:
    """The command `symbols`."""
    if options.action == "list":
        from gdbheapx.analysis import packs
        from gdbheapx.report import pack_text

        rows = packs.listed(session)
        return Answer(lambda: {"packs": rows}, lambda style: pack_text.listed(rows))
    if not session.has_target:
        raise UsageError("symbols export requires a process or a core", "give --pid N or --core FILE")
    from gdbheapx.layout import pack

    made = exported(session)
    return Answer(lambda: {"pack": pack.tree(made)}, lambda style: pack.dump(made).splitlines(), document=True)


def exported(session: Session) -> Any:
    """The pack of the allocator with the id that was given, else of a jemalloc, else of a glibc."""
    from gdbheapx.glibc import export as glibc
    from gdbheapx.jemalloc import export as jemalloc

    target, found, name = session.target, session.jemallocs(), session.allocator_id
    if name.startswith("glibc") if name else not (found.jemallocs or found.unread or jemalloc.with_symbols(target)):
        return glibc.of_target(target, session.glibcs(), name)
    return jemalloc.of_target(target, found, name)
