"""A page as text, by Jinja2, which nothing else imports: what comes from the target is escaped here, once. And what its document has
besides its data."""

import hashlib
import os
from base64 import b64encode
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence

from gdbheapx.addons.views.html import geometry
from gdbheapx.common import units
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.model import AllocatorInfo, Problem, StepAdvice
from gdbheapx.common.problems import MISSING_PACKAGE
from gdbheapx.report import reach_text
from gdbheapx.report.text import DrawnPath, UncutText, format_coordinate

HERE = os.path.dirname(os.path.abspath(__file__))
NOT_KNOWN = "not known"
HINT = "install it: pip install 'gdbheapx[html]' (Debian: apt-get install python3-jinja2), or read the same with report --json"
MOST_LETTERS = 600
"""Of one text: a name that is longer is cut, and says so. `Whole` texts are not."""


class TargetFacts(NamedTuple):
    """The member `target` of an envelope."""

    kind: Optional[str]
    pid: Optional[int]
    executable: Optional[str]
    core: Optional[str]
    snapshot: Optional[str] = None
    stopped_ms: Optional[float] = None
    taken: Optional[str] = None
    taken_of: Optional[str] = None
    program: Optional[str] = None
    command_line: Optional[str] = None
    host: Optional[str] = None
    time: Optional[str] = None
    uptime_s: Optional[int] = None


class Tool(NamedTuple):
    """The member `tool`."""

    version: str
    gdb: Optional[str]


class Envelope(NamedTuple):
    """Members of a document besides its data."""

    target: TargetFacts
    tool: Tool
    partial: bool
    problems: Sequence[Problem]
    allocators: Sequence[AllocatorInfo]


def make_step(advice: StepAdvice) -> Dict[str, Optional[str]]:
    """A step of the document, whose command is whole; None: it is no command."""
    return {"line": None if advice.command is None else UncutText(advice.command), "why": advice.why}


def make_visible(text: str) -> str:
    """Text as it can be read: what is not a letter that shows (control characters, line ends, marks that turn the direction of writing,
    halves of bytes that are no UTF-8) is written out."""
    if len(text) > MOST_LETTERS and not isinstance(text, UncutText):
        text = text[:MOST_LETTERS] + " (cut)"
    if text.isprintable():
        return text
    written = []
    for letter in text:
        code = ord(letter)
        if letter.isprintable():
            written.append(letter)
        elif 0xDC80 <= code <= 0xDCFF:  # a byte that is no UTF-8
            written.append("\\x%02x" % (code - 0xDC00))
        else:
            written.append(letter.encode("unicode_escape", "backslashreplace").decode("ascii"))
    return "".join(written)


def format_page_size(value: Optional[int]) -> str:
    """A size for people."""
    return NOT_KNOWN if value is None else units.format_size(value)


def format_signed_size(value: Optional[int]) -> str:
    """Return by how many bytes a size changed."""
    return NOT_KNOWN if value is None else "%s%s" % ("+" if value > 0 else "-" if value < 0 else "", units.format_size(abs(value)))


def signed_number(value: Optional[int]) -> str:
    """Return by how much a number of things changed."""
    return NOT_KNOWN if value is None else "%+d" % value if value else "0"


def format_page_number(value: Optional[int]) -> str:
    """A number of things."""
    return NOT_KNOWN if value is None else units.format_number(value)


def format_page_share(part: Optional[int], whole: Optional[int]) -> str:
    """Return the part of the whole in percent."""
    return NOT_KNOWN if part is None or not whole else units.exact_share(part, whole)


def render_page(template: str, values: Mapping[str, Any], folder: str = HERE) -> str:
    """Return the page of a template in `folder`, which may extend those of this one. HeapxError without Jinja2."""
    environment = make_environment(folder)
    from markupsafe import Markup  # the style is text of this package, which is not to be escaped

    with open(os.path.join(HERE, "style.css"), encoding="utf-8") as file:
        style = file.read()
    mark = b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")
    text: str = environment.get_template(template).render(values, style=Markup(style), style_hash=mark)
    return text


def make_environment(folder: str = HERE) -> Any:
    """Return what makes pages of templates. HeapxError where no page can be made here: asked before a process is stopped for one."""
    try:
        import jinja2
        from markupsafe import Markup
    except ImportError as error:
        raise HeapxError("a page requires Jinja2, which this Python cannot import (%s)" % error, HINT, code=MISSING_PACKAGE)

    def finish_value(value: Any) -> Any:
        if isinstance(value, (Markup, DrawnPath)):
            return value
        return make_visible(value) if isinstance(value, str) else NOT_KNOWN if value is None else value

    loader = jinja2.FileSystemLoader([folder, HERE])
    made = jinja2.Environment(loader=loader, autoescape=True, finalize=finish_value, undefined=jinja2.StrictUndefined, trim_blocks=True)
    made.lstrip_blocks = True
    made.filters.update(
        size=format_page_size,
        number=format_page_number,
        signed=format_signed_size,
        signed_number=signed_number,
        coordinate=format_coordinate,
        visible=make_visible,
    )
    made.globals.update(geometry=geometry, share=format_page_share, suspicion=reach_text.describe_suspicion)
    return made
