"""Metadata and packages; builds the C kernel, without which there is no wheel."""

import importlib.util
import os
import re
from typing import Any, Dict, List, Optional, Tuple

import setuptools
from setuptools import Command, Distribution, find_packages, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1 leaves it to the package wheel
    from wheel.bdist_wheel import bdist_wheel

HERE = os.path.dirname(os.path.abspath(__file__))
KERNEL = os.path.join("gdbheapx", "kernel")


def kernel_build() -> Any:
    """gdbheapx/kernel/build.py by its path: the package itself is not installed yet."""
    spec = importlib.util.spec_from_file_location("gdbheapx_kernel_build", os.path.join(HERE, KERNEL, "build.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(name: str) -> str:
    """A file of this folder; empty if it is not there."""
    path = os.path.join(HERE, name)
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as file:
        return file.read()


VERSION = re.search(r'__version__ = "([^"]+)"', read(os.path.join("gdbheapx", "common", "__init__.py"))).group(1)  # type: ignore[union-attr]
HOMEPAGE = re.search(r"^Homepage: *(\S+?)/*$", read(os.path.join("debian", "control")), re.MULTILINE)
"""Where the repository can be read; None as long as nobody has said so."""


def for_an_index(text: str, repository: Optional[str], version: str) -> str:
    """A page of this repository as an index of packages shows it: its links lead to the repository, or are plain text if that has no address."""

    def link(match: "re.Match[str]") -> str:
        picture, words, path = match.groups()
        if repository is None:
            return "" if picture else words
        return "%s[%s](%s/%s/v%s/%s)" % (picture, words, repository, "raw" if picture else "blob", version, path)

    return re.sub(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)]+)\)", link, text)


def licensed() -> Dict[str, Any]:
    """The licence as this setuptools states it: as an expression (PEP 639) from 77 on."""
    if int(setuptools.__version__.split(".")[0]) >= 77:
        return {"license_expression": "Apache-2.0"}
    return {"license": "Apache-2.0"}


class BuildPy(build_py):
    """Puts the compiled kernel beside its Python files: into the build, or into the checkout for an editable install."""

    def run(self) -> None:
        super().run()
        in_place = getattr(self, "editable_mode", False)
        made = kernel_build().build_library(os.path.join(HERE if in_place else self.build_lib, KERNEL), quiet=False)
        if made is None and not in_place:
            raise SystemExit("gdbheapx needs its native library: install a C compiler, or take a wheel or the single file, which have it")


class BuildKernel(Command):
    """setup.py build_kernel: compile the kernel in the checkout."""

    description = "compile the C kernel in this checkout"
    user_options: List[Tuple[str, str, str]] = []

    def initialize_options(self) -> None:
        """Nothing to set."""

    def finalize_options(self) -> None:
        """Nothing to check."""

    def run(self) -> None:
        """Compile; an error if there is no compiler, as nothing else was asked for."""
        if kernel_build().build_library(os.path.join(HERE, KERNEL), quiet=False) is None:
            raise SystemExit("the C kernel was not built")


class WithKernel(Distribution):
    """Belongs to one platform: it has a native library."""

    def has_ext_modules(self) -> bool:
        return True


class Wheel(bdist_wheel):
    """The kernel speaks to Python by ctypes: any Python 3, one platform."""

    def get_tag(self) -> Tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2])


CORES = [
    # compressed cores; xz, gzip and bzip2 are Python's own
    "zstandard>=0.19; python_version < '3.14'",  # the first whose decompressor tells where a frame ends; 3.14 has zstd of its own
    "lz4>=4",  # its decompressor bounds what it gives
]

HTML = [
    # pages; Python 3.9 to 3.14 alike. Of Debian 11 the package python3-jinja2 (2.11) will do
    "jinja2>=3",
]

QUERY = [
    # SQL and parquet: 1.4 is the last for Python 3.9, and the first that the tests were run with
    "duckdb>=1.4",
]

EXPLORE = [
    # explore; the tests were run with 8
    "textual>=1",
]

MCP = [
    # mcp, for agents; the tests were run with 2.3. It needs Python 3.10
    "mcp>=2; python_version >= '3.10'",
]

SITES = [
    # census --sites, report --sites, query: sites; the tests were run with 5.0
    "capstone>=4",
]

DASK = [
    # fleet --dask
    "distributed>=2022.12.1",  # Debian 12's; the tests pass with it, 2024.8 (the last for Python 3.9) and 2026.8
]

SERVE = [
    # serve, and the tests read with it what watch --openmetrics writes
    "prometheus_client>=0.16",
]

STORE = [
    # snapshots in object storage; each protocol has a package of its own (s3fs, gcsfs)
    "fsspec>=2022.11",
]

SHARED = (
    "share/man/man1/gdbheapx.1",
    "share/bash-completion/completions/gdbheapx",
    "share/zsh/site-functions/_gdbheapx",
)
"""Made by `make docs`."""

setup(
    name="gdbheapx",
    version=VERSION,
    description="Shows where the memory of a process went: glibc malloc, jemalloc and musl, live or from a core, in gdb and from a shell",
    long_description=for_an_index(read("README.md"), HOMEPAGE and HOMEPAGE[1], VERSION),
    long_description_content_type="text/markdown",
    **licensed(),
    license_files=["LICENSE", "gdbheapx/packs/LICENSES.md"],
    project_urls={"Homepage": HOMEPAGE[1]} if HOMEPAGE else {},
    python_requires=">=3.9",
    packages=[*find_packages(HERE, include=["gdbheapx", "gdbheapx.*"]), "gdbheapx.commands"],
    package_dir={"gdbheapx": "gdbheapx", "gdbheapx.commands": "commands"},
    package_data={"gdbheapx": ["py.typed"], "gdbheapx.kernel": ["*/*.c", "*/*.h"], "gdbheapx.addons.allocators": ["*/*.c", "*/*.h"], "gdbheapx.addons.runtimes": ["*/*.c", "*/*.h"], "gdbheapx.addons.labs": ["*/*.c", "*/*.h"], "gdbheapx.addons.views": ["*/*.c", "*/*.h"], "gdbheapx.packs": ["*.json", "*.options", "*.structs", "LICENSES.md"], "gdbheapx.addons.views.html": ["*.html", "*.css"], "gdbheapx.addons.monitor.watch": ["*.html"]},
    # Below the prefix: /usr, or a venv. An editable install leaves them out.
    data_files=[(os.path.dirname(path), [path]) for path in SHARED if os.path.exists(os.path.join(HERE, path))],
    entry_points={"console_scripts": ["gdbheapx = gdbheapx.__main__:main"]},
    install_requires=[
        # 0.9 imports on Python 3.9 to 3.14; 0.10 needs 3.10. pip chooses for its own Python, gdb may embed an older one.
        "tabulate>=0.9,<0.10",
    ],
    extras_require={
        "cores": CORES,
        "html": HTML,
        "query": QUERY,
        "dask": DASK,
        "explore": EXPLORE,
        "serve": SERVE,
        "mcp": MCP,
        "sites": SITES,
        "store": STORE,
        "dev": [
            *CORES,
            *HTML,
            *QUERY,
            *DASK,
            *EXPLORE,
            *SERVE,
            *MCP,
            *SITES,
            *STORE,
            "pytest>=7",  # pytest 7 is the last that older Debian has; nothing newer is used
            "pytest-xdist>=3",  # as many tests at a time as there are CPUs
            "coverage>=7",  # make coverage
            "kubernetes-validate>=1.29",  # the manifests of the examples; it knows the successPolicy and backoffLimitPerIndex of jobs
            "pyelftools>=0.29,<0.33",  # make packs; 0.29 reads DWARF 5 as Debian's gcc writes it, 0.33 needs Python 3.10
            "hypothesis>=6",  # synthetic heaps in the unit tests
            "mypy>=1.8",  # understands NamedTuple with docstrings and `X | None` in strict mode alike
            "ruff>=0.4",  # first with the rule names in pyproject.toml
            "vermin>=1.6",  # knows the syntax of Python 3.13, so that it can hold the floor of 3.9
            "types-tabulate>=0.9,<0.10",  # as tabulate
            "shtab>=1.7",  # completion of shells, from the declarations; its output differs from release to release: tools/constraints.txt
            "cyclonedx-python-lib>=9",  # the bill of materials of a release
            "twine>=6.1",  # what an index says of the metadata; the first that knows licence expressions
            "towncrier>=23.11",  # CHANGELOG.md from changelog.d; the first that names its folder as it is
            "mkdocs-material>=9.7; python_version >= '3.10'",  # make site: the pages of docs/
            "gunicorn>=20",  # a server that forks, as a test's victim
            "pandas>=1.5",  # frames of answers
            "pyarrow>=12",
            "polars>=0.20; python_version >= '3.10'",  # reads Arrow's streams
            "nbclient>=0.7",  # runs the notebook of docs/
            "ipykernel>=6",
            "docker>=7",  # as matrix
        ],
        "dist": [
            "docker>=7",
            "pytest>=7",  # tries what was made
            "twine>=6.1",  # as dev
            "cyclonedx-python-lib>=9",  # as dev
        ],
        "matrix": [
            "docker>=7",  # 6 breaks with requests from 2.32 on
        ],
    },
    distclass=WithKernel,
    cmdclass={"build_py": BuildPy, "bdist_wheel": Wheel, "build_kernel": BuildKernel},
    zip_safe=False,
    keywords="memory malloc glibc jemalloc musl gdb core-dump leak heap debugger",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: System Administrators",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: C",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        *("Programming Language :: Python :: 3.%d" % minor for minor in range(9, 15)),
        "Topic :: Software Development :: Debuggers",
        "Topic :: System :: Monitoring",
        "Typing :: Typed",
    ],
)
