"""heapx profile"""

from typing import Any

from gdbheapx.command import Answer, Options, command
from gdbheapx.session import Session
from gdbheapx.stops import Reads

HELP = """The live heap profile, where the allocator samples, in the format that jeprof reads.

Name the file with -o: `heapx profile -o FILE`, then run `jeprof EXECUTABLE FILE`. The process's own dump would write the same.
"""


@command("profile", reads=Reads.STATE, help=HELP)
def profile(session: Session, options: Options) -> Answer:
    """The command `profile`."""
    heap = session.heaps.one_with_capability("profile")
    sampled, maps = heap.capabilities["profile"](), session.target.maps_text()

    def data() -> Any:
        text = "\n".join(sampled.lines(maps)) + "\n"
        return {"allocator": heap.info.id, **sampled.data(), "profile": text}

    return Answer(data, lambda style: sampled.lines(maps), document=True, read=True)
