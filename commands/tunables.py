"""heapx tunables"""

from typing import Annotated, Any, Dict, List, Tuple

from gdbheapx.allocators.session import Session
from gdbheapx.command import CommandAnswer, Options, TextStyle, declare_command
from gdbheapx.common.model import AllocatorInfo
from gdbheapx.common.stops import Reads

HELP = """Settings of the allocator now in force, and their meaning."""


@declare_command("tunables", reads=Reads.STATE, help=HELP, examples=("-p 4711 tunables",), snapshot=True)
def answer_tunables(session: Session, options: Options) -> CommandAnswer:
    """The command `tunables`."""
    from gdbheapx import allocators
    from gdbheapx.allocators.records import OfAllocator

    kind = List[Tuple[AllocatorInfo, Annotated[Any, OfAllocator("tunables")]]]
    heaps = session.kept("tunables", kind, lambda: [(heap.info, heap.tunables()) for heap in session.heaps.all()])
    data: Dict[str, Dict[str, Any]] = {}
    for info, settings in heaps:
        for key, value in settings._asdict().items():
            data.setdefault(key, {})[info.id] = value

    def text(style: TextStyle) -> Any:
        from gdbheapx.report import pages

        return pages.join_heap_pages(
            style, [(info, allocators.find_allocator(info.name, [settings]).page("tunables", settings)) for info, settings in heaps]
        )

    return CommandAnswer(lambda: data, text, read=True)
