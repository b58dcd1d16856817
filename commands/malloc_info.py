"""heapx malloc-info"""

from typing import Any

from gdbheapx.command import Answer, command
from gdbheapx.session import Session

HELP = """The XML of malloc_info(0, fp), byte for byte as the process itself would print it; calls nothing, works on cores too."""


@command("malloc-info", help=HELP)
def malloc_info(session: Session, options: Any) -> Answer:
    """The command `malloc-info`."""
    xml = session.glibc_malloc().malloc_info()
    return Answer(lambda: {"xml": xml}, lambda style: xml.splitlines(), read=True)
