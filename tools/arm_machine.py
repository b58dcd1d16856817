"""An aarch64 machine to test on, emulated by qemu: Debian 12 with kernels of 4 and of 16 KiB pages, and the C libraries of later releases.

    python -m tools.arm_machine make                    downloads and makes what is missing, in .cache/arm64
    python -m tools.arm_machine [--whole] test [4k|16k]...      boots each kernel, runs TESTS or WHOLE, tries the wheel and the package; 1 if anything failed
    python -m tools.arm_machine run 4k [--] COMMAND     boots, runs it in a copy of this checkout, /src; ends with its exit code
    python -m tools.arm_machine serve 4k DIR            stays on, for `exec`, until DIR/jobs/off is there
    python -m tools.arm_machine exec DIR [--] COMMAND   in a machine that serves; DIR is /share there
    python -m tools.arm_machine push DIR                the checkout once more, as it is now

The guest keeps nothing: its disk is thrown away. It is root, has no network, and Debian 12's own Python. /opt/trixie and /opt/sid hold the C
library and the allocators of these releases.
"""

import argparse
import lzma
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set

from tools import libraries, make_dist

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "arm64"
MADE_BY = ("arm_machine.py", "arm_first.sh", "arm_guest.sh", "foreign_packages.sh")
"""What the disk and the kernels' first file systems are made by: they are made anew when it has changed."""


class Boot(NamedTuple):
    """A kernel of Debian's."""

    release: str
    package: str


BOOTS = {"4k": Boot("bookworm", "linux-image-arm64"), "16k": Boot("trixie", "linux-image-arm64-16k")}
"""By the size of pages."""
# fmt: off
USERLAND = (
    "base-passwd", "bash", "binutils", "busybox-static", "coreutils", "dash", "diffutils", "dpkg", "findutils", "g++", "gcc", "gdb",
    "gdbserver", "grep", "gzip", "hostname", "iproute2", "libc-bin", "libc6-dbg", "libc6-dev", "libboost-regex1.74.0", "libgoogle-perftools4",
    "libjemalloc-dev", "libjemalloc2", "libmimalloc2.0", "make", "mawk", "mount", "musl-tools", "procps", "python3", "python3-jinja2",
    "python3-pip", "python3-pytest", "python3-pytest-xdist", "python3-pyelftools", "python3-tabulate", "redis-tools", "sed", "tar",
    "util-linux",
)
# fmt: on
OTHERS = dict.fromkeys(("trixie", "sid"), ("libc6", "libc6-dbg", "libjemalloc2", "libstdc++6"))
MODULES = ("crc32c_generic", "virtio_pci", "virtio_blk", "ext4", "9p", "9pnet_virtio", "virtio_rng", "overlay")
LEFT_OUT = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/perl", "usr/lib/*/perl", "usr/share/gcc", "usr/share/i18n")
SECONDS = 3600
"""A guest that does not answer for so long is ended."""

WHOLE = (
    "tests/integration/test_accounts.py::test_own_accounts",
    "tests/integration/test_je_accounts.py",
    "tests/addons/allocators/integration/test_mimalloc.py::test_every_block_is_told",
    "tests/addons/allocators/integration/test_tcmalloc.py::test_blocks_and_figures",
    "tests/addons/allocators/integration/test_mu_blocks.py",
    "tests/integration/test_leaks.py::test_every_block_is_told_as_it_is",
    "tests/integration/test_actions_glibc.py",
    "tests/addons/labs/integration/test_injected.py",
)
"""Programs that recorded the truth, of each allocator, live and on a kernel's core; what calls into a process. Half an hour with two processors."""
TESTS = (
    *("%s[%s]" % (WHOLE[0], name) for name in ("core-one", "live-seven", "core-seven-hugetlb=2", "live-sbrk", "core-fast", "live-static-mmapped")),
    *("tests/integration/test_je_accounts.py::test_every_figure[%s]" % name for name in ("live-preload", "core-preload")),
    *WHOLE[2:4],
    *("tests/addons/allocators/integration/test_mu_blocks.py::test_every_recorded_block_with_what_was_asked_for[%s]" % name for name in ("live-static", "core-shared")),
    WHOLE[5],
    *("tests/integration/test_actions_glibc.py::" + name for name in ("test_trim_gives_back_what_was_predicted", "test_thread_above_the_dynamic_linker")),
    *("tests/addons/labs/integration/test_injected.py::test_killed_before_each_step[%s]" % name for name in ("read", "nanosleep-beside", "futex-beside", "vectors")),
)
"""A part of them, which takes some seven minutes."""

WHEEL = """
set -e
cd / && unset PYTHONPATH
python3 -m pip install -q --no-index --no-deps --break-system-packages --root-user-action=ignore /share/%s
gdbheapx doctor
sleep 60 & gdbheapx --pid $! arenas && kill $!
"""
"""A wheel is installed and used."""
PACKAGE = """
set -e
cd / && unset PYTHONPATH
python3 -m pip uninstall -q -y --break-system-packages --root-user-action=ignore gdbheapx
mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates /var/lib/dpkg/triggers && touch /var/lib/dpkg/status /var/lib/dpkg/available
dpkg --force-depends -i /share/%s
sh /src/debian/tests/installed
dpkg --purge gdbheapx && ! which gdbheapx
"""
"""So is Debian's package; dpkg knows of none of the others that are unpacked there."""
PACKAGES = ROOT / "dist" / "deb" / "bookworm"


def say(line: str) -> None:
    """One line of progress."""
    print(line, file=sys.stderr, flush=True)


def unpack(package: Path, folder: Path) -> None:
    """A package's files; links of folders stay."""
    tar = ["tar", "-x", "--keep-directory-symlink", "--no-same-owner", "-C", str(folder), *("--exclude=./%s" % left for left in LEFT_OUT)]
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE) as packed:
        subprocess.run(tar, stdin=packed.stdout, check=True)


def download(release: str, packages: Sequence[str], folder: Path) -> List[Path]:
    """The packages' files, with those that they need."""
    subprocess.run(["bash", str(ROOT / "tools" / "foreign_packages.sh"), "arm64", release, str(folder), *packages], check=True)
    return sorted(folder.glob("*.deb"))


def empty_root(folder: Path) -> None:
    """The folders of a merged /usr, as Debian has them since 12."""
    for name in ("bin", "lib", "sbin"):
        (folder / "usr" / name).mkdir(parents=True)
        (folder / name).symlink_to("usr/" + name)


def make_disk(image: Path) -> None:
    """The guest's file system, of some 700 MB."""
    with tempfile.TemporaryDirectory(dir=str(CACHE)) as work:
        root = Path(work) / "root"
        empty_root(root)
        for package in download("bookworm", USERLAND, Path(work) / "bookworm"):
            unpack(package, root)
        for release, packages in OTHERS.items():
            other = root / "opt" / release
            other.mkdir(parents=True)
            empty_root(other)
            for package in download(release, packages, Path(work) / release):
                unpack(package, other)
        for name in ("proc", "sys", "dev", "tmp", "share", "src", "root", "run", "var/tmp"):
            (root / name).mkdir(parents=True, exist_ok=True)
        for name, to in (("sh", "dash"), ("cc", "gcc"), ("c++", "g++"), ("awk", "mawk")):
            link = root / "usr" / "bin" / name
            if not os.path.lexists(str(link)):
                link.symlink_to(to)
        masters = root / "usr" / "share" / "base-passwd"
        for name in ("passwd", "group"):
            (root / "etc" / name).write_bytes((masters / (name + ".master")).read_bytes())
        guest = root / "usr" / "sbin" / "guest"
        shutil.copy(str(ROOT / "tools" / "arm_guest.sh"), str(guest))
        guest.chmod(0o755)
        for name in ("python3.11", "python3/dist-packages"):
            compile_ahead(root / "usr" / "lib" / name, "/usr/lib/" + name)
        made = image.with_suffix(".new")
        subprocess.run(["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-d", str(root), str(made), "2G"], check=True)
        made.rename(image)


def compile_ahead(folder: Path, to_be: str) -> None:
    """Python's files below it, as the guest's Python compiles them: that takes minutes there."""
    words = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", str(folder), "-p", to_be, str(folder)]
    if sys.version_info[:2] == (3, 11):
        subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=False)


def make_kernel(boot: Boot, folder: Path) -> None:
    """FOLDER/Image and FOLDER/initramfs, which finds the disk."""
    with tempfile.TemporaryDirectory(dir=str(CACHE)) as work:
        tree, first = Path(work) / "tree", Path(work) / "first"
        tree.mkdir()
        empty_root(tree)
        for package in download(boot.release, [boot.package, "busybox-static"], Path(work) / "debs"):
            if re.match(r"linux-image-\d|busybox", package.name):
                unpack(package, tree)
        (first / "bin").mkdir(parents=True)
        (first / "modules").mkdir()
        shutil.copy(str(tree / "usr" / "bin" / "busybox"), str(first / "bin"))
        found = {re.sub(r"\.ko(\.xz)?$", "", path.name).replace("-", "_"): path for path in tree.glob("usr/lib/modules/*/kernel/**/*.ko*")}
        order: List[str] = []
        for name in MODULES:
            for module in with_needed(name, found, set()):
                if module not in order:
                    order.append(module)
        for name in order:
            (first / "modules" / name).write_bytes(contents(found[name]))
        (first / "modules" / "order").write_text("\n".join(order))
        shutil.copy(str(ROOT / "tools" / "arm_first.sh"), str(first / "init"))
        (first / "init").chmod(0o755)
        names = "".join("%s\n" % path.relative_to(first) for path in sorted(first.rglob("*")))
        packed = subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], input=names.encode(), cwd=str(first), stdout=subprocess.PIPE, check=True).stdout
        made = folder.with_suffix(".new")
        shutil.rmtree(str(made), ignore_errors=True)
        made.mkdir()
        (made / "initramfs").write_bytes(packed)
        shutil.copy(str(next(tree.glob("boot/vmlinuz-*"))), str(made / "Image"))
        made.rename(folder)


def contents(module: Path) -> bytes:
    """A kernel module, which later releases compress."""
    packed = module.read_bytes()
    return lzma.decompress(packed) if module.suffix == ".xz" else packed


def with_needed(name: str, found: Dict[str, Path], seen: Set[str]) -> Iterator[str]:
    """A module after those that it needs; nothing of what is built into the kernel."""
    if name in seen or name not in found:
        return
    seen.add(name)
    needed = re.search(rb"\0depends=([^\0]*)\0", contents(found[name]))
    soft = re.findall(rb"\0softdep=pre: ([^\0]*)\0", contents(found[name]))
    for word in [*(needed.group(1).split(b",") if needed else []), *b" ".join(soft).split()]:
        yield from with_needed(word.decode().replace("-", "_"), found, seen)
    yield name


def make() -> None:
    """All that a boot needs, where it is missing."""
    CACHE.mkdir(parents=True, exist_ok=True)
    begun, made_by = time.monotonic(), "%08x" % zlib.crc32(b"".join((ROOT / "tools" / name).read_bytes() for name in MADE_BY))
    stamp = CACHE / "made-by"
    if not stamp.exists() or stamp.read_text() != made_by:
        for name in BOOTS:
            shutil.rmtree(str(CACHE / name), ignore_errors=True)
        (CACHE / "disk").unlink(missing_ok=True)
    if not (CACHE / "disk").exists():
        say("making the disk of an arm64 machine")
        make_disk(CACHE / "disk")
    for name, boot in BOOTS.items():
        if not (CACHE / name).exists():
            say("unpacking the kernel with pages of %s" % name)
            make_kernel(boot, CACHE / name)
    stamp.write_text(made_by)
    if time.monotonic() - begun > 5:
        say("made in %.0f s" % (time.monotonic() - begun))


def checkout(into: Path) -> None:
    """This checkout as it is, with a C kernel for the guest; nothing else that was built."""
    with tempfile.TemporaryDirectory() as work:
        words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(words, cwd=str(ROOT), stdout=subprocess.PIPE, check=True).stdout
        tree, made = Path(work), into.with_suffix(".new")
        for name in map(os.fsdecode, filter(None, listed.split(b"\0"))):
            if (ROOT / name).exists():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(ROOT / name), str(tree / name), follow_symlinks=False)
        for name in ("gdbheapx", "commands", "tests"):
            compile_ahead(tree / name, "/src/" + name)
        (tree / "gdbheapx" / "kernel" / "_kernel.so").write_bytes(libraries.compiled()["aarch64"])
        subprocess.run(["tar", "-c", "--owner=0", "--group=0", "-C", str(tree), "-f", str(made), "."], check=True)
        made.rename(into)


class Machine:
    """A guest that is on."""

    def __init__(self, name: str, share: Path, asked: argparse.Namespace) -> None:
        self.share = share
        (share / "jobs").mkdir(parents=True, exist_ok=True)
        checkout(share / "checkout.tar")
        (share / "now").write_text("%d" % time.time())
        words = ["qemu-system-aarch64", "-machine", "virt,gic-version=3", "-cpu", "max,pauth-impdef=on", "-smp", str(asked.processors), "-m", str(asked.memory_mb)]
        words += ["-machine", "mte=on", "-accel", "tcg,thread=multi", "-nographic", "-nodefaults", "-no-reboot", "-serial", "file:%s" % (share / "console")]
        words += ["-kernel", str(CACHE / name / "Image"), "-initrd", str(CACHE / name / "initramfs"), "-append", "console=ttyAMA0 quiet loglevel=4 panic=-1"]
        words += ["-drive", "file=%s,format=raw,if=virtio,snapshot=on" % (CACHE / "disk"), "-device", "virtio-rng-pci"]
        words += ["-virtfs", "local,path=%s,mount_tag=share,security_model=none" % share.resolve()]
        self.emulator = subprocess.Popen(words, stdin=subprocess.DEVNULL)

    def ready(self) -> None:
        """Wait until it takes commands."""
        wait(self.share / "jobs" / "ready", 300, self.emulator)

    def off(self) -> None:
        """End it."""
        (self.share / "jobs" / "off").touch()
        try:
            self.emulator.wait(30)
        except subprocess.TimeoutExpired:
            self.emulator.kill()
            self.emulator.wait()


def wait(path: Path, seconds: float, emulator: Optional["subprocess.Popen[bytes]"] = None) -> None:
    """Until this file is there."""
    until = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > until or (emulator is not None and emulator.poll() is not None):
            raise SystemExit("the machine did not answer: %s is missing; its console is beside it" % path)
        time.sleep(0.1)


def execute(share: Path, command: str) -> int:
    """Run it in a machine that serves; its output appears as it is written. Its exit code."""
    name = "%d-%d" % (time.time_ns(), os.getpid())
    jobs = share / "jobs"
    preamble = "export PYTHONPATH=/src PYTEST_ADDOPTS='--assert=plain'\ncd /src\n"
    (jobs / (name + ".new")).write_text(preamble + command + "\n")
    (jobs / (name + ".new")).rename(jobs / (name + ".sh"))
    shown, until = 0, time.monotonic() + SECONDS
    out, code = jobs / (name + ".out"), jobs / (name + ".code")
    while time.monotonic() < until:
        ended = code.exists()
        if out.exists():
            with out.open("rb") as stream:
                stream.seek(shown)
                part = stream.read()
            shown += len(part)
            sys.stdout.buffer.write(part)
            sys.stdout.buffer.flush()
        if ended:
            return int(code.read_text())
        time.sleep(0.1)
    say("no answer after %d s" % SECONDS)
    return 124


def test(name: str, asked: argparse.Namespace) -> int:
    """The tests with that kernel, then the wheel as users install it, and the package if `make deb ARM64=1` has made it."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as share:
        wheel = aarch64_wheel(Path(share))
        machine = Machine(name, Path(share), asked)
        try:
            machine.ready()
            tests = " ".join(map(shlex.quote, WHOLE if asked.whole else TESTS))
            code = execute(Path(share), "python3 -m tools.run_tests -q -n %d %s" % (asked.processors, tests))
            code = max(code, execute(Path(share), WHEEL % wheel.name))
            committed = int(subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=str(ROOT), stdout=subprocess.PIPE, check=True).stdout)
            for package in PACKAGES.glob("gdbheapx_*_arm64.deb"):
                if package.stat().st_mtime < committed:
                    say("%s is older than the last commit: not tried; `make deb ARM64=1` makes it anew" % package.name)
                    continue
                shutil.copy(str(package), share)
                code = max(code, execute(Path(share), PACKAGE % package.name))
        finally:
            machine.off()
    say("%s: %s in %.0f s" % (name, "FAILED" if code else "passed", time.monotonic() - begun))
    return code


def aarch64_wheel(folder: Path) -> Path:
    """Made of this checkout."""
    with_compiler = {"CC": libraries.compilers()["aarch64"], "GDBHEAPX_PORTABLE": "aarch64"}
    return make_dist.tag(make_dist.make_wheel(make_dist.make_sdist(folder), folder, with_compiler), "aarch64")


def main(words: Sequence[str]) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.arm_machine")
    parser.add_argument("--memory-mb", type=int, default=3072)
    parser.add_argument("--processors", type=int, default=2)
    parser.add_argument("--whole", action="store_true")
    ways = parser.add_subparsers(dest="way", required=True)
    ways.add_parser("make")
    ways.add_parser("test").add_argument("boots", nargs="*", choices=[[], *BOOTS])
    for name in ("run", "serve"):
        one = ways.add_parser(name)
        one.add_argument("boot", choices=sorted(BOOTS))
        one.add_argument("rest", nargs=argparse.REMAINDER)
    one = ways.add_parser("exec")
    one.add_argument("share", type=Path)
    one.add_argument("rest", nargs=argparse.REMAINDER)
    one = ways.add_parser("push")
    one.add_argument("share", type=Path)
    asked = parser.parse_args(words)
    rest = [word for word in getattr(asked, "rest", []) if word != "--"]
    command = rest[0] if len(rest) == 1 else " ".join(map(shlex.quote, rest))
    if asked.way == "exec":
        return execute(asked.share, command)
    if asked.way == "push":
        checkout(asked.share / "checkout.tar")
        return execute(asked.share, "tar -x -m -C /src -f /share/checkout.tar")
    make()
    if asked.way == "make":
        return 0
    if asked.way == "test":
        return max([test(name, asked) for name in asked.boots or BOOTS])
    if asked.way == "serve":
        machine = Machine(asked.boot, Path(rest[0]), asked)
        machine.ready()
        say("serving")
        return machine.emulator.wait()
    with tempfile.TemporaryDirectory() as share:
        machine = Machine(asked.boot, Path(share), asked)
        try:
            machine.ready()
            return execute(Path(share), command)
        finally:
            machine.off()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
