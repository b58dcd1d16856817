"""Find and load add-ons: folders of gdbheapx/addons, each of which may be missing. Nothing else of the core imports one.

`catalogue` names them, with the commands and the capabilities that each brings. A command lies in the add-on's folder `commands`, and
CAPABILITIES of the add-on's package says which of its modules has a capability.
"""

import importlib
import re
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable, Collection, Dict, List, Optional, Sequence, Tuple, cast

from gdbheapx.catalogue import ADDON_ALLOCATORS, ADDON_CAPABILITIES, ADDON_COMMANDS
from gdbheapx.errors import HeapxError, UsageError
from gdbheapx.problems import ADDON_MISSING, SHELL_ONLY

if TYPE_CHECKING:
    from typing import Protocol

    from gdbheapx.analysis.addon_answers import Books, CollectorState, Joined
    from gdbheapx.analysis.census.find import CensusRow, LabelSet
    from gdbheapx.analysis.census.world import Recogniser, World
    from gdbheapx.copying import Copying
    from gdbheapx.inferior.base import Target
    from gdbheapx.inferior.source import TargetSource
    from gdbheapx.invocation import Invocation, Shell
    from gdbheapx.model import StepSentence
    from gdbheapx.session import Session

    class SiteFinder(Protocol):
        """Finds the functions that may have allocated blocks: the capability `sites`."""

        def require_code_reader(self, session: Session) -> None:
            """Raise HeapxError where they cannot be found; called before a process is stopped."""

        def find_sites(self, session: Session, rows: Sequence[CensusRow], labels: Optional[LabelSet], world: World) -> Joined:
            """Return them for rows of a census."""

    class SettingsPredictor(Protocol):
        """Predicts what settings would save: the capability `settings`."""

        def what_if(self, session: Session) -> Any:
            """Return the memory with each setting, for best()."""

        def best(self, found: Any, refused: Collection[str] = ()) -> Optional[StepSentence]:
            """Return the step that names the settings that help most; None if none is worth it."""

    class RunningCopy(Protocol):
        """A process that was copied while it ran, except its last pages."""

        by_marks: bool

        def finish(self) -> Optional[bool]:
            """Take the stop. None: it has to be taken as for other readings; else as Target.stop."""

        def end(self) -> None:
            """Leave the process as it was."""

    class RunningCopier(Protocol):
        """Copies a process while it runs: the capability `short_stop`."""

        def begin_short_stop(
            self, session: Session, copying: Optional[Copying], options: Any, confirm: Callable[[str], None]
        ) -> Optional[RunningCopy]:
            """Return the process copied so far; None where that is not possible, with a problem of the session that says why."""

    class ColdFinder(Protocol):
        """Finds memory that nothing touches: the capability `cold`."""

        PAGES: str

        def find_stopped_spans(self, session: Session) -> Optional[Sequence[Tuple[int, int, bytes]]]:
            """Return the pages that are in swap while the process is stopped; None if there are none."""

    class PageMaker(Protocol):
        """Makes pages of templates: the capability `pages`."""

        def require_jinja(self) -> None:
            """Raise HeapxError where no page can be made."""

        def render_page(self, template: str, values: Dict[str, Any], folder: str) -> str:
            """Return the page of a template in `folder`."""


PACKAGE = "gdbheapx.addons"


def addon_of_command(file: str) -> Optional[str]:
    """Return the add-on that brings the command of this file, which need not be there; None if the core has it, or nothing."""
    return next((addon for addon, commands in ADDON_COMMANDS.items() if file in commands), None)


def import_addon(addon: str) -> Optional[ModuleType]:
    """Return the package of an add-on, or None if its folder is not there."""
    name = "%s.%s" % (PACKAGE, addon)
    try:
        package = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in (PACKAGE, name):
            raise
        return None
    return package if hasattr(package, "CAPABILITIES") else None  # a folder that was deleted may have left compiled files


def has_every_addon() -> bool:
    """Return True if no add-on's folder was left out."""
    return all(import_addon(addon) is not None for addon in ADDON_COMMANDS)


def installed_commands() -> List[str]:
    """Return the files of the commands that the add-ons on disk bring."""
    return [file for addon, commands in ADDON_COMMANDS.items() if import_addon(addon) is not None for file in commands]


def import_command(file: str) -> None:
    """Import the file of an add-on's command, which declares it; nothing happens if the add-on is not there."""
    addon = addon_of_command(file)
    if addon is not None and import_addon(addon) is not None:
        importlib.import_module("%s.%s.commands.%s" % (PACKAGE, addon, file))


def missing_command(name: str, file: str) -> Optional[UsageError]:
    """Return the error of a command whose add-on is not there; None for any other."""
    addon = addon_of_command(file)
    return _missing_error(name, addon) if addon is not None and import_addon(addon) is None else None


def _missing_error(name: str, addon: str) -> UsageError:
    cause = "%s is part of the add-on %s, which is not installed" % (name, addon)
    return UsageError(cause, hint_to_install(addon), code=ADDON_MISSING)


def hint_to_install(addon: str) -> str:
    """Return how to get an add-on, as the end of a line that says that it is missing."""
    return "pip install gdbheapx has all, and make single WITH=%s a file with it" % addon


def missing_allocator(name: str) -> Optional[UsageError]:
    """Return the error of a snapshot with this allocator, whose add-on is not there; None for any other name."""
    addon = next((addon for addon, files in ADDON_ALLOCATORS.items() if name in files), None)
    return _missing_error(name, addon) if addon is not None and import_addon(addon) is None else None


def missing_allocator_of_file(file_name: str) -> Optional[Tuple[str, str]]:
    """Return the allocator to which a library of this name belongs, and how to get its add-on, which is not there; None for any other."""
    for addon, files in ADDON_ALLOCATORS.items():
        for name, pattern in files.items():
            if re.match(pattern, file_name) and import_addon(addon) is None:
                return name, "the add-on %s, which is not installed, reads it: %s" % (addon, hint_to_install(addon))
    return None


def has_capability(capability: str) -> bool:
    """True if the add-on with this capability is there."""
    return import_addon(_addon_with(capability)) is not None


def _addon_with(capability: str) -> str:
    return next(addon for addon, names in ADDON_CAPABILITIES.items() if capability in names)


def missing_capability(capability: str, name: str) -> UsageError:
    """Return the error, which begins with `name`, of what an add-on that is not there would answer."""
    return _missing_error(name, _addon_with(capability))


def load_capability(capability: str, name: str) -> Any:
    """Return the module with this capability; UsageError, which begins with `name`, if its add-on is not there."""
    package = import_addon(_addon_with(capability))
    if package is None:
        raise missing_capability(capability, name)
    try:
        return importlib.import_module("%s.%s" % (package.__name__, package.CAPABILITIES[capability]))
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(PACKAGE):
            raise
        cause = "pages, SQL and parquet files are not part of the single file"  # tools/make_single.py
        raise HeapxError(cause, "use an installed gdbheapx, on a snapshot or core of the process", code=SHELL_ONLY)


def load_renderer(capability: str, name: str) -> "Callable[[Invocation, Shell], int]":
    """Return what makes something else of a look than the command's own answer, and returns the exit code."""
    return cast("Callable[[Invocation, Shell], int]", load_capability(capability, name).make)


def load_sites(name: str) -> "SiteFinder":
    """Return what finds the functions that may have allocated blocks."""
    return cast("SiteFinder", load_capability("sites", name))


def load_short_stop() -> "RunningCopier":
    """Return what copies a process while it runs."""
    return cast("RunningCopier", load_capability("short_stop", "--short-stop"))


def load_dump(pid: int, descriptor: int) -> "TargetSource":
    """Return a process that the kernel is writing the core of; `descriptor`: of a file that begins as the core does."""
    return cast("TargetSource", load_capability("dumped", "capture").DumpedSource(pid, descriptor))


def load_cold() -> "Optional[ColdFinder]":
    """Return what finds memory that nothing touches; None if its add-on is not there."""
    return cast("ColdFinder", load_capability("cold", "cold")) if has_capability("cold") else None


def load_pages(name: str) -> "PageMaker":
    """Return what makes pages of templates."""
    return cast("PageMaker", load_capability("pages", name))


def load_settings() -> "Optional[SettingsPredictor]":
    """Return what predicts what settings would save; None if its add-on is not there."""
    if not has_capability("settings"):
        return None
    return cast("SettingsPredictor", load_capability("settings", "settings"))


def load_recognisers() -> "Sequence[Recogniser]":
    """Return what knows blocks of runtimes and libraries; nothing if their add-on is not there."""
    if not has_capability("recognisers"):
        return ()
    return cast("Sequence[Recogniser]", load_capability("recognisers", "recognisers").RECOGNISERS)


def load_books() -> "Optional[Callable[[Session, int], Optional[Books]]]":
    """Return what finds a program's own books of its memory; None if no add-on does."""
    if not has_capability("books"):
        return None
    return cast("Callable[[Session, int], Optional[Books]]", load_capability("books", "books").find_bind_books)


def load_collector_reader() -> "Optional[Callable[[Target], Optional[CollectorState]]]":
    """Return what reads the state of a runtime's collector of cycles; None if no add-on does."""
    if not has_capability("collector"):
        return None
    return cast("Callable[[Target], Optional[CollectorState]]", load_capability("collector", "collector").read_collector_state)
