#!/bin/bash
# Downloads Debian's packages of an architecture and a release, with all that they depend on, to DIR.
#   foreign_packages.sh ARCHITECTURE RELEASE DIR PACKAGE...       ALONE=1: without what they depend on
# Nothing is installed and dpkg learns no architecture: apt works on lists of its own, which are gone afterwards.
set -euo pipefail
architecture=$1 release=$2 folder=$3
shift 3
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
keys=/usr/share/keyrings/debian-archive-keyring.gpg
here=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
# Where this machine gets its own.
from=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $here" "Origin: Debian" "Created-By: Packages" 2>/dev/null | head -1)
[ -n "$from" ] && [ -e $keys ] || { echo "no Debian release, or no list of its packages (apt-get update): no packages of $architecture" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir -p lists/partial cache/archives/partial
echo "deb [signed-by=$keys] $from $release main" >sources.list
: >status
options=(-qq -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" -o APT::Sandbox::User=root
  -o Dir::State="$PWD" -o Dir::State::status="$PWD/status" -o Dir::Cache="$PWD/cache"
  -o Dir::Etc::sourcelist="$PWD/sources.list" -o Dir::Etc::sourceparts=- -o Acquire::Languages=none)
apt-get "${options[@]}" update </dev/null
if [ -n "${ALONE:-}" ]; then
  (cd cache/archives && apt-get "${options[@]}" download "$@" </dev/null)
else
  apt-get "${options[@]}" install -y --download-only --no-install-recommends "$@" </dev/null >/dev/null
fi
mv cache/archives/*.deb "$folder"
