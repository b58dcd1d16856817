"""Writes the man page gdbheapx(1) from the declarations of the commands; `--check` only says whether it is up to date."""

import re
import sys
import textwrap
from pathlib import Path
from typing import List

import jinja2

from tools import declared, generated

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "share" / "man" / "man1" / "gdbheapx.1"
TEMPLATE = "manual.1.j2"
WIDTH = 72
EXAMPLES = (
    ("gdbheapx 4242", "Where the memory of process 4242 is: the verdict, and the next command."),
    ("gdbheapx core.4242 leaks", "Blocks in a core that nothing references any more."),
    ("gdbheapx -p 4242 owners", "Which variables and threads keep memory alive."),
    ("gdbheapx -p 4242 release --dry-run", "What would be returned to the system; runs nothing in the process."),
    ("gdbheapx -p 4242 snapshot before.snap", "One reading as a small file, for `--snapshot` and `diff`."),
    ("gdbheapx --core core.4242 arenas --json", "The arenas as one JSON document."),
)


def roff(text: str) -> str:
    """Plain text as man pages have it, in lines of 80 columns: nothing in it is a request or an escape; words in backticks are bold."""
    text = re.sub(r"(?<![\w-])(--?[a-z][a-z-]*)", lambda match: match[1].replace("-", "\0"), text.replace("\\", "\\e"))
    text = re.sub(r"`([^`\n]+(?:\n[^`\n]+)?)`", lambda match: "\\fB%s\\fR" % match[1], text)
    lines = textwrap.wrap(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n".join(re.sub(r"^([.'])", r"\\&\1", line) for line in lines).replace("\0", "\\-")


def bold(text: str) -> str:
    """In bold, with hyphens that can be copied."""
    return "\\fB%s\\fR" % text.replace("\\", "\\e").replace("-", "\\-")


def value_of(one: declared.Option) -> str:
    """The option's value in italics; its words if there is a choice."""
    return "|\\:".join(map(bold, one.choices)) if one.choices and "|" in one.value else "\\fI%s\\fR" % one.value


def item(one: declared.Option) -> str:
    """An option as an entry of a list."""
    after = " " + value_of(one) if one.value else ""
    heads = ", ".join(bold(flag) + after for flag in one.flags) if one.is_named else value_of(one)
    return ".TP\n%s\n%s" % (heads, roff(one.help))


def usage(one: declared.Command) -> str:
    """The heading of a command: its name and the words that it requires."""
    words = [bold(one.name)] + [value_of(option) + ("..." if option.several else "") for option in one.options if not option.is_named]
    return '"%s"' % " ".join(words)


def paragraphs(text: str) -> List[str]:
    """The paragraphs of a help text; what concerns one allocator is one of its own."""
    return [part for part in re.split(r"\n\s*\n|\n(?=(?:glibc|jemalloc|mimalloc|musl|tcmalloc): )", text) if part.strip()]


def released() -> str:
    """The day of the last release; empty before the first."""
    match = re.search(r"^## \S+ \((\d{4}-\d{2}-\d{2})\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    return match[1] if match else ""


def page() -> str:
    """The whole page."""
    from gdbheapx.common import __version__

    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined)
    environment.filters.update({"roff": roff, "item": item, "usage": usage, "bold": bold, "paragraphs": paragraphs})
    return environment.get_template(TEMPLATE).render(
        version=__version__, date=released(), shell=declared.shell(), common=declared.common(), commands=declared.commands(), examples=EXAMPLES
    )


if __name__ == "__main__":
    sys.exit(generated.main({PAGE: page()}, __doc__))
