"""Pages, in the shell: the look is taken by a child, which ends with its JSON; the page is made of that here, outside gdb."""

import json
import os
import time
from typing import Optional

from gdbheapx.app import place, runner, worker
from gdbheapx.app.invocation import Invocation, Shell
from gdbheapx.command.output import OutputFile
from gdbheapx.common.errors import HeapxError, UsageError
from gdbheapx.common.problems import NO_ANSWER

OPTION = "--html"
TEMPLATES = {"report": "report.html", "diff": "diff.html"}
"""Commands whose page is made of their JSON. That of `watch` is made by the watch itself, which no gdb serves either."""
ANSWERED = (0, 3, 4)
"""Exit codes with an answer."""


def look_of(invocation: Invocation) -> Invocation:
    """Return the same command without the page's own options, as a document with the data that the page needs."""
    needs = {"page": True} if hasattr(invocation.options, "page") else {}
    return invocation.asking(html=None, output=None, json=True, **needs)


def make(invocation: Invocation, shell: Shell) -> int:
    """Take the look, then write the page; the exit code is that of the look."""
    from gdbheapx.report.text import escape_line

    name, options = invocation.command.name, invocation.options
    page: Optional[OutputFile] = None
    has_document = False
    try:
        if options.output is not None and not options.json:
            what = "%s: -o applies to --json; the page's path is that of %s" % (name, OPTION)
            raise UsageError(what, "add --json, or omit -o")
        from gdbheapx.addons.views.html import render

        render.make_environment()
        page = OutputFile(options.html, OPTION)  # before a process is stopped for it
        code, text = worker.answer_in_child(look_of(invocation), shell.look)
        if options.json:
            has_document = True
            if options.output is None:
                shell.say(os.fsdecode(text))
            else:
                OutputFile(options.output, takes_any=True).finish(text)
        if code not in ANSWERED:
            page.drop()
            return code
        page.finish(_make_page(name, text, invocation).encode("utf-8", "backslashreplace"))
        page = None
        return code if options.json else shell.say("the page is in %s\n" % escape_line(options.html)) or code
    except HeapxError as error:
        return shell.failed(error, has_document)
    except MemoryError:
        return shell.failed(runner.out_of_memory(), has_document)
    except Exception as error:
        how = "gdbheapx %s --json%s" % (name, " --page" if hasattr(options, "page") else "")
        return shell.failed(runner.make_internal_error(error, how), has_document)
    finally:
        if page is not None:
            page.drop()


def _make_page(command: str, text: bytes, invocation: Invocation) -> str:
    from gdbheapx.addons.views.html import page_values, render
    from gdbheapx.snapshot import container

    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    view = {"report": page_values.report_page_values, "diff": page_values.diff_page_values}[command]
    try:
        document = json.loads(text.decode("utf-8", "replace"))
        about = place.of_target(document["target"], invocation.asked.of_target())
        values = view(container.decode_value(render.Envelope, document), document["data"], made, about.line)
    except ValueError as error:
        raise HeapxError(
            "the result is incomplete (%s): no page was made" % error, "run it again with --json to see what there is", code=NO_ANSWER
        )
    return render.render_page(TEMPLATES[command], values)
