#!/bin/bash
# One machine with systemd, as the first process of its own namespaces: whoever ends it ends all of it, and what it wrote
# is gone. machine.sh LAYERS STATE NAME ADDRESS CGROUP...; it says "ready" when its network cable may be put in.
set -euo pipefail
layers=$1 state=$2
for group in "${@:5}"; do echo 0 >"$group/cgroup.procs"; done
cd "$state"
mount -t tmpfs tmpfs /run
mkdir -p disk
mount -t tmpfs -o size=64g tmpfs disk # of which nothing is taken before it is written
mkdir disk/upper disk/work disk/root
mount -t overlay -o "lowerdir=$layers,upperdir=disk/upper,workdir=disk/work" overlay disk/root
cp -r seed/. disk/root
echo "$3" >disk/root/etc/hostname
echo "127.0.0.1 localhost $3" >disk/root/etc/hosts
tr -d - </proc/sys/kernel/random/uuid >disk/root/etc/machine-id
echo ready
until ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
ip link set lo up
ip address add "$4" dev eth0
ip link set eth0 up

while :; do # whatever ended it, it is switched on again
    ended=0
    SYSTEMD_NSPAWN_API_VFS_WRITABLE=network systemd-nspawn --quiet --directory=disk/root --hostname="$3" \
        --network-namespace-path=/proc/1/ns/net --register=no --keep-unit --console=pipe \
        /usr/lib/hardware/power-on </dev/null >>console 2>&1 || ended=$?
    echo "ended with $ended" >>console # 133 is a reboot
    while [ -e unplugged ]; do sleep 0.1; done
done
