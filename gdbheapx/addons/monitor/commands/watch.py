"""gdbheapx watch"""

import os
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Optional

from gdbheapx.allocators.session import Session
from gdbheapx.command import CommandAnswer, Options, TextStyle, declare_argument, declare_command, parse_count, parse_seconds, some_seconds
from gdbheapx.common.errors import HeapxError, UsageError
from gdbheapx.common.hints import hint_run
from gdbheapx.common.problems import NOT_LIVE

if TYPE_CHECKING:
    from gdbheapx.addons.monitor.watch.samples import Sampler

HELP = """How a process grows over time, without stopping it.

From a shell only. It never attaches to the process and writes nothing to it; each sample reads a few counters. Figures with ~ are
estimates from a walk over what changes meanwhile, made at most so often that it takes 2 % of one processor; ? is unknown. --exact
stops the process for each sample instead, for as long as `arenas` does. At the end, also after Ctrl-C: growth per hour, whether it is
memory in use or free in the allocator, and, where memory was returned to the OS (a trim, a purge), how much of it came back and whether
doing that periodically pays.

--from FILE makes the summary again of what `watch --jsonl FILE` has written, also while that goes on; it needs no process.

--snapshot-when takes snapshots by itself: one when the watch begins, and at most --snapshots more, each when a rule holds: `growth=SIZE`
(RSS grows by so much an hour, over a minute or longer and without what swings explain; `growth=SIZE/SECONDS`: over so long),
`above=SIZE` (RSS), `pressure` (the kernel reclaims for its memory cgroup, of one of its limits a tenth is left, or as much as it grows
by in five seconds, or tasks waited for memory in 10 % of ten seconds; `pressure=PERCENT`). Each stops the process as `snapshot` does,
within --max-stop. Every decision is a line, with --jsonl or --json an object of kind `snapshot`; the summary names the two for `diff`.

--pids watches many processes by their counters alone: ALL, those of a program's name, or those of a control group (`/system.slice`)
and of the groups below it. Each sample is a line; at the end a table says which grow, and how fast, swings left out.

Files are readable only by you. --csv and --jsonl continue a file that is there. --openmetrics replaces its file at each sample, as the
textfile collector of Prometheus' node exporter needs it; the new file takes over mode and group of the old one. To let a collector
that runs as another user read it, make it beforehand: install -m 0640 -g GROUP /dev/null FILE.
"""
HTML_HELP = """--html writes a page for a browser when the watch ends, also by Ctrl-C or SIGTERM: the summary, curves of RSS, of what
allocators hold, have in use and free, of threads, and the times at which memory was returned to the OS. With --from FILE the page is made
of that file. It requires Jinja2.
"""


def parse_duration(text: str) -> float:
    """Seconds: a number, perhaps followed by s, m, h or d."""
    unit_s = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(text[-1:].lower())
    return some_seconds(text if unit_s is None else text[:-1]) * (unit_s or 1)


def parse_rule_option(text: str) -> Any:
    """A rule of --snapshot-when."""
    from gdbheapx.addons.monitor.watch import capture

    return capture.parse_capture_rule(text)


@declare_command(
    "watch",
    arguments=[
        declare_argument("--every", type=parse_seconds, default=5.0, metavar="SECONDS", help="a sample every SECONDS (default: 5)"),
        declare_argument("--times", type=parse_count, metavar="N", help="end after N samples (default: when the process exits)"),
        declare_argument(
            "--for", dest="for_s", type=parse_duration, metavar="TIME", help="end after TIME, like 90s, 15m, 8h (default unit: seconds)"
        ),
        declare_argument("--exact", action="store_true", help="stop the process for each sample and walk its heap: no estimates"),
        declare_argument("--csv", metavar="FILE", help="append each sample to FILE as a row of CSV"),
        declare_argument("--jsonl", metavar="FILE", help="append each sample and the summary to FILE as lines of JSON"),
        declare_argument("--openmetrics", metavar="FILE", help="keep the last sample in FILE, as OpenMetrics text"),
        declare_argument("--html", metavar="FILE", capability="pages", help="write a page with curves to FILE when the watch ends"),
        declare_argument(
            "--snapshot-when",
            type=parse_rule_option,
            action="append",
            metavar="RULE",
            help="take a snapshot when RULE holds; may be repeated",
        ),
        declare_argument("--snapshots", type=parse_count, default=2, metavar="N", help="at most N after the first (default: 2)"),
        declare_argument(
            "--snapshot-gap", type=parse_seconds, default=600.0, metavar="SECONDS", help="at least so long between two (default: 600)"
        ),
        declare_argument("--snapshot-to", default=".", metavar="FOLDER|URL", help="where they go (default: here)"),
        declare_argument("--snapshot-short-stop", action="store_true", capability="short_stop", help="take them with `--short-stop --yes`"),
        declare_argument("--pids", metavar="WHICH", help="many processes: ALL, the name of a program, or the path of a control group"),
        declare_argument(
            "--from", dest="source", metavar="FILE", help="instead of a process: the last watch that FILE has, written by --jsonl"
        ),
    ],
    needs_target=False,
    help=HELP,
    help_of={"pages": HTML_HELP},
    examples=("-p 4711 watch --every 10 --for 15m", "-p 4711 watch --html curves.html", "watch --pids ALL --every 60 --for 1h"),
    in_shell=True,
    repeats=True,
)
def answer_watch(session: Session, options: Options) -> CommandAnswer:
    """The command `watch`."""
    if options.source is not None:
        given = [name for name in ("times", "for_s", "exact", "csv", "jsonl", "openmetrics", "snapshot_when") if getattr(options, name)]
        if session.has_target or given:
            what = "--%s" % given[0].replace("for_s", "for").replace("_", "-") if given else "a process"
            how = "try: " + hint_run("watch --from %s", options.source)
            raise UsageError("watch: --from reads a file, and %s does not go with it" % what, how)
        return CommandAnswer(lambda: None, lambda style: replay_lines(options, style), live=True, read=True, document=True)
    if options.pids is not None:
        given = [name for name in ("exact", "csv", "openmetrics", "html", "snapshot_when") if getattr(options, name)]
        if session.has_target or given or not options.every:
            what = "--" + given[0].replace("_", "-") if given else "a process" if session.has_target else "--every 0"
            raise UsageError("watch: --pids and %s do not go together" % what, "try: " + hint_run("watch --pids ALL --every 60 --for 1h"))
        return CommandAnswer(lambda: None, lambda style: machine_lines(session, options, style), live=True, read=True, document=True)
    if not session.has_target:
        hint = "name it: gdbheapx -p PID watch, or read what `watch --jsonl FILE` has written: gdbheapx watch --from FILE"
        raise UsageError("watch requires a process", hint)
    if session.target.kind != "live":
        raise HeapxError("watch needs a process that runs on this machine", "name it: gdbheapx -p PID watch", code=NOT_LIVE)
    if not options.every or options.times == 0:
        raise UsageError("watch: --every and --times must be more than 0", "try: watch --every 5 --times 100")
    from gdbheapx.snapshot import container

    folder = options.snapshot_to
    if options.snapshot_when and not container.is_url(folder) and not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError("watch: %s is no folder that can be written to" % options.snapshot_to, "choose another with --snapshot-to FOLDER")
    from gdbheapx.addons.monitor.watch.samples import Sampler, find_meter

    sampler = Sampler(session, bool(options.exact), find_meter(session))
    return CommandAnswer(lambda: None, lambda style: watch_lines(session, options, sampler, style), live=True, read=True, document=True)


def watch_lines(session: Session, options: Options, sampler: "Sampler", style: TextStyle) -> Iterator[str]:
    """Watch, and yield the lines for the terminal, or with --json one JSON object a line; the files are written meanwhile."""
    from gdbheapx.addons.monitor.watch import endpoint, table, text
    from gdbheapx.addons.monitor.watch.samples import Sample
    from gdbheapx.addons.monitor.watch.summary import History, Over, watch_events
    from gdbheapx.addons.monitor.watch.trends import ReturnedStep

    history, shown, encoded = History(sampler.watched), text.Text(sampler, style), table.WatchTableLines(sampler)
    of_csv = table.Csv(options.csv, sampler) if options.csv else None
    of_json = table.Appended(options.jsonl, None) if options.jsonl else None

    def tell(line: str, lines: Iterable[str]) -> Iterable[str]:
        """The line of JSON goes to the file, and with --json to the terminal, too."""
        if of_json is not None:
            of_json.line(line)
        return [line] if options.json else lines

    started = tell(encoded.start(options.every), shown.start(options.every))
    metrics = endpoint.OpenMetrics(options.openmetrics, sampler) if options.openmetrics else None
    page: Any = None
    if options.html:
        from gdbheapx.addons.monitor.watch.view import Page

        page = Page(options.html, sampler, options.every)
    captures: Any = None
    if options.snapshot_when:
        from gdbheapx.addons.monitor.watch.capture import Captures
        from gdbheapx.addons.monitor.watch.counters import open_counters

        words = ["--max-stop", "%g" % options.max_stop] if options.max_stop is not None else []
        words += ["--short-stop", "--yes"] if options.snapshot_short_stop else []
        rules = options.snapshot_when, options.snapshot_to, options.snapshots, options.snapshot_gap
        captures = Captures(sampler.pid, *rules, words, open_counters(session.target))
    yield from started
    try:
        for event in watch_events(sampler, history, options.every, count_planned_samples(options), session.budget):
            if isinstance(event, Sample):
                for writer in (of_csv, metrics, page):
                    if writer is not None:
                        writer.sample(event)
                yield from tell(encoded.sample(event), shown.sample(event))
                for decision in captures.add(event) if captures is not None else ():
                    yield from tell(encoded.decided(decision), shown.decided(decision))
            elif isinstance(event, ReturnedStep):
                yield from tell(encoded.returned(event), shown.returned(event))
            else:
                assert isinstance(event, Over)
                ended = list(tell(encoded.end(event), shown.end(event, history)))
                made = page.end(event, history) if page is not None else []
                pair = captures.pair() if captures is not None else ()
                yield from [*ended, *([hint_run("diff %s %s", *pair)] if pair else []), *made] if not options.json else ended
    finally:
        if page is not None:
            page.stop(history)
        if metrics is not None:
            metrics.end()


def machine_lines(session: Session, options: Options, style: TextStyle) -> Iterator[str]:
    """Many processes: a line for each sample, and a table at the end."""
    from gdbheapx.addons.monitor.watch import machine
    from gdbheapx.addons.monitor.watch.table import Appended
    from gdbheapx.report import text
    from gdbheapx.report.text import format_page

    file = Appended(options.jsonl, None) if options.jsonl else None
    for moment in machine.sample_machine(machine.Machine(options.pids), options.every, count_planned_samples(options), session.budget):
        if file is not None:
            file.line(machine.machine_json_line(moment))
        shown = [machine.machine_json_line(moment)] if options.json else format_page(style, machine.machine_page(moment))
        for line in shown:
            yield from text.wrap_sentence(line, style.width if style.wraps and not options.json else None)


def count_planned_samples(options: Options) -> Optional[int]:
    """Return the number of samples to take; None: until the process ends."""
    of_time = None if options.for_s is None else 1 + int(options.for_s / options.every)
    return min((number for number in (options.times, of_time) if number is not None), default=None)


def replay_lines(options: Options, style: TextStyle) -> Iterator[str]:
    """The summary of a watch that is over, or was, when its file was read; and its page."""
    from gdbheapx.addons.monitor.watch import table, text
    from gdbheapx.addons.monitor.watch.summary import History

    kept = table.RecordedWatch(options.source)
    history, page = History(kept.watched), None
    if options.html:
        from gdbheapx.addons.monitor.watch.view import Page

        page = Page(options.html, kept, kept.every_s, options.source)
    for sample in kept.samples():
        history.add(sample)
        if page is not None:
            page.sample(sample)
    over = kept.ended(history)
    if options.json:
        yield table.WatchTableLines(kept).end(over)
    else:
        yield from text.Text(kept, style).end(over, history)
    if page is not None:
        page.left_out = kept.left_out
        yield from page.end(over, history) if not options.json else ()
