"""docs/how-to/examples has what systemd, Kubernetes and Prometheus take: checked by their own tools, where these are installed."""

import configparser
import ctypes.util
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import List, Tuple

import pytest

from gdbheapx.command import load_commands, parse_command
from gdbheapx.common import global_options
from tests.support import units
from tests.support.paths import ROOT
from tests.support.processes import Stage
from tests.support.programs import need
from tests.support.serving import Served
from tests.support.tool import tool_command

pytestmark = pytest.mark.once  # reads the documentation

EXAMPLES = ROOT / "docs" / "how-to" / "examples"
FILTERS = {
    *("lockpersonality", "memorydenywriteexecute", "privatedevices", "protectclock", "protecthostname", "protectkernellogs", "protectkernelmodules"),
    *("protectkerneltunables", "restrictaddressfamilies", "restrictnamespaces", "restrictrealtime", "restrictsuidsgid", "systemcallarchitectures"),
    *("systemcallfilter", "systemcalllog"),
}
"""What systemd makes seccomp filters of (systemd.exec(5))."""
UNITS = ("gdbheapx-watch@.service", "gdbheapx-trim@.service", "gdbheapx-trim@.timer", "gdbheapx-serve.service", "gdbheapx-capture.service", "gdbheapx-capture.socket")
WATCHED = "[Unit]\nDescription=What is watched\n[Service]\nExecStart=/bin/true\n"


def run(*command: str) -> Tuple[int, str]:
    """Exit code and everything that was said."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def install(folder: Path) -> List[str]:
    """The units as they are for a service called server."""
    (folder / "server.service").write_text(WATCHED)
    paths = [folder / name.replace("@.", "@server.") for name in UNITS]
    for path, name in zip(paths, UNITS):
        shutil.copy(EXAMPLES / name, path)
    return [str(path) for path in paths]


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """systemd-analyze verify has nothing to say of the watch, the trim and its timer; of a unit with a fault it has."""
    analyze, paths = need("systemd-analyze"), install(tmp_path)
    code, said = run(analyze, "verify", "--man=no", *paths)
    about = [line for line in said.splitlines() if "gdbheapx" in line]
    assert code == 0 and not about, said
    broken = Path(paths[0])
    broken.write_text(broken.read_text().replace("Restart=always", "Restart=whenever"))
    assert "gdbheapx-watch@server.service" in run(analyze, "verify", "--man=no", paths[0])[1]


def test_a_service_under_filters_gets_a_trim_without() -> None:
    """The drop-in takes away all that systemd makes a seccomp filter of, and adds the one capability that reads filters."""
    unit, more = (configparser.RawConfigParser(strict=False) for _ in range(2))
    for parser, name in ((unit, "gdbheapx-trim@.service"), (more, "gdbheapx-trim-filtered.conf")):
        parser.read(EXAMPLES / name)
    kept = {key for key in unit["Service"] if key in FILTERS}
    assert kept == set(more["Service"]) - {"capabilityboundingset"} and set(more["Service"].values()) == {"CAP_SYS_ADMIN", "no", ""}


HOARDER = "import time; held = [bytes(900) for _ in range(60000)]; few = held[::500]; del held; print('ready', flush=True); time.sleep(600)"


@pytest.mark.gdb
@pytest.mark.live
def test_the_units_suffice(stage: Stage) -> None:
    """With the capabilities and system calls that the units leave them, watch samples another user's process, and trim returns its memory."""
    for program in ("systemd-analyze", "setpriv"):
        need(program)
    if os.getuid() != 0 or ctypes.util.find_library("seccomp") is None:
        pytest.skip("takes root, and libseccomp")
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    process = stage.spawn_ready([*nobody, "/usr/bin/python3", "-c", HOARDER])
    for name, words, told in (("watch", ["--every", "0.1", "--times", "2"], "2 samples"), ("trim", ["--yes"], "returned to the OS")):
        command = units.under(str(EXAMPLES / ("gdbheapx-%s@.service" % name)), [*tool_command(), *process.target("live"), name, *words])
        done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert done.returncode == 0 and told in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "key"),
    [("watch-sidecar.yaml", "shareProcessNamespace"), ("fleet-job.yaml", "backoffLimitPerIndex"), ("fleet-table-job.yaml", "backoffLimit"), ("serve-daemonset.yaml", "hostPID")],
)
def test_kubernetes_takes_the_manifests(tmp_path: Path, name: str, key: str) -> None:
    """kubernetes-validate, strictly; a key that does not exist is refused."""
    validate, path = need("kubernetes-validate"), EXAMPLES / name
    code, said = run(validate, "--strict", str(path))
    assert code == 0, said
    broken = tmp_path / "broken.yaml"
    broken.write_text(path.read_text().replace(key + ":", key + "s:"))
    assert run(validate, "--strict", str(broken))[0] != 0


RULES = """
rule_files: [%s]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'gdbheapx_allocator_kept_bytes{pid="7",name="app",allocator="glibc"}'
        values: '1073741824x60'
      - series: 'gdbheapx_allocator_held_bytes{pid="7",name="app",allocator="glibc"}'
        values: '1500000000x60'
      - series: 'gdbheapx_allocator_used_bytes{pid="7",name="app",allocator="glibc"}'
        values: '400000000x60'
      - series: 'gdbheapx_anonymous_bytes{pid="7",name="app"}'
        values: '1500000000x60'
      - series: 'gdbheapx_allocator_kept_bytes{pid="9",name="trimmed",allocator="glibc"}'
        values: '1073741824x60'
      - series: 'gdbheapx_allocator_held_bytes{pid="9",name="trimmed",allocator="glibc"}'
        values: '1500000000x60'
      - series: 'gdbheapx_allocator_used_bytes{pid="9",name="trimmed",allocator="glibc"}'
        values: '400000000x60'
      - series: 'gdbheapx_anonymous_bytes{pid="9",name="trimmed"}'
        values: '420000000x60'
      - series: 'gdbheapx_anonymous_bytes{pid="5",name="grows"}'
        values: '500000000+3000000x420'
      - series: 'gdbheapx_anonymous_bytes{pid="6",name="swings"}'
        values: '500000000+10000000x100 1500000000-10000000x100 500000000+10000000x100 1500000000-10000000x100'
      - series: 'gdbheapx_samples_total'
        values: '0+3x80'
      - series: 'gdbheapx_samples_missed_total'
        values: '0+1x80'
      - series: 'gdbheapx_up{pid="8",name="gone"}'
        values: '0x60'
    alert_rule_test:
      - eval_time: 20m
        alertname: MemoryKeptByAllocator
        exp_alerts: []
      - eval_time: 45m
        alertname: MemoryKeptByAllocator
        exp_alerts:
          - exp_labels: {severity: warning, pid: "7", name: app, allocator: glibc}
            exp_annotations:
              summary: "app on  freed 1GiB that its allocator keeps"
              next: "gdbheapx --pid 7 report; it is no leak. Does a periodic trim pay? The summary of watch says so."
      - eval_time: 419m
        alertname: ProcessGrows
        exp_alerts:
          - exp_labels: {severity: warning, pid: "5", name: grows}
            exp_annotations:
              summary: "grows on  has grown by 343.3MiB or more in six hours, swings left out"
              next: "gdbheapx --pid 5 report"
      - eval_time: 70m
        alertname: SamplesAreLate
        exp_alerts:
          - exp_labels: {severity: info}
            exp_annotations:
              summary: "gdbheapx on  does not keep up: 30 samples were missed in 30 minutes"
              next: "raise --every, or follow fewer processes: --pids NAME"
      - eval_time: 30m
        alertname: WatchEnded
        exp_alerts:
          - exp_labels: {severity: info, pid: "8", name: gone}
            exp_annotations:
              summary: "gone on  is not watched: it ended, or its watch did"
"""


def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    """promtool: the rules are valid, and fire when they should and not before."""
    promtool, path = need("promtool"), EXAMPLES / "gdbheapx-alerts.yml"
    code, said = run(promtool, "check", "rules", str(path))
    assert code == 0 and "6 rules found" in said, said
    tests = tmp_path / "rules.test.yml"
    tests.write_text(RULES % path)
    code, said = run(promtool, "test", "rules", str(tests))
    assert code == 0, said


DASHBOARD = EXAMPLES / "gdbheapx-dashboard.json"


def queries() -> List[str]:
    """Of every panel and variable of the dashboard."""
    board = json.loads(DASHBOARD.read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return asked + [variable["definition"] for variable in board["templating"]["list"] if variable["type"] == "query"]


def test_rules_and_dashboard_name_metrics_that_are_served(stage: Stage, live: str) -> None:
    """Each metric in them is one that serve gives, really asked, of one process or of many; each label one that a series has, or Prometheus adds."""
    pytest.importorskip("prometheus_client", reason="serve requires prometheus_client")
    process = stage.start("recorder", "2", "1000", "3")
    names, labels = set(), {"instance", "job", "pod_uid", "container_id"}
    for words in (["--pid", str(process.pid), "serve"], ["serve", "--pids", "recorder"]):
        one = Served(*words, "--every", "5", "--listen", "127.0.0.1:0")  # the first sample has estimates, others may not
        try:
            for name, series in one.series().items():
                names.add(name)
                labels.update(*(sample.labels for sample in series))
        finally:
            one.end()
    rules = re.sub(r"(?m)^ *(next|summary|#|- name).*", "", (EXAMPLES / "gdbheapx-alerts.yml").read_text())
    used = set(re.findall(r"\b(?:gdbheapx|process)_\w+", "\n".join([rules, *queries()])))
    assert used and used - names <= {"gdbheapx_swapped_bytes"}, "swap is not known on every machine"
    named = re.findall(r"(?:by|on|group_left) \(([^)]*)\)", "\n".join([rules, *queries()])) + re.findall(r"(\w+)!?=~?\"", "\n".join(queries()))
    board = json.loads(DASHBOARD.read_text())
    named += re.findall(r"{{(\w+)}}", DASHBOARD.read_text())
    assert {label.strip() for text in named for label in text.split(",") if label.strip()} <= labels
    assert {name for text in queries() for name in re.findall(r"\$(\w+)", text)} <= {one["name"] for one in board["templating"]["list"]} | {"__rate_interval"}


def test_prometheus_takes_the_queries(tmp_path: Path) -> None:
    """promtool: each expression of the dashboard, with its variables filled in, is one."""
    promtool, path = need("promtool"), tmp_path / "queries.yml"
    asked = [text for text in queries() if not text.startswith("label_values")]
    filled = [text.replace("$__rate_interval", "5m").replace("$instance", ".*").replace("$name", ".*") for text in asked]
    path.write_text(json.dumps({"groups": [{"name": "g", "rules": [{"record": "q%d" % at, "expr": text} for at, text in enumerate(filled)]}]}))
    code, said = run(promtool, "check", "rules", str(path))
    assert code == 0 and "%d rules found" % len(filled) in said, said


@pytest.mark.parametrize("name", ["gdbheapx-watch@.service", "gdbheapx-trim@.service", "watch-sidecar.yaml"])
def test_the_command_lines_are_understood(name: str) -> None:
    """What the examples run are commands with options that exist."""
    load_commands()
    found = re.findall(r"exec (gdbheapx --pid [^'\n]*)", (EXAMPLES / name).read_text())
    assert found
    for line in found:
        words = shlex.split(re.sub(r'"\$[({].*?[)}]"', "1", line).replace("%i", "server"))[1:]
        asked, rest = global_options.split_words(words)
        assert asked.pid == 1 and parse_command(rest, "gdbheapx").command.name == rest[0]


def test_capture_serves_the_socket_that_systemd_listens_at() -> None:
    """Both units, and the line for core_pattern in the page, name the same, for nobody but root."""
    load_commands()
    service, listening = ((EXAMPLES / ("gdbheapx-capture." + kind)).read_text() for kind in ("service", "socket"))
    (line,) = re.findall(r"exec (gdbheapx [^'\n]*)'", service)
    options = parse_command(shlex.split(line)[1:], "gdbheapx").options
    assert units.setting(listening, "ListenStream") == [options.listen] and units.setting(listening, "SocketMode") == ["0600"]
    assert "core_pattern=@@%s\n" % options.listen in (ROOT / "docs" / "how-to" / "last-look.md").read_text()
    assert options.to == "/var/lib/" + units.setting(service, "StateDirectory")[0]
