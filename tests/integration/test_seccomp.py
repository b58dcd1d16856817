"""Processes under seccomp: what their filters would kill for is never called, and what they allow is done as ever."""

import select
import shutil
from typing import List

import pytest

from gdbheapx.inferior.arch import native_architecture
from tests.support import jemalloc_states, jemallocs
from tests.support.processes import Process, Stage
from tests.support.tool import Outcome, heapx, in_gdb, run, tool_command
from tests.support.victims import check_free, refusal

pytestmark = pytest.mark.once  # a container has a filter of its own, under which nobody fetches filters or enters strict mode

REFUSED = ("strict", "kill-madvise", "older", "trap-futex", "errno-brk", "notify-madvise", "trace-madvise", "long")
DONE = ("list", "list-kill", "other-advice", "kill-mmap", "beside")
NO_ADMIN = ["setpriv", "--inh-caps=-all", "--bounding-set=-all,+sys_ptrace,+dac_read_search,+dac_override"]
"""root that may attach, and may not fetch filters."""
MOST_STOP_MS = 5000
JEMALLOC = {"MALLOC_CONF": "dirty_decay_ms:-1,muzzy_decay_ms:0,narenas:1"}


def with_jemalloc(stage: Stage, rule: str) -> Process:
    """The same heap in this system's jemalloc, which keeps what was freed."""
    return stage.start("filtered", rule, env={"LD_PRELOAD": str(jemallocs.library()), **JEMALLOC})


def code_of(outcome: Outcome) -> str:
    """The code of the refusal in the envelope, by whichever member tells it."""
    refusal(outcome)
    return str((outcome.envelope.get("error") or {}).get("code", "seccomp"))


def lives(process: Process) -> None:
    """It is free, and answers."""
    check_free(process)
    process.command(b"c")


@pytest.mark.parametrize("rule", REFUSED)
def test_trim_is_refused(stage: Stage, live: str, rule: str) -> None:
    """What the filter kills for, makes fail or hands on is not called: one line, and the process lives and serves."""
    process = stage.start("filtered", rule)
    before = process.smaps_rollup("Anonymous")
    outcome = heapx(process.target(live), "trim", "--yes", "--json")
    assert code_of(outcome) == "seccomp"
    target = outcome.envelope["target"]
    assert (target["stopped_ms"] is None) == (rule == "strict") and (target["stopped_ms"] or 0) < MOST_STOP_MS
    lives(process)
    assert abs(process.smaps_rollup("Anonymous") - before) < 1 << 20


@pytest.mark.parametrize("rule", DONE)
def test_trim_is_done(stage: Stage, live: str, rule: str) -> None:
    """A container's profile, one that kills for what malloc_trim never calls, and a filter of the main thread alone stand in no way."""
    process = stage.start("filtered", rule)
    data = heapx(process.target(live), "trim", "--yes", "--json").data
    assert data["returned"] == 1 and -data["anonymous_diff_bytes"] > 10 << 20
    assert (data["thread"]["lwp"] != process.pid) == (rule == "beside")
    lives(process)


@pytest.mark.parametrize("rule", ["strict", "kill-madvise", "list"])
def test_dry_run_says_so(stage: Stage, live: str, rule: str) -> None:
    """The dry run predicts, and says that and why the call would be refused; it promises nothing then."""
    process = stage.start("filtered", rule)
    envelope = heapx(process.target(live), "trim", "--dry-run", "--json").envelope
    codes = [one["code"] for one in envelope["problems"]]
    assert codes == ([] if rule == "list" else ["call-refused"]) and not envelope["partial"]
    assert envelope["data"]["predicted_bytes"] > 10 << 20
    assert ("to do it: gdbheapx" in heapx(process.target(live), "trim", "--dry-run").stdout.decode()) == (rule == "list")
    lives(process)


@pytest.mark.parametrize("rule", ["strict", "kill-madvise", "errno-munmap", "list"])
def test_purge(stage: Stage, live: str, rule: str) -> None:
    """jemalloc's purge is refused and done by the same rules; its dry run says which, and the report advises it by them."""
    process = with_jemalloc(stage, rule)
    assert ("%d purge" % process.pid in heapx(process.target(live), "report", "--no-deep").stdout.decode()) == (rule == "list")
    dry = heapx(process.target(live), "purge", "--dry-run", "--json").envelope
    assert [one["code"] for one in dry["problems"]] == ([] if rule == "list" else ["call-refused"])
    outcome = heapx(process.target(live), "purge", "--yes", "--json")
    if rule == "list":
        assert -outcome.data["anonymous_diff_bytes"] > 10 << 20
    else:
        assert code_of(outcome) == "seccomp"
    lives(process)


@pytest.mark.rust
@pytest.mark.parametrize("rule", ["errno-munmap", "allow"])
def test_cure(stage: Stage, live: str, rule: str) -> None:
    """A thread that ticks again purges by itself: where its filter forbids that no byte is written, and the blind threads stay blind."""
    folder = stage.folder()
    program = [str(jemallocs.build_rust(jemallocs.RUST["rust-0.4"])), "tickers", str(folder / "inner"), "300", "healthy", "frees-first", "frees-first"]
    under = [str(stage.builder.build("filtered")), str(folder / "record"), rule, "exec"]
    process = stage.spawn_ready([*under, *program], folder, {"_RJEM_MALLOC_CONF": "dirty_decay_ms:60000,narenas:8"})
    before = jemalloc_states.verdicts(process)
    assert "blind" in before.values()
    outcome = heapx(process.target(live), "tickers", "--cure", "--yes", "--json")
    if rule == "errno-munmap":
        assert code_of(outcome) == "seccomp" and jemalloc_states.verdicts(process) == before
    else:
        assert outcome.code == 0 and "blind" not in jemalloc_states.verdicts(process).values()
    check_free(process)


def test_every(stage: Stage, live: str) -> None:
    """Round by round: the refusal is the message, the process lives, and the end is that of a single refused trim."""
    process = stage.start("filtered", "kill-madvise")
    outcome = heapx(process.target(live), "trim", "--every", "0.1", "--above", "1", "--times", "2", "--yes")
    rows = outcome.lines
    assert len(rows) == 2 and all("seccomp" in row["message"] for row in rows)
    alone = heapx(process.target(live), "trim", "--yes")
    assert (outcome.code, outcome.stderr) == (alone.code, alone.stderr) and alone.code == 1
    lives(process)


@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv is not installed")
def test_filters_that_cannot_be_fetched(stage: Stage, live: str) -> None:
    """Without CAP_SYS_ADMIN nobody can tell what a filter says: refused before any stop, with the option that accepts it; that option
    accepts no strict mode."""
    process = stage.start("filtered", "allow")
    tool = [*NO_ADMIN, *tool_command(), "--pid", str(process.pid), "trim", "--yes", "--json"]
    outcome = run(tool)
    assert "--accept-seccomp" in refusal(outcome) and outcome.envelope["target"]["stopped_ms"] is None
    assert -run([*tool, "--accept-seccomp"]).data["anonymous_diff_bytes"] > 10 << 20
    lives(process)
    strict = stage.start("filtered", "strict")
    refusal(heapx(strict.target(live), "trim", "--yes", "--accept-seccomp"))
    lives(strict)


@pytest.mark.parametrize("rule, is_done", [("kill-personality", True), ("errno-madvise", False)])
def test_in_the_same_container(stage: Stage, live: str, rule: str, is_done: bool) -> None:
    """A tool that is under as many filters as the process, in the same namespaces and control group, tries the calls in a child."""
    process = stage.start("filtered", rule)
    wrapper = str(stage.builder.build("filtered"))
    outcome = run([wrapper, str(stage.folder() / "record"), rule, "exec", *tool_command(), "--pid", str(process.pid), "trim", "--yes", "--json"])
    if is_done:
        assert -outcome.data["anonymous_diff_bytes"] > 10 << 20
    else:
        assert "madvise" in refusal(outcome)
    lives(process)


@pytest.mark.parametrize("rule", ["kill-restart_syscall", "errno-restart_syscall"])
@pytest.mark.parametrize("before, words", [([], ["arenas"]), ([], ["trim", "--yes"]), (NO_ADMIN, ["arenas"])], ids=["look", "call", "filters unknown"])
def test_asleep(stage: Stage, live: str, rule: str, before: List[str], words: List[str]) -> None:
    """A program in a sleep whose filter lacks restart_syscall(2) dies of any stop, SIGSTOP's too; not of this tool's, which may not know what it says."""
    if before and not shutil.which("setpriv"):
        pytest.skip("setpriv is not installed")
    process = stage.start("filtered", rule, "sleep")
    target = process.target(live)
    assert (run([*before, *tool_command(), *target, *words]) if before else heapx(target, *words)).code == 0
    process.wait_ready()  # the sleep ended with EINTR, no other error
    check_free(process)


def test_asleep_and_allowed(stage: Stage, live: str) -> None:
    """Where the filter allows it the sleep goes on, as it does without a filter."""
    process = stage.start("filtered", "list", "sleep")
    assert heapx(process.target(live), "arenas").code == 0
    assert process.popen.stdout and not select.select([process.popen.stdout], [], [], 0.2)[0]
    check_free(process)


def test_died_in_the_call(stage: Stage, live: str) -> None:
    """Where a call ends the process after all, the line says so, with the signal: nobody takes it for a program that ended by itself."""
    process = stage.start("filtered", "kill-madvise")
    tampered = stage.folder() / "tampered.gdb"
    tampered.write_text("python\nfrom gdbheapx.actions.preflight import Sandbox\nSandbox.against = lambda *more, **rest: None\nend\n")
    outcome = in_gdb(["--pid", str(process.pid)], ["source %s" % tampered, "heapx trim --yes"])
    text = outcome.stdout.decode() + outcome.stderr
    assert "process %d died during malloc_trim: signal 31 (SIGSYS" % process.pid in text
    assert process.popen.wait() == -31


def test_asleep_in_a_users_gdb(stage: Stage, live: str) -> None:
    """Whoever stops it by gdb is told that running on would kill it, and how it lives: so it does."""
    process = stage.start("filtered", "kill-restart_syscall", "sleep")
    shown = native_architecture().in_system_call
    spares = ["set $%s = -4" % shown.result, *(["set $pc += %d" % len(shown.instruction)] if shown.is_rewound else [])]
    outcome = in_gdb(["--pid", str(process.pid)], ["heapx arenas", *spares, "heapx arenas"])
    said = outcome.stdout.decode() + outcome.stderr
    assert all(said.count(one) == 1 for one in spares) and "Partial" not in said, said
    process.wait_ready()
    check_free(process)
