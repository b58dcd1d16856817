"""Streams of zlib and memory of Buffers, in programs that have as many as they say.

Files: addons/runtimes/block_headers.py, addons/runtimes/block_headers.py.
"""

from typing import Any, Dict, Sequence

import pytest

from tests.support.processes import Process, Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.wild  # node and java may not be here

BUFFERS, STREAMS, BUFFER_BYTES = 1500, 120, 40_000
NODE = """const zlib = require('zlib'), keep = [];
for (let i = 0; i < %d; i++) keep.push(Buffer.allocUnsafeSlow(%d).fill(i & 255));
let open = 2 * %d;
const done = () => { if (!--open) console.log('ready') };
const whole = zlib.deflateSync('x'.repeat(100000));
for (let i = 0; i < %d; i++) {
  const deflate = zlib.createDeflate(), inflate = zlib.createInflate();
  inflate.on('data', () => {});
  deflate.write('hello ' + i, done);
  inflate.write(whole.subarray(0, whole.length - 5), done);
  keep.push(deflate, inflate);
}
globalThis.keep = keep;
setInterval(() => {}, 1e6);
""" % (BUFFERS, BUFFER_BYTES, STREAMS, STREAMS)
JAVA = (
    """import java.util.*; import java.util.zip.*;
public class Zip {
    static List<Object> kept = new ArrayList<>();
    public static void main(String[] a) throws Exception {
        byte[] out = new byte[100000], packed = new byte[5000];
        Deflater once = new Deflater(); once.setInput(new byte[90000]); once.finish(); int n = once.deflate(packed); once.end();
        for (int i = 0; i < %d; i++) {
            Deflater d = new Deflater(); d.setInput(("hello " + i).getBytes()); d.deflate(out); kept.add(d);
            Inflater f = new Inflater(); f.setInput(packed, 0, n - 5); f.inflate(out); kept.add(f);
        }
        System.out.println("ready"); Thread.sleep(1L << 40);
    }
}
"""
    % STREAMS
)
PYTHON = "import zlib, sys; k = [zlib.compressobj() for _ in range(%d)]; [c.compress(b'x') for c in k]; print('ready', flush=True); sys.stdin.read()"
COMPRESSING, DECOMPRESSING = "state of a stream that compresses", "state of a stream that decompresses"


def started(stage: Stage, needs: str, command: Sequence[str], name: str = "unused", text: str = "") -> Process:
    return stage.spawn_text(name, text, [needs, *command])


def census(process: Process) -> Dict[str, Any]:
    """By signature."""
    return {row["signature"]: row for row in heapx(process.target("live"), "census", "--json").data["rows"]}


def test_node(stage: Stage) -> None:
    """Streams and Buffers as many as the program made, and a line for each sort in its table."""
    process = started(stage, "node", ["big.js"], "big.js", NODE)
    found = census(process)
    assert found[COMPRESSING]["blocks"] == STREAMS == found[DECOMPRESSING]["blocks"]
    assert found["buffers of a stream that compresses"]["bytes"] > STREAMS * (256 << 10)
    assert BUFFERS <= found["v8::BackingStore"]["blocks"] < 1.5 * BUFFERS
    (table,) = heapx(process.target("live"), "report", "--deep", "--json").data["runtimes"]
    lines = {row["name"].split(",")[0]: row["bytes"] for row in table["rows"]}
    assert table["name"] == "V8"
    assert BUFFERS * BUFFER_BYTES <= lines["malloc: memory of Buffers and ArrayBuffers"] < 1.2 * BUFFERS * BUFFER_BYTES
    assert lines["malloc: streams of zlib"] > STREAMS * (300 << 10)


def test_java(stage: Stage) -> None:
    """Deflater and Inflater."""
    process = started(stage, "java", ["-Xmx200m", "Zip.java"], "Zip.java", JAVA)
    found = census(process)
    assert STREAMS <= found[COMPRESSING]["blocks"] <= STREAMS + 2 and STREAMS <= found[DECOMPRESSING]["blocks"] <= STREAMS + 20
    (table,) = heapx(process.target("live"), "report", "--deep", "--json").data["runtimes"]
    assert [row["bytes"] for row in table["rows"] if row["name"] == "malloc: streams of zlib"][0] > STREAMS * (256 << 10)


def test_python(stage: Stage) -> None:
    """Any program with libz."""
    found = census(started(stage, "/usr/bin/python3", ["-c", PYTHON % STREAMS]))
    assert found[COMPRESSING]["blocks"] == STREAMS and DECOMPRESSING not in found
    assert found["buffers of a stream that compresses"]["blocks"] == 4 * STREAMS


def test_none_without_streams(stage: Stage) -> None:
    """A server that has libz and no stream."""
    found = census(
        started(
            stage,
            "/usr/bin/python3",
            ["-c", "import zlib, sys; k = [{i: str(i)} for i in range(200000)]; print('ready', flush=True); sys.stdin.read()"],
        )
    )
    assert not {COMPRESSING, DECOMPRESSING} & set(found)
