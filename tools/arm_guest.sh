#!/bin/bash
# The first process on the disk of the emulated aarch64 machine (tools/arm_machine.py): runs what stands in the folder that it shares.
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts; mount -t tmpfs tmpfs /dev/shm; mount -t tmpfs -o size=3g tmpfs /tmp; chmod 1777 /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 share /share || echo "no share"
hostname arm; ip link set lo up
echo core >/proc/sys/kernel/core_pattern; echo 1 >/proc/sys/kernel/core_uses_pid; ulimit -c unlimited
mkdir -p /src /root; tar -x -m -C /src -f /share/checkout.tar
date -s "@$(cat /share/now)" >/dev/null; ldconfig
cd /src
touch /share/jobs/ready
while [ ! -e /share/jobs/off ]; do
  for job in /share/jobs/*.sh; do
    [ -e "$job" ] || continue
    name=${job%.sh}
    mv "$job" "$name.running"
    (setsid bash "$name.running" </dev/null >"$name.out" 2>&1; echo $? >"$name.code.new"; mv "$name.code.new" "$name.code") &
  done
  sleep 0.2
done
sync
poweroff -f -n 2>/dev/null || busybox poweroff -f
