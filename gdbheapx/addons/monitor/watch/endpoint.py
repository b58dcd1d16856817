"""The last sample over HTTP, where Prometheus scrapes it. A scrape reads no process: it gets what the last sample left.

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
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from gdbheapx import __version__
from gdbheapx.addons.monitor.watch.openmetrics import PREFIX, Metric
from gdbheapx.errors import HeapxError
from gdbheapx.problems import CANNOT_LISTEN, MISSING_PACKAGE

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


class Form(NamedTuple):
    """Format in which a scrape may request the metrics."""

    is_open: bool
    """As OpenMetrics; else as the text format that was before it."""
    is_compressed: bool


class Endpoint:
    """Listens from the moment it is made, and serves whatever was published last."""

    def __init__(self, at: ListenAddress) -> None:
        """HeapxError where it cannot listen there, or the library is not here."""
        self._client = _import_client()
        self._metrics: List[Metric] = []
        self._ready: Dict[Form, Tuple[str, bytes]] = {}
        """The last sample as (content type, bytes), in the forms that were ever asked for: four at most, whatever scrapers accept."""
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
            self._metrics = [*metrics, *self._make_own_metrics()]
            self._ready = {form: self._encode_form(form) for form in self._ready}

    def _make_own_metrics(self) -> List[Metric]:
        of = {"version": __version__, "python": platform.python_version()}
        return [
            Metric("build_info", "the gdbheapx that serves this", [(of, 1)]),
            Metric("samples_total", "samples since it began", [({}, self.samples)], "counter"),
            Metric("samples_missed_total", "samples that were not taken in time", [({}, self.missed)], "counter"),
            Metric("scrapes_total", "scrapes that were answered until this sample", [({}, self.scrapes)], "counter"),
            Metric("sent_bytes_total", "bytes that were sent for them", [({}, self.sent_bytes)], "counter"),
        ]

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
        form = Form(OPEN_METRICS in accept, is_compressed)
        found = self._ready.get(form)
        if found is None:
            with self._making:
                found = self._ready[form] = self._ready.get(form) or self._encode_form(form)
        with self._counting:
            self.scrapes, self.sent_bytes = self.scrapes + 1, self.sent_bytes + len(found[1])
        return found

    def _encode_form(self, form: "Form") -> Tuple[str, bytes]:
        encode, content = self._client.exposition.choose_encoder(OPEN_METRICS + "; version=1.0.0" if form.is_open else "")
        found = encode(self._registry)
        return content, gzip.compress(found, 5) if form.is_compressed else found

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


def _import_client() -> Any:
    """prometheus_client. HeapxError where it is not installed."""
    try:
        import prometheus_client
    except ImportError as error:
        why = " ".join(str(error).split())
        raise HeapxError("serve requires prometheus_client, which cannot be imported (%s)" % why, INSTALL, code=MISSING_PACKAGE) from None
    return prometheus_client
