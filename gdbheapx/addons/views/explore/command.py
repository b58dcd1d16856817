"""`explore`, in the shell: one look is loaded, then the terminal shows it."""

import os
from typing import Any, Callable, List, Optional

from gdbheapx import api
from gdbheapx.addons.views.explore.view import ExplorerView, Shown
from gdbheapx.allocators.session import Session
from gdbheapx.app import runner
from gdbheapx.app.invocation import Invocation, Shell
from gdbheapx.command import CommandAnswer, Options
from gdbheapx.common import child_python
from gdbheapx.common.errors import HeapxError, UsageError
from gdbheapx.common.hints import hint_command, hint_run
from gdbheapx.common.problems import MISSING_PACKAGE, NO_TARGET, SHELL_ONLY
from gdbheapx.common.stops import Reads
from gdbheapx.snapshot import take

INSTALL = "pip install 'gdbheapx[explore]', or textual"


def make(invocation: Invocation, shell: Shell) -> int:
    """Explore; the exit code."""
    try:
        _run_explorer(invocation)
        return runner.WHOLE
    except HeapxError as error:
        return shell.failed(error, False)
    except MemoryError:
        return shell.failed(runner.out_of_memory(), False)


def _run_explorer(invocation: Invocation) -> None:
    asked, options = invocation.asked, invocation.options
    if asked.pid is not None:
        hint = "take a snapshot, and explore that: %s, then %s" % (hint_command("snapshot now.snap"), hint_run("explore now.snap"))
        raise UsageError("explore reads files only: it would pause a process for too long", hint)
    path = options.file or asked.core or asked.snapshot
    if path is None:
        raise UsageError("explore requires a core or a snapshot", "name one: gdbheapx explore FILE", code=NO_TARGET)
    if not (os.isatty(0) and os.isatty(1)):
        raise HeapxError("explore requires a terminal", "in scripts: %s" % hint_command("report --json"), code=SHELL_ONLY)
    try:
        from gdbheapx.addons.views.explore.app import Explorer
    except ImportError as error:
        why = " ".join(str(error).split())
        raise HeapxError("explore requires Textual, which cannot be imported (%s)" % why, INSTALL, code=MISSING_PACKAGE)
    with open_heap_file(path, asked) as heap:
        view = load_view(heap)
        older = options.against
        difference: Optional[Callable[[], Shown]] = None
        if older is not None:
            open_heap_file(older, asked).close()  # what is no file of ours is told now
            difference = lambda: compare_with(older, heap, asked)  # noqa: E731
        about = "%s   1-7 tabs, Enter opens, Escape goes back, ? keys, q ends" % path
        Explorer(view, about, lambda sql: query_rows(heap, sql), difference, lambda page: write_report_page(path, page)).run()


def open_heap_file(path: str, asked: Any) -> api.Heap:
    """A snapshot or a core."""
    if take.detect_source(path) == take.SNAPSHOT:
        return api.open(snapshot=path)
    names = {"exe": asked.exe, "sysroot": asked.sysroot, "debug_dirs": asked.debug_dirs}
    return api.open(core=path, debug_info=not asked.no_debug_info, **names)


def load_view(heap: api.Heap) -> ExplorerView:
    """The look that everything is made of. HeapxError where there is no room for it."""

    def make_view_answer(session: Session, options: Options) -> CommandAnswer:
        view = ExplorerView(session)
        return CommandAnswer(lambda: view, lambda style: [], read=True)

    view: ExplorerView = heap.look("explore", Reads.CENSUS, make_view_answer).data
    return view


def query_rows(heap: api.Heap, sql: str) -> Shown:
    """Return the rows of an SQL query."""
    found = heap.query(sql).data
    return Shown(list(found.types), [list(row.values()) for row in found.rows])


def compare_with(older: str, heap: api.Heap, asked: Any) -> Shown:
    """Return the growth since an older core or snapshot: parts, classes, owners."""
    with open_heap_file(older, asked) as before:
        found = before.diff(heap).data
    shown: List[List[Any]] = []
    for kind in ("states", "classes", "owners", "held", "leaks"):
        for row in getattr(found, kind) or ():
            shown.append([row.diff_bytes, row.old_bytes, row.new_bytes, kind, row.what])
    shown.sort(key=lambda row: -abs(row[0] or 0))
    return Shown(("grown bytes", "old bytes", "new bytes", "kind", "what"), shown)


def write_report_page(path: str, page: str) -> str:
    """The page of `report --html`, by a process of its own; what became of it."""
    target = "--snapshot" if take.detect_source(path) == take.SNAPSHOT else "--core"
    done = child_python.run_gdbheapx([target, path, "report", "--html=" + page], capture_output=True, text=True)
    told: str = done.stdout if done.returncode == 0 else done.stderr
    return told.strip()[-300:]
