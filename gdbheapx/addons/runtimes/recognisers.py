"""Registry of runtimes and libraries: a new one is a file or a folder, and a line here."""

from gdbheapx.addons.runtimes import bind, block_headers, cpython, glib, jvm, lua, openssl, php, ruby, v8

MODULES = (block_headers, bind, openssl, glib, cpython, php, ruby, lua, jvm, v8)
"""Each has a list RECOGNISERS."""
RECOGNISERS = [recogniser for module in MODULES for recogniser in module.RECOGNISERS]
