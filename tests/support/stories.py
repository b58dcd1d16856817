"""Services that grow, and the words that their owners are looking for."""

import shutil
import subprocess
import sys
import urllib.request
from typing import Callable, Dict, List, NamedTuple, Tuple

import pytest

from tests.support.processes import Process, Stage
from tests.support.python_service import TASKS
from tests.support.runtimes import children, wait_for
from tests.support.wheels import wheel

FLASK = """
from flask import Flask
app = Flask(__name__)
PROFILES = {}
@app.route("/user/<int:number>")
def user(number):
    PROFILES[number] = {"name": "user %d" % number, "rows": [str(number + i) for i in range(40)]}
    return "kept"
"""
CELERY = """
import sys
import celery, celery.signals
app = celery.Celery("tasks", broker="memory://", backend="cache+memory://")
SEEN = []
@app.task
def count(number):
    SEEN.append({"number": number, "text": "task %d" % number, "parts": [number, str(number)]})
@celery.signals.worker_ready.connect
def ready(**_):
    for number in range(60000):
        count.apply(args=(number,)) if number < 50 else count.run(number)
    print("ready", file=sys.__stdout__, flush=True)  # celery takes the other one for its log
"""
PANDAS = """
import pandas
HISTORY = []
def rows(number):
    return pandas.DataFrame({"a": range(number, number + 20000), "b": [float(number)] * 20000})
for number in range(150):
    HISTORY.append(rows(number))
import sys
print("ready", flush=True)
sys.stdin.read()
"""
NODE_BUFFERS = "const k=[];for(let i=0;i<2500;i++)k.push(Buffer.allocUnsafeSlow(30000).fill(i&255));globalThis.k=k;console.log('ready');setInterval(()=>{},1e6);"
NODE_ZLIB = """const zlib=require('zlib'),k=[];let open=200;
for(let i=0;i<200;i++){const d=zlib.createDeflate();d.write('hello '+i,()=>{if(!--open)console.log('ready')});k.push(d);}globalThis.k=k;setInterval(()=>{},1e6);"""
RUBY = """
module App
  class Log
    LINES = []
    def self.add(text); LINES << text; end
  end
end
200000.times { |i| App::Log.add("GET /item/#{i} " + "x" * 80) }
STDOUT.puts "ready"; STDOUT.flush; STDIN.read
"""
JAVA = """import java.util.*; import java.nio.*; public class Direct { static List<Object> kept = new ArrayList<>();
public static void main(String[] a) throws Exception { for (int i = 0; i < 1500; i++) {
    ByteBuffer b = ByteBuffer.allocateDirect(65536); for (int j = 0; j < 65536; j += 512) b.put(j, (byte) 1); kept.add(b); }
System.out.println("ready"); Thread.sleep(1L << 40); } }
"""
CPP = """#include <cstdio>
#include <string>
#include <unordered_map>
std::unordered_map<std::string, std::string> sessions;
int main() { for (int i = 0; i < 200000; i++) sessions["user " + std::to_string(i)] = std::string(100, 'x'); puts("ready"); fflush(stdout); getchar(); }
"""
RUST = """use std::collections::HashMap; use std::sync::Mutex; use std::io::{Read, Write};
static PENDING: Mutex<Option<HashMap<u64, String>>> = Mutex::new(None);
fn main() {
    let mut map = HashMap::new();
    for i in 0..200000u64 { map.insert(i, format!("pending request number {} {}", i, "x".repeat(60))); }
    *PENDING.lock().unwrap() = Some(map);
    println!("ready"); std::io::stdout().flush().unwrap();
    let mut text = String::new(); std::io::stdin().read_to_string(&mut text).unwrap();
}
"""


class Story(NamedTuple):
    """A service, and the words that its owner is looking for."""

    start: Callable[[Stage], Process]
    words: Tuple[str, ...]
    pid: Callable[[Process], int] = lambda process: process.pid


def program(stage: Stage, command: List[str], files: Dict[str, str], needs: str, **env: str) -> Process:
    """At rest, in a folder with its files."""
    if shutil.which(needs) is None:
        pytest.skip("%s is not installed" % needs)
    folder = stage.folder()
    for name, text in files.items():
        (folder / name).write_text(text)
    process = stage.spawn(command, folder, {"PYTHONPATH": ":".join(filter(None, (str(folder), env.pop("packages", ""))))} | env)
    process.wait_ready()
    return process


def flask(stage: Stage) -> Process:
    """gunicorn with one worker, and 6,000 requests."""
    folder, socket = stage.folder(), stage.folder() / "socket"
    (folder / "shop.py").write_text(FLASK)
    command = [sys.executable, "-m", "gunicorn", "-w", "1", "-b", "127.0.0.1:0", "--log-file", str(socket), "shop:app"]
    process = stage.spawn(command, folder, {"PYTHONPATH": "%s:%s" % (folder, wheel("flask", "3.0.3"))})
    wait_for(lambda: socket.exists() and "Listening at" in socket.read_text() and len(children(process.pid)) == 1)
    address = socket.read_text().split("Listening at: ")[1].split(" ")[0]
    for number in range(6000):
        urllib.request.urlopen("%s/user/%d" % (address, number)).read()
    return process


def celery(stage: Stage) -> Process:
    """A worker that takes tasks in its own process."""
    command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--pool", "solo", "-l", "error"]
    return program(stage, command, {"tasks.py": CELERY}, sys.executable, packages=str(wheel("celery", "5.4.0")))


def pandas(stage: Stage) -> Process:
    """Frames that nobody takes from a list."""
    return program(
        stage, [sys.executable, "-c", "import report"], {"report.py": PANDAS}, sys.executable, packages=str(wheel("pandas", "2.2.3"))
    )


def cpp(stage: Stage) -> Process:
    """Built as usual, with symbols."""
    return built(stage, "g++", ["-O2", "main.cpp", "-o", "service"], "main.cpp", CPP)


def rust(stage: Stage) -> Process:
    """A release build of one file."""
    return built(stage, "rustc", ["-O", "main.rs", "-o", "service"], "main.rs", RUST)


def built(stage: Stage, compiler: str, options: List[str], name: str, text: str) -> Process:
    """A program of one file."""
    if shutil.which(compiler) is None:
        pytest.skip("%s is not installed" % compiler)
    folder = stage.folder()
    (folder / name).write_text(text)
    subprocess.run([compiler, *options], cwd=folder, check=True, capture_output=True)
    process = stage.spawn([str(folder / "service")], folder)
    process.wait_ready()
    return process


def redis(stage: Stage) -> Process:
    """Debian's server with one list of 300,000 elements among 20,000 small keys."""
    if shutil.which("redis-server") is None or shutil.which("redis-cli") is None:
        pytest.skip("redis is not installed")
    folder = stage.folder()
    process = stage.spawn(["redis-server", "--port", "0", "--unixsocket", str(folder / "socket"), "--save", ""], folder)
    wait_for((folder / "socket").exists)
    text = "\n".join(
        ["SET small:%d x" % i for i in range(20000)] + ["RPUSH backlog:orders %s" % (("order-%d-" % i) * 10) for i in range(300000)]
    )
    subprocess.run(
        ["redis-cli", "-s", str(folder / "socket"), "--pipe"], input=text.replace("\n", "\r\n").encode() + b"\r\n", check=True,
        capture_output=True,
    )
    return process


def worker(process: Process) -> int:
    """gunicorn's only child."""
    return children(process.pid)[0]


STORIES = {
    "flask": Story(flask, ("shop.PROFILES", "dict of 6,000 entries"), worker),
    "celery": Story(celery, ("tasks.SEEN", "list of 60,000")),
    "pandas": Story(pandas, ("report.HISTORY",)),
    "asyncio": Story(
        lambda stage: program(stage, [sys.executable, "main.py"], {"main.py": TASKS}, sys.executable), ("later, list of 2,000 leads to",)
    ),
    "node-buffers": Story(
        lambda stage: program(stage, ["node", "main.js"], {"main.js": NODE_BUFFERS}, "node"), ("buffer", "JavaScript heap", "inspector")
    ),
    "node-zlib": Story(
        lambda stage: program(stage, ["node", "main.js"], {"main.js": NODE_ZLIB}, "node"),
        ("buffers of a stream that compresses", "ZlibStream"),
    ),
    "ruby": Story(lambda stage: program(stage, ["ruby", "main.rb"], {"main.rb": RUBY}, "ruby"), ("App::Log::LINES", "Array of 200,000")),
    "java": Story(
        lambda stage: program(
            stage, ["java", "-Xmx200m", "-XX:NativeMemoryTracking=summary", "Direct.java"], {"Direct.java": JAVA}, "java"
        ),
        ("NMT Other", "direct buffers as Other", "Java heap"),
    ),
    "c++": Story(cpp, ("sessions", "200,000")),
    "rust": Story(rust, ("PENDING", "HashMap")),
    "redis": Story(redis, ("--bigkeys",)),
}
