"""gdbheapx bill"""

from gdbheapx.allocators.session import Session
from gdbheapx.command import CommandAnswer, Options, declare_argument, declare_command, parse_count
from gdbheapx.common.errors import UsageError
from gdbheapx.common.hints import hint_run

HELP = """What a container or service uses of its memory limit.

WHICH is a process (its pid), the path of a memory cgroup (`/system.slice/redis.service`), or the id of a pod or container, or its
beginning where one group alone has it. `kubectl get pod NAME -o jsonpath={.metadata.uid}` prints the id of a pod.

The lines add up to memory.current: private memory of the processes by allocator (in use; free), runtime (CPython, JVM, V8, ...),
stacks; shared memory and tmpfs, page cache, kernel memory (page tables, stacks, slab), sockets. Memory that several processes share
counts once. `not explained` is the rest. `comes back by` names the way to get it back: reclaim by the kernel without
a kill, trim or purge. Also: limits, swap, kills for memory, what `kubectl top` shows, and the processes with pinned, locked and GPU memory.

No process is stopped, and none is changed. The largest processes are looked into until 1.7 s have passed, or as many as --top says; of
the others the kernel's figures are shown. Where a heap changes while it is read, or is too large for that, `?` stands for the
unknown memory in use.
"""


@declare_command(
    "bill",
    arguments=[
        declare_argument("which", metavar="WHICH", help="pid, path of a memory cgroup, or id of a pod or container"),
        declare_argument(
            "--top",
            type=parse_count,
            metavar="N",
            help="look into the N largest processes, and show N (default: as many as 1.7 s allow; 10)",
        ),
    ],
    needs_target=False,
    help=HELP,
    examples=("bill 4711", "bill /system.slice/redis.service"),
    in_shell=True,
)
def answer_bill(session: Session, options: Options) -> CommandAnswer:
    """The command `bill`."""
    if session.has_target:
        raise UsageError("bill is about a memory cgroup, not about one process", "try: " + hint_run("bill PID"))
    from gdbheapx.addons.monitor import bill
    from gdbheapx.report.text import format_page

    found = bill.make_bill(session, options.which, options.top)
    top = bill.MOST_ROWS if options.top is None else options.top
    return CommandAnswer(lambda: found, lambda style: format_page(style, bill.bill_page(found, top)), read=True)
