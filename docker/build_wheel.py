"""Makes the wheel with the kernel in the image of the oldest release: python3 docker/build_wheel.py SDIST FOLDER; exit code 3 without an engine."""

import io
import os
import sys
import tarfile
from pathlib import Path
from typing import Any

NO_ENGINE = 3
"""No image can be used here: the last line of standard error says why."""
ROOT = Path(__file__).resolve().parent.parent
PIP = ["python", "-m", "pip", "wheel", "-q", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check", "-w", "/made"]


def as_tar(path: Path) -> bytes:
    """One file as a tar file."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(str(path), path.name)
    return packed.getvalue()


def copy_out(container: Any, path: str, folder: Path) -> None:
    """The files of a container's folder."""
    stream, _ = container.get_archive(path)
    with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
        for entry in archive:
            file = archive.extractfile(entry) if entry.isfile() else None
            if file is not None:
                (folder / Path(entry.name).name).write_bytes(file.read())


def build(client: Any, row: Any, sdist: Path, folder: Path) -> None:
    """The wheel of the sdist, made in the row's image."""
    variables = {name: os.environ[name] for name in ("SOURCE_DATE_EPOCH",) if name in os.environ}
    container = client.containers.run(row.image, ["sleep", "infinity"], detach=True, init=True, network_mode="none", environment=variables)
    try:
        container.put_archive("/tmp", as_tar(sdist))
        code, output = container.exec_run([*PIP, "/tmp/" + sdist.name])
        if code != 0:
            raise RuntimeError("pip wheel in %s ended with %d: %s" % (row.image, code, output.decode(errors="replace")[-3000:]))
        copy_out(container, "/made", folder)
    finally:
        container.remove(force=True, v=True)


def main() -> int:
    """Find an engine, make the image if it is missing, build."""
    try:
        import images
        import matrix
        from engine import Engine, NoEngine
    except ImportError as error:
        print("the docker SDK is not installed: %s" % error, file=sys.stderr)
        return NO_ENGINE
    sdist, folder, row = Path(sys.argv[1]), Path(sys.argv[2]), matrix.ROWS[0]
    logs = ROOT / "build" / "matrix"
    logs.mkdir(parents=True, exist_ok=True)
    try:
        with Engine(logs / "dockerd.log") as engine:
            images.ensure(engine.client, row, lambda line: print(line, file=sys.stderr))
            build(engine.client, row, sdist, folder)
    except (NoEngine, images.CannotBuild) as error:
        print(str(error).splitlines()[0], file=sys.stderr)
        return NO_ENGINE
    print("kernel built in %s, glibc %s" % (row.image, matrix.text(row.glibc)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
