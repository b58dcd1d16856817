"""heapx malloc-info"""

from gdbheapx.allocators.heap import Heap
from gdbheapx.command import Answer, Options, command
from gdbheapx.session import Session
from gdbheapx.stops import Reads

HELP = """The XML of malloc_info(0, fp), byte for byte.

Refused where another allocator owns malloc: see `gdbheapx arenas`.
"""


def _heap(session: Session) -> Heap:
    return session.heaps.with_own_account("native-info", "malloc-info")


@command("malloc-info", reads=Reads.LISTS, help=HELP, examples=("-p 4711 malloc-info",), snapshot=True)
def malloc_info(session: Session, options: Options) -> Answer:
    """The command `malloc-info`."""
    xml = session.kept("malloc-info", str, lambda: str(_heap(session).capabilities["native-info"]()))
    return Answer(lambda: {"xml": xml}, lambda style: xml.splitlines(), read=True, exact=True)
