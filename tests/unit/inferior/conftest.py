"""A small program that tells the truth about itself, live and as a core, for every test of this folder."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator, NamedTuple

import pytest

from tests.support import kernelcore

PROGRAM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/syscall.h>
int specimen_global = 0x5eed;
static int hidden_static = 0x5eed;
static __thread long local_exec = 0x7e57;
static long *(*where)(void);
static pthread_barrier_t told;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static void tell(const char *end) {
    pthread_mutex_lock(&turn);
    printf("{\"lwp\": %ld, \"local_exec\": %ld, \"plugin_tls\": %ld}%s", (long)syscall(SYS_gettid), (long)&local_exec, (long)where(), end);
    pthread_mutex_unlock(&turn);
}
static void *work(void *unused) { tell(", "); pthread_barrier_wait(&told); pause(); return unused; }
int main(int argc, char **argv) {
    pthread_t thread;
    void *plugin = dlopen(argv[1], RTLD_NOW);
    where = (long *(*)(void))dlsym(plugin, "plugin_where");
    pthread_barrier_init(&told, 0, 4);
    printf("{\"malloc\": %ld, \"getpid\": %ld, \"specimen_global\": %ld, \"hidden_static\": %ld, \"plugin_where\": %ld, \"pid\": %d, \"threads\": [",
        (long)dlsym(RTLD_DEFAULT, "malloc"), (long)dlsym(RTLD_DEFAULT, "getpid"), (long)&specimen_global, (long)&hidden_static, (long)where, (int)getpid());
    for (int i = 0; i < 3; i++) pthread_create(&thread, 0, work, 0);
    pthread_barrier_wait(&told);
    tell("]}\n");
    fflush(stdout);
    pause();
    return argc + (int)local_exec;
}
"""
PLUGIN = "__thread long plugin_tls = 42;\nlong *plugin_where(void) { return &plugin_tls; }\n"


class Specimen(NamedTuple):
    """A program that was started, and what it said about itself."""

    popen: Any
    truth: Dict[str, Any]
    executable: str
    plugin: str


def compile_c(text: str, out: Path, *flags: str) -> str:
    """Compile, or skip where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler here")
    source = out.with_suffix(".c")
    source.write_text(text)
    subprocess.run([compiler, "-O0", "-o", str(out), str(source), *flags], check=True)
    return str(out)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the compiled program and its plugin."""
    folder = tmp_path_factory.mktemp("specimen")
    compile_c(PLUGIN, folder / "plugin.so", "-shared", "-fPIC", "-ftls-model=global-dynamic", "-Wl,--build-id")
    compile_c(PROGRAM, folder / "specimen", "-pthread", "-ldl", "-Wl,--build-id")
    return folder


def start(programs: Path) -> Specimen:
    """Start the program and wait for what it says."""
    executable, plugin = str(programs / "specimen"), str(programs / "plugin.so")
    popen = subprocess.Popen([executable, plugin], stdout=subprocess.PIPE, cwd=str(programs), preexec_fn=kernelcore.allow)
    assert popen.stdout
    return Specimen(popen, json.loads(popen.stdout.readline()), executable, plugin)


@pytest.fixture
def live(programs: Path) -> Iterator[Specimen]:
    """The program, running."""
    specimen = start(programs)
    yield specimen
    specimen.popen.kill()
    specimen.popen.wait()


@pytest.fixture(scope="session")
def core(programs: Path) -> Any:
    """(path of the core, what the program had said)."""
    if kernelcore.reason():
        pytest.skip(kernelcore.reason())
    specimen = start(programs)
    path = kernelcore.take(specimen.popen, str(programs / "specimen.core"))
    assert os.path.getsize(path)
    return path, specimen
