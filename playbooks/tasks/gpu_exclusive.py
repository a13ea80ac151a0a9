"""A command that needs the GPUs for itself; ``gpu_reset`` and the slices of ``gpu_settings`` use it."""

from dataclasses import dataclass
from typing import Literal

from gpuops import Change, Command, Failed, NeedsOperator, Plan, Unknown, task
from gpuops.probes.nvidia.occupancy import occupancy

_CLIENTS = (
    "slurmd",
    "nvidia-cdi-refresh.path",
    "nvidia-cdi-refresh",
    "nvidia-dcgm-exporter",
    "dcgm-exporter",
    "nvidia-dcgm",
    "gpuops-mig-slices",  # these two restore what a reset makes the GPUs forget
    "gpuops-gpu-settings",
    "nvidia-persistenced",
    "nvidia-fabricmanager",
    "nvidia-imex",
    "nvidia-gridd",
    "nvidia-topologyd",
)
"""Services that hold the driver open on a node without jobs, in stop order; they are started again in reverse.

Source of the order: oracle-quickstart/oci-hpc, gpu_reset.sh.
"""
# the clients start again whatever the command did; units that were not active stay stopped
_ALONE = """\
clients=$1; shift; stopped=
for unit in $clients; do
    systemctl is-active --quiet "$unit" || continue
    systemctl stop "$unit" && stopped="$unit $stopped"
done
"$@"
ended=$?
for unit in $stopped; do systemctl start "$unit" || ended=1; done
exit $ended
"""


@dataclass(frozen=True)
class Params:
    """``words`` are the command, which runs as root; ``title``, ``before`` and ``after`` describe it to a person.

    ``kind`` decides what happens if it is planned again: a state must take effect, an act is done once per run.
    """

    title: str
    words: tuple[str, ...]
    before: str = ""
    after: str = ""
    kind: Literal["state", "act"] = "state"


@task
def gpu_exclusive(params: Params) -> Plan:
    """The services that hold the driver open are stopped, in order, and started again whatever the command does.

    A node whose GPUs are in use is left alone.
    """
    held = yield occupancy
    if isinstance(held, Unknown) or held.hidden:
        yield Failed(
            f"cannot determine which processes use the GPUs: {held.why if isinstance(held, Unknown) else held.hidden}"
        )
    computing = ", ".join(f"pid {h.pid} {h.name}" for h in held.holders if not h.is_daemon)
    if computing:
        yield NeedsOperator(f"GPUs are in use ({computing}): end these processes first")
    words = ("sh", "-c", _ALONE, "sh", " ".join(_CLIENTS), *params.words)
    command = Command(words, timeout_seconds=600, become="always")
    yield Change(params.title, command, before=params.before, after=params.after, detach=True, kind=params.kind)
