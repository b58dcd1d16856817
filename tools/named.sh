#!/bin/sh
# named FOLDER: BIND's server where it is built with jemalloc (Debian 12 on), as FOLDER/usr/sbin/named with its libraries.
# Its own package is unpacked, not installed: installing it starts a name server.
set -e
apt-cache depends bind9-libs | grep -q libjemalloc2 || exit 0
if [ "$(dpkg-query -W -f '${Status}' bind9-libs 2>/dev/null)" != "install ok installed" ]; then
  DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends bind9-libs libcap2 libuv1 </dev/null >/dev/null
fi
version=$(dpkg-query -W -f '${Version}' bind9-libs)
work=$(mktemp -d)
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT
(cd "$work" && apt-get -qq download "bind9=$version" 2>/dev/null)
mkdir -p "$1"
dpkg-deb --fsys-tarfile "$work"/bind9_*.deb | tar -x -C "$1" ./usr/sbin/named
