#!/bin/busybox sh
# What the kernel of the emulated aarch64 machine starts (tools/arm_machine.py): finds its disk, and goes on there.
/bin/busybox --install -s /bin
mkdir -p /proc /sys /dev /new; export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for module in $(cat /modules/order); do insmod /modules/$module || echo "no module $module"; done
tries=0
while [ ! -b /dev/vda ] && [ $tries -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
mount -t ext4 /dev/vda /new || poweroff -f
umount /proc /sys
exec switch_root /new /sbin/guest
