"""Makes the images of the matrix that are missing: the release itself, from a registry or by debootstrap, and the tests' image on top."""

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Callable, Optional

from docker.errors import APIError, BuildError, ImageNotFound, NotFound
from matrix import Row

CONTEXT = Path(__file__).resolve().parent / "images"
DOCKERFILE = "test.Dockerfile"
RECIPE = "org.gdbheapx.recipe"
"""Label of a test image: what it was made from. An image of another recipe is made anew."""
MADE = "org.gdbheapx.base"
"""Label of a base image that was made here, so that `make matrix-clean` leaves those of a registry alone."""

Say = Callable[[str], None]


class CannotBuild(Exception):
    """An image cannot be made; the message says why."""


def ensure(client: Any, row: Row, say: Say) -> None:
    """The row's test image exists and is of today's recipe."""
    expected = recipe(row)
    present = find(client, row.image)
    if present is not None and present.labels.get(RECIPE) == expected:
        return
    ensure_base(client, row, say)
    say("building %s" % row.image)
    try:
        client.images.build(
            fileobj=context(pip_certificate()),
            custom_context=True,
            dockerfile=DOCKERFILE,
            tag=row.image,
            buildargs={"SUITE": row.suite, "PACKAGES": " ".join(row.packages)},
            labels={RECIPE: expected},
            network_mode="host",
            rm=True,
            forcerm=True,
        )
    except BuildError as error:
        lines = [line.get("stream") or line.get("error") or "" for line in error.build_log]
        raise CannotBuild("%s cannot be built: %s\n%s" % (row.image, error, "".join(lines)[-4000:])) from None


def find(client: Any, name: str) -> Optional[Any]:
    """A local image; None if there is none."""
    try:
        return client.images.get(name)
    except ImageNotFound:
        return None


def recipe(row: Row) -> str:
    """A checksum of everything that decides what is in the row's image."""
    digest = hashlib.sha256(repr((row.suite, row.packages)).encode())
    for path in sorted(CONTEXT.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def context(certificate: Optional[bytes]) -> io.BytesIO:
    """The build context as a tar file."""
    files = {path.name: path.read_bytes() for path in CONTEXT.iterdir()}
    if certificate:
        files["pip.cert"] = certificate
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    packed.seek(0)
    return packed


def pip_certificate() -> Optional[bytes]:
    """The certificate authorities that this machine's pip was told to trust, for the pip in the image."""
    done = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.cert"], capture_output=True, text=True)
    path = os.environ.get("PIP_CERT") or (done.stdout.strip() if done.returncode == 0 else "")
    return Path(path).read_bytes() if path and Path(path).is_file() else None


def ensure_base(client: Any, row: Row, say: Say) -> None:
    """The release's own image: there already, from the registry, or made by debootstrap."""
    if find(client, row.base) is not None:
        return
    try:
        client.images.pull("debian", tag=row.suite)
        return
    except (APIError, NotFound) as error:
        reason = str(error.explanation or error)
    bootstrap = shutil.which("debootstrap", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if bootstrap is None or os.getuid() != 0:
        raise CannotBuild("%s is in no registry (%s); as root, with debootstrap installed, it is made without one" % (row.base, reason))
    say("no registry; making %s by debootstrap" % row.base)
    folder = tempfile.mkdtemp(prefix="gdbheapx-%s-" % row.suite)
    try:
        os.chmod(folder, 0o755)
        done = subprocess.run(
            [bootstrap, "--variant=minbase", row.suite, folder], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode != 0:
            raise CannotBuild("debootstrap of %s failed: %s" % (row.suite, done.stdout[-2000:]))
        with subprocess.Popen(["tar", "-C", folder, "--exclude=./var/cache/apt/archives/*.deb", "-c", "."], stdout=subprocess.PIPE) as tar:
            client.api.import_image_from_stream(tar.stdout, repository="debian", tag=row.suite, changes=["LABEL %s=debootstrap" % MADE])
        if tar.returncode != 0:
            raise CannotBuild("tar of %s failed" % folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove(client: Any, row: Row, say: Say) -> None:
    """Remove the row's images, the base too if it was made here."""
    base = find(client, row.base)
    for image in (find(client, row.image), base if base is not None and MADE in base.labels else None):
        if image is not None:
            say("removing %s" % ", ".join(image.tags))
            client.images.remove(image.id, force=True)
