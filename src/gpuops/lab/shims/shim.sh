#!/bin/sh
# Every program of a lab host is this script. It prints what was rendered for the host's present state and puts the
# host's own values in; what has not been read yet, the lab renders.
tool=${0##*/}
here=${0%/bin/*}
. "$here/host.env" # the host's state

now() { if [ -n "$CLOCK" ]; then /bin/date "$CLOCK" "$@"; else /bin/date "$@"; fi; }

refuse() {
    echo "sudo: $1" >&2
    exit 1
}

ask_password() { # $1 is the prompt
    for attempt in 1 2 3; do
        printf %s "$1" >&2
        IFS= read -r given || refuse "no password was provided"
        [ "$SUDO" = none ] && refuse "lab is not in the sudoers file"
        [ "$given" = "$SUDO" ] && return
        echo "Sorry, try again." >&2
    done
    refuse "$attempt incorrect password attempts"
}

become_root() {
    prompt='[sudo] password for lab: ' quiet=
    while [ $# -gt 0 ]; do
        case $1 in
        --) shift && break ;;
        --non-interactive) quiet=1 ;;
        --prompt=*) prompt=${1#*=} ;;
        --*) ;;
        -*)
            case $1 in *n*) quiet=1 ;; esac
            case $1 in
            *p) prompt=$2 && shift ;;
            *[ugUCThrtDR]) shift ;;
            esac
            ;;
        [A-Za-z_]*=*) export "$1" ;;
        *) break ;;
        esac
        shift
    done
    if [ "$SUDO" != free ] && [ -z "$LAB_ROOT" ]; then
        [ -n "$quiet" ] && refuse "a password is required"
        ask_password "$prompt"
    fi
    [ $# -eq 0 ] && exit 0
    export LAB_ROOT=1
    exec "$@"
}

print_answer() { # $1 is the answer's file
    edit=$EDIT
    if [ -f "$1.timed" ]; then
        times=$(now '+%a %b %e %H:%M:%S %Y|%Y/%m/%d %H:%M:%S.000')
        edit="$edit;s/~now~/${times%|*}/g;s,~stamp~,${times#*|},g"
    fi
    [ -f "$1.end" ] || exec sed -e "$edit" "$1"
    [ ! -s "$1" ] || sed -e "$edit" "$1"
    read -r code <"$1.end"
    sed -e 1d -e "$edit" "$1.end" >&2
    exit "$code"
}

ask() { # this shell alone waits: hundreds may wait at once, and a Python for each would take ten times as long to start
    reply=$HOST.$$
    set -- -- "$@"
    for name in CUDA_VISIBLE_DEVICES NCCL_DEBUG NCCL_IB_DISABLE NCCL_IB_HCA NCCL_NVLS_ENABLE NCCL_P2P_DISABLE; do
        eval "value=\${$name-}"
        [ -z "$value" ] || set -- "$name=$value" "$@"
    done
    set -- "$reply" "$HOST" "${LAB_ROOT:-0}" "$tool" "$@"
    question=$*
    [ ${#question} -lt 3900 ] || return # what is longer might mix with another's
    mkfifo -m 600 "$LAB/replies/$reply.fifo" || return
    exec 3<>"$LAB/replies/$reply.fifo" # before the question, so that the reply finds a reader
    printf '%s\037' $# "$@" >"$LAB/questions"
    read -r _ <&3
    exec 3<&-
    . "$LAB/replies/$reply" # prints the answer and exits: no other process is needed for that
}

repeat() { # nvidia-smi --loop=SECONDS: the same output repeatedly
    loop=
    for word; do
        shift
        case $word in
        --loop=*) loop=${word#*=} ;;
        *) set -- "$@" "$word" ;;
        esac
    done
    while "$here/bin/nvidia-smi" "$@"; do sleep "$loop"; done
    exit
}

run_detached() { # as a unit, or later
    unit=$here/root/run/units/run-$$ seconds=0
    while [ $# -gt 0 ]; do
        case $1 in
        --) shift && break ;;
        --unit=*) unit=$here/root/run/units/${1#*=} ;;
        --on-active=*) seconds=${1#*=} ;;
        -*) ;;
        *) break ;;
        esac
        shift
    done
    mkdir -p "${unit%/*}"
    line='unit=$1; echo runs >"$unit"; sleep "$2"; shift 2; "$@"; echo "$?" >"$unit"'
    setsid sh -c "$line" sh "$unit" "$seconds" "$@" </dev/null >/dev/null 2>&1 &
    until [ -s "$unit" ]; do sleep 0.01; done # it has left our process group, which may be killed now
}

tell_unit() { # $1 is the file that run_detached keeps of it
    case $2 in
    show) ;;
    *) rm -f "$1" && exit ;;
    esac
    read -r state <"$1"
    case $state in
    runs) told='active running success 0' ;;
    0) told='active exited success 0' ;;
    *) told="failed failed exit-code $state" ;;
    esac
    set -- $told
    printf '%s\n' LoadState=loaded "ActiveState=$1" "SubState=$2" "Result=$3" "ExecMainStatus=$4"
    exit
}

list_units() { # of playbooks
    for file in "$here"/root/run/units/gpuops-*; do
        [ ! -f "$file" ] || read -r state <"$file" || continue
        case $state in
        runs) echo "${file##*/}.service loaded active running ${file##*/}" ;;
        0) echo "${file##*/}.service loaded active exited ${file##*/}" ;;
        ?*) echo "${file##*/}.service loaded failed failed ${file##*/}" ;;
        esac
    done
    exit
}

run_script() { # $1 is the file of a unit that a user wrote; its script finds the host's own /run, and no /sys
    script=$(sed -n 's,^ExecStart=/bin/sh ,,p' "$1")
    [ -z "$script" ] || sed "s,/run/,$here/root/run/,g; s,/sys/[^ ;]*,/dev/null,g" "$here/root$script" | sh && return
    echo "Job for ${1##*/} failed because the control process exited with error code." >&2
    exit 1
}

update_grub() { # text before the words stays
    menu=$here/root/boot/grub/grub.cfg GRUB_CMDLINE_LINUX='' GRUB_CMDLINE_LINUX_DEFAULT=iommu=pt
    read -r line <"$menu"
    for file in "$here"/root/etc/default/grub.d/*.cfg; do [ ! -f "$file" ] || . "$file"; done
    echo "${line%% ro *} ro" $GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT >"$menu"
    exit
}

bug_report() { # as the real one: members of a gzip file, one after another, also of files in home directories
    file=nvidia-bug-report.log safe=
    for word; do
        case $word in --safe-mode) safe=1 ;; esac
        [ "$before" != --output-file ] || file=$word
        before=$word
    done
    printf '%s\n' ____________________________________________ '' 'Start of NVIDIA bug report log file.' | gzip -c >>"$file.gz"
    [ "$BUG_REPORT_HANGS$safe" != 1 ] || sleep 86400
    PRINTS=1 "$here/bin/$tool" ${safe:+--safe-mode} | gzip -c >>"$file.gz"
    for own in "$HOME"/.nv/*; do
        [ ! -f "$own" ] || { echo ____________________________________________ && echo "*** $own" && cat "$own"; } | gzip -c >>"$file.gz"
    done
    exit
}

case $tool in
python3) printf '%s\n' "$tool" ;;
*) printf '%s\n' "$tool $*" ;;
esac >>"$here/audit"

case "$tool $*" in "nvidia-smi "*--loop=*) repeat "$@" ;; esac

case $tool in
python3) exec "$PYTHON" -SE "$LAB/shims/fakeroot.pyc" "$here" python3 "$@" ;;
sudo) become_root "$@" ;;
date) now "$@" && exit || exit ;;
cat | ls | readlink)
    case " $*" in
    *" /sys"* | *" /proc"* | *" /etc/"* | *" /boot/"* | *" /usr/lib/os-release"*)
        exec "$PYTHON" -SE "$LAB/shims/fakeroot.pyc" "$here" "$tool" "$@"
        ;;
    esac
    PATH=/usr/bin:/bin
    exec "$tool" "$@"
    ;;
find)
    case " $*" in
    *" /proc"*) set -- proc ;; # the lab looks for one thing there
    *) PATH=/usr/bin:/bin exec find "$@" ;;
    esac
    ;;
stat) # everything here belongs to root
    if [ "$1" = -c ]; then
        shape=$(printf %s "$2" | sed 's/%[UG]/root/g;s/%[ug]/0/g')
        shift 2
        set -- -c "$shape" "$@"
    fi
    PATH=/usr/bin:/bin exec stat "$@"
    ;;
chown)
    [ -n "$LAB_ROOT" ] && exit
    echo "chown: changing ownership: Operation not permitted" >&2
    exit 1
    ;;
systemd-run)
    [ -z "$LAB_ROOT" ] || { run_detached "$@" && exit; }
    echo "Failed to start transient unit: Interactive authentication required." >&2
    exit 1
    ;;
update-grub)
    [ -z "$LAB_ROOT" ] || update_grub
    echo "grub-mkconfig: You must run this as root" >&2
    exit 1
    ;;
systemctl)
    for unit; do :; done # the last word
    case $1,$unit in list-units,gpuops-*) list_units ;; esac
    case ${LAB_ROOT:+$1} in
    *start) [ ! -f "$here/root/etc/systemd/system/$unit" ] || run_script "$here/root/etc/systemd/system/$unit" ;;
    esac
    [ ! -f "$here/root/run/units/${unit%.service}" ] || tell_unit "$here/root/run/units/${unit%.service}" "$1"
    ;;
nvidia-smi) [ "$SLOW" = 0 ] || sleep "$SLOW" ;;
nvidia-bug-report.sh) [ -n "$PRINTS" ] || [ -z "$LAB_ROOT" ] || bug_report "$@" ;;
esac

key=${LAB_ROOT:+sudo|}$tool
for word; do key="$key|$word"; done
case $key in
*/*) ;;
*) [ -f "$ANSWERS/$key" ] && print_answer "$ANSWERS/$key" ;;
esac
ask "$@"
exec "$PYTHON" -SE "$LAB/shims/ask.py" "$LAB/ask.sock" "$HOST" "${LAB_ROOT:-0}" "$tool" "$@"
