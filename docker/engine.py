"""The Docker engine: the one that runs, or, as root where none does, one that is started here and stopped at the end."""

import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Optional, Type

from docker.errors import DockerException

import docker

START_SECONDS = 60
API_SECONDS = 3600
"""A build or a run of the tests says nothing for minutes."""


class NoEngine(Exception):
    """There is no engine, and none can be started; the message says what to do."""


class Engine:
    """A connection to an engine; as a context, it stops an engine that it started."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._daemon = None  # type: Optional[subprocess.Popen[bytes]]
        self.client = None  # type: Any

    def __enter__(self) -> "Engine":
        try:
            self.client = connect()
        except DockerException as error:
            if os.environ.get("DOCKER_HOST"):
                raise NoEngine("the engine of DOCKER_HOST=%s does not answer: %s" % (os.environ["DOCKER_HOST"], error)) from None
            self._start()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        if self.client is not None:
            self.client.close()
        if self._daemon is not None:
            self._daemon.terminate()
            try:
                self._daemon.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                self._daemon.kill()
                self._daemon.wait()

    def _start(self) -> None:
        """Start dockerd without a bridge: builds use the host's network, tests none, so it needs no firewall rules."""
        if os.getuid() != 0:
            raise NoEngine("no Docker engine answers: start one, set DOCKER_HOST, or run this as root, which starts dockerd by itself")
        daemon = shutil.which("dockerd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/bin")
        if daemon is None:
            raise NoEngine("dockerd is not installed; apt-get install docker.io")
        with open(self._log, "wb") as log:
            self._daemon = subprocess.Popen(
                [daemon, "--bridge=none", "--iptables=false"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                self.client = connect()
                return
            except DockerException as error:
                if self._daemon.poll() is not None or time.monotonic() > end:
                    raise NoEngine("dockerd does not answer: %s; its log is %s" % (error, self._log)) from None
            time.sleep(0.2)


def connect() -> Any:
    """A client of the engine of DOCKER_HOST or the socket; DockerException if there is none."""
    client = docker.from_env(timeout=API_SECONDS)
    try:
        client.ping()
    except Exception as error:
        client.close()
        raise DockerException(str(error)) from None
    return client
