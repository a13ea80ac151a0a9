#!/bin/bash
# One host of the network, as the first process of its own namespaces. host.sh STATE NAME
set -euo pipefail
state=$1
hostname "$2"

mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/sshd
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=1777 tmpfs "$state/tmp"
for folder in $SHARED; do
    if [[ $folder == /tmp/* ]]; then # else it is seen as it is
        mkdir -p "$state$folder"
        mount --rbind "$folder" "$state$folder"
    fi
done
mount --move "$state/tmp" /tmp
exec /usr/sbin/sshd -D -e -f "$state/sshd_config"
