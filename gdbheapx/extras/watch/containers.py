"""The pod and the container of a process, by the names of its control groups alone: no runtime and no cluster is asked."""

import re
from typing import NamedTuple, Optional

POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?=[./\n]|$)")
"""`/kubepods/burstable/podUID`, or `kubepods-burstable-podUID.slice`, where systemd has _ for each dash; of a static pod 32 digits."""
CONTAINER = re.compile(r"[/-]([0-9a-f]{64})(?=[./\n]|$)")
"""`/ID`, or `cri-containerd-ID.scope`, `crio-ID.scope`, `docker-ID.scope`, `libpod-ID.scope`."""
MOST_BYTES = 1 << 16


class Place(NamedTuple):
    """Where a process runs; None: in none, or its group has another name. Kubernetes' own metrics have the same labels."""

    container_id: Optional[str] = None
    pod_uid: Optional[str] = None


def place(pid: int, proc: str = "/proc") -> Place:
    """Of a process, now."""
    try:
        with open("%s/%d/cgroup" % (proc, pid), encoding="utf-8", errors="surrogateescape") as file:
            return named(file.read(MOST_BYTES))
    except OSError:
        return Place()


def named(groups: str) -> Place:
    """By the text of /proc/PID/cgroup. In a container that runs others the outer one is meant: the cluster knows no other."""
    pods = list(POD.finditer(groups))
    container = CONTAINER.search(groups, pods[-1].end() if pods else 0)
    uid = pods[-1].group(1).replace("_", "-") if pods else None
    return Place(container.group(1) if container is not None else None, uid)
