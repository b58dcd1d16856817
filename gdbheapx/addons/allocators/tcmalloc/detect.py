"""Which tcmallocs are in the target: objects that export its functions or have its texts, read by their structure (structure.py)."""

import re
from typing import List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.allocators.gates import GOOGLE, GOOGLE_HINT, OF_GOOGLE
from gdbheapx.addons.allocators.tcmalloc import structure
from gdbheapx.addons.allocators.tcmalloc.structure import Structure
from gdbheapx.allocators import fingerprints
from gdbheapx.allocators.fingerprints import TextFingerprint
from gdbheapx.allocators.records import Instances, NotRead
from gdbheapx.inferior.base import Module, Target
from gdbheapx.model import AllocatorInfo

VERSION = re.compile(rb"gperftools (\d+\.\d+(?:\.\d+)?)").pattern
DEBUG = TextFingerprint("tcmalloc", (b"25DebugMallocImplementation",), True, "")
"""The debugging malloc around it: the name of its class (src/debugallocation.cc)."""
RELEASE = TextFingerprint("tcmalloc", (), True, "", VERSION)
NEWEST = (2, 18)
USE_HINT = "look again once the program has allocated memory"
DEBUG_HINT = "start the program with the ordinary libtcmalloc, or use the debugging malloc's own checks"


class Tcmalloc(NamedTuple):
    """One copy, and all that is constant about it."""

    id: str
    module: Module
    structure: Structure
    version: Optional[str]
    owns_malloc: Optional[bool]

    @property
    def unlisted(self) -> Optional[str]:
        """What to mind about a release that was never tried."""
        numbers = numbers_of(self.version)
        if numbers is None or numbers <= NEWEST:
            return None
        return "gperftools %s is newer than %d.%d, the newest tested: gdbheapx reads it by its structure" % (self.version, *NEWEST)

    def info(self) -> AllocatorInfo:
        """Its entry in the envelope."""
        name, build_id = self.module.file_name, self.module.build_id
        return AllocatorInfo(self.id, "tcmalloc", self.version, name, build_id, "table", "probe", self.owns_malloc)


def find(target: Target, objects: Sequence[Module]) -> Instances:
    """Every copy in these objects, and those that cannot be read."""
    located: List[Tcmalloc] = []
    unread: List[NotRead] = []
    unused: List[NotRead] = []
    for module in objects:
        name = module.file_name
        texts = [match.known for match in fingerprints.find(target, module, (GOOGLE, DEBUG))]
        if target.exported(module, OF_GOOGLE) is not None or GOOGLE in texts:
            what = "google's tcmalloc in %s is not read: it has no releases, and each build has its own layout" % name
            unread.append(NotRead(module, what, GOOGLE_HINT))
            continue
        if target.word_bytes != 8 or not target.little_endian:
            unread.append(NotRead(module, "tcmalloc in %s is read on 64-bit little-endian machines only" % name, None))
            continue
        if "debug" in name or DEBUG in texts:
            what = "tcmalloc in %s is the debugging malloc: its blocks have headers and guard words" % name
            unread.append(NotRead(module, what, DEBUG_HINT))
            continue
        version = release(target, module)
        found = structure.locate(target, module, numbers_of(version))
        if found is None:
            unused.append(NotRead(module, "tcmalloc in %s was never used, or is of a build that gdbheapx does not know" % name, USE_HINT))
            continue
        ident = "tcmalloc" if not located else "tcmalloc#%d" % (len(located) + 1)
        located.append(Tcmalloc(ident, module, found, version, _owns(target, module)))
    return Instances(located, unread, unused=unused, is_provisional=bool(unused) and target.kind == "live")


def release(target: Target, module: Module) -> Optional[str]:
    """By its text; None where the constants are not at hand."""
    match = next(iter(fingerprints.find(target, module, (RELEASE,))), None)
    return match.version if match is not None else None


def numbers_of(version: Optional[str]) -> Optional[Tuple[int, ...]]:
    """`2.10` as (2, 10)."""
    return tuple(int(part) for part in version.split(".")[:2]) if version is not None else None


def _owns(target: Target, module: Module) -> Optional[bool]:
    owner = target.dynamic_symbol("malloc")
    if owner is None:
        return True if module.is_executable and target.knows_objects() else None
    return owner.module.base == module.base


def confirm(target: Target, located: Tcmalloc) -> Optional[Tcmalloc]:
    """The same copy, proved again; None if it does not hold."""
    return located if structure.holds(target, located.structure) else None

