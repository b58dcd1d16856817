"""Packs of stripped allocator libraries as Debian distributes them: BUILDID.json, made by `make packs`.

jemalloc.structs has the structs of each release of jemalloc, for builds that no pack knows: tools/make_struct_tables.py made it from
packs of unstripped builds of the upstream tags (autoconf, configure, make build_lib_shared, `python -m tools.make_packs`)."""

from typing import Dict

EMBEDDED: Dict[str, str] = {}
"""File name -> contents, where there are no files: in gdbheapx-single.py."""
