"""How a process ended that was being read: by itself, by a signal, by the kernel for lack of memory, or by running another program.

A tracer is told its status; a zombie has it in /proc/PID/stat. That the kernel killed for memory stands in counters of its memory cgroups,
which are read before anything else is.
"""

import os
import signal
from typing import Dict, List, Optional, Tuple

from gdbheapx import problems
from gdbheapx.inferior.live import headroom, procfs
from gdbheapx.problems import Diagnostic

COUNTERS = {headroom.V1: "memory.oom_control", headroom.V2: "memory.events"}
KILLS = "oom_kill"
START_TIME, EXIT_CODE = 19, 49
"""Fields 22 and 52 of /proc/PID/stat (proc_pid_stat(5)), counted from behind the name."""
CORE_OR_OTHER = "look for its core, or give the pid of a running process"


def fields(pid: int) -> List[str]:
    """Of /proc/PID/stat, from the state on; empty where there is no such process."""
    return (procfs.slurp("/proc/%d/stat" % pid) or b"").rpartition(b")")[2].decode("ascii", "replace").split()


class Deaths:
    """Of one process, from before it is read."""

    def __init__(self, pid: int, files: Optional[headroom.Files] = None) -> None:
        self._pid, self._files = pid, files or headroom.Files()
        self._started = self._start_time()
        self._counters: List[Tuple[str, str]] = []
        try:
            for folder, shown, kind in headroom.groups(pid, self._files):
                self._counters.append((os.path.join(folder, COUNTERS[kind]), shown))
        except headroom.Hidden:  # those that can be seen count
            pass
        self._kills = self._count()
        self.status: Optional[int] = None
        """What waitpid gave its tracer; None: nothing yet."""

    def _start_time(self) -> Optional[str]:
        found = fields(self._pid)
        return found[START_TIME] if len(found) > START_TIME and found[0] not in ("Z", "X") else None

    def _count(self) -> Dict[str, int]:
        """Kills for memory so far, by group."""
        return {shown: self._files.fields(path).get(KILLS, 0) for path, shown in self._counters}

    def _ended_with(self) -> Optional[int]:
        """Its status in the form of wait(2)."""
        found = fields(self._pid)
        told = found[EXIT_CODE] if len(found) > EXIT_CODE and found[0] in ("Z", "X") else ""
        return self.status if self.status is not None else int(told) if told.isdigit() and int(told) else None

    def cause(self) -> Diagnostic:
        """How it ended, as far as that can be known, and what to do."""
        who, status = "process %d" % self._pid, self._ended_with()
        killed = next((shown for shown, count in self._count().items() if count > self._kills.get(shown, 0)), None)
        by_signal = os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None
        if killed is not None and by_signal in (None, signal.SIGKILL):
            what = "%s was killed by the kernel while it was read: memory cgroup %s had no memory left" % (who, killed)
            return Diagnostic(problems.PROCESS_OUT_OF_MEMORY, None, what, "raise the memory limit, or read a core of it")
        if by_signal is not None:
            name = signal.Signals(by_signal).name if by_signal in set(signal.Signals) else "unknown"
            what = "%s was killed by signal %d (%s) while it was read" % (who, by_signal, name)
            return Diagnostic(problems.PROCESS_KILLED, None, what, CORE_OR_OTHER)
        if status is not None:
            what = "%s exited with code %d while it was read" % (who, os.WEXITSTATUS(status))
            return Diagnostic(problems.PROCESS_EXITED, None, what, "give the pid of a running process")
        if self._started is not None and self._start_time() == self._started:
            what = "%s began to run another program while it was read" % who
            return Diagnostic(problems.PROCESS_EXECUTED, None, what, "run the same command again")
        what = "%s exited or was killed while it was read; its parent alone knows how" % who
        return Diagnostic(problems.PROCESS_ENDED, None, what, CORE_OR_OTHER)
