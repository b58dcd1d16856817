"""Runs the lines of docs/how-to/containers.md and its example watch-sidecar.yaml with the image for users, on a program that Debian's images have."""

import contextlib
import json
import re
import shlex
import subprocess
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "how-to" / "containers.md"
SIDECAR = ROOT / "docs" / "how-to" / "examples" / "watch-sidecar.yaml"
USER = "1000:1000"
PROGRAM = "$| = 1; @a = map { 'x' x 3000 } 1..20000; for (0..$#a) { undef $a[$_] if $_ % 500 } print qq(ready\\n); sleep 1e6"
"""perl: 60 MB allocated, most of it freed, and blocks in use between, so that malloc gives none of it back by itself."""
FREED_BYTES = 40 << 20
MOST_STOPPED_MS = 1000
SIZE_SHARE = 0.1
"""The image may be that much larger or smaller than the page says: sid moves."""
SIDECAR_S = 60


class Done(NamedTuple):
    """A line of the page that was run."""

    line: str
    good: bool
    details: str


class Around(NamedTuple):
    """The containers and folders that stand for the page's names."""

    folder: Path
    names: Dict[str, str]
    """Of the page: NAME, and what stands for it; `root` is that of a process of root."""
    root: str
    tooled: str
    """A container with a gdb and a Python of its own."""

    def typed(self, line: str) -> str:
        """The line as somebody types it."""
        name = self.tooled if line.startswith(("docker exec", "docker cp")) else self.root if "--user 0 gdbheapx" in line else self.names["NAME"]
        made = line.replace("/var/cores", str(self.folder)).replace("/x/FILE", "/x/core").replace("gdbheapx-single.py NAME:", "%s NAME:" % (ROOT / "gdbheapx-single.py"))
        made = re.sub(r"^gdbheapx ", "docker run --rm --user 0 -v \"$PWD:/d\" -w /d gdbheapx ", made)
        made = made.replace("docker run --rm -v", "docker run --rm --network host -v") if "apt-get" in made else made
        for word, value in {**self.names, "NAME": name}.items():
            made = re.sub(r"(?<![A-Za-z])%s(?![A-Za-z])" % re.escape(word), value, made)
        return made


def documented() -> List[str]:
    """The page's lines of commands, first those that others require."""
    lines = [line.strip() for line in PAGE.read_text().splitlines() if re.match(r"\s{4,}(docker (run|exec|cp|export)|dpkg-deb|gdbheapx --)", line)]
    return sorted(lines, key=lambda line: not re.search(r"apt-get|dpkg-deb|docker export", line))


def shell(line: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a line there."""
    return subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)


def said(*words: str) -> str:
    """What a command that has to succeed printed."""
    return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


@contextlib.contextmanager
def world(base: str, tooled: str) -> Iterator[Around]:
    """The program as an ordinary user and as root, without debug symbols, and once beside a gdb and a Python."""
    made: List[str] = []
    try:
        for image, options in ((base, ["--user", USER]), (base, []), (tooled, [])):
            made.append(said("docker", "run", "-d", *options, image, "perl", "-e", PROGRAM))
        for one in made:
            while "ready" not in said("docker", "logs", one):
                time.sleep(0.1)
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            place.chmod(0o755)
            (place / "TREE").mkdir()
            pid = said("docker", "inspect", "-f", "{{.State.Pid}}", made[0])
            subprocess.run(["gdb", "-nx", "-q", "-batch", "-p", pid, "-ex", "generate-core-file %s/core" % place], stdin=subprocess.DEVNULL, capture_output=True, check=True)
            version = said("docker", "exec", made[0], "dpkg-query", "-W", "-f", "${Version}", "libc6")
            names = {"NAME": made[0], "PID": pid, "UID:GID": USER, "VERSION": version, "debian:bookworm": base}
            yield Around(place, names, made[1], made[2])
    finally:
        subprocess.run(["docker", "rm", "-f", *made], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def run(base: str, tooled: str) -> List[Done]:
    """Every line, the refusal that the page shows, its figures, and the sidecar."""
    ended: List[Done] = []
    with world(base, tooled) as around:
        ended += [*refused(around), *figures(around), sidecar(around)]
        for line in documented():
            done = shell(around.typed(line), around.folder)
            quiet = line.startswith(("docker cp", "docker export", "dpkg-deb"))
            good = done.returncode == 0 and (quiet or bool(done.stdout))
            if " trim --yes" in line:
                good = good and resident_bytes(around.names["PID"]) < FREED_BYTES
            ended.append(Done(line, good, "" if good else "exit code %d: %s" % (done.returncode, (done.stderr or done.stdout)[-1000:])))
    return ended


def resident_bytes(pid: str) -> int:
    """What of the process's own memory is in RAM."""
    match = re.search(r"RssAnon:\s*(\d+) kB", Path("/proc/%s/status" % pid).read_text())
    assert match
    return int(match[1]) * 1024


def refused(around: Around) -> Iterator[Done]:
    """trim without debug symbols: the line that the page shows; and another user, or root without the right, is told what lacks."""
    match = re.search(r"\n((?:    gdbheapx: .*\n)(?:    .*\n)*)", PAGE.read_text())
    assert match
    shown = " ".join(match[1].split())
    one = shell(around.typed("docker run --rm --pid=container:NAME --user UID:GID gdbheapx --pid 1 trim --yes"), around.folder)
    told = re.sub(r"\b[0-9a-f]{40}\b", "BUILD-ID", " ".join(one.stderr.split()))
    yield Done("trim without debug symbols", one.returncode == 1 and told == shown, one.stderr)
    for options, need in (("", "--user 1000:1000"), ("--user 0", "--cap-add=SYS_PTRACE"), ("--user 0 --cap-drop=ALL", "--cap-add=DAC_READ_SEARCH")):
        line = "docker run --rm --pid=container:NAME %s gdbheapx --pid 1 report" % options
        other = shell(around.typed(line.replace("NAME", around.names["NAME"])), around.folder)
        yield Done(line, other.returncode == 1 and need in other.stderr, other.stderr)


def figures(around: Around) -> Iterator[Done]:
    """How large the image is, how long a process is stopped, and that its packages fit each other."""
    match = re.search(r"(\d+) MB", PAGE.read_text())
    assert match
    size, written = int(said("docker", "image", "inspect", "-f", "{{.Size}}", "gdbheapx")) / 1e6, int(match[1])
    yield Done("the image: %d MB" % written, abs(size - written) <= SIZE_SHARE * written, "%.0f MB" % size)
    json_line = around.typed("docker run --rm --pid=container:NAME --user UID:GID gdbheapx --pid 1 report --json")
    stopped = json.loads(shell(json_line, around.folder).stdout)["target"]["stopped_ms"]
    yield Done("stopped for less than a second", stopped < MOST_STOPPED_MS, "%s ms" % stopped)
    for words in ("-m pip check", "-c 'import duckdb'"):
        done = shell("docker run --rm --entrypoint python gdbheapx %s" % words, around.folder)
        yield Done("python %s" % words, done.returncode == 0, done.stdout + done.stderr)


def sidecar(around: Around) -> Done:
    """Its command, as the program's user and hardened as it says, writes a line of JSON about the program."""
    text = SIDECAR.read_text()
    match = re.search(r"            - \|\n(.*?)          securityContext:\n", text, re.DOTALL)
    limit = re.search(r"limits: \{memory: (\d+)Mi\}", text)
    hard = all(word in text for word in ("allowPrivilegeEscalation: false", "readOnlyRootFilesystem: true", "drop: [ALL]", "runAsNonRoot: true"))
    assert match and limit and hard, SIDECAR
    options = "--user %s --cap-drop=ALL --read-only --tmpfs /tmp --security-opt no-new-privileges --memory %sm" % (USER, limit[1])
    words = ["docker", "run", "-d", "--pid=container:" + around.names["NAME"], *shlex.split(options), "-e", "APP=perl", "-e", "HOME=/tmp"]
    made = said(*words, "--entrypoint", "/bin/sh", "gdbheapx", "-c", textwrap.dedent(match[1]))
    try:
        end, line = time.monotonic() + SIDECAR_S, ""
        while not line.startswith("{") and time.monotonic() < end:
            time.sleep(0.5)
            line = said("docker", "logs", made)
        return Done("watch-sidecar.yaml", line.startswith("{"), line or said("docker", "logs", "--tail", "5", made))
    finally:
        said("docker", "rm", "-f", made)
