"""Services that grow: three commands, of which `report` is the first and names the others, lead to what holds the memory.

Files: analysis/memory_verdict.py.
"""

import subprocess
from typing import List

import pytest

from tests.support import gcores
from tests.support.processes import Stage
from tests.support.stories import STORIES, redis
from tests.support.tool import heapx

pytestmark = pytest.mark.wild  # foreign programs

OWN = {"owners", "census", "leaks", "chunks", "pins", "arenas"}
MOST_COMMANDS = 3


def told(target: List[str]) -> str:
    """What `report` says, and then the first commands of this tool that it names, three in all."""
    report = heapx(target, "report")
    steps = [step["command"] for step in heapx(target, "report", "--json").envelope["data"]["next"] if step["command"]]
    named = [step for step in steps if step.split()[0] in OWN][: MOST_COMMANDS - 1]
    assert report.code == 0, report.stderr
    return "\n".join([report.stdout.decode(), *(heapx(target, *step.split()).stdout.decode() for step in named)])


@pytest.mark.parametrize("name", list(STORIES))
def test_three_commands_lead_to_it(stage: Stage, name: str) -> None:
    """Of a live process."""
    story = STORIES[name]
    process = story.start(stage)
    text = told(["--pid", str(story.pid(process))])
    missing = [words for words in story.words if words not in text]
    assert not missing, text


def test_what_report_names_of_redis_names_the_key(stage: Stage) -> None:
    """What it advises is run as it stands: `redis-cli MEMORY STATS` names the parts, `redis-cli --bigkeys` the key."""
    process = redis(stage)
    steps = heapx(process.target("live"), "report", "--json").envelope["data"]["next"]
    commands = [step["command"].split() for step in steps if (step["command"] or "").startswith("redis-cli ")]
    asked = [[command[0], "-s", str(process.folder / "socket"), *command[1:]] for command in commands]
    parts, largest = (subprocess.run(command, capture_output=True, text=True).stdout for command in asked)
    assert "dataset.bytes" in parts and "clients.normal" in parts and "backlog:orders" in largest


@pytest.mark.parametrize("name", ["ruby", "pandas", "c++"])
def test_and_of_its_core(stage: Stage, name: str) -> None:
    """The same from a core of it."""
    story = STORIES[name]
    text = told(["--core", str(gcores.gcore(story.start(stage)))])
    assert not [words for words in story.words if words not in text], text
