"""heapx profile"""

from typing import Any

from gdbheapx.command import Answer, command
from gdbheapx.session import Session

HELP = """The live heap profile of a jemalloc that samples (prof:true), in the text format that jeprof reads; works on cores too.

Name the file with -o: `heapx profile -o FILE`, then run `jeprof EXECUTABLE FILE`. The process's own prof.dump would write the same.
"""


@command("profile", help=HELP)
def profile(session: Session, options: Any) -> Answer:
    """The command `profile`."""
    from gdbheapx.jemalloc import profile_text

    mallocs = session.jemalloc_mallocs()
    if not mallocs:
        raise session.no_jemalloc("this command requires jemalloc's heap profile")
    malloc = next((one for one in mallocs if one.info.owns_malloc), mallocs[0])
    found, maps = malloc.profile(), session.target.maps_text()

    def data() -> Any:
        text = "\n".join(profile_text.lines(found, maps)) + "\n"
        return {"allocator": malloc.info.id, "sample_bytes": 1 << found.lg_sample, "backtraces": len(found.backtraces), "profile": text}

    return Answer(data, lambda style: profile_text.lines(found, maps), document=True, read=True)
