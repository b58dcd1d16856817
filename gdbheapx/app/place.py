"""Write commands that can be pasted where an answer is read and that ask the same target."""

import shlex
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import command
from gdbheapx.common import addon_loader
from gdbheapx.common.errors import HeapxError, UsageError
from gdbheapx.common.hints import AGAIN, ALONE, TARGETS, quote_word, write_alone
from gdbheapx.common.problems import ADDON_MISSING

SHELL, IN_GDB = "gdbheapx", "heapx"
"""The name of the command in a shell, and of the one that gdb has."""
LIVE, CORE, SNAPSHOT = "live", "core", "snapshot"


class HintPlace(NamedTuple):
    """Place where hints are read (shell, gdb, library) and the target that they are about."""

    door: str = SHELL
    kind: Optional[str] = None
    """LIVE, CORE or SNAPSHOT; None: no target, or one that could not be opened."""
    target: Tuple[str, ...] = ()
    """The options that name the target, and those with which it was opened, as they are typed in a shell."""
    source: Tuple[str, ...] = ()
    """Of a snapshot: those of what it was taken of, for what no snapshot answers."""

    asked: Optional[Callable[[str], str]] = None
    """Gives the words of the command that is answered, with more options; empty: they are not known."""

    def line(self, words: str) -> str:
        """The words of a command as they are typed here. What only a shell runs, or no snapshot answers, is written for where it runs."""
        if words.startswith(AGAIN):
            whole = self.asked(words[1:]) if self.asked is not None else ""
            if words == AGAIN and self.kind == SNAPSHOT:  # the snapshot has no answer
                return " ".join([SHELL, *map(quote_word, self.source), whole]) if whole and self.source else write_alone(words)
            return self.line(whole) if whole else write_alone(words)
        missing = find_missing_addon(words)
        if missing is not None:
            return missing
        if words.startswith(ALONE):
            words = words[1:]
            names_target = words.startswith(tuple(option + " " for option in TARGETS.values()))
            return "%s %s" % (SHELL if self.door != IN_GDB or names_target or self._is_for_shell(words) else IN_GDB, words)
        if self.door == IN_GDB and not self._is_for_shell(words):
            return "%s %s" % (IN_GDB, words)
        options = self.source if self.kind == SNAPSHOT and self.source and not is_answered(words) else self.target
        return " ".join([SHELL, *map(quote_word, options), words])

    def refuses(self, words: str) -> bool:
        """Return True if this target cannot answer the command, or an add-on would that is not there, so that no hint may name it."""
        if find_missing_addon(words) is not None:
            return True
        parsed = parse_words(words)
        if parsed is None or self.kind is None:
            return False
        asked, options = parsed.command, parsed.options
        if self.kind == SNAPSHOT and asked.needs_target:
            return not is_answered(words)
        is_live = asked.live or asked.repeats or asked.acts is not None and asked.acts(options)
        return is_live and self.kind != LIVE

    def _is_for_shell(self, words: str) -> bool:
        """True for what gdb's command refuses."""
        parsed = parse_words(words)
        if parsed is None:
            return False
        asked = parsed.command
        return asked.in_shell or asked.repeats or asked.renders is not None and asked.renders(parsed.options) is not None


def parse_words(words: str) -> Optional[command.ParsedCommand]:
    """The words understood; None where they are not, or ask for help."""
    typed = shlex.split(words)
    command.load_commands(command.name_in(typed))
    try:
        parsed = command.parse_command(typed, SHELL)
    except HeapxError:
        return None
    return parsed if parsed.help is None else None


def find_missing_addon(words: str) -> Optional[str]:
    """Return how to get the add-on that a command or an option of it needs; None if it is there."""
    if addon_loader.has_every_addon():
        return None
    typed = shlex.split(words.lstrip(ALONE))
    typed = typed[2:] if typed[:1] and typed[0] in TARGETS.values() else typed
    command.load_commands(command.name_in(typed))
    try:
        command.parse_command(typed, SHELL)
    except UsageError as error:
        return "%s; %s" % (error.message, error.hint) if error.code == ADDON_MISSING else None
    return None


def type_words(declared: command.Command, options: command.Options, more: str = "") -> str:
    """The words with which a command is asked for these options and `more`, which replace the same ones; empty: some cannot be typed."""
    words, replaced = [declared.name], more.split()[:1]
    for given in declared.arguments:
        flag, value = given.flags[0], getattr(options, command.option_name(given), None)
        if value in (None, False, given.options.get("default")) or [flag] == replaced:
            continue
        form = "0x%x" if given.options.get("type") in command.ADDRESSES and isinstance(value, int) else "%s"
        for one in value if isinstance(value, list) else [value]:
            words += [flag] if flag.startswith("-") else []
            words += [] if one is True else [quote_word(form % one)]
    line = " ".join([*words, *([more] if more else [])])
    again = parse_words(line)
    if again is None:
        return ""
    own = [command.option_name(given) for given in declared.arguments if given.flags[:1] != tuple(replaced)]
    return line if all(getattr(again.options, name, None) == getattr(options, name, None) for name in own) else ""


def is_answered(words: str) -> bool:
    """A snapshot answers these words, unless it was taken where that could not be."""
    from gdbheapx.snapshot.record import check_recorded

    parsed = parse_words(words)
    try:
        if parsed is not None:
            check_recorded(parsed.command, parsed.options)
    except HeapxError:
        return False
    return parsed is not None


def of_options(options: Sequence[str], door: str = SHELL) -> HintPlace:
    """The place of a command line with these options, which name the target before it is opened."""
    kind = next((kind for flag, kind in (("-p", LIVE), ("--core", CORE), ("--snapshot", SNAPSHOT)) if flag in options), None)
    return HintPlace(door, kind, tuple(options))


def of_target(facts: Mapping[str, Any], options: Sequence[str] = (), door: str = SHELL) -> HintPlace:
    """The place of what was opened: `facts` as an envelope has them."""
    kind, pid, core, snapshot = (facts.get(name) for name in ("kind", "pid", "core", "snapshot"))
    own = {LIVE: ("-p", str(pid)), CORE: ("--core", str(core)), SNAPSHOT: ("--snapshot", str(snapshot))}
    source = ("-p", str(pid)) if pid is not None and facts.get("taken_of") == LIVE else ("--core", "FILE")
    door = IN_GDB if door == IN_GDB else SHELL
    return HintPlace(door, kind, tuple(options) or own.get(kind or "", ()), source if kind == SNAPSHOT else ())
