#!/bin/bash
# Unpacks this release's libc6 and libc6-dbg of another architecture below DIR, for the tests of i386 and aarch64 programs.
#   foreign_libc.sh i386|arm64 DIR
set -euo pipefail
architecture=$1 folder=$2
if [ -e "$folder/complete" ]; then exit 0; fi
rm -rf "$folder"
mkdir -p "$folder"
ALONE=1 bash "$(dirname "$0")/foreign_packages.sh" "$architecture" "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" "$folder/packages" libc6 libc6-dbg
for package in "$folder"/packages/*.deb; do dpkg-deb -x "$package" "$folder"; done
rm -rf "$folder/packages"
touch "$folder/complete"
