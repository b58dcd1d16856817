"""make_single.py [FILE] [--with NAMES]: writes gdbheapx-single.py, every module as text in one file, which gdb's `source` accepts and
Python runs as the shell's command. NAMES: the add-ons that are in it, with commas between them, or `none`; all of them if none is named.

The C kernel is in it for each machine whose compiler is here, and as C files for any other.
"""

import argparse
import json
import os
import sys

from gdbheapx.common import catalogue
from gdbheapx.kernel import build
from gdbheapx.kernel.common.library import C_FILES, SOURCE_ID, pack_bytes
from tools import libraries

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LEFT_OUT = (
    *("gdbheapx/addons/views/html/%s.py" % name for name in ("command", "geometry", "page_values", "render")),
    *("gdbheapx/addons/views/query/%s.py" % name for name in ("command", "engine")),
    "gdbheapx/gdbinit.py",
)
"""Pages need their templates, SQL a library; gdbinit.py is the end of the file. What a page shows is read: its snapshots have it."""

HEAD = '''"""gdbheapx {version} in one file: in gdb, `source {name}`, then `heapx`; from a shell, `python3 -I {name} --pid N report`, with gdb or without one.
Made by tools/make_single.py; the source is in the modules below.

Licensed under the Apache License, Version 2.0.
"""
import sys

if sys.version_info < (3, 9):
    raise RuntimeError("gdbheapx needs Python 3.9 or later, also in gdb; this one is %d.%d" % sys.version_info[:2])

if "gdb" not in sys.modules and not sys.flags.isolated and not getattr(sys.flags, "safe_path", False):
    del sys.path[0]  # the folder of this file, in which anybody may have put modules where it is /tmp

import importlib.abc
import importlib.machinery
import os

GDBHEAPX_PATH = os.path.abspath(__file__)
GDBHEAPX_SINGLE = {{}}
GDBHEAPX_PACKS = {{}}
GDBHEAPX_KERNELS = {{}}
'''

TAIL = '''

class GdbheapxFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the modules of this file. A traceback names them by their path in the source tree."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname not in GDBHEAPX_SINGLE:
            return None
        is_package = GDBHEAPX_SINGLE[fullname][0].endswith("__init__.py")
        return importlib.machinery.ModuleSpec(fullname, self, origin=GDBHEAPX_SINGLE[fullname][0], is_package=is_package)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        path, text = GDBHEAPX_SINGLE[module.__name__]
        module.__file__ = "gdbheapx-single:" + path
        if module.__name__ == "gdbheapx.commands":
            module.EMBEDDED = [name.split(".")[-1] + ".py" for name in GDBHEAPX_SINGLE if name.startswith("gdbheapx.commands.")]
        exec(compile(text, module.__file__, "exec"), module.__dict__)
        if module.__name__ == "gdbheapx.common.child_python":
            module.SINGLE = GDBHEAPX_PATH
        if module.__name__ == "gdbheapx.packs":
            module.EMBEDDED.update(GDBHEAPX_PACKS)
        if module.__name__ == "gdbheapx.kernel.common.library":
            module.PACKED.update(GDBHEAPX_KERNELS)


for _name in [_name for _name in sys.modules if _name.split(".")[0] == "gdbheapx"]:
    del sys.modules[_name]
sys.meta_path[:] = [_finder for _finder in sys.meta_path if type(_finder).__name__ != "GdbheapxFinder"]
sys.meta_path.insert(0, GdbheapxFinder())

if "gdb" not in sys.modules:  # run by Python: the shell's command, which has gdb source this file where gdb is needed
    from gdbheapx.app import cli

    cli.GDBINIT = GDBHEAPX_PATH
    sys.exit(cli.main())
'''


def modules(addons):
    """(module name, path, text) of the core and of these add-ons, packages before their members."""
    left_out = tuple(os.path.join("gdbheapx", "addons", name, "") for name in catalogue.ADDON_COMMANDS if name not in addons)
    for folder, package in (("gdbheapx", "gdbheapx"), ("commands", "gdbheapx.commands")):
        for where, folders, files in os.walk(os.path.join(ROOT, folder)):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            inner = os.path.relpath(where, os.path.join(ROOT, folder)).replace(os.sep, ".")
            prefix = package if inner == "." else "%s.%s" % (package, inner)
            for file in sorted(files, key=lambda name: (name != "__init__.py", name)):
                path = os.path.relpath(os.path.join(where, file), ROOT)
                if not file.endswith(".py") or path in LEFT_OUT or path.startswith(left_out):
                    continue
                with open(os.path.join(ROOT, path), encoding="utf-8") as source:
                    yield prefix if file == "__init__.py" else "%s.%s" % (prefix, file[:-3]), path, source.read()


def packs():
    """(file name, text) of the packs, and of the structs by release."""
    folder = os.path.join(ROOT, "gdbheapx", "packs")
    for name in sorted(os.listdir(folder)):
        if name.endswith((".json", ".options", ".structs")):
            with open(os.path.join(folder, name), encoding="ascii") as file:
                yield name, file.read()


def kernels(addons):
    """(machine, packed library) of each compiler that is here; the C files; their checksum."""
    for machine, library in libraries.compiled(addons).items():
        yield machine, pack_bytes(library)
    yield C_FILES, pack_bytes(json.dumps(build.all_sources(addons)).encode("utf-8"))
    yield SOURCE_ID, str(build.source_id(addons))


def literal(text):
    """The text as a raw string that is still readable, where that is possible."""
    if "'''" in text or text.endswith(("\\", "'")) or "\r" in text:
        return repr(text)
    return "r'''" + text + "'''"


def chosen_addons(names):
    """The add-ons of `--with`."""
    if names is None:
        return list(catalogue.ADDON_COMMANDS)
    chosen = [] if names == "none" else names.split(",")
    unknown = [name for name in chosen if name not in catalogue.ADDON_COMMANDS]
    if unknown:
        sys.exit("no add-on is called %s: they are %s" % (unknown[0], ", ".join(catalogue.ADDON_COMMANDS)))
    return chosen


def main():
    """Write the file whose name is given, or gdbheapx-single.py in the checkout."""
    words = argparse.ArgumentParser()
    words.add_argument("file", nargs="?", default=os.path.join(ROOT, "gdbheapx-single.py"))
    words.add_argument("--with", dest="addons")
    options = words.parse_args()
    addons = chosen_addons(options.addons)
    destination, sources = options.file, list(modules(addons))
    version = next(text for name, _, text in sources if name == "gdbheapx.common").split('__version__ = "')[1].split('"')[0]
    with open(os.path.join(ROOT, "gdbheapx", "gdbinit.py"), encoding="utf-8") as file:
        gdbinit = file.read()
    with open(destination, "w", encoding="utf-8") as out:
        out.write(HEAD.format(version=version, name=os.path.basename(destination)))
        for name, path, text in sources:
            out.write("GDBHEAPX_SINGLE[%r] = (%r, %s)\n" % (name, path, literal(text)))
        for name, text in packs():
            out.write("GDBHEAPX_PACKS[%r] = %s\n" % (name, literal(text)))
        for name, text in kernels(addons):
            out.write("GDBHEAPX_KERNELS[%r] = %r\n" % (name, text))
        out.write(TAIL)
        out.write("\n\n# gdbheapx/gdbinit.py\n" + gdbinit)
    print(destination)
    for line in libraries.left_out():
        print("its kernel lacks " + line, file=sys.stderr)


if __name__ == "__main__":
    main()
