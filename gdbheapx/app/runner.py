"""Runs one declared command for its host, the shell or gdb: options, target, answer, envelope, exit code. Nothing here knows gdb."""

import os
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from gdbheapx import command
from gdbheapx import kernel as kernels
from gdbheapx.allocators.session import Session
from gdbheapx.app import place
from gdbheapx.app.place import IN_GDB, SHELL
from gdbheapx.command import CommandAnswer, TextStyle
from gdbheapx.command.output import CannotWrite, Screen, Sink, Spool, Write
from gdbheapx.common import __version__, hints, problems, stops, units
from gdbheapx.common.budget import MOST_STEPS, WORK, Budget, Interrupts, Progress, never_expires
from gdbheapx.common.errors import HeapxError, Interrupted, Refusal, StopOver, UsageError
from gdbheapx.common.model import AllocatorInfo, Problem
from gdbheapx.inferior.base import Identity, Target
from gdbheapx.kernel.common import watchdog

if TYPE_CHECKING:
    from gdbheapx.app.stopping import LiveStop

WHOLE, NO_ANSWER, USAGE, FINDING, PARTIAL = 0, 1, 2, 3, 4
HELD_BY_GDB = "gdb holds the process: it stays paused until gdb continues it"


class Settings(NamedTuple):
    """`set heapx ...`; an option of the command wins."""

    max_seconds: Optional[float] = None
    allocator: Optional[str] = None
    color: Optional[bool] = None
    """None: where what shows it has colours."""
    traceback: bool = False
    debug_directories: Sequence[str] = ()
    """Folders with debug files, as they were given."""


class Host(NamedTuple):
    """Services that the shell, gdb or a script lends to a command."""

    name: str
    """`heapx` or `gdbheapx`, as help and errors name it."""
    write: Write
    fail: Callable[[str], None]
    """Shows one line of an error."""
    open: Callable[[], Optional[Target]]
    """Gives the target; HeapxError says why not. None only where no command needs one."""
    settings: Settings
    flush: Callable[[], None] = lambda: None
    """Hands on what `write` keeps back."""
    keep: "Optional[Callable[[Found], None]]" = None
    """Takes the answer as it was found, for who calls this from Python: nothing is written then."""
    tell: Optional[Callable[[str], None]] = None
    """Shows how far a long answer is; None: standard error does."""
    screen: Screen = Screen()
    """What shows what is written."""
    evaluate: Optional[command.Evaluate] = None
    """Gives the address that an expression has, where a debugger is there."""
    refusal: Optional[HeapxError] = None
    """Why there will be no answer, where that is known beforehand: `open` raises it."""
    options: Sequence[str] = ()
    """Of the shell, those that name the target: hints repeat them."""


class Found(NamedTuple):
    """An answer as records, with what its envelope says."""

    answer: CommandAnswer
    data: Any
    is_partial: bool
    problems: Sequence[Problem]
    target: Dict[str, Any]
    allocators: Sequence[AllocatorInfo]
    tool: Dict[str, Any]


class CommandEnd(NamedTuple):
    """Outcome of a command."""

    code: int
    error: Optional[HeapxError] = None
    """Why there is no answer, where code is 1 or 2; its line is not yet shown."""
    heard: Sequence[int] = ()
    """Signals that came meanwhile: a program that goes on after the command heeds those that ask it to end."""

    @property
    def line(self) -> Optional[str]:
        """The error in one line, as a terminal may have it."""
        return None if self.error is None else error_line(self.error)


def error_line(error: HeapxError) -> str:
    """An error in one line, as a terminal may have it."""
    from gdbheapx.report.text import escape_line

    return escape_line(error.line())


def envelope_of_words(words: Sequence[str], error: HeapxError) -> str:
    """The envelope of a command line that ended before it was run; empty where no --json is among the words."""
    if not command.has_flag(words, "--json"):
        return ""
    given = words[0] if not words[0].startswith("-") else "report"
    name = next((word for word in words if command.is_command(word)), given)
    return envelope_of_command(name, error)


def envelope_of_command(name: str, error: HeapxError) -> str:
    """The envelope of a command that was not run."""
    return envelope_head(name) + "null" + envelope_tail(NOBODY, tool_member(None), error) + "\n"


def envelope_head(name: str) -> str:
    """Return the part of an envelope before its data."""
    from gdbheapx.report import encodings

    return '{"schema": "gdbheapx/1", "command": %s, "data": ' % encodings.encode_json(name)


def envelope_tail(
    parts: Dict[str, Any], made_by: Dict[str, Any], error: Optional[HeapxError] = None, line: hints.Write = hints.write_alone
) -> str:
    """Return the part of an envelope after its data. `line` writes the commands that it names."""
    from gdbheapx.report import encodings

    members = {**({} if error is None else {"error": error.document()}), **parts, "tool": made_by}
    return "".join(',\n"%s": %s' % (name, encodings.encode_json(value, line)) for name, value in members.items()) + "}"


NOBODY: Dict[str, Any] = {
    "partial": False,
    "problems": [],
    "target": dict.fromkeys(
        ("kind", "pid", "executable", "core", "snapshot", "stopped_ms", "stops", *Identity._fields, "pause_ms", "pauses")
        + ("predicted_stop_ms", "swapped_in_bytes")
    ),
    "allocators": [],
}
"""Of an envelope without a look."""


def out_of_memory() -> HeapxError:
    """Return the error for an answer that there is no memory for."""
    what = "out of memory: this machine or this process' limit has too little for the answer"
    return HeapxError(what, "free some, or read a core where there is more", code=problems.OUT_OF_MEMORY)


def run_command_line(words: Sequence[str], host: Host) -> CommandEnd:
    """Run a command line. Every failure becomes one line, an exit code and, with --json, an envelope."""
    try:
        parsed = command.parse_command(words, host.name, host.evaluate)
    except UsageError as error:
        error.write(place.of_options(host.options, host.name).line)
        try:
            host.write(envelope_of_words(words, error))
            host.flush()
        except OSError:
            pass  # the line and the exit code are left
        return CommandEnd(USAGE, error)
    return run_parsed(parsed, host)


def run_parsed(parsed: command.ParsedCommand, host: Host) -> CommandEnd:
    """Run a command line that was understood, or show its help."""
    if parsed.help is None:
        return CommandRun(parsed, host).run()
    from gdbheapx.command import help_pages

    text = help_pages.of_command(parsed.command, host.name, parsed.help)
    if host.screen.wraps:
        from gdbheapx.report.text import reflow_help

        text = reflow_help(text, host.screen.width)
    sink = Sink(host.write, host.flush, None)
    try:
        sink.write(text)
        sink.close()
    except BrokenPipeError:
        pass  # the reader has seen enough
    except CannotWrite as error:
        return CommandEnd(NO_ANSWER, error)
    return CommandEnd(WHOLE)


class CommandRun:
    """Execution of one command."""

    def __init__(self, parsed: command.ParsedCommand, host: Host) -> None:
        self.parsed, self.command, self.options = parsed, parsed.command, parsed.options
        self.host = host
        self.changes_process = self.command.acts is not None and self.command.acts(self.options)
        self.target: Optional[Target] = None
        self.session: Optional[Session] = None
        self.sink: Optional[Sink] = None
        self.prepared: Dict[Any, Any] = {}
        """Session.constants that the command made before the stop, such as the ages of watched pages."""
        self.budget = Budget(None)
        # another budget may be in its place by then
        self.interrupts = Interrupts(lambda name: self.budget.interrupt(name), restores=host.name != SHELL)  # noqa: PLW0108
        self.live_stop: Optional[LiveStop] = None
        """None where the process is not stopped, or not by this command."""
        self.spool: Optional[Spool] = None
        self.wrote = False
        self._swapped_in_before = kernels.swapped_in_bytes()

    def run(self) -> CommandEnd:
        """Run it and turn what goes wrong into a line and a code."""
        ended = CommandEnd(NO_ANSWER)
        WORK.begin()
        WORK.exceeded.clear()
        WORK.is_over = lambda: self.budget.expired()  # noqa: PLW0108 (another budget may be in its place by then)
        try:
            with self.interrupts:
                file = getattr(self.options, "output", None)  # a command may have its own -o
                self.sink = Sink(self.host.write, self.host.flush, file, self._check_signals)
                ended = self._answer_command()
        except BrokenPipeError:
            ended = CommandEnd(WHOLE)  # the reader has seen enough
        except (UsageError, CannotWrite) as error:
            ended = self._no_answer(error)
        except HeapxError as error:
            # one whose process has ended tells itself how
            death = self._death_error() if error.code not in problems.ENDS else error
            ended = self._no_answer(death or self._about_target(error))
        except StopOver:
            self.budget.expired()  # takes note of it
            ended = self._no_answer(self._death_error() or self.budget.cut("there was an answer"))
        except KeyboardInterrupt:
            ended = self._no_answer(Interrupted(self.interrupts.name))
        except MemoryError:
            ended = self._no_answer(out_of_memory())
        except Exception as error:
            ended = self._no_answer(self._death_error() or self._internal_error(error))
        finally:
            WORK.is_over = never_expires
            self.budget.progress.end()
            self._let_go()
            ended = self._flush_output(ended)
        return ended._replace(heard=tuple(self.interrupts.heard))

    def _check_signals(self) -> None:
        """Interrupted while the answer has not begun: there will be none."""
        if self.interrupts.heard:
            raise KeyboardInterrupt
        if isinstance(self.host.refusal, Interrupted):
            raise self.host.refusal

    def _flush_output(self, ended: CommandEnd) -> CommandEnd:
        """Hand on what is still buffered: only now it is known whether the answer arrived."""
        try:
            if self.sink is not None:
                self.sink.close(ended.code not in (NO_ANSWER, USAGE) or (self.options.json and not self.wrote))
        except BrokenPipeError:
            return CommandEnd(WHOLE)
        except CannotWrite as error:
            return self._no_answer(error) if ended.error is None else ended
        return ended

    def _internal_error(self, error: Exception) -> HeapxError:
        if self.options.traceback or self.host.settings.traceback:
            import traceback

            self.host.fail(traceback.format_exc().rstrip("\n"))
        return make_internal_error(error, "%s %s --traceback" % (self.host.name, self.command.name))

    def _death_error(self) -> Optional[HeapxError]:
        """The cause of all other troubles, where the process ended while it was read: what was read since is no damage."""
        death = self.target.death() if self.target is not None and self.target.has_ended() else None
        return HeapxError(death.what, death.hint, code=death.code) if death is not None else None

    def _check_death(self) -> None:
        """Raises if the process has ended; where parts of the answer are out already, they are called partial instead.

        Not for an action: its answer is what was done, whatever becomes of the process after it.
        """
        death = self._death_error() if not self.changes_process else None
        if death is not None and self.session is not None and self.wrote:
            self.session.problem(death.code, None, death.message, death.hint, first=True)
        elif death is not None:
            raise death

    def _no_answer(self, error: HeapxError) -> CommandEnd:
        """Let the process go, and write the envelope: to where the answer would be; to the host if it cannot be written there."""
        self._let_go()
        error.write(self.place.line)
        if self.session is not None:
            self.session.about_swap(self._swapped_in())
        has_no_file = self.sink is None or (isinstance(error, CannotWrite) and bool(getattr(self.options, "output", None)))
        if self.options.json and (has_no_file or not (self.wrote or isinstance(error, CannotWrite))):
            try:
                (self.host.write if has_no_file else self._send_text)(
                    envelope_head(self.command.name) + "null" + self._envelope_tail(error) + "\n"
                )
                if has_no_file:
                    self.host.flush()
            except (OSError, CannotWrite):
                pass  # the line and the exit code are left
        return CommandEnd(error.exit_code, error)

    def _about_target(self, error: HeapxError) -> HeapxError:
        """Add the problems of the target as a whole to an error, since they may well be why there is no answer."""
        try:
            diagnostics = self.target.problems() if self.target is not None else []
        except HeapxError:
            diagnostics = []
        if self.session is not None:
            for complaint in diagnostics:
                self.session.report(*complaint)
        others = [complaint.what for complaint in diagnostics if complaint.code != error.code]
        if not others:
            return error
        return HeapxError(error.message, "; ".join(([error.hint] if error.hint else []) + others), error.address, error.code)

    def _let_go(self) -> None:
        if self.target is not None:
            self.target.let_go()
        if self.live_stop is not None:
            self.live_stop.collect_garbage()

    def _answer_command(self) -> CommandEnd:
        if self.command.repeats and self.host.name != SHELL:
            what = "%s runs from a shell, not inside gdb" % self.command.name
            self.target = self.host.open()
            raise HeapxError(what, "run: " + hints.hint_command(self.command.name), code=problems.SHELL_ONLY)
        self.target = self.host.open()
        self._set_limits()
        if self.target is not None and self.target.kind != "snapshot" and not self.command.tells_of_gdb:
            kernels.load_native_library()
        if self.target is None and self.command.needs_target:
            what = "%s %s requires a process or a core" % (self.host.name, self.command.name)
            raise UsageError(what, command.name_a_target(self.command.name), code=problems.NO_TARGET)
        if self.command.before is not None and self.target is not None:
            session = self._new_session()
            self.command.before(session, self.options)
            self.prepared = session.constants
        is_held = self._stop_process()
        session = self.session = self.session or self._new_session()
        self._start_budget()
        session.budget = self.budget
        if not is_held and getattr(self.options, "short_stop", False) and self.target is not None and self.target.kind == "live":
            session.problem(problems.NO_SHORT_STOP, None, HELD_BY_GDB, "run it from a shell", partial=False)
        if self.target is not None:
            self.target.prepare(self.command, session, self.options)
            command.drop_tags(self.command, self.options, self.target.ignored_bits)
        answer = self.command.run(session, self.options)
        self._check_death()
        if answer.read and is_held:
            self._allocators_member()
            self._let_go()
        if self.host.keep is not None:
            self._hand_over_records(self.host.keep, session, answer)
        elif self.options.json and not answer.live:
            self._write_json(session, answer)
        else:
            self._write_text(session, answer)
        return CommandEnd(FINDING if answer.finding else PARTIAL if session.partial else WHOLE)

    def hold(self, target: Target) -> Session:
        """Stop this process for several commands, whose caller holds it from now on: they read what is copied in one stop, or the
        process while it is stopped. The session knows what there is to say of that. HeapxError where it cannot be stopped."""
        self.target = target
        self._set_limits()
        try:
            with self.interrupts:
                self._stop_process()
        finally:
            if self.live_stop is not None:
                self.live_stop.collect_garbage()
            if self.spool is not None:
                self.spool.close()
        target.held_by_caller = True
        return self.session or self._new_session()

    @property
    def place(self) -> place.HintPlace:
        """Return the place where the answer is read, and its target."""
        if self.target is None:
            return place.of_options(self.host.options, self.host.name)
        found = place.of_target(self.target.facts(), self.host.options, self.host.name)
        return found._replace(asked=lambda more: place.type_words(self.command, self.options, more))

    def _set_limits(self) -> None:
        """Set the longest pause of the process. With --read-swap pages in swap are read whatever there is room for."""
        if self.target is not None and not self.target.held_by_caller:
            self.target.max_stop_s = self.options.max_stop or (command.ACT_STOP_S if self.changes_process else stops.READ_STOP_S)
        room = self.target.swap_room() if self.target is not None and self.options.read_swap else None
        if room is not None:
            room.accept()

    def _start_budget(self) -> None:
        """Start the budget; an interruption of the preparation counts."""
        limit = self.options.max_seconds if self.options.max_seconds is not None else self.host.settings.max_seconds
        reason, self.budget = self.budget.reason, Budget(limit, getattr(self.target, "still", None))
        if self.host.tell is not None:
            self.budget.progress = Progress(self.host.tell)
        if self.budget.progress.is_on_terminal and not self.command.repeats and not self.changes_process:
            self.budget.progress.stage = "reading"
        self.budget.progress.has_let_go = lambda: self._paused_ms() is not None
        self.budget.reason = reason

    def _paused_ms(self) -> Optional[float]:
        """Return the longest pause of the process in milliseconds, now that it runs again; None if it has not been paused, or not yet let
        go.
        """
        target = self.target
        return None if target is None or target.kind != "live" or target.stands_still or not target.stops else target.stopped_ms

    def _new_session(self) -> Session:
        discovery = self.target.discovery if self.target is not None else None
        session = Session(self.target, self.budget, self.options.allocator or self.host.settings.allocator, discovery)
        session.debugger_version = debugger_version(self.target)
        session.constants.update(self.prepared)
        session.in_gdb, session.refuses = self.host.name == IN_GDB, self.place.refuses
        for directory in self.host.settings.debug_directories:
            if not os.path.isdir(directory):
                session.problem(
                    problems.NO_FOLDER, directory, "folder of debug files not found", "give another with --debug-dir DIR", partial=False
                )
        return session

    def _stop_process(self) -> bool:
        """Stop a process that the user does not hold stopped himself, with everything looked up beforehand."""
        target: Any = self.target
        if target is None or target.kind != "live" or target.held_by_caller or getattr(target, "held_by_gdb", True):
            return False
        from gdbheapx.app.stopping import LiveStop

        if not self.options.json and self.host.keep is None:
            from gdbheapx.report import text

            text.preload_tabulate()

        def begin_session() -> Session:
            self.session = self._new_session()
            return self.session

        self.live_stop = LiveStop(target, self.parsed, begin_session, lambda line: self.host.fail("%s: %s" % (self.host.name, line)))
        is_stopped = self.live_stop.stop_process()
        self.spool = self.live_stop.spool
        return is_stopped

    def _hand_over_records(self, keep: Callable[[Found], None], session: Session, answer: CommandAnswer) -> None:
        """Hand the answer over as it is."""
        data: List[Any] = []
        line = self.place.line
        self._guard_step(lambda: data.append(hints.in_records(answer.found(), line)))
        self._finish_reading(session, answer)
        problems_read = hints.in_records(list(session.problems), line)
        members = self._target_member(), self._allocators_member(), tool_member(self.target)
        keep(Found(answer, data[0] if data else None, session.partial, problems_read, *members))

    def _write_json(self, session: Session, answer: CommandAnswer) -> None:
        from gdbheapx.report import encodings

        data, write = answer.data(), self._make_writer()
        self.wrote = self.wrote or self.spool is None
        if self.wrote:
            watchdog.mark_begun()
        write(envelope_head(self.command.name))
        encodings.write_json(data, write, self._guard_step, self.place.line)
        self._finish_reading(session, answer)
        self._send_text(self._envelope_tail() + "\n")

    def _write_text(self, session: Session, answer: CommandAnswer) -> None:
        from gdbheapx.report.text import format_on_screen

        style = self._text_style()
        lines, write = answer.text(style), self._make_writer()
        if answer.live or answer.document or answer.exact:  # what is live may be a line of JSON
            style = style._replace(wraps=False, color=style.color and not answer.document)

        count = 0

        def shown_line(line: str) -> str:
            nonlocal count
            text = format_on_screen(style, line, answer.document)
            count += text.count("\n")
            return text

        def pump_lines() -> None:
            for line in lines:
                write(line if answer.pieces else shown_line(line))
                self.wrote = True
                if answer.live and self.sink is not None:
                    self.sink.flush()

        self._guard_step(pump_lines)
        self._finish_reading(session, answer)
        say = (lambda text: self.host.fail(text.strip("\n"))) if answer.document else self._send_text
        if session.problems:
            head = "Partial answer, because:" if session.partial else "Notes:"
            say("\n" + format_on_screen(style, units.mark_sentence(head, units.WARNING if session.partial else units.HEADING)))
        for problem in session.problems:
            where = "%s: " % problem.where if problem.where else ""
            noted = units.make_sentence("  %s%s%s", where, problem.what, units.make_sentence("; %s", problem.hint) if problem.hint else "")
            say(shown_line(noted.plain if self.options.bytes else noted))
        for line in answer.ends(style, count) if answer.ends is not None else ():
            say(format_on_screen(style, line))
        paused_ms = self._paused_ms() if self.budget.progress.is_on_terminal else None
        if paused_ms is not None and self.target is not None and not (answer.tells_pause or answer.live or self.changes_process):
            self.host.fail("%s: %s" % (self.host.name, stops.format_paused(paused_ms, self.target.stops)))

    def _text_style(self) -> TextStyle:
        """Return the style in which text is shown."""
        screen = self.host.screen.of_file() if getattr(self.options, "output", None) else self.host.screen
        width = None if self.options.wide else screen.width
        color = self.host.settings.color if self.options.color == "auto" else self.options.color == "always"
        color = screen.has_colors if color is None else color and not getattr(self.options, "output", None)
        return TextStyle(bool(self.options.bytes), color, width, screen.shortens, screen.wraps, self.place.line, self._module_names)

    def _module_names(self) -> Mapping[str, str]:
        """See TextStyle. A snapshot has no modules."""
        try:
            modules = self.session.target.modules() if self.session is not None and self.session.has_target else ()
        except HeapxError:
            modules = ()
        return {module.build_id: module.shown_name for module in modules if module.build_id}

    def _make_writer(self) -> Write:
        if self.spool is not None:
            return self.spool.write
        write = self.sink.write if self.sink else self.host.write
        if not self.budget.progress.is_on_terminal:
            return write

        def after_progress(text: str) -> None:
            self.budget.progress.end()  # what is written now would stand in its line
            write(text)

        return after_progress

    def _send_text(self, text: str) -> None:
        (self.sink.write if self.sink is not None else self.host.write)(text)

    def _finish_reading(self, session: Session, answer: CommandAnswer) -> None:
        """Everything is read: let the process go, then hand on what was kept back."""
        if not answer.read:
            self._check_death()
        # what is missing after an action's process has ended was there for it
        is_over = (self.changes_process or self.command.repeats) and self._death_error() is not None
        for code, address, what, hint in reversed(self.target.problems()) if self.target is not None and not is_over else ():
            where = None if address is None else "0x%x" % address
            session.problem(code, where, what, hint, partial=code != problems.SECCOMP_SLEEP, first=True)
        for name in WORK.exceeded:
            what = "parsing it takes more than %d steps, as only damaged files and those that are made to be slow do: the rest is unread"
            session.problem(problems.WORK_LIMIT, name, what % MOST_STEPS, "check where this file is from")
        if self.options.json:
            session.discovery.infos() if self.target is not None else None
        session.about_ram()
        self._let_go()
        session.about_swap(self._swapped_in())
        self.budget.progress.end()
        if self.budget.reason is not None:
            session.problem(self.budget.code, None, self.budget.reason, self.budget.next_step if self.budget.is_stop_over else None)
        self.wrote = True
        watchdog.mark_begun()
        watchdog.mark_answered()
        if self.spool is not None:
            self.spool.hand_on(self._send_text)

    def _guard_step(self, step: Callable[[], None]) -> bool:
        """Run a step of the output. What it cannot read becomes a problem, so that the document still ends as it should."""
        session = self.session
        try:
            step()
            return True
        except KeyboardInterrupt:
            self.budget.interrupt()
        except HeapxError as error:
            if not self.wrote or session is None or isinstance(error, (CannotWrite, Refusal)):
                raise
            session.problem(error.code, None if error.address is None else "0x%x" % error.address, error.message, error.hint)
        return False

    def _envelope_tail(self, error: Optional[HeapxError] = None) -> str:
        """Return the envelope's part after the data, known only after the process was let go."""
        session = self.session
        parts: Dict[str, Any] = {
            "partial": bool(session and session.partial),
            "problems": list(session.problems) if session else [],
            "target": self._target_member(),
            "allocators": self._allocators_member(),
        }
        if session is not None and session.coverage is not None:
            parts["coverage"] = session.coverage
        return envelope_tail(parts, tool_member(self.target), error, self.place.line)

    def _target_member(self) -> Dict[str, Any]:
        facts = dict(NOBODY["target"]) if self.target is None else self.target.facts()
        if self.session is not None and self.session.without_names:
            facts.update(command_line=None, host=None)
        predicted_ms = self.live_stop.predicted_ms if self.live_stop is not None else None
        when = {key: facts.pop(key) for key in ("taken", "taken_of") if key in facts}
        return {**facts, "predicted_stop_ms": predicted_ms, **when, "swapped_in_bytes": self._swapped_in()}

    def _swapped_in(self) -> Optional[int]:
        """Bytes of the process that were in swap and that reading has brought into RAM, since this command began; None where that is not
        known."""
        through_target = self.target.swapped_in_bytes() if self.target is not None else None
        room = self.target.swap_room() if self.target is not None else None
        if through_target is not None and room is not None and room.is_without_swap:
            return 0
        return None if through_target is None else through_target + kernels.swapped_in_bytes() - self._swapped_in_before

    def _allocators_member(self) -> List[Any]:
        if self.target is None or self.session is None:
            return []
        try:
            return list(self.session.discovery.infos())
        except Exception:  # the answer itself has told what is wrong
            return []


_debugger_version: Optional[str] = None


def set_debugger_version(version: Optional[str]) -> None:
    """Set once by gdb_entry.py, for answers without a target."""
    global _debugger_version
    _debugger_version = version


def debugger_version(target: Optional[Target]) -> Optional[str]:
    """The gdb that serves."""
    return (target.debugger_version if target is not None else None) or _debugger_version


def tool_member(target: Optional[Target]) -> Dict[str, Any]:
    """The member `tool` of an envelope."""
    return {
        "version": __version__,
        "gdb": debugger_version(target),
        "python": sys.version.split()[0].rstrip("+"),
        "kernel": None if kernels.loaded_library() is None else "c",
    }


def make_internal_error(error: BaseException, how: str) -> HeapxError:
    """A defect of this program; `how`: the command line that shows more."""
    what = " ".join(("%s: %s" % (type(error).__name__, error)).split())
    return HeapxError("internal error: %s" % what, "please report it with the output of: %s" % how, code=problems.INTERNAL)
