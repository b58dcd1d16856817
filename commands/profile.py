"""heapx profile"""

from typing import Any

from gdbheapx import problems
from gdbheapx.command import Answer, Options, command
from gdbheapx.session import Session
from gdbheapx.stops import Reads

HELP = """The live heap profile, where the allocator samples.

Name the file with -o: `gdbheapx -p PID profile -o FILE`, in gdb `heapx profile -o FILE`; then run `jeprof EXECUTABLE FILE`. The process's
own dump would write the same. Where it covers less than three quarters of the memory in use, a note says how much.
"""


@command("profile", reads=Reads.STATE, help=HELP, examples=("-p 4711 profile -o heap.prof",))
def profile(session: Session, options: Options) -> Answer:
    """The command `profile`."""
    heap = session.heaps.one_with_capability("profile")
    sampled, maps = heap.capabilities["profile"](), session.target.maps_text()

    if sampled.shortfall is not None:
        what, why = sampled.shortfall
        session.problem(problems.PROFILE_PART, None, what, why, partial=False)

    def data() -> Any:
        text = "\n".join(sampled.lines(maps)) + "\n"
        return {"allocator": heap.info.id, **sampled.data(), "profile": text}

    return Answer(data, lambda style: sampled.lines(maps), document=True, read=True)
