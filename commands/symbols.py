"""heapx symbols"""

from typing import Any

from gdbheapx.command import Answer, argument, command
from gdbheapx.errors import UsageError
from gdbheapx.session import Session

HELP = """Packs: types, relative addresses and constants of one jemalloc build, for hosts without its debug files.

`export -o BUILDID.json` on a host that has the debug files writes the pack of the target's jemalloc (--allocator chooses among
several). Elsewhere `--symbols DIR`, in gdb `set heapx symbols-path DIR`, has it found by the library's build-id; it is believed
only after the same tests on the target's memory as debug information. Packs of Debian's libjemalloc2 come with gdbheapx and are
asked last. `list` needs no target.
"""


@command(
    "symbols",
    [argument("action", choices=("export", "list"), help="export: the pack of the jemalloc in the target; list: the packs that are found")],
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
        raise UsageError("symbols export needs a process or a core", "give --pid N or --core FILE")
    from gdbheapx.jemalloc import export
    from gdbheapx.layout import pack

    made = export.of_target(session.target, session.jemallocs(), session.allocator_id)
    return Answer(lambda: {"pack": pack.tree(made)}, lambda style: pack.dump(made).splitlines(), document=True)
