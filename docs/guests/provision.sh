#!/bin/sh
# provision.sh SOURCE USER: installs the clone in SOURCE for USER, in mrcbed in their home, as root, on Debian 12 or 13.
# The Vagrantfile, lima.yaml and `make vm-test` all call it. Call it again after a change of the clone: it does what is left to do.
set -eu
source=$1 user=$2
export DEBIAN_FRONTEND=noninteractive
for tool in make rsync; do
  command -v $tool >/dev/null || { apt-get update -q; apt-get install -y -q --no-install-recommends $tool; }
done
home=$(getent passwd "$user" | cut -d: -f6)
# What is gone from the clone goes here, too; what this machine made stays: packages, build output, results.
rsync -a --delete --exclude /.venv --exclude /build --exclude '*.so' --exclude '*.bpf.o' --exclude '*.egg-info' --exclude '/results/*-20*' \
  "$source/" "$home/mrcbed/"
chown -R "$user:" "$home/mrcbed"
cd "$home/mrcbed"
SUDO_UID=$(id -u "$user") SUDO_GID=$(id -g "$user")
export SUDO_UID SUDO_GID
make install
