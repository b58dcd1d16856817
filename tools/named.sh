#!/bin/sh
# named FOLDER: BIND's server where it is built with jemalloc (Debian 12 on), as FOLDER/usr/sbin/named with its libraries.
set -e
apt-cache depends bind9-libs | grep -q libjemalloc2 || exit 0
if [ "$(dpkg-query -W -f '${Status}' bind9-libs 2>/dev/null)" != "install ok installed" ]; then
  sh "$(dirname "$0")/apt.sh" install -y --no-install-recommends bind9-libs libcap2 libuv1
fi
sh "$(dirname "$0")/unpack_program.sh" "bind9=$(dpkg-query -W -f '${Version}' bind9-libs)" usr/sbin/named "$1"
