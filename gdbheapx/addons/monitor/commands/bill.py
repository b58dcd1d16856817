"""gdbheapx bill"""

from gdbheapx.command import Answer, Options, argument, command, count
from gdbheapx.errors import UsageError
from gdbheapx.hints import run
from gdbheapx.session import Session

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


@command(
    "bill",
    arguments=[
        argument("which", metavar="WHICH", help="pid, path of a memory cgroup, or id of a pod or container"),
        argument(
            "--top", type=count, metavar="N", help="look into the N largest processes, and show N (default: as many as 1.7 s allow; 10)"
        ),
    ],
    needs_target=False,
    help=HELP,
    examples=("bill 4711", "bill /system.slice/redis.service"),
    in_shell=True,
)
def bill(session: Session, options: Options) -> Answer:
    """The command `bill`."""
    if session.has_target:
        raise UsageError("bill is about a memory cgroup, not about one process", "try: " + run("bill PID"))
    from gdbheapx.addons.monitor import bill_text
    from gdbheapx.addons.monitor.bill import bill as made
    from gdbheapx.report.text import format_page

    found = made(session, options.which, options.top)
    top = bill_text.MOST_ROWS if options.top is None else options.top
    return Answer(lambda: found, lambda style: format_page(style, bill_text.lines(found, top)), read=True)
