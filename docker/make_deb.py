"""`make deb`: Debian's package built from the sdist in the image of each release, and tried in a fresh container of the same; SUITES="bookworm" for some.

With ARM64=1 the one for arm64 as well, by Debian's cross compiler: `make arm64` tries it.

The containers use the network: they install what the package requires with the release's own apt. The packages stay in dist/deb/SUITE/.
"""

import argparse
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import images
import matrix
from engine import Engine, NoEngine
from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
NO_ENGINE = 3
OUT = ROOT / "dist" / "deb"
LOGS = ROOT / "build" / "deb"
UPDATE = "apt-get -qq -o Acquire::Check-Valid-Until=false update"
INSTALL = "apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends"
ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}

BUILD = """set -eu
cd /build
rm -rf gdbheapx-*/
tar xf source.tar.gz
cd gdbheapx-*/
# Another Python stands first in PATH, as with a version manager: it builds nothing.
mkdir -p /shims && printf '#!/bin/sh\\necho another Python >&2; exit 1\\n' >/shims/python3 && chmod +x /shims/python3
for major in 9 10 11 12 13 14; do ln -sf python3 /shims/python3.$major; done
PATH=/shims:$PATH dpkg-buildpackage -us -uc %s
rm -rf /made && mkdir /made
mv ../gdbheapx_* /made/
"""
CROSS = "dpkg --add-architecture arm64 && %s && %s gcc-aarch64-linux-gnu libc6-dev-arm64-cross libpython3-stdlib:arm64" % (UPDATE, INSTALL)
"""Its Python's own figures of arm64 are what setuptools asks, and its libc6 what the package is to depend on."""
TRY = """set -eux
gdbheapx --version
sleep 300 &
gdbheapx --pid $! arenas
kill $!
sh /build/installed
man gdbheapx 2>/tmp/complaints | grep -q -- "--snapshot FILE"
man --warnings gdbheapx >/dev/null 2>>/tmp/complaints
cat /tmp/complaints >&2
test ! -s /tmp/complaints
bash --norc -ec '
. /usr/share/bash-completion/bash_completion
if declare -F _comp_load >/dev/null; then _comp_load gdbheapx; else _completion_loader gdbheapx || true; fi
COMP_WORDS=(gdbheapx tunab); COMP_CWORD=1; COMP_LINE="gdbheapx tunab"; COMP_POINT=14
$(complete -p gdbheapx | sed "s/.* -F \\([^ ]*\\) .*/\\1/") gdbheapx tunab gdbheapx
test "${COMPREPLY[*]}" = tunables
'
test -f /usr/share/zsh/vendor-completions/_gdbheapx
test -s /usr/share/doc/gdbheapx/README.md -a -s /usr/share/doc/gdbheapx/docs/index.md -a -s "/usr/share/doc/gdbheapx/examples/gdbheapx-watch@.service"
"""
PURGE = """set -eu
dpkg -L gdbheapx >/tmp/files
apt-get -qq purge -y gdbheapx >/dev/null
while read -r path; do
  if [ -f "$path" ]; then echo "left: $path"; fi
done </tmp/files
find / -xdev -name '*gdbheapx*' ! -path '/build/*' ! -path '/proc/*' ! -path '/tmp/*' ! -path '/var/log/*' ! -path '/var/cache/man/*' | sed 's/^/left: /'
"""
"""What the package leaves: nothing. apt has its logs, and man the page as it was formatted."""


class Result(NamedTuple):
    """What came of one release."""

    suite: str
    built: str
    lintian: str
    tried: str
    purged: str
    seconds: float
    good: bool
    notes: List[str]


class Failed(Exception):
    """A step failed; the message has the end of what it said."""


class Box:
    """A container of the release, which is gone afterwards; what its commands say goes to a log."""

    def __init__(self, client: Any, row: matrix.Row, log: Path) -> None:
        self._log = log
        self.container = client.containers.run(
            row.base,
            ["sleep", "infinity"],
            detach=True,
            init=True,
            network_mode="host",
            cap_add=["SYS_PTRACE"],
            environment=ENVIRONMENT,
            tmpfs={"/tmp": "exec"},
        )

    def __enter__(self) -> "Box":
        return self

    def __exit__(self, *ignored: object) -> None:
        self.container.remove(force=True, v=True)

    def sh(self, what: str, script: str) -> str:
        """Run a script that has to succeed; `what` it does."""
        code, output = self.container.exec_run(["bash", "-c", script])
        said = output.decode(errors="replace")
        with open(self._log, "a") as log:
            log.write("$ %s\n%s\n" % (script.strip(), said))
        if code != 0:
            raise Failed("%s ended with %d: %s" % (what, code, " / ".join(said.strip().splitlines()[-6:])))
        return said

    def put(self, files: Dict[str, bytes]) -> None:
        """Files of /build."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for name, data in files.items():
                entry = tarfile.TarInfo("build/" + name)
                entry.size, entry.mode, entry.mtime = len(data), 0o755, int(time.time())
                archive.addfile(entry, io.BytesIO(data))
        self.container.put_archive("/", packed.getvalue())


def copy_out(container: Any, path: str, folder: Path) -> None:
    """The files of a container's folder."""
    stream, _ = container.get_archive(path)
    with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
        for entry in archive:
            file = archive.extractfile(entry) if entry.isfile() else None
            if file is not None:
                (folder / Path(entry.name).name).write_bytes(file.read())


def build_depends() -> str:
    """What debian/control says that a build requires, as apt-get takes it."""
    field = re.search(r"^Build-Depends:(.*(?:\n[ \t].*)*)", (ROOT / "debian" / "control").read_text(), re.MULTILINE)
    assert field is not None
    return " ".join(re.sub(r"debhelper-compat \(.*?\)|\(.*?\)", lambda match: "debhelper" if match[0].startswith("debhelper") else "", field[1]).replace(",", " ").split())


def build(client: Any, row: matrix.Row, sdist: Path, log: Path, arm64: bool) -> Tuple[Path, List[str]]:
    """The package, and what lintian says of it and of the one for arm64."""
    folder = OUT / row.suite
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    with Box(client, row, log) as box:
        box.put({"source.tar.gz": sdist.read_bytes()})
        box.sh("apt-get", "%s && %s build-essential lintian %s" % (UPDATE, INSTALL, build_depends()))
        said = ""
        for flags in ("", "-aarm64 -d -b")[: 1 + arm64]:
            if flags:
                box.sh("apt-get", CROSS)
            box.sh("dpkg-buildpackage", BUILD % flags)
            copy_out(box.container, "/made", folder)
            said += box.sh("lintian", "cd /made && lintian --allow-root --fail-on none --tag-display-limit 0 gdbheapx_*.changes || true")
    (package,) = (path for path in folder.glob("gdbheapx_*.deb") if not path.stem.endswith("_arm64"))
    return package, [line for line in said.splitlines() if re.match(r"[EW]: ", line)]


def attempt(client: Any, row: matrix.Row, package: Path, log: Path) -> Tuple[str, str]:
    """Install it where nothing of it has been, use it, take it away."""
    with Box(client, row, log) as box:
        box.put({"gdbheapx.deb": package.read_bytes(), "installed": (ROOT / "debian" / "tests" / "installed").read_bytes()})
        box.sh("apt-get", "%s && %s man-db bash-completion gdb procps && %s /build/gdbheapx.deb" % (UPDATE, INSTALL, INSTALL))
        box.sh("a question to the package", TRY)
        left = [line for line in box.sh("purge", PURGE).splitlines() if line.startswith("left: ")]
        if left:
            raise Failed("purge: " + ", ".join(left))
    return "answers", "nothing left"


def run(client: Any, row: matrix.Row, sdist: Path, arm64: bool) -> Result:
    """Everything of one release; never raises."""
    log, began = LOGS / (row.suite + ".log"), time.monotonic()
    log.write_text("")
    built = lintian = tried = purged = "-"
    notes: List[str] = []
    good = False
    try:
        images.ensure_base(client, row, lambda line: say(row, line))
        say(row, "building")
        package, complaints = build(client, row, sdist, log, arm64)
        built = package.name
        errors = [line for line in complaints if line.startswith("E:")]
        lintian = "%d errors, %d warnings" % (len(errors), len(complaints) - len(errors))
        notes += complaints
        say(row, "installing")
        tried, purged = attempt(client, row, package, log)
        good = not errors
    except (Failed, images.CannotBuild) as error:
        notes.append("%s; %s" % (error, log.relative_to(ROOT)))
    return Result(row.suite, built, lintian, tried, purged, time.monotonic() - began, good, notes)


def say(row: matrix.Row, line: str) -> None:
    """One line of progress."""
    print("%s  %-9s %s" % (time.strftime("%H:%M:%S"), row.suite, line), flush=True)


def show(results: Sequence[Result]) -> None:
    """The table, then what is to be said."""
    print()
    print(tabulate([(*one[:5], "%.1f" % (one.seconds / 60)) for one in results], ["image", "package", "lintian", "installed", "purged", "minutes"], disable_numparse=True))
    for one in results:
        for note in one.notes:
            print("%s: %s" % (one.suite, note))


def main() -> int:
    """Build and try the package in each image."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--suite", action="append", choices=[row.suite for row in matrix.ROWS], help="only this one (may be given several times)")
    parser.add_argument("--arm64", action="store_true", help="the one for arm64, too, which is not tried")
    asked = parser.parse_args()
    LOGS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        program = "import pathlib, sys; from tools import make_dist; print(make_dist.make_sdist(pathlib.Path(sys.argv[1])))"
        made = subprocess.run([sys.executable, "-c", program, temporary], cwd=ROOT, env=dict(os.environ, PYTHONPATH=str(ROOT)), stdout=subprocess.PIPE, text=True, check=True)
        try:
            with Engine(LOGS / "dockerd.log") as engine:
                results = [run(engine.client, row, Path(made.stdout.strip()), asked.arm64) for row in matrix.ROWS if not asked.suite or row.suite in asked.suite]
        except NoEngine as error:
            print("deb: %s" % error, file=sys.stderr)
            return NO_ENGINE
    show(results)
    return 0 if all(one.good for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
