"""Find and load add-ons: folders of gdbheapx/addons, each of which may be missing. Nothing else of the core imports one.

`catalogue` names them, with the commands and the capabilities that each brings. A command lies in the add-on's folder `commands`, and
CAPABILITIES of the add-on's package says which of its modules has a capability.
"""

import importlib
import re
from types import ModuleType
from typing import Any, List, Optional, Tuple

from gdbheapx.common.catalogue import ADDON_ALLOCATORS, ADDON_CAPABILITIES, ADDON_COMMANDS
from gdbheapx.common.errors import HeapxError, UsageError
from gdbheapx.common.problems import ADDON_MISSING, SHELL_ONLY

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


def find_capability(capability: str) -> Any:
    """Return the module with this capability; None if its add-on is not there."""
    return load_capability(capability, capability) if has_capability(capability) else None
