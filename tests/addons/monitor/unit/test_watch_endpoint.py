"""What `serve` answers: the last sample, in the form that is asked for, however many ask and whatever they send.

Files: addons/monitor/watch/endpoint.py.
"""

import gzip
import http.client
import socket
import threading
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest

from gdbheapx.addons.monitor.memory_group import InContainer
from gdbheapx.addons.monitor.watch import endpoint, machine
from gdbheapx.addons.monitor.watch.counters import ProcessCounters
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.problems import CANNOT_LISTEN
from tests.support.hostile import HOSTILE

parser = pytest.importorskip("prometheus_client.openmetrics.parser", reason="prometheus_client is not installed")

MB = 1 << 20
UID, ID = "0f1e2d3c-1111-2222-3333-444455556666", "ab" * 32
DOCUMENT = "application/openmetrics-text; version=1.0.0"


@pytest.fixture
def served() -> Iterator[endpoint.Endpoint]:
    """On a port that is free."""
    made = endpoint.Endpoint(endpoint.ListenAddress("127.0.0.1", 0))
    yield made
    made.close()


def ask(of: endpoint.Endpoint, path: str = "/metrics", method: str = "GET", **headers: str) -> Tuple[int, Dict[str, str], bytes]:
    """Status, headers and what came."""
    connection = http.client.HTTPConnection(of.at.host, of.at.port, timeout=30)
    connection.request(method, path, headers={key.replace("_", "-"): value for key, value in headers.items()})
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return found


def series(text: str) -> Dict[str, List[Any]]:
    """Samples by name, as Prometheus' own parser for OpenMetrics has them."""
    found: Dict[str, List[Any]] = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


def ours(body: bytes) -> List[bytes]:
    """Without what the library says of this process, which differs from moment to moment."""
    return [line for line in body.splitlines() if line.startswith(b"gdbheapx")]


def one(name: str, container: InContainer = InContainer()) -> List[endpoint.Metric]:  # noqa: B008
    """Metrics of one process."""
    return [endpoint.Metric("rss_bytes", "resident memory", [(endpoint.make_labels(7, name, container), 20 * MB)])]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_stays_one_label(served: endpoint.Endpoint, name: str) -> None:
    """Whatever a program calls itself, the parser finds one series, and nothing that drives a terminal."""
    served.publish(one(name), 1, 0)
    status, _, body = ask(served, Accept=DOCUMENT)
    (sample,) = series(body.decode())["gdbheapx_rss_bytes"]
    assert status == 200 and (sample.labels["pid"], sample.value) == ("7", 20 * MB) and sample.labels.get("name", "x").isprintable()
    assert b"\x1b" not in body


def test_the_file_has_the_same_series(served: endpoint.Endpoint) -> None:
    """What is served and what watch --openmetrics writes is equal, but for the endpoint's own figures."""
    metrics = one('a"\\\nb', InContainer(ID, UID))
    served.publish(metrics, 1, 0)
    told = series(ask(served, Accept=DOCUMENT)[2].decode())
    assert {key: value for key, value in told.items() if key == "gdbheapx_rss_bytes"} == series(endpoint.openmetrics_text(metrics))
    assert told["gdbheapx_rss_bytes"][0].labels["pod_uid"] == UID


def test_its_own_figures(served: endpoint.Endpoint) -> None:
    """Build, samples, scrapes and bytes until the last sample, and what the process costs."""
    served.publish([], 1, 0)
    size = len(ask(served)[2])
    served.publish([], 5, 2)
    served.publish([], 6, 1)
    told = series(ask(served, Accept=DOCUMENT)[2].decode())
    keys = ("samples_total", "samples_missed_total", "scrapes_total", "sent_bytes_total", "build_info")
    assert [told["gdbheapx_" + key][0].value for key in keys] == [6, 2, 1, size, 1]
    assert told["process_cpu_seconds_total"][0].value > 0 and told["process_resident_memory_bytes"][0].value > MB


def test_a_scrape_makes_nothing_anew(served: endpoint.Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ask, each form is made once for a sample, and of a new one before anybody asks; what else they accept makes no other form."""
    made: List[int] = []
    monkeypatch.setattr(served, "collect", lambda: made.append(1) or iter(()))
    served.publish(one("app"), 1, 0)
    bodies = {ask(served, Accept_Encoding="gzip")[2] for _ in range(20)}
    assert len(made) == len(bodies) == 1
    served.publish(one("app"), 2, 0)
    assert len(made) == 2
    for number in range(20):
        ask(served, Accept_Encoding="gzip", Accept="text/plain; version=1.0.%d; escaping=x" % number)
        ask(served, Accept="%s%d" % (DOCUMENT, number))
    assert len(made) == 3


def test_what_is_asked_for(served: endpoint.Endpoint) -> None:
    """Text as Prometheus of old reads it, or OpenMetrics; compressed where that is taken; a HEAD has no body; elsewhere is nothing."""
    served.publish(one("app"), 1, 0)
    plain, opened, packed = ask(served), ask(served, Accept=DOCUMENT), ask(served, "/metrics?x=1", Accept_Encoding="gzip, deflate")
    assert plain[1]["Content-Type"].startswith("text/plain") and opened[1]["Content-Type"].startswith("application/openmetrics-text")
    assert opened[2].endswith(b"# EOF\n") and packed[1]["Content-Encoding"] == "gzip" and ours(gzip.decompress(packed[2])) == ours(plain[2])
    assert ask(served, method="HEAD")[2] == b"" and int(ask(served, method="HEAD")[1]["Content-Length"]) == len(plain[2])
    assert ours(plain[2])
    assert [ask(served, path)[0] for path in ("/", "/metrics/", "/../etc/passwd")] == [200, 404, 404]
    assert ask(served, method="POST")[0] == 501


def test_more_scrapers_than_it_serves(served: endpoint.Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who connect and send nothing, or a letter now and then, keep nobody out: the oldest goes for one more."""
    monkeypatch.setattr(endpoint, "PATIENCE_S", 600.0)
    served.publish(one("app"), 1, 0)
    slow = [socket.create_connection(served.at, timeout=30) for _ in range(endpoint.MOST_SCRAPERS + 2)]
    for each in slow:
        each.send(b"GET /metrics")
    assert ask(served)[0] == 200 and [gone.recv(1) for gone in slow[:3]] == [b""] * 3
    slow[-1].send(b" HTTP/1.0\r\n\r\n")
    assert slow[-1].recv(12) == b"HTTP/1.0 200"
    for each in slow:
        each.close()


def test_a_connection_has_one_deadline(served: endpoint.Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it has sent by then it is closed, also one that takes nothing of its answer; nothing is kept of it."""
    slow = socket.create_connection(served.at, timeout=30)
    for _ in range(3):
        slow.send(b"G")
    monkeypatch.setattr(endpoint, "PATIENCE_S", -1.0)
    assert slow.recv(1) == b""
    slow.close()
    for _ in range(600):
        if not served._server._begun:
            break
        threading.Event().wait(0.05)
    assert not served._server._begun


def test_a_port_in_use(served: endpoint.Endpoint) -> None:
    """An error with its code; so is an address of another machine, and a name that nobody has."""
    for at in (served.at, endpoint.ListenAddress("192.0.2.1", 1), endpoint.ListenAddress("no.such.host.invalid", 1)):
        with pytest.raises(HeapxError, match="cannot listen at ") as told:
            endpoint.Endpoint(at)
        assert told.value.code == CANNOT_LISTEN


def test_who_reaches_it() -> None:
    """127.0.0.1 is this machine's own; 0.0.0.0 is not."""
    for host, is_private in (("127.0.0.1", True), ("0.0.0.0", False)):
        made = endpoint.Endpoint(endpoint.ListenAddress(host, 0))
        made.close()
        assert made.is_private is is_private


class Told:
    """Counters that a test gives, and takes away."""

    gone: "set[int]" = set()

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def name(self) -> str:
        return "p%d" % self._pid

    def read(self) -> Any:
        return None if self._pid in self.gone else ProcessCounters(self._pid * MB, self._pid * MB, None, 1, None, 9 * MB)

    def container(self) -> InContainer:
        return InContainer(ID if self._pid == 5 else None)

    pages = pressure = None


def test_a_machine_is_bounded(tmp_path: Path, served: endpoint.Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest are among the series, with their container, and the others are counted; those that ended go away; what is not known is left out."""
    for pid in range(1, 6):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "statm").write_text("9 9 9 9 0 9 0")
    followed = machine.Machine("ALL", Told, str(tmp_path), is_judged=False)  # type: ignore[arg-type]
    monkeypatch.setattr(Told, "gone", set())

    def told(at: float) -> Dict[str, List[Any]]:
        followed.sample(at)
        moment = machine.MachineMoment("machine", 1e9, at, 1, followed.running, followed.unreadable, ())
        served.publish(endpoint.of_machine(followed, moment, 2), 1, 0)
        return series(ask(served, Accept=DOCUMENT)[2].decode())

    first = told(0.0)
    assert [sample.labels for sample in first["gdbheapx_rss_bytes"]] == [
        {"pid": "5", "name": "p5", "container_id": ID},
        {"pid": "4", "name": "p4"},
    ]
    assert (first["gdbheapx_processes"][0].value, first["gdbheapx_processes_left_out"][0].value) == (5, 3)
    assert "gdbheapx_swapped_bytes" not in first and first["gdbheapx_peak_bytes"][0].value == 9 * MB
    Told.gone = {4, 5}
    for pid in Told.gone:
        (tmp_path / str(pid) / "statm").write_text("0 0 0 0 0 0 0")
    assert [sample.labels["pid"] for sample in told(1.0)["gdbheapx_rss_bytes"]] == ["3", "2"]
    assert {row.pid for row in followed.rows()} == {1, 2, 3}, "nothing is kept of those that ended"
