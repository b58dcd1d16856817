"""Programs on runtimes that nobody here wrote, each with a heap that is filled, and servers in the foreground."""

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import pytest

from tests.support.processes import Process, Stage
from tests.support.programs import need


class Program(NamedTuple):
    """How one program is run until it says that it is ready."""

    needs: str
    """The command that must be there."""
    command: Tuple[str, ...]
    source: Tuple[str, str]
    """(file name, text) that the command is given."""
    owner: str
    """`program` of the largest part."""
    kind: str
    sure: str


NODE = "const keep=[];for(let i=0;i<400000;i++)keep.push({a:i,b:'s'+i,c:[i,i+1]});globalThis.keep=keep;console.log('ready');setInterval(()=>{},1e6);"
JAVA = """import java.util.*; public class Big { static List<Object> kept = new ArrayList<>();
public static void main(String[] a) throws Exception { for (int i = 0; i < 400000; i++) kept.add(new long[8 + i % 20]);
System.out.println("ready"); Thread.sleep(1L << 40); } }"""
PYTHON = "keep=[{'k%d'%i:[i,str(i)*3,(i,i+1)]} for i in range(200000)]\nprint('ready',flush=True)\nimport time\ntime.sleep(1e6)"
RUBY = "$k=(0...400000).map{|i|['s'+i.to_s,i]}.each_slice(2).to_a;$stdout.puts 'ready';$stdout.flush;sleep 1e6"
PHP = "<?php ini_set('memory_limit','-1');$k=[];for($i=0;$i<300000;$i++)$k[]=['a'=>$i,'b'=>'s'.$i];echo \"ready\\n\";flush();sleep(1000000);"
ERLANG = "T=ets:new(t,[]),[ets:insert(T,{I,lists:seq(1,10),integer_to_list(I)})||I<-lists:seq(1,200000)],io:format(\"ready~n\"),receive x->1 end."
GO = """package main
import ("fmt"; "time")
var keep [][]byte
func main() { for i := 0; i < 300000; i++ { keep = append(keep, make([]byte, 300)) }; fmt.Println("ready"); time.Sleep(time.Hour) }"""
PROGRAMS = {
    "node": Program("node", ("node", "big.js"), ("big.js", NODE), "V8", "runtime", "likely"),
    "java": Program("java", ("java", "-Xmx1g", "Big.java"), ("Big.java", JAVA), "JVM", "runtime", "likely"),
    "java-zgc": Program("java", ("java", "-Xmx1g", "-XX:+UseZGC", "Big.java"), ("Big.java", JAVA), "JVM", "shared-memory", "likely"),
    "python": Program("/usr/bin/python3", ("/usr/bin/python3", "big.py"), ("big.py", PYTHON), "CPython", "runtime", "certain"),
    "php": Program("php", ("php", "big.php"), ("big.php", PHP), "PHP", "runtime", "likely"),
    "erlang": Program("erl", ("erl", "-noshell", "-eval", ERLANG), ("unused", ""), "BEAM", "runtime", "likely"),
}


def start(stage: Stage, program: Program, env: Optional[Dict[str, str]] = None) -> Process:
    """It, ready."""
    need(program.needs)
    return stage.spawn_text(*program.source, program.command, env)


def wait_for(done: Any, seconds: float = 120) -> None:
    """Foreign programs say in many ways that they are ready; none of them is a byte that could be waited for."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            pytest.skip("the program did not get ready in %d s" % seconds)
        time.sleep(0.1)


def children(pid: int) -> List[int]:
    return [int(word) for path in Path("/proc/%d/task" % pid).glob("*/children") for word in path.read_text().split()]


def daemon(stage: Stage, needs: str, command: Sequence[str], folder: Path, env: Optional[Dict[str, str]] = None) -> Process:
    """A server in the foreground."""
    if not shutil.which(needs):
        pytest.skip("%s is not installed" % needs)
    return stage.spawn(command, folder, env)


class Postgres(NamedTuple):
    """A server that runs, and how its client is started."""

    folder: Path
    server: Process
    client: List[str]


def postgres(stage: Stage, *settings: str) -> Postgres:
    """One with databases of its own, as Debian's user postgres; skips where it is not installed."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not programs or os.geteuid() != 0 or not shutil.which("psql"):
        pytest.skip("postgresql is not installed, or this is not root")
    folder = stage.folder()
    shutil.chown(folder, "postgres")
    as_postgres = ["runuser", "-u", "postgres", "--"]
    subprocess.run([*as_postgres, str(programs[-1].parent / "initdb"), "-D", str(folder / "d"), "-A", "trust"], check=True, capture_output=True)
    options = [word for setting in (*settings, "listen_addresses=") for word in ("-c", setting)]
    server = stage.spawn([*as_postgres, str(programs[-1]), "-D", str(folder / "d"), "-k", str(folder), *options], folder)
    client = ["psql", "-h", str(folder), "-U", "postgres", "-qAt"]
    wait_for(lambda: subprocess.run([*client, "-c", "select 1"], capture_output=True).returncode == 0)
    return Postgres(folder, server, client)
