"""gdb's own settings and what it does with signals: changed for an action, and set back."""

from typing import Dict, Tuple

from gdbheapx.inferior.gdb.target import quiet, setting

OWN_FAULTS = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGSYS")


class Settings:
    """gdb settings for the length of a block; those that this gdb lacks are left out."""

    def __init__(self, values: Dict[str, str]) -> None:
        self._wanted = values
        self._before: Dict[str, str] = {}

    def __enter__(self) -> None:
        for name, value in self._wanted.items():
            before = setting(name)
            if before is not None:
                self._before[name] = before
                quiet("set %s %s" % (name, value))

    def __exit__(self, *error: object) -> None:
        for name, value in self._before.items():
            quiet("set %s %s" % (name, value))


class Signals:
    """What gdb does with signals while it holds the process. A gdb of the user's own is told afterwards what it was told before."""

    def __init__(self, ours: bool) -> None:
        self._ours = ours
        self._before: Dict[str, Tuple[str, str, str]] = {}

    def keep(self) -> None:
        """No signal of the program stops it or is lost while gdb holds it; what a thread raises itself by a fault does stop it."""
        self._before = signal_table()
        quiet("handle all nostop noprint pass")
        quiet(
            "handle SIGSTOP print"
        )  # gdb's own, by which it stops threads: of signals that are not even printed it takes none for its own, and hands them on
        for name in OWN_FAULTS:
            quiet("handle %s stop print pass" % name)
        quiet("handle SIGINT %s" % ("nostop noprint pass" if self._ours else "stop print nopass"))

    def put_back(self) -> None:
        """As before."""
        if self._ours:
            return
        now = signal_table()
        for name, actions in self._before.items():
            if now.get(name) != actions:
                quiet("handle %s %s %s %s" % ((name,) + actions))
        self._before = {}


def signal_table() -> Dict[str, Tuple[str, str, str]]:
    """What gdb does with each signal, in the words of `handle`."""
    table = {}
    for line in (quiet("info signals") or "").splitlines():
        words = line.split()
        if len(words) >= 4 and words[0].startswith("SIG") and all(word in ("Yes", "No") for word in words[1:4]):
            no = ["" if word == "Yes" else "no" for word in words[1:4]]
            table[words[0]] = (no[0] + "stop", no[1] + "print", no[2] + "pass")
    return table
