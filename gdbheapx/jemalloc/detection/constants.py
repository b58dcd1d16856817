"""What the texts in an object's constant data say of the jemalloc in it: version, options' variable, profiling. No symbol names any of
them."""

from typing import Iterator, NamedTuple, Optional, Set, Tuple

from gdbheapx.inferior.base import Module, Target
from gdbheapx.jemalloc.detection import signatures


class Constants(NamedTuple):
    """The texts of one object."""

    texts: int
    """Messages that begin with `<jemalloc>: `."""
    version_text: Optional[str]
    """JEMALLOC_VERSION; for display, and to tell a snapshot from a release: layouts are told by the types. None where there is none to
    read."""
    conf_variables: Tuple[str, ...]
    """Names that end in MALLOC_CONF: of the environment variable that options are read from."""
    profiles: Optional[bool]
    """Built with --enable-prof: it has the head of a heap profile. None where no jemalloc's texts can be read."""
    is_known: bool
    """All of them were read, so that no jemalloc is here if none shows; a core without the file has a page of them, or the segment before
    them."""

    @property
    def is_jemalloc(self) -> bool:
        """They are those of a jemalloc, of whatever release."""
        return self.texts >= signatures.LEAST_TEXTS


def read(target: Target, module: Module) -> Constants:
    """The texts of this object; none where neither its file nor a dump of them is here.

    Twice, if there is a jemalloc: one search for what all its messages begin with is done before the rest is looked for.
    """
    texts, is_known = sum(data.count(signatures.TEXT) for data in target.constant_data(module)), target.has_all_constants(module)
    if texts < signatures.LEAST_TEXTS:
        return Constants(texts, None, (), None, is_known)
    versions: Set[str] = set()
    variables: Set[str] = set()
    profiles = False
    for data in target.constant_data(module):
        versions.update(_versions(data))
        variables.update(_conf_variables(data))
        profiles = profiles or signatures.PROFILE.search(data) is not None
    told = sorted(versions, key=lambda text: (not text.startswith("5."), text))
    return Constants(texts, told[0] if told else None, tuple(sorted(variables)), profiles, is_known)


def _versions(data: bytes) -> Iterator[str]:
    for tail in signatures.VERSION_TAIL.finditer(data):
        head = signatures.VERSION_HEAD.search(data[max(0, tail.start() - signatures.VERSION_HEAD_BYTES) : tail.start()])
        if head is not None:
            yield (head.group(0) + tail.group(0)[:-1]).decode("ascii")


def _conf_variables(data: bytes) -> Iterator[str]:
    for tail in signatures.CONF_VARIABLE.finditer(data):
        head = signatures.CONF_HEAD.search(data[max(0, tail.start() - signatures.CONF_HEAD_BYTES) : tail.start()])
        if head is not None:
            yield (head.group(1) + tail.group(0)[:-1]).decode("ascii")
