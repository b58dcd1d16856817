"""tools/make_changelog.py: a release's files from the fragments, in a copy of the checkout; tools/make_release.py and make_sbom.py."""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gdbheapx.common import __version__
from tools import make_changelog

pytestmark = pytest.mark.once  # files of the checkout

ROOT = Path(__file__).resolve().parent.parent
DAY = "2026-11-23"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """What a release reads and writes."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in ("gdbheapx", "commands", "docs", "tools", "share", "debian", "changelog.d"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in ("CHANGELOG.md", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def make(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """The tool of that folder."""
    return subprocess.run([sys.executable, "-m", "tools.make_changelog", *words], cwd=folder, capture_output=True, text=True)


def test_a_release(copy: Path) -> None:
    """Fragments become a section, a line each for what a user notices; they go; version, Debian's changelog and man page follow."""
    for path in (copy / "changelog.d").glob("[0-9]*.md"):
        path.unlink()
    (copy / "changelog.d" / "7.added.md").write_text("`one` does this, and\ngoes on here.\nAnother does that.\n")
    (copy / "changelog.d" / "8.fixed.md").write_text("It ended with an error where `x_*` was.\n")
    done = make(copy, "99.0.0rc1", "--date", DAY)
    assert done.returncode == 0, done.stdout + done.stderr
    text = (copy / "CHANGELOG.md").read_text()
    wanted = "## 99.0.0rc1 (%s)\n\n### Added\n\n- `one` does this, and goes on here.\n- Another does that.\n\n### Fixed\n\n- It ended with an error where `x_*` was.\n" % DAY
    assert wanted in text and text.startswith("# Changelog\n")
    assert sorted(path.name for path in (copy / "changelog.d").iterdir()) == ["README.md", "section.md.j2"]
    assert '__version__ = "99.0.0rc1"' in (copy / "gdbheapx" / "common" / "__init__.py").read_text()
    assert '"gdbheapx 99.0.0rc1"' in (copy / "share" / "man" / "man1" / "gdbheapx.1").read_text() and DAY in (copy / "share" / "man" / "man1" / "gdbheapx.1").read_text()
    debian = (copy / "debian" / "changelog").read_text()
    assert debian.startswith("gdbheapx (99.0.0~rc1) unstable; urgency=medium\n\n  * Added: `one` does this, and goes on here.\n")
    assert " -- %s  Mon, 23 Nov 2026 12:00:00 +0000\n" % make_changelog.maintainer() in debian
    # A second release stands above the first, which stays as it is.
    (copy / "changelog.d" / "9.added.md").write_text("More.\n")
    assert make(copy, "99.0.0", "--date", "2026-12-01").returncode == 0
    later = (copy / "CHANGELOG.md").read_text()
    assert later.index("## 99.0.0 (2026-12-01)") < later.index("## 99.0.0rc1") and wanted in later
    heads = [line for line in (copy / "debian" / "changelog").read_text().splitlines() if line.startswith("gdbheapx (")]
    assert heads[:2] == ["gdbheapx (99.0.0) unstable; urgency=medium", "gdbheapx (99.0.0~rc1) unstable; urgency=medium"]


def test_the_next_release(copy: Path) -> None:
    """The fragments that are there now become a section without a blank item, and nothing of them is lost."""
    fragments = [path for path in (copy / "changelog.d").glob("*.md") if path.name != "README.md"]
    if not fragments:
        assert make(copy, "99.0.0").returncode == 1
        return
    words = " ".join(" ".join(path.read_text().split()) for path in fragments).split()
    assert make(copy, "99.0.0", "--date", DAY).returncode == 0
    section = next(one for one in make_changelog.releases((copy / "CHANGELOG.md").read_text()))
    assert section.version == "99.0.0" and all(re.fullmatch(r"(Added|Changed|Fixed|Removed): \S.*[.:`)]", item) for item in section.items)
    assert sorted(" ".join(item.partition(": ")[2] for item in section.items).split()) == sorted(words)


@pytest.mark.parametrize("wanted", ["0.0.1", "1.0.0-rc1", "new", "0.1.0"])
def test_refused(copy: Path, wanted: str) -> None:
    """What is no version, is written in another way, or does not come after the present one is refused in one line; nothing is changed."""
    before = (copy / "CHANGELOG.md").read_text()
    done = make(copy, wanted)
    assert done.returncode == 1 and done.stderr.startswith("changelog: ") and done.stderr.count("\n") == 1
    assert (copy / "CHANGELOG.md").read_text() == before and list((copy / "changelog.d").glob("*.md"))


def test_debian_has_this_version() -> None:
    """debian/changelog is what the tool would write, but for the day of a version that has no section yet."""
    text = make_changelog.DEBIAN.read_text()
    assert text.startswith("gdbheapx (%s) " % make_changelog.debian_version(__version__))
    every = list(make_changelog.releases(make_changelog.CHANGELOG.read_text()))
    for one in every:
        assert "gdbheapx (%s) unstable" % make_changelog.debian_version(one.version) in text
        assert all(" ".join(item.split()) in " ".join(text.split()) for item in one.items)


def git(folder: Path, *words: str) -> None:
    """Of a repository that is there for the test."""
    subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)


@pytest.mark.skipif(shutil.which("git") is None, reason="no git")
def test_what_is_not_to_be_released(copy: Path) -> None:
    """No checkout, changes, fragments that no release has, a version without its section: one sentence each; then it is good."""
    make_release = released()
    with pytest.raises(make_release.Refused, match="is no git checkout"):
        make_release.check(Path("/"))
    git(copy, "init", "-q")
    with pytest.raises(make_release.Refused, match="has changes"):
        make_release.check(copy)
    (copy / "changelog.d" / "7.added.md").write_text("One does this.\n")

    def committed() -> None:
        git(copy, "add", "-A")
        git(copy, "commit", "-qm", "all")

    committed()
    with pytest.raises(make_release.Refused, match="fragments that no release has"):
        make_release.check(copy)
    assert make(copy, "99.0.0rc1", "--date", DAY).returncode == 0
    committed()
    assert make_release.check(copy) == "99.0.0rc1"
    package = copy / "gdbheapx" / "common" / "__init__.py"
    package.write_text(make_changelog.VERSION.sub('__version__ = "99.0.0"', package.read_text()))
    committed()
    with pytest.raises(make_release.Refused, match="no section of 99.0.0"):
        make_release.check(copy)


def released():  # type: ignore[no-untyped-def]
    """The tool, where its library is."""
    pytest.importorskip("cyclonedx", reason="cyclonedx-python-lib is not installed")
    from tools import make_release

    return make_release


def test_sums_are_what_sha256sum_reads(tmp_path: Path) -> None:
    """Of every file below the folder, but not of the sums."""
    make_release = released()
    (tmp_path / "deb").mkdir()
    for name in ("a.whl", "deb/b.deb"):
        (tmp_path / name).write_text(name)
    for _ in range(2):
        (tmp_path / "SHA256SUMS").write_text(make_release.sums(tmp_path))
    done = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.splitlines() == ["a.whl: OK", "deb/b.deb: OK"]


def test_the_bill_of_materials(tmp_path: Path) -> None:
    """CycloneDX, the same each time: what a wheel requires, and what the extras for users bring, without those for whoever works on it."""
    released()
    from tools import make_sbom

    wheel = tmp_path / "x.whl"
    lines = ["Metadata-Version: 2.4", "Name: gdbheapx", "Version: 1.0", "Requires-Dist: tabulate<0.10,>=0.9"]
    lines += ['Requires-Dist: jinja2>=3; extra == "html"', 'Requires-Dist: docker>=7; extra == "dist"', "", "text"]
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("gdbheapx-1.0.dist-info/METADATA", "\n".join(lines))
    text = make_sbom.make(wheel, 0)
    assert text == make_sbom.make(wheel, 0)
    bill = json.loads(text)
    assert (bill["bomFormat"], bill["metadata"]["component"]["purl"]) == ("CycloneDX", "pkg:pypi/gdbheapx@1.0")
    found = {one["name"]: (one["scope"], one["version"].split(".")[0], {each["name"]: each["value"] for each in one["properties"]}) for one in bill["components"]}
    assert found["jinja2"] == ("optional", "3", {"gdbheapx:extra": "html", "gdbheapx:requires": ">=3"})
    assert found["tabulate"] == ("required", "0", {"gdbheapx:requires": "<0.10,>=0.9"}) and len(found) == 2
