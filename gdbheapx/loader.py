"""Finds the command files: installed as gdbheapx.commands, or the folder `commands` beside this package in a bare checkout."""

import importlib
import importlib.util
import os
import pkgutil
import sys


def load_commands() -> None:
    """Import every command file, which declares its command. They read nothing when they are imported."""
    if "gdbheapx.commands" not in sys.modules and importlib.util.find_spec("gdbheapx.commands") is None:
        folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "commands")
        spec = importlib.util.spec_from_file_location("gdbheapx.commands", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
        if spec is None or spec.loader is None:
            raise ImportError("no commands in %s" % folder)
        package = importlib.util.module_from_spec(spec)
        sys.modules["gdbheapx.commands"] = package
        spec.loader.exec_module(package)
    package = importlib.import_module("gdbheapx.commands")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module("gdbheapx.commands." + module.name)
