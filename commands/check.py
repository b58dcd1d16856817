"""heapx check"""

from gdbheapx.allocators.session import Session
from gdbheapx.command import SHORT_STOP, CommandAnswer, Options, declare_command
from gdbheapx.common.stops import Reads

HELP = """Checks the heap for damage, and names the suspect.

Each finding has its address, the rule that is broken, and the message with which malloc would abort. `suspect` is the block that ends
where the damage begins: most likely the program wrote past its end. Freed blocks are checked as well: on two lists, written to after they
were freed, in a cache and free at once. A finding that an unfinished change explains says so under `unless` (`locked`: the arena's lock is
held; `inside`: a thread was inside malloc). Exit code 3: there is a finding that nothing explains.
"""


@declare_command(
    "check",
    arguments=SHORT_STOP,
    needs=("gdbheapx.report.pages", "gdbheapx.analysis.memory_verdict"),
    reads=Reads.CHECK,
    help=HELP,
    examples=("--core core.4711 check", "-p 4711 check --short-stop --yes"),
)
def answer_check(session: Session, options: Options) -> CommandAnswer:
    """The command `check`."""
    from gdbheapx.analysis import memory_verdict
    from gdbheapx.analysis.census import block
    from gdbheapx.report import pages

    rules = block.with_suspects(session, block.check_heaps(session.heaps.all(), session.problem))
    looked_at = None if rules else memory_verdict.tell_coverage(session)  # a heap that is damaged is a finding, not also a problem
    return CommandAnswer(
        lambda: {"findings": rules},
        lambda style: pages.format_broken_rules(style, rules, looked_at),
        finding=any(rule.is_sure for rule in rules),
        read=True,
        record=lambda: rules,
    )
