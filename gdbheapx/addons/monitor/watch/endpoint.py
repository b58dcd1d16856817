"""The last sample as metrics: as OpenMetrics text for the node exporter's textfile collector, and over HTTP, where Prometheus scrapes it. A
scrape reads no process: it gets what the last sample left.

Nothing else imports prometheus_client.
"""

import gzip
import ipaddress
import platform
import socket
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.monitor.memory_group import InContainer
from gdbheapx.addons.monitor.watch import machine, table
from gdbheapx.addons.monitor.watch.counters import ProcessCounters
from gdbheapx.addons.monitor.watch.samples import Sample, Sampler
from gdbheapx.common import __version__
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.problems import CANNOT_LISTEN, MISSING_PACKAGE
from gdbheapx.report.text import make_printable

PREFIX = "gdbheapx_"
PROCESS = {
    "rss_bytes": ("resident_bytes", "resident memory of the process"),
    "anonymous_bytes": ("anonymous_bytes", "the part of it that belongs to no file and is no shared memory"),
    "swapped_bytes": ("swapped_bytes", "memory of the process that is in swap"),
    "threads": ("threads", "threads of the process"),
    "peak_bytes": ("peak_bytes", "the highest resident memory since the process began, as the kernel counts it (VmHWM)"),
}
"""Name -> (which of its counters, help)."""
SUMS = {
    "held_bytes": "memory that the allocator has from the OS",
    "used_bytes": "memory that the program has allocated and not freed",
    "kept_bytes": "free memory that the allocator keeps",
}


class Metric(NamedTuple):
    """Metric family: its name without PREFIX, and (labels, value) of each series."""

    name: str
    help: str
    samples: List[Tuple[Dict[str, str], float]]
    kind: str = "gauge"

    @property
    def unit(self) -> str:
        """Return the ending of the name if it is a unit of OpenMetrics; else an empty text."""
        return next((unit for unit in ("bytes", "seconds") if self.name.endswith("_" + unit)), "")


def escape_metric_text(value: str) -> str:
    """A label's value, or a HELP text, by the format's own rules."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def make_labels(pid: int, name: str, container: InContainer) -> Dict[str, str]:
    """Return the labels of one process. Characters that drive a terminal are made visible; an unknown label is left out, as Prometheus
    takes an empty one.
    """
    told = {"pid": str(pid), "name": make_printable(name), **container._asdict()}
    return {key: value for key, value in told.items() if value}


def metrics_of_process(sampler: Sampler, sample: Optional[Sample]) -> List[Metric]:
    """Return all metrics of one process; without a sample, only that it is not watched."""
    own = make_labels(sampler.pid, sampler.name, sampler.container())
    metrics = [Metric("up", "1 while the process is watched, 0 when it ended or the watch did", [(own, 1 if sample else 0)])]
    if sample is None:
        return metrics
    metrics.append(Metric("sample_timestamp_seconds", "when this was sampled", [(own, round(sample.unix_s, 3))]))
    metrics += _make_counter_metrics([(own, sample.counters)])
    by_name: Dict[str, Metric] = {}
    for place, watched in enumerate(sampler.watched):
        texts = {**{figure.key: figure.meaning for figure in watched.figures}, **SUMS}
        guessed = table.list_estimates(watched, sampler.is_exact)
        for key, value in table.allocator_figures(watched, sample, place).items():
            told = texts[key] + (" (estimated)" if key in guessed and key in SUMS else "")
            metric = by_name.setdefault(key, Metric("allocator_" + key, told, []))
            metric.samples.extend(_list_known({**own, "allocator": make_printable(watched.info.id)}, value))
    return metrics + list(by_name.values())


def of_machine(followed: machine.Machine, moment: machine.MachineMoment, most: int) -> List[Metric]:
    """The counters of the `most` largest processes, and how many there are: what one scrape costs, and Prometheus keeps, is bounded."""
    running = sorted(followed.running_now(), key=lambda one: -one[2].resident_bytes)
    told = [(make_labels(pid, name, container), counters) for pid, name, counters, container in running[:most]]
    return [
        Metric("sample_timestamp_seconds", "when this was sampled", [({}, round(moment.unix_s, 3))]),
        Metric("processes", "processes that are followed", [({}, len(running))]),
        Metric("processes_left_out", "those of them that are too small to be among the series", [({}, max(0, len(running) - most))]),
        Metric("processes_unreadable", "processes that this user may not read", [({}, moment.unreadable)]),
        *_make_counter_metrics(told),
    ]


def _make_counter_metrics(of: Sequence[Tuple[Dict[str, str], ProcessCounters]]) -> List[Metric]:
    """Return the kernel's counters of each process as metrics."""
    return [
        Metric(key, told, [one for own, counters in of for one in _list_known(own, getattr(counters, field))])
        for key, (field, told) in PROCESS.items()
    ]


def _list_known(own: Dict[str, str], value: Optional[int]) -> List[Tuple[Dict[str, str], float]]:
    return [] if value is None else [(own, value)]


def openmetrics_text(metrics: List[Metric]) -> str:
    """Return the metrics as OpenMetrics text; a family without a series is left out."""
    lines: List[str] = []
    for metric in metrics:
        name = PREFIX + metric.name
        if metric.samples:
            lines += ["# TYPE %s %s" % (name, metric.kind), *(["# UNIT %s %s" % (name, metric.unit)] if metric.unit else [])]
            lines += ["# HELP %s %s" % (name, escape_metric_text(metric.help))]
        for own, value in metric.samples:
            lines.append("%s{%s} %s" % (name, ",".join('%s="%s"' % (key, escape_metric_text(told)) for key, told in own.items()), value))
    return "\n".join([*lines, "# EOF", ""])


class OpenMetrics:
    """A file that always holds the last sample, whole."""

    def __init__(self, path: str, sampler: Sampler) -> None:
        self._path, self._sampler = path, sampler
        self.end()

    def sample(self, sample: Sample) -> None:
        """Replace the file by this sample."""
        table.replace_whole_file(self._path, openmetrics_text(metrics_of_process(self._sampler, sample)))

    def end(self) -> None:
        """Write that nothing is watched any more: figures that stay would be taken for new ones."""
        table.replace_whole_file(self._path, openmetrics_text(metrics_of_process(self._sampler, None)))


INSTALL = "pip install 'gdbheapx[serve]', or prometheus_client; without it: watch --openmetrics FILE"
PATH = "/metrics"
OPEN_METRICS = "application/openmetrics-text"
MOST_SCRAPERS = 8
"""Connections at a time: for one more the oldest is closed."""
PATIENCE_S = 10.0
"""A connection ends after so long, whatever it has sent and taken."""


class ListenAddress(NamedTuple):
    """Address to listen at."""

    host: str
    port: int

    def __str__(self) -> str:
        return ("[%s]:%d" if ":" in self.host else "%s:%d") % self


class Endpoint:
    """Listens from the moment it is made, and serves whatever was published last."""

    def __init__(self, at: ListenAddress) -> None:
        """HeapxError where it cannot listen there, or the library is not here."""
        try:
            import prometheus_client
        except ImportError as error:
            why = " ".join(str(error).split())
            raise HeapxError(
                "serve requires prometheus_client, which cannot be imported (%s)" % why, INSTALL, code=MISSING_PACKAGE
            ) from None
        self._client: Any = prometheus_client
        self._metrics: List[Metric] = []
        self._ready: Dict[Tuple[bool, bool], Tuple[str, bytes]] = {}
        """The last sample as (content type, bytes), in the forms that were ever asked for, (as OpenMetrics, compressed): four at
        most, whatever scrapers accept."""
        self._making, self._counting = threading.Lock(), threading.Lock()
        self._registry = self._client.CollectorRegistry()
        self._registry.register(self)
        self._client.ProcessCollector(registry=self._registry)  # what this program itself costs
        self.scrapes = self.sent_bytes = self.samples = self.missed = 0
        try:
            self._server = MetricsServer(at, self)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or str(error)
            hint = "choose another with --listen ADDRESS:PORT"
            raise HeapxError("cannot listen at %s: %s" % (at, why), hint, code=CANNOT_LISTEN) from None
        self.at = ListenAddress(*self._server.socket.getsockname()[:2])
        threading.Thread(target=self._server.serve_forever, name="endpoint", daemon=True).start()

    @property
    def is_private(self) -> bool:
        """True if this machine's users alone reach it."""
        return ipaddress.ip_address(self.at.host.partition("%")[0]).is_loopback

    def publish(self, metrics: Sequence[Metric], samples: int, missed: int) -> None:
        """Serve these metrics from now on, encoded in advance; `samples` were taken so far, and `missed` were not in time."""
        with self._making:
            self.samples, self.missed = samples, max(self.missed, missed)
            of = {"version": __version__, "python": platform.python_version()}
            self._metrics = [
                *metrics,
                Metric("build_info", "the gdbheapx that serves this", [(of, 1)]),
                Metric("samples_total", "samples since it began", [({}, self.samples)], "counter"),
                Metric("samples_missed_total", "samples that were not taken in time", [({}, self.missed)], "counter"),
                Metric("scrapes_total", "scrapes that were answered until this sample", [({}, self.scrapes)], "counter"),
                Metric("sent_bytes_total", "bytes that were sent for them", [({}, self.sent_bytes)], "counter"),
            ]
            self._ready = {form: self._encode_form(*form) for form in self._ready}

    def collect(self) -> Iterator[Any]:
        """Yield the metric families to the library prometheus_client."""
        for metric in self._metrics:
            ending = "_total" if metric.kind == "counter" else ""
            name = PREFIX + metric.name[: len(metric.name) - len(ending)]
            family = self._client.Metric(name, metric.help, metric.kind, metric.unit)
            for labels, value in metric.samples:
                family.add_sample(name + ending, labels, value)
            if metric.samples:
                yield family

    def document(self, accept: str, is_compressed: bool) -> Tuple[str, bytes]:
        """Return (content type, text) as the client accepts it."""
        form = OPEN_METRICS in accept, is_compressed
        found = self._ready.get(form)
        if found is None:
            with self._making:
                found = self._ready[form] = self._ready.get(form) or self._encode_form(*form)
        with self._counting:
            self.scrapes, self.sent_bytes = self.scrapes + 1, self.sent_bytes + len(found[1])
        return found

    def _encode_form(self, is_open: bool, is_compressed: bool) -> Tuple[str, bytes]:
        encode, content = self._client.exposition.choose_encoder(OPEN_METRICS + "; version=1.0.0" if is_open else "")
        found = encode(self._registry)
        return content, gzip.compress(found, 5) if is_compressed else found

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()


class MetricsServer(socketserver.ThreadingMixIn, HTTPServer):
    """A thread for each of a few connections. Shutting one down ends its thread, whether it reads or writes."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, at: ListenAddress, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._begun: Dict[socket.socket, float] = {}
        """When each connection came, oldest first."""
        self._lock = threading.Lock()
        self.address_family = socket.getaddrinfo(*at, type=socket.SOCK_STREAM)[0][0]
        super().__init__(at, Scrape)

    def server_bind(self) -> None:
        """Bind without asking a name server for the own name."""
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Take one more connection, in place of the oldest where there are too many."""
        with self._lock:
            while len(self._begun) >= MOST_SCRAPERS:
                self._drop_connection(next(iter(self._begun)))
            self._begun[request] = time.monotonic()
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """End the connections whose time is over; called twice a second, and after each that comes."""
        with self._lock:
            for request in [one for one, begun in self._begun.items() if time.monotonic() - begun > PATIENCE_S]:
                self._drop_connection(request)

    def _drop_connection(self, request: socket.socket) -> None:
        del self._begun[request]
        try:
            request.shutdown(socket.SHUT_RDWR)
        except OSError:  # it has gone by itself
            pass

    def shutdown_request(self, request: Any) -> None:
        """Close a connection that is over."""
        with self._lock:
            self._begun.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that has gone."""


class Scrape(BaseHTTPRequestHandler):
    """HTTP request of a scraper."""

    server: MetricsServer
    server_version, sys_version = "gdbheapx", ""

    def do_GET(self) -> None:
        """The last sample at /metrics; where that is, at /."""
        path = self.path.partition("?")[0]
        if path == PATH:
            is_compressed = "gzip" in self.headers.get("Accept-Encoding", "")
            self._send_response(200, *self.server.endpoint.document(self.headers.get("Accept", ""), is_compressed), is_compressed)
        elif path == "/":
            self._send_response(200, "text/plain; charset=utf-8", b"gdbheapx: see %s\n" % PATH.encode())
        else:
            self._send_response(404, "text/plain; charset=utf-8", b"not found: see %s\n" % PATH.encode())

    do_HEAD = do_GET

    def _send_response(self, code: int, content: str, body: bytes, is_compressed: bool = False) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content)
        self.send_header("Content-Length", str(len(body)))
        if is_compressed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: a scrape is no news."""
