"""What must add up in an answer of `report --json`, whatever the target and its allocators."""

import re
from typing import Any, Dict, List

from gdbheapx.common.units import sentence_size

SUMS = ("allocator_bytes", "stack_bytes", "file_bytes", "anonymous_bytes", "shared_memory_bytes", "device_bytes")
IN_USE = "in use by the program"


def check_sums(data: Dict[str, Any]) -> None:
    """Parts add up to RSS or to the core, those of each allocator to its own; a figure that appears twice is one figure."""
    memory = data["memory"]
    if memory is not None:
        key = "resident_bytes" if memory["measure"] == "resident" else "dumped_bytes"
        assert sum(part[key] for part in data["split"]) == memory["total_bytes"]
        assert sum(memory[name] for name in SUMS) == memory["total_bytes"]
        assert sum(memory["allocators"].values()) == memory["allocator_bytes"]
    for name, totals in data["totals"].items():
        rows = [row for row in data["arenas"] if row["allocator"] == name]
        for field, total in totals.items():
            parts = [row[field] for row in rows if field in row]
            if parts and total is not None and field.endswith("_bytes") and not field.startswith("largest"):
                assert sum(parts) == total, (name, field)
    for name, parts in data["held"].items():
        check_parts(data, name, parts)


def check_parts(data: Dict[str, Any], name: str, parts: List[Dict[str, Any]]) -> None:
    """Those of one allocator, where what is in memory is told of each."""
    present = {part["name"]: part["present_bytes"] for part in parts if part["present_bytes"] is not None}
    used = next((part["bytes"] for part in parts if part["name"] == IN_USE), None)
    heap = next(heap for heap in data["heaps"] if heap["allocator"] == name)
    assert used is None or used == heap["used_bytes"], "in RAM or not"
    if not present:
        return
    assert all(part["present_bytes"] is not None or part["bytes"] is None for part in parts), "one part alone is not known"
    (split,) = [part for part in data["split"] if part["allocator"] == name and part["kind"] == "allocator"] or [None]
    taken = 0 if split is None else (split["resident_bytes"] or split["dumped_bytes"] or 0) + (split["swapped_bytes"] or 0)
    assert sum(present.values()) == taken, present
    for line in data["verdicts"][name]["lines"][:1]:
        said = re.match(r"([\d.,]+ \S+) of ([\d.,]+ \S+) \(\d+ %\) are in use", line["evidence"])
        if said:
            assert said.groups() == (sentence_size(present[IN_USE]), sentence_size(taken)), line
