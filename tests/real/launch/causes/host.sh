#!/bin/bash
# One host of a job: what it has for itself lies in its own /run. host.sh STATE PYTHON TORCH_VERSION
set -euo pipefail
state=$1
mkdir -p -m 700 /root/.ssh
mount -t tmpfs -o mode=700 tmpfs /root/.ssh
cat "$state/login.pub" "$state/user.pub" >/root/.ssh/authorized_keys
mount -t tmpfs tmpfs /etc/security/limits.d
cp /etc/hosts /run/hosts
mount --bind /run/hosts /etc/hosts
printf 'account required pam_permit.so\nsession required pam_limits.so\n' >/run/pam
mount --bind /run/pam /etc/pam.d/sshd
if [ -e "$state/env" ]; then
    cp -a "$state/env" /run/env
else
    "$2" -m venv --without-pip /run/env
    printf '#!/bin/sh\nexec %s -m pip --python /run/env/bin/python "$@"\n' "$2" >/run/env/bin/pip
    chmod +x /run/env/bin/pip
    PIP_NO_INDEX=1 PIP_FIND_LINKS="$state/wheels" /run/env/bin/pip install --quiet "torch==$3"
    cp -a /run/env "$state/env"
fi
/usr/sbin/sshd -f "$state/user_sshd_config" -E /run/user_sshd.log
