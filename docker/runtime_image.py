"""Builds the image for users and tries it: on processes in other containers of every release, on a process of the host, on a mounted core;
by snapshots of these, too, with the image's gdb and without it; and by every line of docs/how-to/containers.md (howto_page.py).

python3 docker/runtime_image.py [SUITE...]    the images of the matrix, which must be there; all by default
python3 docker/runtime_image.py --page        the lines of the page alone
python3 docker/runtime_image.py --save FILE   the image as a file, its digest printed; tried by the page alone
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Sequence

from cross_cores import Image, checkout, container
from engine import Engine, NoEngine
from images import pip_certificate

ROOT = Path(__file__).resolve().parent.parent
VERSION = re.search(r'__version__ = "([^"]+)"', (ROOT / "gdbheapx" / "common" / "__init__.py").read_text()).group(1)  # type: ignore[union-attr]
NO_ENGINE = 3
TAG = "gdbheapx"
PAGE_SUITE = "bookworm"
"""The page's examples are of this release."""

Say = Callable[[str], None]


class Case(NamedTuple):
    """One use of the image."""

    name: str
    good: bool
    details: str


def build(base: str, tag: str = TAG) -> None:
    """Build the image on `base`, with the engine's classic builder, which needs no plugin and takes images that are in no registry."""
    revision = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    given = {"BASE": base, "VERSION": VERSION, "REVISION": revision}
    words = ["docker", "build", "--network", "host", "-q", "-t", tag, "-f", "docker/Dockerfile", "."]
    words[2:2] = [word for name, value in given.items() for word in ("--build-arg", "%s=%s" % (name, value))]
    certificate = ROOT / "pip.cert"
    trusted = pip_certificate()
    try:
        if trusted is not None:
            certificate.write_bytes(trusted)
        done = subprocess.run(words, cwd=ROOT, env=dict(os.environ, DOCKER_BUILDKIT="0"), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    finally:
        if trusted is not None:
            certificate.unlink()
    if done.returncode != 0:
        raise RuntimeError("docker build: " + (done.stdout + done.stderr)[-4000:])


def attempt(client: Any, images: Sequence[Image], say: Say) -> List[Case]:
    """Try every use."""
    cases: List[Case] = []
    volume = client.volumes.create("gdbheapx-runtime-%d" % os.getpid())
    try:
        for image in images:
            say("a process of %s" % image.name)
            with container(client, image, volume.name) as other:
                cases += in_container(client, image, other, volume.name)
        say("a process of the host")
        cases.append(on_host(client))
    finally:
        volume.remove(force=True)
    return cases


def in_container(client: Any, image: Image, other: Any, volume: str) -> List[Case]:
    """A process in another container: seen with the host's pids, with the container's pids, and from its core."""
    other.put_archive("/exchange", checkout())
    code, output = other.exec_run(
        ["sh", "-c", "cd /exchange && rm -rf left && mkdir left && cd left && PYTHONPATH=/exchange/src python3 ../src/docker/core_exchange.py leave /exchange/left"]
    )
    assert code == 0, output
    other.exec_run(["sh", "-c", "sleep infinity | /srv/recorder /tmp/record 5 300 3 >/tmp/said"], detach=True)
    other.exec_run(["sh", "-c", "until grep -q ready /tmp/said 2>/dev/null; do sleep 0.1; done"])
    inner = int(other.exec_run(["pgrep", "-x", "recorder"])[1])
    outer = next(int(words[1]) for words in other.top()["Processes"] if "/srv/recorder" in words[-1] and "sh -c" not in words[-1])
    own = json.loads(other.exec_run(["env", "PYTHONPATH=/exchange/src", "python3", "-m", "gdbheapx", "--pid", str(inner), "arenas", "--json"])[1])
    left = json.loads(other.exec_run(["cat", "/exchange/left/recorder.json"])[1])["arenas"]
    tree = "/exchange/left/tree"
    mounted = {volume: {"bind": "/exchange", "mode": "ro"}}
    uses: Dict[str, Any] = {
        "--pid=host": (["--pid", str(outer)], {"pid_mode": "host", "cap_add": ["SYS_PTRACE"]}, own),
        "--pid=container:": (["--pid", str(inner)], {"pid_mode": "container:" + other.id, "cap_add": ["SYS_PTRACE"]}, own),
        "mounted core": (["--core", "/exchange/left/recorder.core", "--sysroot", tree], {"volumes": mounted}, left),
    }
    cases = [judge("%s, %s" % (image.name, name), run(client, words, options), expected) for name, (words, options, expected) in uses.items()]
    writable = {"volumes": {volume: {"bind": "/exchange", "mode": "rw"}}}
    shared = {**uses["--pid=container:"][1], **writable}
    from_core = uses["mounted core"][0]
    for name, target, options, expected in (("process", ["--pid", str(inner)], shared, own), ("core", from_core, writable, left)):
        for gdb in ([], ["--gdb", "none"]):
            cases.append(by_snapshot(client, "%s, snapshot of a %s%s" % (image.name, name, ", no gdb" if gdb else ""), [*gdb, *target], options, expected))
    return cases


def by_snapshot(client: Any, name: str, target: Sequence[str], options: Dict[str, Any], wanted: Dict[str, Any]) -> Case:
    """A snapshot taken by the image into a mounted folder, and what another container of it answers from the file alone."""
    file = "/exchange/look.heapx"
    taken = run(client, target, options, ["snapshot", file])
    if taken["code"] != 0:
        return Case(name, False, "exit code %s, %s" % (taken["code"], taken["stderr"]))
    again = run(client, ["--snapshot", file], {"volumes": options["volumes"]})
    report = run(client, ["--snapshot", file], {"volumes": options["volumes"]}, ["report", "--json"])
    if report["code"] != 0 or not (report["data"] or {}).get("verdict"):
        return Case(name, False, "report: exit code %s, %s" % (report["code"], report["stderr"]))
    sums = {key: {field: totals[field] for field in ("used_chunks", "used_bytes", "system_bytes")} for key, totals in wanted["data"]["totals"].items()}
    found = {key: {field: totals[field] for field in sums[key]} for key, totals in again["data"]["totals"].items()} if again["code"] == 0 else None
    return Case(name, found == sums, again["stderr"] or ("" if found == sums else "%s, not %s" % (found, sums)))


def on_host(client: Any) -> Case:
    """A process of the host, whose own Python is here for certain."""
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as process:
        said = run(client, ["--pid", str(process.pid)], {"pid_mode": "host", "cap_add": ["SYS_PTRACE"]})
        assert process.stdin
        process.stdin.close()
    return Case("host process, --pid=host", said["code"] == 0 and bool(said["data"]["arenas"]), said["stderr"])


def run(client: Any, target: Sequence[str], options: Dict[str, Any], command: Sequence[str] = ("arenas", "--json")) -> Dict[str, Any]:
    """A command by the image."""
    made = client.containers.run(TAG, [*target, *command], detach=True, network_mode="none", user="0", **options)
    try:
        code = made.wait()["StatusCode"]
        stdout, stderr = (made.logs(stdout=first, stderr=not first).decode() for first in (True, False))
    finally:
        made.remove(force=True)
    return {"code": code, "data": json.loads(stdout)["data"] if stdout.startswith("{") else None, "stderr": stderr}


def judge(name: str, said: Dict[str, Any], wanted: Dict[str, Any]) -> Case:
    """The answer is whole and equals the one given inside the container."""
    good = said["code"] == 0 and said["data"] == wanted["data"]
    return Case(name, good, said["stderr"] or "" if good else "exit code %s, %s" % (said["code"], said["stderr"] or "other data"))


def main(words: Sequence[str]) -> int:
    """With the engine that runs, or one that is started for it."""
    logs = ROOT / "build"
    logs.mkdir(exist_ok=True)
    try:
        with Engine(logs / "runtime_image.dockerd.log"):
            return use(words)
    except NoEngine as error:
        print("image: %s" % error, file=sys.stderr)
        return NO_ENGINE


def use(words: Sequence[str]) -> int:
    """Print one line for each use; 1 if any failed."""
    import howto_page
    from matrix import ROWS, row

    import docker

    build(ROWS[-1].base)
    inspected = json.loads(subprocess.run(["docker", "image", "inspect", TAG, ROWS[-1].base], capture_output=True, check=True).stdout)
    print("image %s, digest %s, user %s, on %s %s" % (TAG, inspected[0]["Id"], inspected[0]["Config"]["User"], ROWS[-1].base, inspected[1]["Id"]), flush=True)
    if "--save" in words:
        subprocess.run(["docker", "save", "-o", words[words.index("--save") + 1], TAG], check=True)
        words = ["--page"]
    subprocess.run([sys.executable, "-m", "tools.make_single"], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    cases: List[Case] = []
    if "--page" not in words:
        chosen = [row(word) for word in words] if words else list(ROWS)
        cases = attempt(docker.from_env(timeout=3600), [Image(one.suite, one.image) for one in chosen], lambda text: print(text, file=sys.stderr))
    shown = row(PAGE_SUITE)
    lines = howto_page.run(shown.base, shown.image)
    for case in cases:
        print("%-42s %s" % (case.name, "equal" if case.good else "FAILED: " + case.details))
    for done in lines:
        print("%s: %s" % ("as the page says" if done.good else "FAILED", done.line) + ("" if done.good else "\n    " + done.details))
    return 0 if all(one.good for one in [*cases, *lines]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
