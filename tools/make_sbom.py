"""A bill of materials (CycloneDX) of a wheel: what it requires, and what its extras for users do, in the versions that were tried together."""

import datetime
import email
import importlib.metadata
import re
import uuid
import zipfile
from email.message import Message
from pathlib import Path
from typing import Iterator, Optional, Tuple

from cyclonedx.model import Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
FOR_PROJECT = {"dev", "dist", "matrix"}
"""Extras of those who work on it."""


def metadata(wheel: Path) -> Message:
    """What the wheel says of itself."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def requirements(said: Message) -> Iterator[Tuple[Requirement, str]]:
    """What it requires, with the extra that brings it; empty: always."""
    for line in said.get_all("Requires-Dist") or ():
        extra = re.search(r'extra == "([^"]+)"', line)
        if extra is None or extra[1] not in FOR_PROJECT:
            yield Requirement(line), extra[1] if extra else ""


def tried(name: str) -> Optional[str]:
    """The version of tools/constraints.txt, or the one that is installed here; None if it is in neither."""
    pinned = re.search(r"^%s==(\S+)$" % re.escape(name), (ROOT / "tools" / "constraints.txt").read_text(), re.MULTILINE | re.IGNORECASE)
    try:
        return pinned[1] if pinned else importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def component(name: str, version: Optional[str], kind: ComponentType = ComponentType.LIBRARY, scope: Optional[ComponentScope] = None) -> Component:
    """A package of Python's index."""
    purl = PackageURL("pypi", None, name.lower().replace("_", "-"), version)
    return Component(name=name, version=version, type=kind, scope=scope, purl=purl, bom_ref=str(purl))


def make(wheel: Path, seconds: int) -> str:
    """The bill as JSON, made at that time; the same wheel has the same bill."""
    said = metadata(wheel)
    root = component(said["Name"], said["Version"], ComponentType.APPLICATION)
    root.licenses.add(DisjunctiveLicense(id="Apache-2.0"))
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, str(root.purl)))
    bom.metadata.timestamp = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    bom.metadata.component = root
    for requirement, extra in requirements(said):
        one = component(requirement.name, tried(requirement.name), scope=ComponentScope.OPTIONAL if extra else ComponentScope.REQUIRED)
        one.properties.add(Property(name="gdbheapx:requires", value=str(requirement.specifier)))
        if extra:
            one.properties.add(Property(name="gdbheapx:extra", value=extra))
        bom.components.add(one)
        bom.register_dependency(root, [one])
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"
