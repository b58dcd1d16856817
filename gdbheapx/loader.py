"""Finds the command files: installed as gdbheapx.commands, or the folder `commands` beside this package in a bare checkout."""

import importlib
import importlib.util
import os
import sys
from typing import List, Optional


def load_commands(only: Optional[str] = None) -> None:
    """Import every command file, which declares its command; with `only`, the file of the command of that name if there is one.

    They read nothing when they are imported.
    """
    if "gdbheapx.commands" not in sys.modules and importlib.util.find_spec("gdbheapx.commands") is None:
        folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "commands")
        spec = importlib.util.spec_from_file_location(
            "gdbheapx.commands", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )
        if spec is None or spec.loader is None:
            raise ImportError("no commands in %s" % folder)
        package = importlib.util.module_from_spec(spec)
        sys.modules["gdbheapx.commands"] = package
        spec.loader.exec_module(package)
    files = command_files()
    own = (only or "").replace("-", "_")
    for name in [own] if own in files else files:
        importlib.import_module("gdbheapx.commands." + name)


def command_files() -> List[str]:
    """Names of the files, sorted. (pkgutil would import inspect, 5 ms, for the same list.)"""
    package = importlib.import_module("gdbheapx.commands")
    embedded = getattr(package, "EMBEDDED", None)  # the single file has no folder
    files = embedded if embedded is not None else [file for folder in package.__path__ for file in os.listdir(folder)]
    return sorted(file[:-3] for file in files if file.endswith(".py") and file != "__init__.py")
