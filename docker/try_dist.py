"""Tries the files of `make dist` in the image of each release that is there: python3 docker/try_dist.py FOLDER; exit code 3 without an engine.

tests/test_packaging.py installs the wheel in venvs of that release's Python and asks them, with its gdb and without.
"""

import io
import sys
import tarfile
from pathlib import Path
from typing import Any, List, Tuple

NO_ENGINE = 3
ROOT = Path(__file__).resolve().parent.parent
TESTS = ["python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_packaging.py"]


def folder_as_tar(folder: Path, name: str) -> bytes:
    """The files of a folder, without those in folders of it, under another name."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted(folder.iterdir()):
            if path.is_file():
                archive.add(str(path), "%s/%s" % (name, path.name))
    return packed.getvalue()


def attempt(client: Any, row: Any, checkout: bytes, made: bytes) -> Tuple[bool, str]:
    """Whether the tests pass there, and their last line."""
    container = client.containers.run(row.image, ["sleep", "infinity"], detach=True, init=True, network_mode="none", cap_add=["SYS_PTRACE"], tmpfs={"/tmp": "exec"})
    try:
        container.put_archive("/src", checkout)
        container.put_archive("/src", made)
        code, output = container.exec_run(TESTS, workdir="/src", environment={"GDBHEAPX_DIST": "/src/made"})
    finally:
        container.remove(force=True, v=True)
    said = output.decode(errors="replace").strip()
    return code == 0, said.splitlines()[-1] if code == 0 else said[-3000:]


def main() -> int:
    """Every image that is there, one after the other."""
    try:
        import images
        import matrix
        from engine import Engine, NoEngine
        from run_matrix import pack
    except ImportError as error:
        print("the docker SDK is not installed: %s" % error, file=sys.stderr)
        return NO_ENGINE
    logs = ROOT / "build" / "matrix"
    logs.mkdir(parents=True, exist_ok=True)
    checkout, made = pack().getvalue(), folder_as_tar(Path(sys.argv[1]), "made")
    bad: List[str] = []
    try:
        with Engine(logs / "dockerd.log") as engine:
            for row in matrix.ROWS:
                if images.find(engine.client, row.image) is None:
                    print("%-9s not tried: there is no image %s (make matrix makes it)" % (row.suite, row.image), flush=True)
                    continue
                good, said = attempt(engine.client, row, checkout, made)
                bad += [] if good else [row.suite]
                print("%-9s %s" % (row.suite, said), flush=True)
    except NoEngine as error:
        print(str(error), file=sys.stderr)
        return NO_ENGINE
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
