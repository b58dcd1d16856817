"""heapx malloc-info"""

from gdbheapx.command import Answer, Options, command
from gdbheapx.session import Session
from gdbheapx.stops import Reads

HELP = """The XML of malloc_info(0, fp), byte for byte; calls nothing, works on cores too."""


@command("malloc-info", reads=Reads.LISTS, help=HELP, snapshot=True)
def malloc_info(session: Session, options: Options) -> Answer:
    """The command `malloc-info`."""
    xml = session.kept("malloc-info", str, lambda: str(session.heaps.one_with_capability("native-info").capabilities["native-info"]()))
    return Answer(lambda: {"xml": xml}, lambda style: xml.splitlines(), read=True, exact=True)
