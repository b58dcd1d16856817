"""What this machine, and one process, say about transparent huge pages and locked memory."""

import re
from typing import Optional

from gdbheapx.inferior.base import HugePages
from gdbheapx.inferior.live import procfs

SETTING = "/sys/kernel/mm/transparent_hugepage/enabled"


def machine_setting() -> Optional[str]:
    """The word in brackets of transparent_hugepage/enabled."""
    text = (procfs.slurp(SETTING) or b"").decode("ascii", "replace")
    found = re.search(r"\[(\w+)\]", text)
    return found.group(1) if found else None


def find(pid: int, setting: Optional[str]) -> HugePages:
    """Of one process."""
    fields = procfs.status(pid)
    locked = fields.get("VmLck", "").split()
    allowed = fields.get("THP_enabled")
    return HugePages(setting, None if allowed is None else allowed.strip() == "1", int(locked[0]) * 1024 if locked else None)
