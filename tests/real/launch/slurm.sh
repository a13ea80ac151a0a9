#!/bin/bash
# Slurm on a machine of the lab. slurm.sh DAEMON KEY: slurmctld or slurmd, and munge's key.
set -euo pipefail
mkdir -p /etc/slurm
mount --bind "$(dirname "$0")/slurm" /etc/slurm
mkdir /run/munge /run/slurmctld /run/slurmd
install -m 400 "$2" /run/munge/key
munged --key-file=/run/munge/key --log-file=/run/munge/log --pid-file=/run/munge/pid --seed-file=/run/munge/seed
[ "$1" = slurmctld ] || { mknod /run/gpu0 c 195 0 && mknod /run/gpu1 c 195 1; }
exec "$1"
