"""injected.c, in which somebody has system calls made: that it is as it was."""

import os
from typing import Any, Dict, Optional, Tuple

from gdbheapx.inferior.live import procfs
from tests.support.processes import Process, Stage
from tests.support.victims import until


def started(stage: Stage, where: str, *more: str, env: Optional[Dict[str, str]] = None) -> Process:
    """The program, which checks itself from now on."""
    process = stage.start("injected", where, *more, env=env)
    count = 1 + (where == "read") + (5 if more else 0)  # who reads has another thread that writes
    until(lambda: len(procfs.list_thread_ids(process.pid)) == count and process.words()[0] > 30, lambda: "it does not begin", process)
    until(lambda: not any(int(procfs.read_process_status(lwp)["SigBlk"], 16) for lwp in procfs.list_thread_ids(process.pid)), lambda: "its threads do not start", process)
    return process


def state(process: Process) -> Tuple[Any, ...]:
    """What nobody may leave behind: descriptors, signal masks, who holds it, threads that stand."""
    threads = {}
    for lwp in procfs.list_thread_ids(process.pid):
        fields = procfs.read_process_status(lwp)
        threads[lwp] = fields["SigBlk"], fields["SigPnd"], fields["TracerPid"], fields["State"][0] in "tT"
    descriptors, folder = {}, "/proc/%d/fd" % process.pid
    for name in os.listdir(folder):
        try:
            descriptors[name] = os.readlink("%s/%s" % (folder, name))
        except OSError:
            descriptors[name] = "closed meanwhile"
    return descriptors, threads


def is_well(process: Process, before: Tuple[Any, ...], wrong: int = 0) -> None:
    """It is as before, makes progress, and found nothing wrong."""
    until(lambda: state(process) == before, lambda: "%s, and was %s" % (state(process), before), process)
    rounds = process.words()[0]
    until(lambda: process.words()[0] > rounds + 3, lambda: "it does not go on", process)
    assert process.popen.poll() is None and process.words()[1] <= wrong, process.words()
