"""gdbheapx/addons/views/fleet/run.py: a folder in which others may put documents is not taken."""

import os
from pathlib import Path

import pytest

from gdbheapx.addons.views.fleet.run import prepare_folder
from gdbheapx.errors import HeapxError

NOBODY = 65534


def refused(path: Path) -> str:
    """Why it is not taken."""
    with pytest.raises(HeapxError) as caught:
        prepare_folder(str(path))
    assert caught.value.code == "unsafe-path" and "0700" in (caught.value.hint or "")
    return caught.value.message


def test_a_folder_that_is_made(tmp_path: Path) -> None:
    """It is its owner's alone, and taken again."""
    for _ in range(2):
        prepare_folder(str(tmp_path / "made"))
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702])
def test_others_may_write(tmp_path: Path, mode: int) -> None:
    """The sticky bit keeps nobody from putting a document there first."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(mode)
    assert "mode %o" % mode in refused(tmp_path / "open")


def test_a_group(tmp_path: Path) -> None:
    """One's own group may write, as with a volume of Kubernetes; another may not."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o770)
    prepare_folder(str(tmp_path / "shared"))
    if os.geteuid():
        pytest.skip("only root gives a folder to another group")
    os.chown(tmp_path / "shared", -1, NOBODY)
    (tmp_path / "shared").chmod(0o770)
    refused(tmp_path / "shared")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")
def test_another_user(tmp_path: Path) -> None:
    """Neither the folder nor a link to it may be his."""
    (tmp_path / "his").mkdir()
    os.chown(tmp_path / "his", NOBODY, NOBODY)
    assert "another user" in refused(tmp_path / "his")
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    prepare_folder(str(tmp_path / "link"))
    os.lchown(tmp_path / "link", NOBODY, NOBODY)
    assert "another user" in refused(tmp_path / "link")
