#!/bin/sh
# apt-get with these words, quietly. Another one may run, as on a machine that has just started: it waits for its locks, WAIT_S seconds at
# most. apt itself waits for the one on packages alone (DPkg::Lock::Timeout), not for those on lists and archives.
set -eu
said=$(mktemp)
trap 'rm -f "$said"' EXIT
left_s=${WAIT_S:-600}
while :; do
  status=0
  DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout="$left_s" "$@" </dev/null >/dev/null 2>"$said" || status=$?
  if [ $status = 0 ] || [ "$left_s" -le 0 ] || ! LC_ALL=C grep -q '/lock' "$said"; then
    cat "$said" >&2
    exit $status
  fi
  sleep 2
  left_s=$((left_s - 2))
done
