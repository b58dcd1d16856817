"""Broken rules of an allocator, as `check` shows them, and the conversion of complaints of other readers into these, by their codes."""

from typing import Annotated, Callable, Container, Iterable, List, NamedTuple, Optional

from gdbheapx.columns import IF_ANY, TEXT, Column
from gdbheapx.inferior.base import Module, Target
from gdbheapx.model import TargetAddress
from gdbheapx.problems import Diagnostic, PartialSink, ProblemCode, Severity

LOCKED = "locked"
"""Evidence: a lock over what is broken is held, so that a thread was changing it."""
INSIDE = "inside"
"""Evidence: a thread stood in the allocator's code, and no lock tells what it was changing."""
MOST_BROKEN = 1000
"""Broken rules of one heap that are told; a ruined heap has millions."""

RUN_AGAIN = "a thread was inside the allocator: run it again to see whether it persists"


class RuleSuspect(NamedTuple):
    """The block that ends where something is damaged: most likely the program wrote past its end."""

    address: TargetAddress
    """What malloc returned."""
    size_bytes: int
    """The allocator's own size, with a header if there is one."""
    status: str
    """In the allocator's words, such as `used`."""
    owner: Optional[str] = None
    """Who holds it. Filled in by who knows the graph of blocks; None until then."""
    signature: Optional[str] = None
    """What it is, such as a class. Filled in by the census; None until then, and where nothing knows it."""


class BrokenRule(NamedTuple):
    """A place that contradicts a rule of the allocator."""

    allocator: str
    arena: Annotated[Optional[int], Column("arena", TEXT)]
    """Index; None where it belongs to none."""
    code: ProblemCode
    address: Annotated[Optional[TargetAddress], Column("address", TEXT)]
    rule: Annotated[str, Column("rule", TEXT)]
    """Short and stable. Finer than the code: one code may have several."""
    abort: Annotated[Optional[str], Column("malloc would abort with", TEXT, goes=2)]
    """What this release of the allocator says when it meets it; None where it does not notice."""
    suspect: Annotated[Optional[RuleSuspect], Column("suspect", TEXT, goes=1)]
    what: str
    """One sentence."""
    evidence: Annotated[Optional[str], Column("unless", TEXT, shown=IF_ANY, goes=3)] = None
    """LOCKED or INSIDE: an unfinished change may look like this; None where nothing explains it."""

    @property
    def is_sure(self) -> bool:
        """True if only damage explains it."""
        return self.evidence is None


def make_collector(told: List[Diagnostic]) -> PartialSink:
    """A report that collects."""

    def collect_rule(code: ProblemCode, address: Optional[int], what: str, hint: Optional[str]) -> None:
        told.append(Diagnostic(code, address, what, hint))

    return collect_rule


def sorted_out(told: Iterable[Diagnostic], known: Container[ProblemCode], rest: PartialSink, make: Callable[[Diagnostic], None]) -> None:
    """Make broken rules of complaints of damage whose codes are known, and report all others."""
    for diagnostic in told:
        if diagnostic.code.nature == Severity.DAMAGE and diagnostic.code in known:
            make(diagnostic)
        else:
            rest(*diagnostic)


def call_changing(target: Target, module: Module, changing: ProblemCode, report: PartialSink) -> PartialSink:
    """Return a report that calls damage a change under way (`changing`) where a thread of a live process was stopped in this object."""

    def report_changing(code: ProblemCode, address: Optional[int], what: str, hint: Optional[str]) -> None:
        from gdbheapx.inferior.standing import find_running_threads  # of cores nobody asks

        is_damage = target.kind == "live" and code.nature == Severity.DAMAGE
        if is_damage and find_running_threads(target, module):
            report(changing, address, what, RUN_AGAIN)
        else:
            report(code, address, what, hint)

    return report_changing
