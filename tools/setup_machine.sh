#!/bin/bash
# Makes this machine able to run `make demo` (demo), `make test` and the rest (test), `make matrix` (matrix), `make arm64` (arm64) or `make dist`
# and `make deb` (dist):
# Debian packages and .venv. An engine for images is something that `make dist` can do without.
# As root it installs the Debian packages that are lacking; otherwise it prints the one line that does and stops.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-test}

lacking=()
lack() { lacking+=("$@"); }

# The system's own interpreter: a shim of a version manager costs 0.2 s each time a command starts.
python=/usr/bin/python3
[ -x $python ] || python=$(command -v python3 || true)
if [ -z "$python" ]; then
  lack python3 python3-venv
elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  lack python3-venv
fi
command -v gdb >/dev/null || lack gdb
command -v gcc >/dev/null || lack gcc
[ -e /usr/include/stdlib.h ] || lack libc6-dev
# Debug information of exactly the libc that runs; another version's is none.
if command -v dpkg-query >/dev/null; then
  libc=$(dpkg-query -W -f '${Version}' libc6 2>/dev/null || true)
  debug=$(dpkg-query -W -f '${Status} ${Version}' libc6-dbg 2>/dev/null || true)
  [ "$debug" = "install ok installed $libc" ] || lack libc6-dbg
fi
if [ "$what" = test ]; then
  # Without Java and jemalloc the tests about them would be skipped, with that reason.
  command -v javac >/dev/null || lack default-jdk-headless
  ls /usr/lib/*/libjemalloc.so.2 >/dev/null 2>&1 || lack libjemalloc2
  ls /usr/lib/*/libjemalloc.so >/dev/null 2>&1 || lack libjemalloc-dev
  # Not every release has it.
  ls /usr/lib/*/libmimalloc.so.2 >/dev/null 2>&1 || ! apt-cache show libmimalloc2.0 >/dev/null 2>&1 || lack libmimalloc2.0
  ls /usr/lib/*/libtcmalloc.so.4 >/dev/null 2>&1 || ! apt-cache show libgoogle-perftools4 >/dev/null 2>&1 || lack libgoogle-perftools4
  # It holds redis-server too, without the service.
  command -v redis-check-rdb >/dev/null || lack redis-tools
  # The Rust programs need cargo 1.70 or later, for its sparse index; Debian 12's own is older, the one beside it is not.
  if ! command -v cargo >/dev/null; then
    grep -qs '^VERSION_ID="12"' /etc/os-release && lack cargo-web || lack cargo
  fi
  # Containers of GLib: without its headers a test is skipped.
  [ -e /usr/include/glib-2.0/glib.h ] || lack libglib2.0-dev
  command -v pkg-config >/dev/null || lack pkg-config
  command -v make >/dev/null || lack make
  command -v setpriv >/dev/null || lack util-linux
  command -v musl-gcc >/dev/null || lack musl-tools
  command -v gdbserver >/dev/null || lack gdbserver
  command -v zsh >/dev/null || lack zsh
  command -v tmux >/dev/null || lack tmux
  command -v mandoc >/dev/null || lack mandoc
  # Programs of other architectures. The packages gcc-multilib and gcc-aarch64-linux-gnu exclude each other, those with a version do not.
  if [ "$(dpkg --print-architecture 2>/dev/null)" = amd64 ]; then
    major=$(gcc -dumpversion 2>/dev/null || apt-cache depends gcc 2>/dev/null | sed -n 's/.*Depends: gcc-\([0-9]*\)$/\1/p' | head -1)
    major=${major%%.*}
    major=${major:-12}
    [ -e /usr/lib/gcc/x86_64-linux-gnu/$major/32/libgcc.a ] || lack gcc-$major-multilib
    if [ "$(dpkg-query -W -f '${Status}' gcc-multilib 2>/dev/null || true)" != "install ok installed" ]; then
      command -v aarch64-linux-gnu-gcc-$major >/dev/null || lack gcc-$major-aarch64-linux-gnu libc6-dev-arm64-cross
      command -v gdb-multiarch >/dev/null || lack gdb-multiarch
      command -v qemu-aarch64-static >/dev/null || lack qemu-user-static
    fi
  fi
fi
if [ "$what" = arm64 ]; then
  command -v qemu-system-aarch64 >/dev/null || lack qemu-system-arm
  PATH=$PATH:/usr/sbin command -v mke2fs >/dev/null || lack e2fsprogs
  command -v cpio >/dev/null || lack cpio
  ls /usr/bin/aarch64-linux-gnu-gcc* >/dev/null 2>&1 || lack gcc-aarch64-linux-gnu libc6-dev-arm64-cross
fi
if { [ "$what" = matrix ] || { [ "$what" = dist ] && [ "$(id -u)" = 0 ]; }; } && [ -z "${DOCKER_HOST:-}" ] && [ ! -S /var/run/docker.sock ]; then
  # No engine runs here: docker/engine.py starts this one, and makes images without a registry.
  PATH=$PATH:/usr/sbin command -v dockerd >/dev/null || lack docker.io
  PATH=$PATH:/usr/sbin command -v debootstrap >/dev/null || lack debootstrap
fi

if [ ${#lacking[@]} -gt 0 ]; then
  if ! command -v apt-get >/dev/null; then
    echo "lacking on this machine: ${lacking[*]} (Debian's names); install them and run this again" >&2
    exit 1
  fi
  if [ "$(id -u)" != 0 ]; then
    echo "sudo apt-get update && sudo apt-get install -y ${lacking[*]}" >&2
    exit 1
  fi
  echo "installing ${lacking[*]}"
  sh tools/apt.sh update
  sh tools/apt.sh install -y --no-install-recommends "${lacking[@]}"
fi
[ -x /usr/bin/python3 ] && python=/usr/bin/python3 || python=$(command -v python3)

extra=
build=()
[ "$what" = matrix ] && extra='[matrix]'
if [ "$what" = dist ]; then
  extra='[dist]'
  build=(setuptools wheel)
fi
if [ "$what" = test ] || [ "$what" = arm64 ]; then
  extra='[dev]'
  build=(setuptools wheel) # the tests of packaging build without isolation
fi
stamp=.venv/installed-$what
# [dev] has what [matrix] has: nothing changes in a venv while tests run.
[ "$what" = matrix ] && [ -e .venv/installed-test ] && stamp=.venv/installed-test
# A venv that belongs to another interpreter, or half a venv, is made anew.
if ! .venv/bin/python -c 'import pip' 2>/dev/null; then
  rm -rf .venv
  "$python" -m venv .venv
fi
if [ ! -e "$stamp" ] || [ setup.py -nt "$stamp" ] || [ pyproject.toml -nt "$stamp" ] || [ tools/constraints.txt -nt "$stamp" ] || [ tools/setup_machine.sh -nt "$stamp" ]; then
  .venv/bin/python -m pip install -q --disable-pip-version-check -e ".$extra" "${build[@]}" -c tools/constraints.txt </dev/null
  touch "$stamp"
fi
# A library of other sources is refused: build it again when they changed.
kernel=gdbheapx/kernel/_kernel.so
if [ ! -e $kernel ] || [ -n "$(find gdbheapx/kernel -name '*.[ch]' -newer $kernel)" ]; then
  .venv/bin/python gdbheapx/kernel/build.py >/dev/null
fi
if [ "$what" = test ]; then
  # Each waits for a server, or for one compiler: all at once.
  {
    if ! command -v named >/dev/null && [ ! -x .cache/named/usr/sbin/named ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
      sh tools/named.sh .cache/named || echo "tests of named will be skipped" >&2
    fi
  } &
  {
    if ! command -v promtool >/dev/null && [ ! -x .cache/promtool/usr/bin/promtool ] && command -v apt-get >/dev/null; then
      sh tools/unpack_program.sh prometheus usr/bin/promtool .cache/promtool || echo "tests of alert rules will be skipped" >&2
    fi
  } &
  {
    if ! command -v inferno-flamegraph >/dev/null && [ ! -x .cache/inferno/bin/inferno-flamegraph ] && command -v cargo >/dev/null; then
      # One test draws a few lines with it: optimising takes two thirds of the time that building does.
      CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off cargo install -q inferno --version 0.11.21 --locked --no-default-features --features cli --root .cache/inferno </dev/null 2>/dev/null ||
        echo "a test of folded stacks will be skipped" >&2
    fi
  } &
  for architecture in i386 arm64; do
    bash tools/foreign_libc.sh $architecture .cache/foreign/$architecture || echo "tests of $architecture programs will be skipped" >&2 &
  done
  wait
fi
