"""BIND's server: its memory contexts, against its own statistics channel, live and in a core without its files."""

import json
import shutil
import socket
import struct
import subprocess
import time
import urllib.request
from typing import Any, Dict, Iterator, List

import pytest

from tests.support.paths import ROOT
from tests.support.processes import Process, Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.wild  # a server that may not be here

CONF = """options { directory "%(folder)s"; listen-on port %(dns)d { 127.0.0.1; }; listen-on-v6 { none; }; pid-file none;
  session-keyfile "%(folder)s/key"; dnssec-validation no; recursion yes; forwarders { 127.0.0.1 port 1; }; forward only; };
zone "big.example" { type master; file "%(folder)s/zone"; };
statistics-channels { inet 127.0.0.1 port %(http)d allow { 127.0.0.1; }; };
controls { };
"""
ZONE = "$TTL 300\n@ IN SOA ns.example. r.example. 1 3600 900 604800 300\n@ IN NS ns.example.\n"
RECORDS, READY_S = 20000, 60
FIGURES = {
    "name": "name",
    "references": "references",
    "inuse": "inuse_bytes",
    "malloced": "malloced_bytes",
    "maxmalloced": "most_malloced_bytes",
    "pools": "pools",
    "hiwater": "hi_water_bytes",
}
"""Members of the channel's /json/v1/mem, and ours."""
OF_THE_CHANNEL = ("main", "loop-00000000", "loop-00000001")
"""Contexts that have memory of the connection by which the channel is asked, while it is."""
MOST_OF_THE_CHANNEL_BYTES = 1 << 20


class Server:
    """A server at rest with a zone of many records."""

    def __init__(self, stage: Stage) -> None:
        program = shutil.which("named", path="/usr/sbin:/usr/local/sbin:/usr/bin:%s" % (ROOT / ".cache/named/usr/sbin"))
        if program is None:
            pytest.skip("named is not installed")
        folder = stage.folder()
        self.dns, self.http = _free_port(), _free_port()
        (folder / "zone").write_text(ZONE + "".join("h%d IN A 10.0.%d.%d\n" % (n, n >> 8 & 255, n & 255) for n in range(RECORDS)))
        (folder / "named.conf").write_text(CONF % {"folder": folder, "dns": self.dns, "http": self.http})
        self.process: Process = stage.spawn([program, "-g", "-n", "2", "-c", str(folder / "named.conf")], folder)
        deadline = time.monotonic() + READY_S
        while not self._is_loaded():
            assert time.monotonic() < deadline, "named does not answer"
            time.sleep(0.2)

    def _is_loaded(self) -> bool:
        try:
            return bool(self.ask("h7.big.example")[3] & 0xF == 0)
        except OSError:
            return False

    def ask(self, name: str) -> bytes:
        """The answer."""
        question = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.settimeout(5)
            asking.connect(("127.0.0.1", self.dns))
            asking.send(struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + question + b"\0\0\1\0\1")
            return asking.recv(4096)

    def contexts(self) -> List[Dict[str, Any]]:
        """As the channel tells them."""
        with urllib.request.urlopen("http://127.0.0.1:%d/json/v1/mem" % self.http, timeout=10) as answer:
            return list(json.load(answer)["memory"]["contexts"])


def _free_port() -> int:
    with socket.socket() as trying:
        trying.bind(("127.0.0.1", 0))
        return int(trying.getsockname()[1])


@pytest.fixture
def server(stage: Stage) -> Iterator[Server]:
    """It runs for one test."""
    yield Server(stage)


def compare(books: Dict[str, Any], before: List[Dict[str, Any]], after: List[Dict[str, Any]]) -> int:
    """How many figures are equal; each must be that stood still, but for the memory of the channel itself."""
    told, equal = {row["address"]: row for row in books["contexts"]}, 0
    assert set(told) == {row["id"] for row in before}
    for was, now in zip(before, after):
        for theirs, ours in FIGURES.items():
            figure = told[was["id"]][ours]
            if theirs not in was or figure is None or was[theirs] != now[theirs]:
                continue
            if was[theirs] != figure and was["name"] in OF_THE_CHANNEL and theirs in ("references", "inuse", "malloced"):
                assert 0 < was[theirs] - figure < MOST_OF_THE_CHANNEL_BYTES
                continue
            assert was[theirs] == figure, (was["name"], theirs, was[theirs], figure)
            equal += 1
    return equal


def test_contexts(server: Server, stage: Stage) -> None:
    """Every figure of every context is the channel's own, live, and in a core of which no file is at hand; tasks or loops are there."""
    time.sleep(2)  # what loading the zone began has ended
    before = server.contexts()
    live = heapx(server.process.target("live"), "report", "--json").data["books"]
    after = server.contexts()
    assert compare(live, before, after) >= 4 * len(before)
    path = stage.folder() / "core"
    subprocess.run(["gcore", "-o", str(path), str(server.process.pid)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    core = ["--core", "%s.%d" % (path, server.process.pid), "--sysroot", str(stage.folder()), "--no-debug-info"]
    found = heapx(core, "report", "--no-deep", "--json").envelope["data"]["books"]
    assert compare(found, before, server.contexts()) >= 4 * len(before)
    assert [row["name"] for row in found["queues"]] == [row["name"] for row in live["queues"]] != []
    assert 0.5 * live["used_bytes"] < live["sum_bytes"] <= live["used_bytes"]
    blocks = [row["blocks"] for row in live["contexts"]]
    assert None in blocks or 2 * RECORDS <= max(blocks) < 3 * RECORDS  # the zone's: a node and its data for each record


def test_diff_tells_which_context_grew(server: Server, stage: Stage) -> None:
    """Names that are asked for grow `main`, a view's or the clients' contexts; what stood still is not told."""
    old, new = (stage.folder() / name for name in ("old", "new"))
    heapx(server.process.target("live"), "snapshot", str(old))
    for number in range(300):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.sendto(
                struct.pack(">HHHHHH", number, 0x100, 1, 0, 0, 0) + b"\4q%03d\5other\4test\0\0\1\0\1" % number, ("127.0.0.1", server.dns)
            )
    time.sleep(1)
    heapx(server.process.target("live"), "snapshot", str(new))
    rows = heapx([], "diff", str(old), str(new), "--json").data["contexts"]
    assert rows and rows[0]["diff_bytes"] > 0 and all(row["diff_bytes"] for row in rows)
    assert not [row for row in rows if row["what"].startswith("zonemgr")]
