#!/bin/sh
# A Slurm whose nodes are files with "state|reason" in slurm/nodes, and whose reservations are files: sinfo, squeue and
# scontrol, as far as gpuops asks them. Every change is one rename.
cd "${0%/*}/../slurm" || exit

node= name= state= reason=none nodes=
for word; do
    case $word in
    NodeName=*) node=${word#*=} ;;
    State=*) state=${word#*=} ;;
    Reason=*) reason=${word#*=} ;;
    ReservationName=*) name=${word#*=} ;;
    Nodes=*) nodes=${word#*=} ;;
    esac
done

put() { echo "$2" >"$1.$$" && mv "$1.$$" "$1"; }

case "${0##*/} $1 $2" in
sinfo*)
    for file in nodes/*[0-9]; do
        case $file in *.*) continue ;; esac
        read -r row <"$file"
        echo "${file#*/}|${file#*/}|${file#*/}|$row"
    done
    ;;
squeue*) ;;
"scontrol update "*)
    [ -f "nodes/$node" ] || { echo "slurm_update error: Invalid node name specified" >&2 && exit 1; }
    case $state in
    DRAIN) put "nodes/$node" "drained|$reason" ;;
    RESUME | UNDRAIN) put "nodes/$node" "idle|none" ;;
    *) exit 1 ;;
    esac
    ;;
"scontrol create reservation")
    for held in reservations/*; do
        [ ! -f "$held" ] || [ "$(cat "$held")" != "$nodes" ] ||
            { echo "Error creating the reservation: Requested nodes are busy" >&2 && exit 1; }
    done
    put "reservations/$name" "$nodes"
    ;;
"scontrol delete "*)
    name=${2#*=}
    [ -f "reservations/$name" ] || { echo "Requested reservation is invalid" >&2 && exit 1; }
    rm "reservations/$name"
    ;;
*)
    echo "${0##*/}: $*: not known here" >&2
    exit 1
    ;;
esac
