#!/bin/sh
# unpack_program.sh PACKAGE[=VERSION] PATH FOLDER: one program of a Debian package, as FOLDER/PATH.
# It is unpacked, not installed: installing it would start a server.
set -e
work=$(mktemp -d)
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT
(cd "$work" && apt-get -qq download "$1" 2>/dev/null)
mkdir -p "$3"
dpkg-deb --fsys-tarfile "$work"/*.deb | tar -x -C "$3" "./$2"
