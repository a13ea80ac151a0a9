"""The options of sbatch and srun, which take the start of a long name for it; pure data.

From Slurm's src/common/slurm_opt.c of August 2026, and Pyxis.
"""

from __future__ import annotations

_BOTH = (
    "account acctg-freq autocomplete bb bbf begin chdir cluster cluster-constraint clusters comment"
    " consolidate-segments constraint container container-env container-id container-image container-mount-home"
    " container-mounts container-name container-remap-root container-save container-workdir container-writable"
    " context contiguous core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot"
    " dependency distribution error exclude exclusive export extra extra-node-info gpu-bind gpu-freq gpus"
    " gpus-per-node gpus-per-socket gpus-per-task gres gres-flags help hint hold input job-name licenses mail-type"
    " mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nice no-container-mount-home"
    " no-kill nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket"
    " ntasks-per-tres oom-kill-step open-mode output overcommit oversubscribe parsable partition power prefer"
    " priority profile propagate qos quiet reboot reservation resources resv-ports runtime segment signal"
    " sockets-per-node spread-job spread-segments stepmgr switches tasks-per-node test-only thread-spec"
    " threads-per-core time time-min tmp tres-bind tres-per-task usage use-min-nodes verbose version wckey x11"
)
_SBATCH = (
    "array batch export-file external get-user-env gid ignore-pbs kill-on-invalid-dep no-requeue requeue uid wait"
    " wait-all-nodes wrap"
)
_SRUN = (
    "accel-bind async bcast bcast-exclude compress cpu-bind cpu_bind debugger-test disable-status epilog exact"
    " external-launcher het-group ignore-signals immediate interactive jobid kill-on-bad-exit label mem-update mpi"
    " msg-timeout multi-prog no-allocate overlap pack-group preserve-env prolog pty quit-on-interrupt relative"
    " send-libs slurmd-debug task-epilog task-prolog threads treewidth unbuffered wait wait-for-children whole"
)
_FLAGS = frozenset(
    "async bcast compress consolidate-segments container-remap-root container-writable container-mount-home contiguous"
    " debugger-test disable-status exact exclusive external external-launcher get-user-env help hold ignore-pbs"
    " immediate interactive kill-on-bad-exit label multi-prog nice no-allocate no-container-mount-home no-kill"
    " no-requeue oom-kill-step overcommit overlap oversubscribe parsable preserve-env propagate pty quiet"
    " quit-on-interrupt reboot requeue resv-ports send-libs spread-job spread-segments stepmgr test-only unbuffered"
    " usage use-min-nodes verbose version wait-for-children whole x11".split()
)
"""Options without a value, or with one only behind an =."""
_SHORT = (
    "-A account -b begin -B extra-node-info -c cpus-per-task -C constraint -d dependency -D chdir -e error -F"
    " nodefile -G gpus -h help -H hold -i input -J job-name -k no-kill -L licenses -m distribution -M clusters -n"
    " ntasks -N nodes -o output -O overcommit -p partition -q qos -Q quiet -s oversubscribe -S core-spec -t time"
    " -v verbose -V version -w nodelist -x exclude"
)
_DECISIVE = (
    "array batch distribution exclude gpus gpus-per-node gpus-per-socket gpus-per-task gres het-group hold"
    " multi-prog nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket"
    " ntasks-per-tres relative tasks-per-node test-only"
)


def _long(names: str) -> frozenset[str]:
    return frozenset(f"--{name}" for name in names.split())


def _by_short(pairs: str) -> dict[str, str]:
    words = pairs.split()
    return {short: f"--{name}" for short, name in zip(words[::2], words[1::2], strict=True)}


SBATCH_NAMES = _long(f"{_BOTH} {_SBATCH}")
SRUN_NAMES = _long(f"{_BOTH} {_SRUN}")
SBATCH_SHORT = _by_short(f"{_SHORT} -a array -W wait")
SRUN_SHORT = _by_short(
    f"{_SHORT} -E preserve-env -I immediate -K kill-on-bad-exit -l label -r relative -T threads -u unbuffered -W wait"
    " -X disable-status -Z no-allocate"
)
SBATCH_VALUES = SBATCH_NAMES - _long(" ".join(_FLAGS)) - {"--wait"}
SRUN_VALUES = SRUN_NAMES - _long(" ".join(_FLAGS))
DECISIVE = _long(_DECISIVE)
"""What decides where ranks run, how many there are, and whether they start at all."""
