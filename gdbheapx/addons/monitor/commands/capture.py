"""gdbheapx capture"""

import argparse

from gdbheapx.allocators.session import Session
from gdbheapx.command import CAPTURE, CommandAnswer, Options, declare_argument, declare_command, parse_count, parse_size, some_seconds
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.hints import hint_run
from gdbheapx.common.problems import SHELL_ONLY

HELP = """A snapshot of each process that crashes (core_pattern).

`gdbheapx capture --show-pattern` prints the line that has the kernel start it, and changes nothing. With --listen it is a server, and the
kernel connects to its socket instead (Linux 6.17). The kernel keeps the process until it is done. The core comes through standard input
and is written nowhere: the registers of all threads are taken from its beginning, memory is read where it is. Then the process goes, or
the core is handed on, unchanged, to the program of --pass-to (systemd-coredump, apport, ...), also where there was no snapshot. The dump
waits for at most --max-seconds. One capture is at work at a time, and 15 wait, of these 5 for crashes of one user; any other hands its
core on at once. Snapshots are readable by root alone. Each decision is a line of JSON in syslog, or in the file of --log. Exit code 4:
the snapshot is partial; 1: there is none.
"""


@declare_command(
    "capture",
    arguments=[
        declare_argument("pid", metavar="PID", nargs="?", type=parse_count, help="the crashed process: %%P in core_pattern"),
        declare_argument("--listen", metavar="SOCKET", help="serve the socket that core_pattern names as @@SOCKET instead (Linux 6.17)"),
        declare_argument("--to", metavar="DIR", default="/var/lib/gdbheapx", help="where snapshots go (default: /var/lib/gdbheapx)"),
        declare_argument(
            "--max-seconds", type=some_seconds, default=20.0, metavar="N", help="let the dump wait for N seconds (default: 20)"
        ),
        declare_argument("--max-memory", type=parse_size, default=2 << 30, metavar="SIZE", help="use at most SIZE of memory (default: 2G)"),
        declare_argument(
            "--keep", type=parse_count, default=10, metavar="N", help="keep N snapshots: who has most loses the oldest (default: 10)"
        ),
        declare_argument("--keep-bytes", type=parse_size, default=1 << 30, metavar="SIZE", help="keep at most SIZE of them (default: 1G)"),
        declare_argument("--no-names", action="store_true", help="replace names of types, symbols, modules, threads and files by numbers"),
        declare_argument("--log", metavar="FILE", help="append each decision to FILE instead of sending it to syslog"),
        declare_argument("--show-pattern", action="store_true", help="print the line for core_pattern with these options, and set nothing"),
        declare_argument(
            "--pass-to",
            metavar="PROGRAM",
            nargs=argparse.REMAINDER,
            help="hand the core on to this program: all that follows are its arguments",
        ),
    ],
    needs_target=False,
    renders=lambda options: CAPTURE,
    help=HELP,
    examples=("capture --show-pattern",),
    in_shell=True,
)
def answer_capture(session: Session, options: Options) -> CommandAnswer:
    """The command `capture`: the shell's process handles the crash."""
    raise HeapxError("capture is started by the kernel, not inside gdb", "see: " + hint_run("capture --show-pattern"), code=SHELL_ONLY)
