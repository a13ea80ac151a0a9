#!/bin/bash
# The machine beside the hosts, where jobs are typed: its user has a key of its own. machine.sh STATE HOST...
set -euo pipefail
state=$1
shift
mkdir -p -m 700 /root/.ssh
mount -t tmpfs -o mode=700 tmpfs /root/.ssh
mount --bind /dev/null /etc/ssh/ssh_config # it has the key with which the hosts are set up
ssh-keygen -q -t ed25519 -N "" -f /root/.ssh/id_ed25519
cp /root/.ssh/id_ed25519.pub "$state/user.pub"
printf 'Host %s\n  Port 2222\n  UserKnownHostsFile /root/.ssh/known_hosts\n  StrictHostKeyChecking ask\n' "$*" >/root/.ssh/config
cp "$state/user_known_hosts" /root/.ssh/known_hosts
for host in "$@"; do # a second network, as of a fabric
    number=$((${number:-10} + 1))
    ip link add "fabric-$host" type veth peer name ib0 netns "$host"
    ip link set "fabric-$host" master bridge0 up
    ip -n "$host" address add "10.80.0.$number/24" dev ib0
    ip -n "$host" link set ib0 up
done
