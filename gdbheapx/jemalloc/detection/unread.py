"""A jemalloc that is there and is not read: what it is as far as that can be told, why, and what would help.

Where the debug files of a distribution's own libjemalloc.so.2 come from.
"""

import re
from typing import NamedTuple, Optional

from gdbheapx.errors import HeapxError
from gdbheapx.inferior.base import DebugHint, Module, Target
from gdbheapx.jemalloc.detection import layouts

DISTRIBUTED = re.compile(r"/(usr/)?lib(64|/[^/]+)?/libjemalloc\.so\.2$")
PACKAGES = (
    (("ubuntu",), "apt-get install libjemalloc2-dbgsym (from Ubuntu's archive ddebs)"),
    (("debian",), "apt-get install libjemalloc2-dbgsym (from Debian's archive debian-debug)"),
    (("fedora", "rhel", "centos"), "dnf debuginfo-install jemalloc"),
    (("suse", "opensuse"), "zypper install libjemalloc2-debuginfo"),
)
"""What gets them, by ID or ID_LIKE of os-release."""
STRIPPED = "stripped"
"""No symbols, and no pack for its build-id."""
NO_LAYOUT = "no-layout"
"""Symbols, but no debug information, and no pack's layouts are its."""
SNAPSHOT = "snapshot"
"""Made between two releases: a release's layout that nothing proves is not believed."""
WRONG_LAYOUT = "wrong-layout"
"""What its types or its pack promise does not hold in memory."""
OTHER_RELEASE = "other-release"
"""Before 5."""
UNREADABLE = "unreadable"
"""Not initialised yet, or its memory cannot be read."""
HASH_DIGITS = 12


def debug_hint(target: Target, module: Module) -> DebugHint:
    """How to get the debug information of a jemalloc's object."""
    return target.debug_hint(module, PACKAGES if DISTRIBUTED.match(module.name) else ())


class Unread(NamedTuple):
    """One of them."""

    module: Module
    what: str
    """One sentence for people: which, where, why not, and what its release means."""
    hint: Optional[str]
    why: str = UNREADABLE
    """`stripped`, `no-layout`, `snapshot`, `wrong-layout`, `other-release` or `unreadable`."""
    version_text: Optional[str] = None
    page_bytes: Optional[int] = None
    """jemalloc's own page."""
    has_ticker_bug: Optional[bool] = None
    """By its version text; None where that does not tell."""


class NotRead(HeapxError):
    """Why one candidate is not read."""

    def __init__(self, why: str, evidence: str = "") -> None:
        super().__init__(evidence or why)
        self.why = why
        self.evidence = evidence
        """In parentheses behind the sentence; or, where it is unreadable, the sentence itself."""


def make(
    target: Target, module: Module, reason: NotRead, text: Optional[str], page_bytes: Optional[int], release: Optional[str] = None
) -> Unread:
    """The record of one, in words. `release`: what its traces tell where there is no version text."""
    told = text or release
    bug = layouts.text_has_ticker_bug(told)
    what = _sentence(module, reason, told) + _facts(page_bytes, bug)
    return Unread(module, what, next_step(target, module, reason.why), reason.why, text, page_bytes, bug)


def shortened(text: Optional[str]) -> str:
    """A version text with a hash that people can compare; a release without one."""
    if text is None:
        return ""
    if layouts.commits_after(text) == 0 and layouts.release_of(text) is not None:
        return text.split("-")[0]
    head, _, digits = text.partition("-g")
    return "%s-g%s" % (head, digits[:HASH_DIGITS]) if digits else text


def _sentence(module: Module, reason: NotRead, text: Optional[str]) -> str:
    name = ("jemalloc %s" % shortened(text)).rstrip() + " in %s" % module.name
    evidence = " (%s)" % reason.evidence if reason.evidence else ""
    if reason.why == STRIPPED:
        what = "cannot read %s: it has no symbols, and its build is not among the bundled packs (build-id %s)" % (name, module.build_id or "none")
        return what + ("; by its structure: %s" % reason.evidence if reason.evidence else "")
    if reason.why == NO_LAYOUT:
        return "cannot read %s: it has symbols but no debug information, and no pack has its layouts%s" % (name, evidence)
    if reason.why == SNAPSHOT:
        release = layouts.release_of(text)
        between = (
            "it was made %d commits after %d.%d.%d" % (layouts.commits_after(text), *release)
            if release is not None
            else "it does not state its release"
        )
        return "cannot read %s: %s, and no layout could be verified for it%s" % (name, between, evidence)
    if reason.why == WRONG_LAYOUT:
        return "cannot read %s: its memory does not match its layout%s" % (name, evidence)
    if reason.why == OTHER_RELEASE:
        return "cannot read %s: only jemalloc 5 is supported" % name
    return "cannot read %s: %s" % (name, reason.evidence)


def _facts(page_bytes: Optional[int], bug: Optional[bool]) -> str:
    facts = [] if page_bytes is None else ["its pages are %d bytes" % page_bytes]
    if bug is not None:
        facts.append(
            "its release has the bug that makes threads blind" if bug else "its release does not have the bug that makes threads blind"
        )
    return "".join("; " + fact for fact in facts)


def next_step(target: Target, module: Module, why: str) -> Optional[str]:
    """What would help."""
    if why == UNREADABLE:
        return None
    if why == OTHER_RELEASE:
        return "use malloc_stats_print in the program"
    if module.is_executable:
        return (
            _build_it(module)
            if why == STRIPPED
            else "build it with debug information (Rust: debug = true in its profile)"
        )
    return debug_hint(target, module).line()


def _build_it(module: Module) -> str:
    keep = ""
    if module.build_id:
        keep = "; or keep its unstripped file as DIR/.build-id/%s/%s.debug and give --debug-dir DIR" % (
            module.build_id[:2],
            module.build_id[2:],
        )
    return "build it unstripped and with debug information (Rust: strip = false, debug = true)%s" % keep
