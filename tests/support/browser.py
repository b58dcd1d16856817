"""A headless Chromium, asked by its debugging pipe: screenshots, pages on paper, what it complains of, and axe-core."""

import base64
import json
import os
import select
import shutil
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell"))), None)
AXE = "4.10.2"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gdbheapx"
SECONDS = 60


def axe() -> Optional[str]:
    """axe-core's text, fetched once by npm to a cache outside the checkout; None where there is no npm, or it reaches nothing."""
    kept = CACHE / ("axe-core-%s.min.js" % AXE)
    if not kept.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        packed = CACHE / ("axe-core-%s.tgz" % AXE)
        try:
            command = ["npm", "pack", "--silent", "--pack-destination", str(CACHE), "axe-core@" + AXE]
            subprocess.run(command, check=True, timeout=SECONDS, capture_output=True)
            with tarfile.open(packed) as archive:
                member = archive.extractfile("package/axe.min.js")
                kept.write_bytes(member.read())
        except (OSError, subprocess.SubprocessError, tarfile.TarError, KeyError):
            return None
    return kept.read_text(encoding="utf-8")


class Browser:
    """One Chromium with one page. `complaints`: what its console and its log said."""

    def __init__(self, folder: Path) -> None:
        assert CHROMIUM is not None
        to_it, ours = os.pipe()
        from_it, its = os.pipe()
        words = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run"]
        words += ["--remote-debugging-pipe", "--user-data-dir=%s" % (folder / "profile"), "about:blank"]

        def pipes() -> None:
            os.dup2(to_it, 100)
            os.dup2(its, 101)
            os.dup2(100, 3)
            os.dup2(101, 4)

        self._popen = subprocess.Popen(
            words, preexec_fn=pipes, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_it)
        os.close(its)
        self._write, self._read, self._split_rest, self._number = ours, from_it, b"", 0
        self.complaints: List[str] = []
        self.requests: List[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session: Optional[str] = None
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(domain + ".enable")

    def close(self) -> None:
        """End it."""
        self._popen.terminate()
        try:
            self._popen.wait(10)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        os.close(self._write)
        os.close(self._read)

    def ask(self, method: str, **parameters: Any) -> Dict[str, Any]:
        """The result of one method."""
        self._number += 1
        message: Dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if getattr(self, "_session", None):
            message["sessionId"] = self._session
        self._send(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result = answer["result"]
                assert isinstance(result, dict)
                return result

    def _send(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._write, data) :]

    def _next(self) -> Dict[str, Any]:
        """The next message; events are noted."""
        until = time.monotonic() + SECONDS
        while b"\0" not in self._split_rest:
            if not select.select([self._read], [], [], max(0.0, until - time.monotonic()))[0]:
                raise AssertionError("the browser does not answer")
            piece = os.read(self._read, 1 << 16)
            assert piece, "the browser has ended"
            self._split_rest += piece
        text, _, self._split_rest = self._split_rest.partition(b"\0")
        message = json.loads(text)
        assert isinstance(message, dict)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method: Optional[str], told: Dict[str, Any]) -> None:
        if method == "Log.entryAdded":
            self.complaints.append(told["entry"]["text"])
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(str(told["args"]))
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(told["exceptionDetails"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        self._loaded = method == "Page.loadEventFired"

    def open(self, path: Path, width: int = 1100, height: int = 900, dark: bool = False) -> float:
        """Show a file; how many seconds that took."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.requests.clear()
        began = time.monotonic()
        self._loaded = False
        self.ask("Page.navigate", url=path.as_uri())
        while not self._loaded:
            self._next()
        return time.monotonic() - began

    def evaluate(self, text: str) -> Any:
        """The value of an expression, also of a promise."""
        reply = self.ask("Runtime.evaluate", expression=text, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in reply, reply
        return reply["result"].get("value")

    def screenshot(self, path: Path, whole: bool = True) -> bytes:
        """All of the page, or what the window shows of it, as a file as well."""
        data = base64.b64decode(self.ask("Page.captureScreenshot", captureBeyondViewport=whole, format="png")["data"])
        path.write_bytes(data)
        return data

    def paper(self, path: Path) -> bytes:
        """The page on paper."""
        data = base64.b64decode(self.ask("Page.printToPDF", printBackground=True)["data"])
        path.write_bytes(data)
        return data

    def violations(self, source: str) -> List[Tuple[str, str]]:
        """(rule, element) of everything that axe-core finds wrong."""
        self.ask("Runtime.evaluate", expression=source)
        rules = self.evaluate("axe.run(document, {resultTypes: ['violations']}).then(one => one.violations.flatMap(rule => rule.nodes.map(node => [rule.id, node.html.slice(0, 300) + ' ' + node.failureSummary])))")
        return [(rule, element) for rule, element in rules]
