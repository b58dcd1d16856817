"""heapx malloc-info"""

from typing import Any

from gdbheapx.command import Answer, command
from gdbheapx.session import Session


@command("malloc-info")
def malloc_info(session: Session, options: Any) -> Answer:
    """The XML of malloc_info(0, fp), byte for byte as the process itself would print it, without a call, from a core as well."""
    xml = session.glibc_malloc().malloc_info()
    return Answer(lambda: {"xml": xml}, lambda style: xml.splitlines(), read=True)
