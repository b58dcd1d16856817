"""`census` of what libraries keep: OpenSSL's structures, as many as were made."""

import ctypes.util
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.support.processes import Process, Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # libraries that nobody here wrote; the rows are the tool's own

PYTHON = "/usr/bin/python3"
CONNECTIONS, CONTEXTS = 40, 7
TLS = """import os, socket, ssl, sys
accepts, connects = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
accepts.load_cert_chain("cert.pem", "key.pem")
connects.check_hostname, connects.verify_mode = False, ssl.CERT_NONE
others = [ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) for _ in range(%d)]
kept = []
for number in range(%d):
    sides = socket.socketpair()
    made = [connects.wrap_socket(sides[0], do_handshake_on_connect=False), accepts.wrap_socket(sides[1], server_side=True, do_handshake_on_connect=False)]
    for one in made:
        one.setblocking(False)
    done = set()
    while len(done) < 2:
        for one in made:
            try:
                one.do_handshake()
                done.add(one)
            except ssl.SSLWantReadError:
                pass
    kept += made
print("ready", flush=True)
sys.stdin.read()""" % (CONTEXTS, CONNECTIONS)
def started(stage: Stage, text: str, folder: Path, **environment: str) -> Process:
    """The system's own Python with this program, at rest."""
    if not Path(PYTHON).exists():
        pytest.skip("the system has no python3")
    process = stage.spawn([PYTHON, "-c", text], folder, environment)
    process.wait_ready()
    return process


def rows(process: Process, kind: str) -> Dict[str, Any]:
    """By signature."""
    found: List[Any] = heapx(process.target(kind), "census", "--json").envelope["data"]["rows"]
    return {row["signature"]: row for row in found if row["signature"] is not None}


def test_openssl(stage: Stage, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides of each connection, their contexts, and the certificate that each client got."""
    if not shutil.which("openssl") or not ctypes.util.find_library("ssl"):
        pytest.skip("openssl is not installed")
    folder = stage.folder()
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=localhost"]
    subprocess.run(make, check=True, capture_output=True, cwd=folder)
    monkeypatch.chdir(folder)
    found = rows(started(stage, TLS, folder), kind)
    assert found["SSL"]["blocks"] == 2 * CONNECTIONS
    assert found["SSL_CTX"]["blocks"] == CONTEXTS + 2
    assert found["X509"]["blocks"] == CONNECTIONS + 1
    assert found["X509_EXTENSION"]["blocks"] == 3 * (CONNECTIONS + 1)
    assert sum(row["blocks"] for name, row in found.items() if name.startswith("BIO")) >= CONNECTIONS
    assert {found[name]["sure"] for name in ("SSL", "SSL_CTX", "X509", "X509_EXTENSION")} == {"exact"}
