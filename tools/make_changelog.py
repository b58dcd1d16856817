"""`make changelog VERSION=1.0.0rc1`: a release's section of CHANGELOG.md from the fragments of changelog.d/, by towncrier; the fragments go.

It also sets the version in gdbheapx/__init__.py, writes debian/changelog from CHANGELOG.md, and the man page, which names the version.
`--debian` only writes debian/changelog anew.
"""

import argparse
import datetime
import email.utils
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Iterator, List, NamedTuple, Optional

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "gdbheapx" / "common" / "__init__.py"
CHANGELOG = ROOT / "CHANGELOG.md"
DEBIAN = ROOT / "debian" / "changelog"
VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
HEADING = re.compile(r"^## (\S+) \((\d{4}-\d{2}-\d{2})\)$", re.MULTILINE)
CONTROL = ROOT / "debian" / "control"


class Refused(Exception):
    """Nothing was changed; the message says why."""


class Release(NamedTuple):
    """A section of CHANGELOG.md."""

    version: str
    day: datetime.date
    items: List[str]
    """`Added: sentences`, each one line."""


def current() -> str:
    """The version of the sources."""
    match = VERSION.search(PACKAGE.read_text())
    assert match is not None
    return match[1]


def debian_version(version: str) -> str:
    """The same in Debian's order: 1.0.0~rc1 comes before 1.0.0."""
    parsed = Version(version)
    pre = "~%s%d" % parsed.pre if parsed.pre else ""
    return parsed.base_version + pre + (".post%d" % parsed.post if parsed.post is not None else "")


def releases(text: str) -> Iterator[Release]:
    """The sections of CHANGELOG.md, newest first."""
    parts = HEADING.split(text)[1:]
    for version, day, body in zip(parts[::3], parts[1::3], parts[2::3]):
        items, kind = [], ""
        for line in body.splitlines():
            if line.startswith("### "):
                kind = line[4:]
            elif line.startswith("- "):
                items.append("%s: %s" % (kind, line[2:]))
        yield Release(version, datetime.date.fromisoformat(day), items)


def maintainer() -> str:
    """Who stands in debian/control."""
    match = re.search(r"^Maintainer: (.*)$", CONTROL.read_text(), re.MULTILINE)
    assert match is not None
    return match[1]


def debian_changelog(releases: List[Release], version: str, who: str, today: datetime.date) -> str:
    """debian/changelog with these releases; the version of the sources stands first, marked as unreleased if it has no section yet."""
    out = []
    if not releases or releases[0].version != version:
        releases = [Release(version, today, ["Not yet released: changelog.d/ has what is new."]), *releases]
    for one in releases:
        suite = "UNRELEASED" if one.items[:1] == ["Not yet released: changelog.d/ has what is new."] else "unstable"
        noon = datetime.datetime(one.day.year, one.day.month, one.day.day, 12, tzinfo=datetime.timezone.utc)
        items = ["\n".join(textwrap.wrap(item, 78, initial_indent="  * ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)) for item in one.items]
        out.append("gdbheapx (%s) %s; urgency=medium\n\n%s\n\n -- %s  %s\n" % (debian_version(one.version), suite, "\n".join(items), who, email.utils.format_datetime(noon)))
    return "\n".join(out)


def write_debian(today: datetime.date) -> None:
    """debian/changelog of what the sources say now."""
    DEBIAN.write_text(debian_changelog(list(releases(CHANGELOG.read_text())), current(), maintainer(), today))


def release(given: str, today: datetime.date) -> None:
    """Make the section, set the version, write what follows from both."""
    try:
        version = Version(given)
    except InvalidVersion:
        raise Refused("%s is not a version such as 1.0.0 or 1.0.0rc1" % given) from None
    if str(version) != given:
        raise Refused("write %s as %s" % (given, version))
    if version <= Version(current()):
        raise Refused("%s does not come after %s" % (given, current()))
    if not [path for path in (ROOT / "changelog.d").glob("*.md") if path.name != "README.md"]:
        raise Refused("changelog.d/ has no fragments: nothing is new")
    words = ["build", "--yes", "--version", given, "--date", today.isoformat(), "--dir", str(ROOT)]
    subprocess.run([sys.executable, "-m", "towncrier", *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    PACKAGE.write_text(VERSION.sub('__version__ = "%s"' % given, PACKAGE.read_text()))
    write_debian(today)
    subprocess.run([sys.executable, "-m", "tools.make_manual"], cwd=ROOT, check=True)


def main(words: Optional[List[str]] = None) -> int:
    """Make the release's files, or refuse in one line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("version", nargs="?", help="such as 1.0.0rc1")
    parser.add_argument("--date", type=datetime.date.fromisoformat, default=datetime.date.today(), help="the day of the release (default: today)")
    parser.add_argument("--debian", action="store_true", help="only write debian/changelog")
    asked = parser.parse_args(words)
    if asked.debian:
        write_debian(asked.date)
        return 0
    if not asked.version:
        parser.error("name the version: make changelog VERSION=1.0.0rc1")
    try:
        release(asked.version, asked.date)
    except Refused as error:
        print("changelog: %s" % error, file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print("changelog: %s failed; `git checkout .` undoes what was written" % error.cmd[2], file=sys.stderr)
        return 1
    print("CHANGELOG.md, debian/changelog and gdbheapx %s: look at `git diff`, then commit" % asked.version)
    return 0


if __name__ == "__main__":
    sys.exit(main())
