"""gdbheapx serve"""

from argparse import ArgumentTypeError
from typing import TYPE_CHECKING, Iterator, Optional, Tuple, Union

from gdbheapx.allocators.session import Session
from gdbheapx.command import CommandAnswer, Options, TextStyle, declare_argument, declare_command, parse_count, some_seconds
from gdbheapx.common.errors import HeapxError, UsageError
from gdbheapx.common.hints import hint_run
from gdbheapx.common.problems import NOT_LIVE

if TYPE_CHECKING:
    from gdbheapx.addons.monitor.watch.machine import Machine
    from gdbheapx.addons.monitor.watch.samples import Sampler

HELP = """An endpoint for Prometheus; no process is stopped.

From a shell only. For one process (--pid N or NAME) it has what `watch --openmetrics` writes: RSS, threads, allocator counters; it ends
when the process does. --pids serves many by their counters alone: ALL, those of a program's name, or those of a control group
(`/system.slice`) and of the groups below it; processes that begin are followed, series of those that ended go away. Labels are pid, name
and, where its control group says so, container_id and pod_uid.

A sample is taken every --every seconds, and a scrape gets the last one: however many ask, no process is read more often. The endpoint's
own cost is among the metrics (process_cpu_seconds_total, process_resident_memory_bytes, gdbheapx_samples_total).

Whoever reaches the address sees names, pids and sizes of processes: there is no password. The default address is this machine's own. It
ends by Ctrl-C or SIGTERM, and requires prometheus_client (pip install 'gdbheapx[serve]').
"""
LISTEN = "127.0.0.1:10930"
"""Prometheus' list of exporters' ports has no room left from 9100 to 9999."""

ENDS = {
    "process-ended": "the process crashed or exited, after %s",
    "other-program": "the process runs another program now (execve), after %s: start serve again",
    "stopped": "stopped after %s",
    "times": "ended after %s",
}
"""By why it is over."""


def parse_listen_address(text: str) -> Tuple[str, int]:
    """An address and a port."""
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host[:1] == "[" and host[-1:] == "]" else host
    if not (colon and bare and port.isascii() and port.isdigit() and int(port) < 1 << 16) or (":" in bare and bare == host):
        raise ArgumentTypeError("%s is not ADDRESS:PORT, or [ADDRESS]:PORT" % text)
    return bare, int(port)


def describe_served(of: "Union[Sampler, Machine]", which: Optional[str]) -> str:
    """Return the description of the processes that are served."""
    if which is None:
        return "%s (pid %d)" % (getattr(of, "name", "?"), getattr(of, "pid", 0))
    return "all processes" if which == "ALL" else "the processes %s %s" % ("of" if which.startswith("/") else "called", which)


@declare_command(
    "serve",
    arguments=[
        declare_argument(
            "--listen", type=parse_listen_address, default=LISTEN, metavar="ADDRESS:PORT", help="where to listen (default: %s)" % LISTEN
        ),
        declare_argument("--every", type=some_seconds, default=15.0, metavar="SECONDS", help="a sample every SECONDS (default: 15)"),
        declare_argument(
            "--times", type=parse_count, metavar="N", help="end after N samples (default: at a signal, or when the process exits)"
        ),
        declare_argument("--pids", metavar="WHICH", help="many processes: ALL, the name of a program, or the path of a control group"),
        declare_argument(
            "--most", type=parse_count, default=1000, metavar="N", help="of --pids the N with the highest RSS (default: 1000)"
        ),
    ],
    needs_target=False,
    help=HELP,
    examples=("-p 4711 serve", "serve --pids ALL --every 60"),
    in_shell=True,
    repeats=True,
)
def answer_serve(session: Session, options: Options) -> CommandAnswer:
    """The command `serve`."""
    if session.has_target == (options.pids is not None):
        raise UsageError(
            "serve requires one process or --pids, not both", "try: %s, or gdbheapx -p PID serve" % hint_run("serve --pids ALL")
        )
    if session.has_target and session.target.kind != "live":
        raise HeapxError("serve needs a process that runs on this machine", "name it: gdbheapx -p PID serve", code=NOT_LIVE)
    if options.times == 0:
        raise UsageError("serve: --times must be more than 0", "omit it, to serve until Ctrl-C")
    from gdbheapx.addons.monitor.watch.machine import Machine
    from gdbheapx.addons.monitor.watch.samples import Sampler

    of = Sampler(session, False) if session.has_target else Machine(options.pids, is_judged=False)
    return CommandAnswer(lambda: None, lambda style: serve_lines(session, options, of, style), live=True, read=True, document=True)


def serve_lines(session: Session, options: Options, of: "Union[Sampler, Machine]", style: TextStyle) -> Iterator[str]:
    """Serve metrics; yield the address at first, and the reason at the end."""
    from gdbheapx.addons.monitor.watch import endpoint, machine, summary
    from gdbheapx.addons.monitor.watch.samples import Sample
    from gdbheapx.common.units import count_noun
    from gdbheapx.report.encodings import encode_json
    from gdbheapx.report.text import make_printable

    served = endpoint.Endpoint(endpoint.ListenAddress(*options.listen))
    why, taken = summary.STOPPED, 0
    try:
        url = "http://%s%s" % (served.at, endpoint.PATH)
        if options.json:
            yield encode_json({"kind": "start", "url": url, "every_s": options.every, "is_private": served.is_private})
        else:
            yield "serving %s at %s, a sample every %g s; Ctrl-C ends" % (
                make_printable(describe_served(of, options.pids)),
                url,
                options.every,
            )
            if not served.is_private:
                yield "note: whoever reaches this address sees names, pids and sizes of processes; there is no password"
        if isinstance(of, machine.Machine):
            for moment in machine.sample_machine(of, options.every, options.times, session.budget):
                if moment.kind != "end":
                    taken = moment.samples
                    metrics = endpoint.of_machine(of, moment, options.most)
                    served.publish(metrics, taken, int(moment.elapsed_s / options.every) + 1 - taken)
            why = summary.TIMES if taken == options.times else why
        else:
            for event in summary.watch_events(of, summary.History(of.watched), options.every, options.times, session.budget):
                if isinstance(event, summary.Over):
                    why = event.why
                elif isinstance(event, Sample):
                    taken += 1
                    served.publish(endpoint.metrics_of_process(of, event), taken, int(event.elapsed_s / options.every) + 1 - taken)
    finally:
        served.close()
    yield encode_json({"kind": "end", "why": why, "samples": taken}) if options.json else ENDS[why] % count_noun(taken, "sample")
