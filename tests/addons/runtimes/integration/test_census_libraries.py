"""`census` of what libraries keep: OpenSSL's structures, GLib's instances, structures with a table of their library, as many as were made.

`census` of runtimes whose blocks are told by one row each, and which JavaScript holds node's ArrayBuffers.

Files: addons/runtimes/block_headers.py, addons/runtimes/openssl.py, addons/runtimes/v8/__init__.py, addons/runtimes/v8/buffer_holders.py,
analysis/census/registry.py.
"""

import ctypes.util
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.support.gcores import gcore
from tests.support.javas import JAVA
from tests.support.processes import Process, Stage, by_turns
from tests.support.programs import need
from tests.support.tool import alone, heapx

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

INSIDE = """#include <openssl/ssl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>
#define ROWS "create table t(a); with recursive c(x) as (select 1 union all select x+1 from c where x<4000) insert into t select hex(zeroblob(50)) from c"
SSL *kept[%d];
z_stream streams[%d];
int main(void)
{
    SSL_CTX *context = SSL_CTX_new(TLS_method());
    sqlite3 *database;
    sqlite3_open(":memory:", &database);
    sqlite3_exec(database, ROWS, 0, 0, 0);
    for (int at = 0; at < %d; at++) {
        kept[at] = SSL_new(context);
        deflateInit(&streams[at], 6);
    }
    puts("ready");
    fflush(stdout);
    pause();
}
""" % (CONNECTIONS, CONNECTIONS, CONNECTIONS)

SMALL, LARGE, FREED = 3000, 120, 1000

TYPES = """import ctypes, sys
gobject = ctypes.CDLL("libgobject-2.0.so.0")
for name in ("g_object_get_type", "g_type_register_static_simple", "g_object_new"):
    getattr(gobject, name).restype = ctypes.c_size_t
register, private, new = gobject.g_type_register_static_simple, gobject.g_type_add_instance_private, gobject.g_object_new
register.argtypes = [ctypes.c_size_t, ctypes.c_char_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_uint]
private.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
new.argtypes = [ctypes.c_size_t, ctypes.c_void_p]
gobject.g_object_unref.argtypes = [ctypes.c_size_t]
base = gobject.g_object_get_type()
def made(name, size, hidden):
    found = register(base, name, 136, None, size, None, 0)
    if hidden:
        private(found, hidden)
    return found
small, hiding, large = made(b"SmallThing", 40, 0), made(b"HidingThing", 72, 100), made(b"LargeThing", 3000, 0)
kept = [new(one, None) for _ in range(%d) for one in (small, hiding)] + [new(large, None) for _ in range(%d)]
for one in kept[2 : 2 + 2 * %d : 2]:
    gobject.g_object_unref(one)
print("ready", flush=True)
sys.stdin.read()""" % (SMALL, LARGE, FREED)

UNUSED = """import ctypes, sys
loaded = [ctypes.CDLL(name) for name in ("libssl.so.3", "libgobject-2.0.so.0")]
kept = [{"a": n, "b": "s%d" % n, "c": [n, float(n)]} for n in range(20000)], [bytearray(n % 300 + 1) for n in range(5000)]
print("ready", flush=True)
sys.stdin.read()"""


def started(stage: Stage, text: str, folder: Path, **environment: str) -> Process:
    """The system's own Python with this program, at rest."""
    if not Path(PYTHON).exists():
        pytest.skip("the system has no python3")
    return stage.spawn_ready([PYTHON, "-c", text], folder, environment)


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
    assert found["SSL_SESSION"]["blocks"] == 2 * CONNECTIONS
    assert found["X509"]["blocks"] == CONNECTIONS + 1
    assert found["X509_EXTENSION"]["blocks"] == 3 * (CONNECTIONS + 1)
    assert sum(row["blocks"] for name, row in found.items() if name.startswith("BIO")) >= CONNECTIONS
    assert {found[name]["sure"] for name in ("SSL", "SSL_CTX", "X509", "X509_EXTENSION")} == {"exact"}


def test_inside_a_program(stage: Stage, kind: str) -> None:
    """OpenSSL, SQLite and zlib are known by their form: here a stripped program of another name, at a fixed address, has all three inside."""
    folder = stage.folder()
    (folder / "inside.c").write_text(INSIDE)
    libraries = ["-Wl,-Bstatic", "-lssl", "-lcrypto", "-lsqlite3", "-lz", "-Wl,-Bdynamic", "-lm", "-ldl", "-pthread"]
    made = shutil.which("gcc") and subprocess.run(
        ["gcc", "-no-pie", "-s", "-o", "app", "inside.c", *libraries], cwd=folder, capture_output=True
    )
    if not made or made.returncode:
        pytest.skip("libssl.a, libsqlite3.a or libz.a is not installed")
    process = stage.spawn_ready([str(folder / "app")], folder)
    found = rows(process, kind)
    assert (found["SSL"]["blocks"], found["SSL_CTX"]["blocks"]) == (CONNECTIONS, 1)
    assert found["state of a stream that compresses"]["blocks"] == CONNECTIONS
    assert found["page of 4096 bytes in SQLite's cache"]["blocks"] > CONNECTIONS


@by_turns("slices", ["GSlice", "malloc"])
def test_instances(stage: Stage, kind: str, slices: str) -> None:
    """With and without private data, small ones cut from GSlice's pages and those that are blocks of malloc's; freed ones are none."""
    if not ctypes.util.find_library("gobject-2.0"):
        pytest.skip("GLib is not installed")
    environment = {"G_SLICE": "always-malloc"} if slices == "malloc" else {}
    found = rows(started(stage, TYPES, stage.folder(), **environment), kind)
    assert found["SmallThing"]["blocks"] == SMALL - FREED
    assert found["HidingThing"]["blocks"] == SMALL
    assert found["LargeThing"]["blocks"] == LARGE
    assert {found[name]["sure"] for name in ("SmallThing", "HidingThing", "LargeThing")} == {"exact"}


def test_loaded_and_not_used(stage: Stage, kind: str) -> None:
    """A process with both libraries has none of their structures as long as nobody makes one."""
    if not ctypes.util.find_library("gobject-2.0") or not ctypes.util.find_library("ssl"):
        pytest.skip("GLib or OpenSSL is not installed")
    found = rows(started(stage, UNUSED, stage.folder(), PYTHONMALLOC="malloc"), kind)
    assert not [row for row in found.values() if row["module"] in ("openssl", "glib") and row["sure"] == "exact"]


def test_tables(stage: Stage, kind: str) -> None:
    """A constant that structures of one size share is named; one that three share is not, nor one that sizes of all sorts share, nor a text,
    nor what belongs to libc."""
    process = stage.start("tables")
    found = rows(process, kind)
    told = {name: row for name, row in found.items() if name.startswith("points at")}
    assert [row["blocks"] for row in told.values()] == [200]
    name, row = next(iter(told.items()))
    assert name.endswith("(+0x8)") and "tables" in name
    assert row["sure"] == "place"

STILL = ("Symbol", "Module", "Other", "Metaspace")
"""Kinds of memory that neither the JIT nor jcmd itself takes between two looks."""


def rows_of(process: Process) -> Dict[str, Any]:
    """By signature."""
    return {row["signature"]: row for row in alone(process.target("live"), "census", "--json").envelope["data"]["rows"]}


def test_java(stage: Stage) -> None:
    """Blocks by the tag in their headers are as many as jcmd says."""
    need("jcmd")
    process = stage.spawn_text("Big.java", JAVA, ["java", "-Xmx256m", "-XX:NativeMemoryTracking=summary", "Big.java"])
    found = rows_of(process)
    told = subprocess.run(["jcmd", str(process.pid), "VM.native_memory", "summary", "scale=b"], capture_output=True, text=True).stdout
    counts = dict(re.findall(r"- +([A-Z][A-Za-z ]+?) \(reserved.*\n(?:(?! *-).*\n)*? +\(malloc=\d+ #(\d+)\)", told))
    for name in STILL:
        assert found["NMT " + name]["blocks"] == int(counts[name]), (name, told)
    named = sum(row["bytes"] for row in found.values() if row["module"] == "jvm")
    assert named >= sum(row["bytes"] for row in found.values()) * 0.9


def test_perl(stage: Stage) -> None:
    """Arenas of heads hold the program's scalars."""
    need("perl")
    process = stage.spawn_ready(["perl", "-e", '$| = 1; @kept = map { [$_] } 1 .. 50000; print "ready\\n"; sleep 1000'])
    arenas = rows_of(process)["arena of 170 SV heads"]["blocks"]
    assert 150_000 <= 170 * arenas <= 250_000  # an array, a reference to it and a number each

PROGRAM = (Path(__file__).parents[1] / "programs" / "rows.js").read_text()

HELD = {
    "ArrayBuffer of cache.get() (Map) in shop.js": (1000, 40000),
    "ArrayBuffer of store.items[] (Store) in shop.js": (300, 30000),
    "ArrayBuffer of globalThis.shared[] (Array)": (100, 24000),
}


@pytest.mark.parametrize("kind", ["live", "core"])
def test_holders_of_buffers(stage: Stage, kind: str) -> None:
    """Each group has its buffers, and what malloc has for them; a block of one is held by its Map's name and key."""
    process = stage.spawn_text("shop.js", PROGRAM, ["node", "--expose-gc", "shop.js"])
    target = process.target("live") if kind == "live" else ["--core", str(gcore(process)), "--exe", str(Path(need("node")).resolve())]
    data = heapx(target, "owners", "--json").data
    fields = {row["field"]: row for row in data["fields"]}
    if not fields:
        pytest.skip("this node exports no v8dbg_ constants that are known")
    for name, (count, size) in HELD.items():
        assert fields[name]["blocks"] == fields[name]["objects"] == count
        assert count * size <= fields[name]["bytes"] <= count * (size + 64)
        assert fields[name]["runtime"] == "JavaScript" and fields[name]["garbage_objects"] is None
    assert fields["ArrayBuffer of cache.get() (Map) in shop.js"]["retained_bytes"] >= 0.9 * 40000 * 1000
    blocks = heapx(target, "chunks", "--min-size", "40000", "--max-size", "40064", "--limit", "3", "--json").data["chunks"]
    texts = [heapx(target, "refs", "0x%x" % (int(block["address"], 16) + 16)).stdout.decode() for block in blocks]
    assert any('<- ArrayBuffer of cache.get("key' in text for text in texts)
