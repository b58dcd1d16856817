"""`make demo`: a server that hoards memory, looked at while it serves, once more from its core, and made to give memory back."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support import kernelcore

HERE = Path(__file__).resolve().parent


def show(words: "list[str]", shown: str) -> int:
    """Show a command line, run it, and let its output through."""
    print("\n$ " + shown, flush=True)
    return subprocess.call(words, stdin=subprocess.DEVNULL)


def start(folder: Path, hoarder: str, socket: str) -> "subprocess.Popen[bytes]":
    """The server, loaded and serving."""
    server = kernelcore.start([hoarder, "serve", socket], cwd=folder, stdout=subprocess.PIPE)
    assert server.stdout
    if server.stdout.readline() != b"ready\n":
        server.kill()
        raise SystemExit("the server did not start")
    return server


def end(server: "subprocess.Popen[bytes]") -> None:
    """End it, however it is."""
    server.kill()
    server.wait()
    if server.stdout:
        server.stdout.close()


def demo(folder: Path) -> int:
    """Build the server, start it, look at it, make it a core, look at that; then have another one give its memory back."""
    hoarder, socket, core = str(folder / "hoarder"), str(folder / "socket"), str(folder / "core")
    tool = str(Path(sys.executable).parent / "gdbheapx")
    subprocess.check_call(["gcc", "-O1", "-g", "-o", hoarder, str(HERE / "hoarder.c"), "-pthread"])
    server = start(folder, hoarder, socket)
    try:
        print("demo/hoarder.c is serving as process %d. Its six workers loaded 72,000 sessions, then 72,000 more," % server.pid)
        print("then dropped the first ones. Where is the memory?")
        codes = [show([hoarder, "ask", socket], "hoarder ask socket")]
        codes.append(show([tool, "--pid", str(server.pid), "report"], "gdbheapx --pid %d report" % server.pid))
        codes.append(show([tool, "--pid", str(server.pid), "arenas"], "gdbheapx --pid %d arenas" % server.pid))
        codes.append(show([hoarder, "ask", socket], "hoarder ask socket        # still serving"))
        try:
            print("\n$ kill -ABRT %d                # the kernel writes a core" % server.pid, flush=True)
            kernelcore.take(server, core)
        except kernelcore.NoCore as none:
            print("no core to look at: %s" % none)
        else:
            codes.append(show([tool, "--core", core, "report"], "gdbheapx --core core report"))
            codes.append(show([tool, "--core", core, "arenas"], "gdbheapx --core core arenas"))
    finally:
        end(server)
    return max(codes + [give_back(folder, hoarder, socket, tool)])


def give_back(folder: Path, hoarder: str, socket: str, tool: str) -> int:
    """The server once more, which gives the memory back and serves on."""
    server = start(folder, hoarder, socket)
    try:
        print("\nThe same server, started again as process %d, returns the memory to the OS:" % server.pid)
        codes = [show([hoarder, "ask", socket], "hoarder ask socket")]
        codes.append(show([tool, "--pid", str(server.pid), "trim", "--yes"], "gdbheapx --pid %d trim --yes" % server.pid))
        codes.append(show([hoarder, "ask", socket], "hoarder ask socket        # still serving"))
        return max(codes)
    finally:
        end(server)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="gdbheapx-demo-") as name:
        os.chmod(name, 0o755)
        sys.exit(demo(Path(name)))
