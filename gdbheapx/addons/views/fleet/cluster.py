"""Looks at cores as tasks of a Dask cluster: it schedules them, runs a lost worker's again, and gives up on one that kills its workers.

A task runs the same program as a local look, on the worker's machine, and returns what it wrote: documents come back to the caller, so that
workers need read the cores alone and one place decides what is whole. Nothing else imports distributed.
"""

import asyncio
import concurrent.futures
import contextlib
import ipaddress
import logging
import os
import queue
import time
import uuid
import warnings
from typing import Any, Dict, Generator, List, Optional, Sequence, Set, Tuple

from gdbheapx.addons.views.fleet import run
from gdbheapx.common import __version__
from gdbheapx.common.budget import Budget, to_standard_error
from gdbheapx.common.errors import HeapxError, UsageError
from gdbheapx.common.global_options import GlobalOptions
from gdbheapx.common.problems import MISSING_PACKAGE, NO_SCHEDULER
from gdbheapx.snapshot import container

RETRIES = 2
"""How often a task that raised is tried again: a look that failed is an answer, so this is a worker's disk or memory."""
CONNECT_SECONDS = 10
WORKER_SECONDS = 10.0
"""How long a cluster may be without a worker before that is said."""
RESULT_SECONDS = 5
POLL_SECONDS = 0.2
RUNNING = "running"
CANCELLED = (asyncio.CancelledError, concurrent.futures.CancelledError)
ENCRYPTED = ("tls", "wss")


def run_on_cluster(
    address: str, cores: Sequence[run.Core], asked: GlobalOptions, max_seconds: Optional[float], budget: Budget
) -> Generator[Tuple[run.Core, run.State, run.ChildExit], None, None]:
    """Look at the cores; (core, its state before, what the look left) as they end. Ctrl-C cancels the others."""
    words, asks = seen_from_anywhere(asked), run.report_words(max_seconds)
    lost = HeapxError(
        "lost the scheduler at %s" % address, "documents so far are kept; start it, then run the same line again", code=NO_SCHEDULER
    )
    ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
    waiting: Dict[str, Tuple[run.Core, run.State, Any]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other releases on workers: what follows from that is a row
        client = _connect_client(address)
        try:
            prefix = "gdbheapx-%s" % uuid.uuid4().hex[:8]
            for core_ in cores:
                state, name = run.read_core_state(core_.path), os.path.basename(core_.document)[: -len(".json")]
                given = (__version__, core_.path, state, words, asks, run.compute_time_limit(max_seconds))
                future = client.submit(run_task, *given, key="%s-%s" % (prefix, name), pure=False, retries=RETRIES)
                waiting[future.key] = core_, state, future
                future.add_done_callback(ended.put)
            alone_since, said = time.monotonic(), False
            reported: Set[str] = set()
            while waiting and not budget.interrupted:
                if client.status != RUNNING:
                    raise lost
                if client.scheduler_info()["workers"]:
                    alone_since, said = time.monotonic(), False
                elif not said and time.monotonic() - alone_since > WORKER_SECONDS:
                    said = True
                    to_standard_error("the cluster has no worker: waiting for one, Ctrl-C stops")
                budget.progress.tick()
                try:
                    future = ended.get(timeout=POLL_SECONDS)
                    worker, left = future.result(timeout=RESULT_SECONDS)
                except queue.Empty:
                    continue
                except (TimeoutError, asyncio.TimeoutError, concurrent.futures.TimeoutError):
                    ended.put(future)  # its worker was lost with the result: it is computed again
                    continue
                except (Exception, *CANCELLED) as error:
                    if client.status != RUNNING:
                        raise lost
                    worker, left = "", run.ChildExit(1, b"", explain_task_failure(error))
                if worker and left.said.startswith(OTHER) and worker not in reported:
                    reported.add(worker)
                    to_standard_error(left.said)
                core_, state, future = waiting.pop(future.key)  # the scheduler may forget it
                yield core_, state, left
        finally:
            with contextlib.suppress(Exception):  # the scheduler is lost, which was said, or will be in this moment
                if waiting and client.status == RUNNING:
                    client.cancel([future for _, _, future in waiting.values()])
            with contextlib.suppress(Exception):
                client.close(timeout=CONNECT_SECONDS)  # lets go of its tasks: the scheduler cancels them


OTHER = "another gdbheapx on worker "


def run_task(
    version: str, path: str, state: run.State, words: Sequence[str], asks: Sequence[str], seconds: Optional[float]
) -> Tuple[str, run.ChildExit]:
    """Run on a worker: (its address, what the look left)."""
    import distributed

    worker = distributed.get_worker()
    where, key = str(worker.address), str(worker.get_current_task())
    seen = state if container.is_url(path) else run.read_core_state(path)  # a look at a URL says itself what is wrong
    why = "it was cancelled"
    if __version__ != version:
        same = "%s%s: %s, here %s; install the same there, then run the same line again"
        why = same % (OTHER, where, __version__, version)
    elif state is not None and seen != state:
        what = "does not see this path" if seen is None else "sees another file at this path"
        why = "worker %s %s; mount the same folder there, then run the same line again" % (where, what)
    else:
        left = run.run_child(words, path, asks, seconds, lambda child: _is_cancelled(worker, key))
        if left is not None:
            return where, left
    return where, run.ChildExit(1, b"", why)


def _is_cancelled(worker: Any, key: str) -> bool:
    """Its result is not needed any more. A release of distributed that does not say so lets the look end by itself."""
    tasks = getattr(getattr(worker, "state", None), "tasks", None)
    if tasks is None:
        return False
    known = tasks.get(key)
    return known is None or getattr(known, "state", None) == "cancelled"


def explain_task_failure(error: BaseException) -> str:
    """Return why a task has no result, in one line."""
    kind = type(error).__name__
    what = " ".join(str(error).split())[:300]
    if isinstance(error, CANCELLED):
        return "somebody cancelled its task; run the same line again"
    if kind == "KilledWorker":
        return "every worker that looked at it was killed or crashed (KilledWorker); run the same line again, with more memory for workers"
    if isinstance(error, ImportError):
        return "a worker cannot import gdbheapx %s (%s); install it there, then run the same line again" % (__version__, what)
    return "its task failed on the cluster (%s: %s)" % (kind, what)


def seen_from_anywhere(asked: GlobalOptions) -> List[str]:
    """The global options, with whole paths: a worker has a working folder of its own."""
    return asked._replace(
        exe=asked.exe and os.path.abspath(asked.exe),
        gdb=os.path.abspath(asked.gdb) if asked.gdb and "/" in asked.gdb else asked.gdb,
        sysroot=asked.sysroot and os.path.abspath(asked.sysroot),
        debug_dirs=[os.path.abspath(directory) for directory in asked.debug_dirs],
    ).words()


def is_unencrypted_network(address: str) -> bool:
    """Anybody on the network between could read and change what goes to it: not encrypted, and beyond this machine."""
    scheme, _, rest = address.rpartition("://")
    if scheme in ENCRYPTED or scheme == "inproc":
        return False
    host = rest.split("/")[0].rpartition(":")[0].strip("[]")
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def _connect_client(address: str) -> Any:
    try:
        import distributed
    except ImportError:
        raise HeapxError(
            "--dask requires distributed, which is not installed",
            "install it: pip install 'gdbheapx[dask]' (Debian: apt-get install python3-distributed), or omit --dask",
            code=MISSING_PACKAGE,
        ) from None
    logging.disable(logging.CRITICAL)  # it logs tracebacks; what a user needs to know is one line, said here
    if ":" not in address.rpartition("://")[2]:
        raise UsageError("fleet: %s is not the address of a scheduler" % address, "give one like tcp://HOST:8786 or tls://HOST:8786")
    if is_unencrypted_network(address):
        to_standard_error("%s is not encrypted: use it on a trusted network only, or a scheduler at tls://" % address)
    try:
        make: Any = distributed.Client
        return make(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except Exception as error:  # of many kinds: the address, the network, certificates
        what = " ".join(str(error).split())[:200] or type(error).__name__
        certificates = " with the same certificates in Dask's settings here (docs/how-to/fleet.md)" if address.startswith(ENCRYPTED) else ""
        hint = "start one with `dask scheduler`%s, or omit --dask" % certificates
        raise HeapxError("no scheduler answers at %s: %s" % (address, what), hint, code=NO_SCHEDULER) from None
