"""What `refs` shows."""

from typing import Any, Dict, Iterator, List, Sequence

from gdbheapx.analysis.reachability.refs import Chain, Refs, Step
from gdbheapx.command import Style
from gdbheapx.kernel.blocks.graph import MAYBE
from gdbheapx.report import text
from gdbheapx.units import Size, plural, say

WORDS = {
    "start": "",
    "tag": " (with tag bits)",
    "habit": " (inside, as this program does)",
    "inside": " (to its inside: weak)",
    "base": "",
    "masked": " (with other bits set: weak)",
    "unaligned": " (at an odd address: weak)",
    "mangled": " (mangled by the C library: weak)",
    "mapping": "",
    "end": " (perhaps the end of the block before: weak)",
}


def data(found: Refs, limit: int, depth: int) -> Dict[str, Any]:
    """The `data` member."""
    return {
        "address": found.address,
        "offset": found.offset,
        "size_bytes": found.size_bytes,
        "class": found.class_,
        "evidence": found.evidence,
        "referrers": len(found.chains),
        "more_referrers": found.more,
        "chains": [shortened(chain.steps, depth) for chain in found.chains[:limit]],
    }


def lines(style: Style, found: Refs, limit: int, depth: int) -> Iterator[str]:
    """The text."""
    inside = "+%d" % found.offset if found.offset else ""
    head = say("Block %s%s of %s: %s", found.address, inside, Size(found.size_bytes), _verdict(found))
    yield text.said(style, head)
    for number, chain in enumerate(found.chains[:limit], 1):
        yield ""
        yield "%d. %s" % (number, _title(chain))
        for step in shortened(chain.steps, depth):
            if step.left_out:
                yield "      ... %s not shown: --depth N" % plural(step.left_out, "step")
            yield "   <- %s%s" % (_where(step), WORDS.get(step.evidence, ""))
    if len(found.chains) > limit:
        yield ""
        yield "%s%s: --limit N" % (plural(len(found.chains) - limit, "more chain"), " at least" if found.more else "")


def shortened(steps: Sequence[Step], depth: int) -> List[Step]:
    """At most `depth` steps: those nearest to the block and those nearest to the root."""
    if len(steps) <= depth:
        return list(steps)
    below = depth // 2
    above = list(steps[len(steps) - max(1, depth - below) :])
    hidden = len(steps) - below - len(above) + sum(step.left_out for step in steps[below : len(steps) - len(above) + 1])
    hidden += sum(step.left_out for step in above[1:])
    return [*steps[:below], above[0]._replace(left_out=hidden), *(step._replace(left_out=0) for step in above[1:])]


def _verdict(found: Refs) -> str:
    if not found.chains:
        return "nothing points to it"
    count = "%s%s" % (plural(len(found.chains), "pointer"), " or more" if found.more else "")
    if found.class_ == "maybe":
        return "%s; maybe leaked: %s" % (count, MAYBE.get(found.evidence, "only weak pointers lead there"))
    return "%s; %s" % (count, "no root leads to them: it is leaked" if found.class_ == "leaked" else "held")


def _title(chain: Chain) -> str:
    length = len(chain.steps) + sum(step.left_out for step in chain.steps)
    return plural(length, "step") + (" to a root" if chain.is_held else ", and no root")


def _where(step: Step) -> str:
    if step.root is not None:
        return step.root
    place = "+%d" % step.offset if step.offset else ""
    return "%s%s" % (step.signature, place) if step.signature else "block %s%s" % (step.address, place)
