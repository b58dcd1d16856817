"""`fleet` over object storage: S3 by a server of this machine (moto), here and on a cluster whose workers fetch by themselves."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

from tests.support.processes import Stage
from tests.support.tool import heapx

for module, package in (("moto", "moto[server]"), ("s3fs", "s3fs"), ("distributed", "distributed")):
    pytest.importorskip(module, reason="%s is not installed" % package)
pytestmark = pytest.mark.wild  # moto, s3fs and what they need

SETTINGS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A bucket on a server that runs as long as the test; what is started finds it by its environment."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    for name, value in {**SETTINGS, "AWS_ENDPOINT_URL": "http://127.0.0.1:" + port}.items():
        monkeypatch.setenv(name, value)
    server = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", port], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    import s3fs

    system = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
    until = time.monotonic() + 30
    while True:
        try:
            system.mkdir("heap")
            break
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.1)
    yield system
    server.terminate()
    server.wait()


@pytest.mark.parametrize("where", ["here", "cluster"])
def test_snapshots_and_cores_in_a_bucket(stage: Stage, bucket: Any, where: str, tmp_path: Path) -> None:
    """Taken to the bucket, and read from there: the figures of the core itself; what is ruined is a row, and a second run keeps what is whole until
    its object is another."""
    core = stage.start("contents").core()
    assert heapx(["--core", str(core)], "snapshot", "s3://heap/new/a.snap").code == 0
    bucket.put_file(str(core), "heap/new/b.core")
    bucket.pipe_file("heap/new/cut.snap", bucket.cat_file("heap/new/a.snap")[:-3])
    out, words = str(tmp_path / "out"), ["s3://heap/*/*", "s3://heap/gone.snap", str(core)]
    started = []
    try:
        if where == "cluster":
            file = tmp_path / "scheduler.json"
            dask = [sys.executable, "-m", "dask"]
            started.append(subprocess.Popen([*dask, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]))
            started.append(subprocess.Popen([*dask, "worker", "--scheduler-file", str(file), "--nthreads", "1", "--no-dashboard"], cwd=tmp_path))
            until = time.monotonic() + 60
            while not (file.exists() and file.read_text().strip().endswith("}")):
                assert time.monotonic() < until
                time.sleep(0.1)
            words += ["--dask", json.loads(file.read_text())["address"]]
        outcome = heapx([], "fleet", *words, "-o", out, "--json")
        rows = {row["core"]: row for row in outcome.envelope["data"]["rows"]}
        whole = rows[os.path.realpath(core)]
        for name in ("s3://heap/new/a.snap", "s3://heap/new/b.core"):
            assert (rows[name]["used_bytes"], rows[name]["kept_bytes"], rows[name]["error"]) == (whole["used_bytes"], whole["kept_bytes"], None)
        assert outcome.code == 4 and len(rows) == 5 and "was cut" in rows["s3://heap/new/cut.snap"]["error"] and rows["s3://heap/gone.snap"]["error"]
        before = {row["core"]: os.stat(row["document"]).st_mtime_ns for row in rows.values() if row["error"] is None}
        bucket.pipe_file("heap/new/b.core", b"another")
        again = heapx([], "fleet", *words, "-o", out, "--json").envelope["data"]["rows"]
        assert {row["core"] for row in again if row["error"] is None} == set(before) - {"s3://heap/new/b.core"}
        assert all(os.stat(row["document"]).st_mtime_ns == before[row["core"]] for row in again if row["error"] is None)
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()
