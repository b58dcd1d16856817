"""Pages, in the shell: the look is taken by a child, which ends with its JSON; the page is made of that here, outside gdb."""

import json
import os
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

from gdbheapx import loader, runner, worker
from gdbheapx.errors import HeapxError, UsageError
from gdbheapx.invocation import Invocation, Shell
from gdbheapx.output import Replacing, open_private
from gdbheapx.problems import NO_ANSWER

OPTION = "--html"
TEMPLATES = {"report": "report.html", "diff": "diff.html"}
"""Commands whose page is made of their JSON. That of `watch` is made by the watch itself, which no gdb serves either."""
ONLY_FOR_IT = {"report": ["--page"]}
"""What their JSON must have beyond."""
ANSWERED = (0, 3, 4)
"""Exit codes with an answer."""


class Wanted(NamedTuple):
    """A page that is asked for."""

    command: str
    file: str
    """To be written."""
    words: Sequence[str]
    """The command whose JSON it is made of."""
    json: bool
    """The document is printed as well."""
    output: Optional[str]
    """Where to, if not to standard output."""


def wanted(invocation: Invocation) -> Wanted:
    """The page that is asked for."""
    left = _without(invocation.words, {OPTION: 1, "-o": 1, "--output": 1, "--json": 0, "--page": 0})
    name, options = invocation.command.name, invocation.options
    return Wanted(name, options.html, [*left, "--json", *ONLY_FOR_IT.get(name, [])], options.json, options.output)


def _without(words: Sequence[str], flags: Dict[str, int]) -> List[str]:
    """The words without these options and their values."""
    found, queue = [], list(words)
    while queue:
        word = queue.pop(0)
        name = word.partition("=")[0] if word.startswith("--") else word
        if name in flags:
            del queue[: flags[name] if "=" not in word else 0]
        elif word.startswith("-o") and "-o" in flags and not word.startswith("--"):
            continue  # its value is part of the word
        else:
            found.append(word)
    return found


def make(invocation: Invocation, shell: Shell) -> int:
    """Take the look, then write the page; the exit code is that of the look."""
    from gdbheapx.report.text import escaped

    asked_for = wanted(invocation)
    page: Optional[Replacing] = None
    has_document = False
    try:
        if asked_for.output is not None and not asked_for.json:
            what = "%s: -o applies to --json; the page's path is that of %s" % (asked_for.command, OPTION)
            raise UsageError(what, "add --json, or omit -o")
        from gdbheapx.report.page import render

        render.ready()
        page = Replacing(asked_for.file, OPTION)  # before a process is stopped for it
        code, text = worker.look([*invocation.asked.words(), *asked_for.words], shell.look)
        if asked_for.json:
            has_document = True
            _hand_on(text, asked_for.output, shell.say)
        if code not in ANSWERED:
            page.drop()
            return code
        page.finish(_page(asked_for, text).encode("utf-8", "backslashreplace"))
        page = None
        return code if asked_for.json else shell.say("the page is in %s\n" % escaped(asked_for.file)) or code
    except HeapxError as error:
        return shell.failed(error, has_document)
    except MemoryError:
        return shell.failed(runner.out_of_memory(), has_document)
    except Exception as error:
        how = " ".join(["gdbheapx", asked_for.command, "--json", *ONLY_FOR_IT.get(asked_for.command, [])])
        return shell.failed(runner.internal(error, how), has_document)
    finally:
        if page is not None:
            page.drop()


def _hand_on(text: bytes, output: Optional[str], say: Callable[[str], int]) -> None:
    document = os.fsdecode(text)
    if output is None:
        say(document)
        return
    with open_private(output) as file:
        file.write(document)


def _page(asked_for: Wanted, text: bytes) -> str:
    from gdbheapx.report.page import diff_view, render, report_view

    try:
        document = json.loads(text.decode("utf-8", "replace"))
    except ValueError as error:
        raise HeapxError(
            "the result is incomplete (%s): no page was made" % error, "run it again with --json to see what there is", code=NO_ANSWER
        )
    loader.load_commands()  # a next step may name any of them
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    view = {"report": report_view.view, "diff": diff_view.view}[asked_for.command]
    return render.render(TEMPLATES[asked_for.command], view(document if isinstance(document, dict) else {}, made))
