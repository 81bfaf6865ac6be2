#!/bin/bash
# The first process of the guest, instead of systemd: mounts what the testbed needs, runs the checks, switches the machine off.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sys /sys
mountpoint -q /dev || mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs -o mode=1777 tmp /tmp
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mkdir -p /run/lock
ln -sf /proc/self/fd /dev/fd
modprobe -a virtio_pci virtio_blk tun  # what udev would see to
hostname mrcbed
ip link set lo up
cd /home/vagrant/mrcbed
/usr/bin/python3 -m tests.vm.guest </dev/null
sync
echo o >/proc/sysrq-trigger
sleep 60
