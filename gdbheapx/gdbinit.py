"""The file gdb sources: `source .../gdbheapx/gdbinit.py`. It registers the prefix command `heapx` and its settings, and does nothing
else."""

import importlib.util
import os
import signal
import sys
from typing import Any, List, Optional

import gdb


def load_package() -> None:
    """Make this very folder the package gdbheapx, whatever else is on the path, and find what is installed next to it (tabulate)."""
    here = os.path.dirname(os.path.realpath(__file__))
    beside = os.path.dirname(here)
    if beside not in sys.path:
        sys.path.append(beside)
    loaded = sys.modules.get("gdbheapx")
    if loaded is not None and os.path.dirname(os.path.realpath(loaded.__file__ or "")) == here:
        return
    for name in [name for name in sys.modules if name.split(".")[0] == "gdbheapx"]:
        del sys.modules[name]  # another copy was sourced before
    spec = importlib.util.spec_from_file_location("gdbheapx", os.path.join(here, "__init__.py"), submodule_search_locations=[here])
    if spec is None or spec.loader is None:
        raise gdb.GdbError("gdbheapx: no package in %s" % here)
    package = importlib.util.module_from_spec(spec)
    sys.modules["gdbheapx"] = package
    spec.loader.exec_module(package)


if "GDBHEAPX_SINGLE" not in globals():
    load_package()

if "GDBHEAPX_COMMAND" in os.environ:
    from gdbheapx.app import gdb_entry

    gdb_entry.main()

from gdbheapx import command as declared  # noqa: E402  (the package is found only now)
from gdbheapx.command import help_pages  # noqa: E402


class GdbSetting(gdb.Parameter):
    """Setting of `set/show heapx NAME`."""

    def __init__(self, name: str, kind: int, value: Any, summary: str) -> None:
        self.set_doc = "Set " + summary
        self.show_doc = "Show " + summary
        self.name = name
        super().__init__("heapx " + name, gdb.COMMAND_DATA, kind)
        self.value = value

    def get_set_string(self) -> str:
        """gdb prints what this returns after `set`."""
        return ""

    def get_show_string(self, value: str) -> str:
        """The line that `show` prints."""
        return "heapx %s is %s." % (self.name, value or "not set")


class GdbSettingPrefix(gdb.Command):
    """`set heapx` and `show heapx`."""

    def __init__(self, name: str) -> None:
        self.__doc__ = "Settings of heapx."  # help is no docstring: PYTHONOPTIMIZE=2 takes these away
        super().__init__(name, gdb.COMMAND_DATA, gdb.COMPLETE_NONE, True)


HELP = """Where the memory of this process or core went, by its malloc's structures.

heapx [COMMAND] [OPTIONS]   the answer as text, or with --json as one document;
                            heapx alone is heapx report
heapx help [COMMAND]        the commands in groups, or the options of one
heapx --exit COMMAND        quit gdb with the command's exit code: 0 complete,
                            1 no answer, 2 usage, 3 a finding, 4 partial
"""


class HeapxPrefix(gdb.Command):
    """The prefix command."""

    def __init__(self) -> None:
        self.__doc__ = HELP
        super().__init__("heapx", gdb.COMMAND_DATA, gdb.COMPLETE_NONE, True)

    def invoke(self, argument: str, from_tty: bool) -> None:
        """`heapx` alone, `heapx --exit ...`, and what is no command."""
        self.dont_repeat()
        words = gdb.string_to_argv(argument)
        if words[:1] == ["--exit"]:
            exit_gdb(words[1:])
        elif words[:1] == ["help"] or words[:1] == ["--help-all"]:
            show_help(words)
        else:
            perform_words(words)


def show_help(words: List[str]) -> None:
    """`heapx help`, `heapx help COMMAND`."""
    from gdbheapx.common.errors import UsageError

    names = [word for word in words if word != "help" and not word.startswith("-")]
    try:
        gdb.write(help_pages.asked_for(names, help_pages.ELSEWHERE, "--help-all" in words))
    except UsageError as error:
        raise gdb.GdbError("heapx: " + error.line())


class HeapxCommand(gdb.Command):
    """Replaced by the command's own help."""

    def __init__(self, command: declared.Command) -> None:
        self.command = command
        self.__doc__ = help_pages.in_gdb(command)
        super().__init__("heapx " + command.name, gdb.COMMAND_DATA)

    def invoke(self, argument: str, from_tty: bool) -> None:
        """Run it."""
        if self.command.slow:
            self.dont_repeat()
        perform_words([self.command.name] + gdb.string_to_argv(argument))

    def complete(self, text: str, word: Optional[str]) -> Any:
        """Options and their values; gdb itself completes files and expressions."""
        found = help_pages.complete_word(self.command, text, complete_values)
        if isinstance(found, str):
            return {help_pages.FILE: gdb.COMPLETE_FILENAME, help_pages.EXPRESSION: gdb.COMPLETE_EXPRESSION}[found]
        last = text.split(" ")[-1]
        skip = len(last) - len(word) if word is not None else 0
        return [entry[skip:] for entry in found]


def complete_values(flag: str) -> List[str]:
    """The allocators, or arenas, of what gdb has selected that are found in a second; none where nothing is selected or it runs."""
    from gdbheapx import api
    from gdbheapx.common.errors import HeapxError

    try:
        if flag == help_pages.ALLOCATOR:
            return api.allocators_found()
        arenas = api.ask("arenas", "--max-seconds", "1").data["arenas"]
        return [str(index) for index in sorted({arena["index"] for arena in arenas if arena["index"] is not None})]
    except HeapxError:
        return []


def run_words(words: List[str]) -> Any:
    """Run a command on what gdb has selected; gives runner.Ended."""
    from gdbheapx.app import runner
    from gdbheapx.common.global_options import command_first
    from gdbheapx.inferior.gdb import target as gdb_target

    def fail(line: str) -> None:
        gdb.write(line + "\n", gdb.STDERR)

    def open_target() -> Any:
        try:
            return gdb_target.open_selected_target()
        except gdb_target.NoTarget:
            command = declared.find_command(words[0]) if words else None
            if command is not None and not command.needs_target:
                return None
            raise

    words = command_first(words)
    runner.set_debugger_version(gdb_target.read_gdb_version())
    limit, allocator = gdb.parameter("heapx max-seconds"), gdb.parameter("heapx allocator") or None
    limit_s = None if limit is None or limit < 0 else float(limit)
    settings = runner.Settings(limit_s, allocator, gdb.parameter("heapx color"), bool(gdb.parameter("heapx traceback")))
    host = runner.Host("heapx", gdb.write, fail, open_target, settings, screen=open_screen(), evaluate=gdb_target.resolve_expression)
    return runner.run_command_line(words, host)


def open_screen() -> Any:
    """Return the output stream with gdb's width, or its own width where gdb has no limit (`set width 0`)."""
    from gdbheapx.command import output

    shown = output.screen_of(1, {**os.environ, "COLUMNS": str(gdb.parameter("width") or "")})
    try:
        is_styled = bool(gdb.parameter("style enabled"))
    except RuntimeError:  # gdb before 8.3
        is_styled = False
    return shown._replace(given=None, has_colors=shown.has_colors and is_styled)


def perform_words(words: List[str]) -> None:
    """A command typed at gdb's prompt: what fails is a gdb error, so that scripts stop."""
    ended = run_words(words)
    gdb.flush()
    deliver_signal(ended)
    if ended.line is not None:
        raise gdb.GdbError("heapx: " + ended.line)


def deliver_signal(ended: Any) -> None:
    """Deliver a signal that asked gdb to end while a command ran. SIGTERM is not sent again: while Python runs, gdb's handler turns it
    into KeyboardInterrupt, and gdb itself survives it.
    """
    if signal.SIGHUP in ended.heard:
        os.kill(os.getpid(), signal.SIGHUP)
    if signal.SIGTERM in ended.heard:
        if ended.line is not None:
            gdb.write("heapx: %s\n" % ended.line, gdb.STDERR)
        gdb.flush()
        gdb.execute("set confirm off")
        gdb.execute("quit")


def exit_gdb(words: List[str]) -> None:
    """heapx --exit: end gdb with the exit code."""
    from gdbheapx.inferior.gdb import target as gdb_target

    for inferior in gdb.inferiors():
        if not inferior.pid or inferior.was_attached or not inferior.threads():
            continue
        if inferior != gdb.selected_inferior() or gdb_target.read_connection() != "core":  # of a core there is nothing to kill
            raise gdb.GdbError("heapx: --exit would kill process %d, which gdb started; detach first, or omit --exit" % inferior.pid)
    ended = run_words(words)
    if ended.line is not None:
        gdb.write("heapx: %s\n" % ended.line, gdb.STDERR)
    gdb.flush()
    gdb.execute("set confirm off")
    gdb.execute("quit %d" % ended.code)


def register_commands() -> None:
    """Everything that is typed in gdb; sourcing again replaces it by itself."""
    declared.load_commands()
    HeapxPrefix()
    GdbSettingPrefix("set heapx")
    GdbSettingPrefix("show heapx")
    walks = "how many seconds a heapx command may walk before it stops with a partial answer"
    GdbSetting("max-seconds", gdb.PARAM_ZUINTEGER_UNLIMITED, -1, walks)
    GdbSetting("allocator", gdb.PARAM_STRING, "", "the allocator that heapx commands read, by its id in `heapx doctor`")
    GdbSetting("color", gdb.PARAM_AUTO_BOOLEAN, None, "whether heapx colors its text; auto: as `set style enabled` has it")
    GdbSetting("traceback", gdb.PARAM_BOOLEAN, False, "whether heapx shows the Python traceback of an internal error")
    for name in declared.command_names():
        command = declared.COMMANDS[name]
        if not command.in_shell:
            HeapxCommand(command)


register_commands()
