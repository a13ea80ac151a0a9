#!/bin/bash
# The file system that every machine starts with: Debian 12 with systemd, an OpenSSH server, and a user who may become
# root. base.sh FOLDER; nothing half made ever has that name.
set -euo pipefail
draft=$(mktemp -d "$1.XXXXXX")
trap 'rm -rf "$draft"' EXIT
debootstrap --variant=minbase --include=systemd-sysv,dbus,openssh-server,sudo,python3,iproute2,procps,wget \
    bookworm "$draft/root"
cd "$draft/root"

chroot . useradd --create-home --shell /bin/bash ops
echo 'ops ALL=(ALL:ALL) NOPASSWD: ALL' >etc/sudoers.d/ops
printf '%s\n' 'UseDNS no' 'HostKey /etc/ssh/host' 'AuthorizedKeysFile /etc/ssh/login.pub' >etc/ssh/sshd_config.d/lab.conf
rm etc/apt/sources.list etc/ssh/ssh_host_* etc/machine-id # there is no way out of the lab, and no two are one
ln -s /dev/null etc/systemd/system/console-getty.service
ln -s /dev/null etc/systemd/system/apt-daily.timer
ln -s /dev/null etc/systemd/system/apt-daily-upgrade.timer
rm -rf var/cache/apt/archives/*.deb var/lib/apt/lists/*
find var/log -type f -delete
mv "$draft/root" "$1"
