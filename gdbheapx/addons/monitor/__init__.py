"""Add-on for machines that run unattended: watching processes, an endpoint for Prometheus, the bill of a memory cgroup, crashes."""

CAPABILITIES = {"capture": "capture.command", "dumped": "capture.dumped", "standby": "watch.capture", "turn": "capture.turn"}
"""Which module has what the core asks for (addon_loader.find_capability)."""
DOCS = (
    "how-to/bill.md",
    "how-to/last-look.md",
    "how-to/serve.md",
    "how-to/watch.md",
)
"""Its pages in docs/."""
