#!/bin/bash
# A network of hosts, as the first process of its own namespaces: whoever ends it ends every host with it,
# and nothing of it is seen outside. switch.sh STATE NAME=ADDRESS...; SHARED are folders that every host has, as over NFS.
set -euo pipefail
state=$1
shift

hostname login
mount --bind "$state/hosts" /etc/hosts
mount --bind "$state/ssh_config" /etc/ssh/ssh_config
[ ! -e ~/.bashrc ] || mount --bind /dev/null ~/.bashrc # a shell of this machine's own PATH is no host's
mount -t tmpfs -o mode=755 tmpfs /run                  # where ip keeps its namespaces
ip link add bridge0 type bridge
first=${1#*=}
ip address add "${first%.*}.254/24" dev bridge0
ip link set bridge0 up
ip link set lo up

for host in "$@"; do
    name=${host%=*}
    ip netns add "$name"
    ip link add "port-$name" type veth peer name eth0 netns "$name"
    ip link set "port-$name" master bridge0 up
    ip -n "$name" address add "${host#*=}/24" dev eth0
    ip -n "$name" link set eth0 up
    ip -n "$name" link set lo up
    nsenter --net="/run/netns/$name" unshare --uts --ipc --mount --pid --fork --kill-child --mount-proc \
        bash "$(dirname "$0")/host.sh" "$state" "$name" &
done
wait
