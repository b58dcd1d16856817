#!/bin/bash
# Unpacks this release's libc6 and libc6-dbg of another architecture below DIR, for the tests of i386 and aarch64 programs.
#   foreign_libc.sh i386|arm64 DIR
# Nothing is installed and dpkg learns no architecture: apt works on lists of its own, which are gone afterwards.
set -euo pipefail
architecture=$1 folder=$2
if [ -e "$folder/complete" ]; then exit 0; fi
rm -rf "$folder"
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial"
folder=$(cd "$folder" && pwd)
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
keys=/usr/share/keyrings/debian-archive-keyring.gpg
# Where this machine gets its own.
from=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $release" "Origin: Debian" "Created-By: Packages" 2>/dev/null | head -1)
[ -n "$from" ] && [ -e $keys ] || { echo "no Debian release, or no list of its packages (apt-get update): no libc of $architecture" >&2; exit 1; }
cd "$folder/apt"
echo "deb [signed-by=$keys] $from $release main" >sources.list
: >status
options=(-qq -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" -o APT::Sandbox::User=root
  -o Dir::State="$PWD" -o Dir::State::status="$PWD/status" -o Dir::Cache="$PWD/cache"
  -o Dir::Etc::sourcelist="$PWD/sources.list" -o Dir::Etc::sourceparts=- -o Acquire::Languages=none)
apt-get "${options[@]}" update </dev/null
apt-get "${options[@]}" download libc6 libc6-dbg </dev/null
for package in *.deb; do dpkg-deb -x "$package" ..; done
cd ..
rm -rf apt
touch complete
