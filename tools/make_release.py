"""`make release`: everything of a release but the upload, in dist/: sdist, wheels, the one file, Debian's packages, the image, a bill of materials, sums.

It refuses a checkout with changes, and one whose changelog does not have the version. What needs an engine for images is left out where there is none,
and named. A second run makes the same files anew; Debian's packages and the image have what their release's packages are on that day.
"""

import argparse
import hashlib
import re
import subprocess
import sys
from pathlib import Path
from typing import List, NamedTuple

from tools import libraries, make_changelog, make_dist, make_sbom

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
SUMS = "SHA256SUMS"
PLACEHOLDER = "@example.org"


class Refused(Exception):
    """There is nothing to release as it is; the message says why, and what to do."""


class Step(NamedTuple):
    """A part of the release that comes from a command of its own."""

    name: str
    words: List[str]
    needs_engine: bool
    """Without one it ends with make_dist.NO_ENGINE."""


def check(root: Path) -> str:
    """The version, if the checkout is one to release. Refused otherwise."""
    status = subprocess.run(["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True)
    if status.returncode != 0:
        raise Refused("%s is no git checkout; release from a clone" % root)
    if status.stdout:
        raise Refused("the checkout has changes (%s); commit or stash them" % status.stdout.splitlines()[0].strip())
    match = make_changelog.VERSION.search((root / "gdbheapx" / "common" / "__init__.py").read_text())
    assert match is not None
    version = match[1]
    waiting = [path for path in (root / "changelog.d").glob("*.md") if path.name != "README.md"]
    if waiting:
        raise Refused("changelog.d/ has %d fragments that no release has; make changelog VERSION=..., look at `git diff`, commit" % len(waiting))
    newest = next(make_changelog.releases((root / "CHANGELOG.md").read_text()), None)
    if newest is None or newest.version != version:
        raise Refused("CHANGELOG.md has no section of %s at its top; make changelog VERSION=..." % version)
    if not (root / "debian" / "changelog").read_text().startswith("gdbheapx (%s) unstable;" % make_changelog.debian_version(version)):
        raise Refused("debian/changelog is not of %s; python -m tools.make_changelog --debian" % version)
    return version


def missing(control: str) -> List[str]:
    """What only those who upload know, and have not said."""
    said = []
    if PLACEHOLDER in control:
        said.append("Maintainer: of debian/control is a placeholder; SECURITY.md sends reports there")
    if not re.search(r"^Homepage:", control, re.MULTILINE):
        said.append("Homepage: of debian/control is not set; the long description has no links, and the metadata no address")
    return said


def sums(folder: Path) -> str:
    """As sha256sum writes them, of every file below the folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SUMS)
    return "".join("%s  %s\n" % (hashlib.sha256(path.read_bytes()).hexdigest(), path.relative_to(folder)) for path in files)


def steps(version: str) -> List[Step]:
    """In their order: make_dist clears its own files of dist/."""
    python = [sys.executable]
    return [
        Step("sdist and wheels", [*python, "-m", "tools.make_dist"], False),
        Step("the one file", [*python, "-m", "tools.make_single", str(DIST / ("gdbheapx-single-%s.py" % version))], False),
        Step("Debian's packages", [*python, "docker/make_deb.py"], True),
        Step("the image", [*python, "docker/runtime_image.py", "--save", str(DIST / ("gdbheapx-image-%s.tar" % version))], True),
    ]


def release(version: str) -> List[str]:
    """Make everything; what was left out, with why."""
    left_out = ["the wheel and kernel for " + line for line in libraries.left_out()]
    for step in steps(version):
        print("== %s" % step.name, flush=True)
        code = subprocess.run(step.words, cwd=ROOT).returncode
        if step.needs_engine and code == make_dist.NO_ENGINE:
            left_out.append("%s: no engine for images, as said above" % step.name)
        elif code != 0:
            raise Refused("%s failed (exit code %d); what it said stands above" % (step.name, code))
    wheel = min(DIST.glob("gdbheapx-%s-py3-none-*.whl" % version))
    (DIST / ("gdbheapx-%s.cdx.json" % version)).write_text(make_sbom.make(wheel, int(make_dist.source_date())))
    (DIST / SUMS).write_text(sums(DIST))
    return left_out


def main() -> int:
    """Make it, and say what is there, what is not, and what is left to do."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true", help="only say whether this checkout can be released")
    asked = parser.parse_args()
    try:
        version = check(ROOT)
        left_out = [] if asked.check else release(version)
    except Refused as error:
        print("release: %s" % error, file=sys.stderr)
        return 1
    if not asked.check:
        print("\n%s" % (DIST / SUMS).read_text(), end="")
    for line in left_out:
        print("left out: %s" % line)
    for line in missing((ROOT / "debian" / "control").read_text()):
        print("before the upload: %s" % line)
    print("gdbheapx %s: git tag v%s, then upload" % (version, version))
    return 0


if __name__ == "__main__":
    sys.exit(main())
