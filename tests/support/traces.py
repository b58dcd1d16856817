"""Reads traces by Perfetto's own messages, in an environment of their own that only tests use."""

import json
import os
import subprocess
import sys
import venv
from functools import cache
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Tuple

import pytest

from tests.support.jemallocs import locked

PERFETTO = "0.16.0"
"""The last that has HeapGraph."""
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gdbheapx"
READER = """
import json, sys
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as messages
trace = messages.Trace()
trace.ParseFromString(open(sys.argv[1], "rb").read())
types, fields, places, objects, roots, packets, sizes, commands = {}, {}, {}, [], [], [], [], []
for packet in trace.packet:
    sizes.append(packet.ByteSize())
    commands += [line for one in packet.process_tree.processes for line in one.cmdline]
    if not packet.HasField("heap_graph"):
        continue
    graph, last = packet.heap_graph, 0
    packets.append([graph.pid, graph.index, graph.continued])
    fields.update({one.iid: one.str.decode() for one in graph.field_names})
    places.update({one.iid: one.str.decode() for one in graph.location_names})
    types.update({one.id: [one.class_name, places.get(one.location_id, "")] for one in graph.types})
    for one in graph.objects:
        last = one.id if one.HasField("id") else last + one.id_delta
        assert len(one.reference_field_id) == len(one.reference_object_id)
        edges = [[fields[field], target] for field, target in zip(one.reference_field_id, one.reference_object_id)]
        objects.append([last, types[one.type_id], one.self_size, edges])
    for root in graph.roots:
        roots += [[one, messages.HeapGraphRoot.Type.Name(root.root_type)] for one in root.object_ids]
json.dump([packets, objects, roots, sizes, commands], sys.stdout)
"""


class Trace(NamedTuple):
    """What a trace has."""

    packets: List[Tuple[int, int, bool]]
    """(pid, index, continued) of those with a heap graph."""
    objects: Dict[int, Tuple[Tuple[str, str], int, List[Tuple[str, int]]]]
    """By id: (class, module), bytes, (field, id) of what it points to."""
    roots: Dict[int, str]
    """By id: the type of root."""
    most_bytes: int
    """Of a packet."""
    commands: List[str]


def python() -> str:
    """A Python that has Perfetto's messages; skips where they cannot be installed, which is tried once: pip waits for a network that is not there."""
    found, reason = installed()
    if reason:
        pytest.skip(reason)
    return found


@cache
def installed() -> Tuple[str, str]:
    """That Python, and why it has them not."""
    folder = CACHE / ("perfetto-%s-py%d.%d" % (PERFETTO, *sys.version_info[:2]))
    interpreter = folder / "bin" / "python"
    with locked(CACHE / "perfetto.lock"):
        if not (folder / "whole").exists():
            try:
                venv.create(folder, with_pip=True, clear=True)
                command = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "perfetto==" + PERFETTO]
                subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
            except (subprocess.SubprocessError, OSError) as error:
                said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
                return "", "perfetto %s cannot be installed: %s" % (PERFETTO, said[-1] if said else error)
            (folder / "whole").touch()
    return str(interpreter), ""


def read(file: Path) -> Trace:
    """The trace; an object that is there twice is an error."""
    done = subprocess.run([python(), "-c", READER, str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    trace: Any = json.loads(done.stdout)
    packets, objects, roots, sizes, commands = trace
    made = {one[0]: (tuple(one[1]), one[2], [tuple(edge) for edge in one[3]]) for one in objects}
    assert len(made) == len(objects)
    return Trace([tuple(one) for one in packets], made, dict(map(tuple, roots)), max(sizes), commands)
