"""Everything that a user can request, as frozen dataclasses; `gpuops.Cluster.ask` carries them out.

Their fields match the keywords of the methods of `gpuops.Cluster` and the options of the command line. Durations are in
seconds, ``gib`` is in GiB. ``facts`` are used as far as they suffice; hosts are asked only for the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuops.collective.request import (
    OPERATIONS,
    LoopbackRequest,
    MeasureRequest,
    NvlinkRequest,
    PreflightRequest,
    SharpRequest,
    SweepRequest,
    check_words,
)
from gpuops.errors import InputError
from gpuops.reasons import Request

if TYPE_CHECKING:
    from gpuops.bandwidth import Operation
    from gpuops.collective.measurement import Measurement
    from gpuops.facts import Facts
    from gpuops.judging import Level
    from gpuops.launching.outcome import JobRun
    from gpuops.layout import ModelSpec
    from gpuops.placement import Placement
    from gpuops.planner.gpus import Precision
    from gpuops.planner.training import Framework, Optimizer
    from gpuops.playbook.play import Playbook
    from gpuops.playbook.record import Record
    from gpuops.render import Launch
    from gpuops.results.answers import Answers
    from gpuops.results.bundles import Bundles
    from gpuops.results.expectation import Expectation
    from gpuops.results.health import Report
    from gpuops.results.layout_plan import LayoutPlan
    from gpuops.results.learned import LearnedProfile
    from gpuops.results.life import Onboarding, Transition
    from gpuops.results.repair import Repair
    from gpuops.results.topology import NodeTopologies
    from gpuops.shell import Completed
    from gpuops.transport.host_keys import HostKeys

__all__ = [
    "AdmitRequest",
    "BundleRequest",
    "DrainRequest",
    "ExpectRequest",
    "FactsRequest",
    "FixRequest",
    "HostKeysRequest",
    "LaunchRequest",
    "LearnProfileRequest",
    "LoopbackRequest",
    "MeasureRequest",
    "NvlinkRequest",
    "OnboardRequest",
    "PingRequest",
    "PlaceRequest",
    "PlanRequest",
    "PreflightRequest",
    "ProvisionRequest",
    "RenderRequest",
    "RunRequest",
    "SetStateRequest",
    "SharpRequest",
    "SweepRequest",
    "TopologyRequest",
    "TrustRequest",
    "ValidateRequest",
]


@dataclass(frozen=True)
class PingRequest(Request["Answers[float]"]):
    """Time that each host takes to answer."""


@dataclass(frozen=True)
class FactsRequest(Request["Answers[Facts]"]):
    """Facts that the named ``probes`` collect; by default all probes that put no load on a node."""

    probes: Sequence[str] = ()
    keep_answers: bool = False


@dataclass(frozen=True)
class RunRequest(Request["Answers[Completed]"]):
    """One command on every host: a line for its sh, or a list of words."""

    command: str | Sequence[str]
    timeout: float = 60.0
    become: bool = False


@dataclass(frozen=True)
class ValidateRequest(Request["Report"]):
    """Faults of each host. ``only`` and ``skip`` name checks or tags; ``burn_in`` is the duration of the load.

    With ``save_run`` the run is kept in the project's store, and compared with the runs before.
    """

    level: Level = "quick"
    only: Sequence[str] = ()
    skip: Sequence[str] = ()
    engine: str = "auto"
    force_busy: Sequence[str] = ()
    burn_in: float = 1800.0
    facts: Mapping[str, Facts] | None = field(default=None, hash=False)
    keep_answers: bool = False
    save_run: bool = True


@dataclass(frozen=True)
class LearnProfileRequest(Request["LearnedProfile"]):
    """Profile ``profile_name`` of hosts of one kind, as most of them are; by default it has the name of the GPU."""

    profile_name: str = ""
    facts: Mapping[str, Facts] | None = field(default=None, hash=False)


@dataclass(frozen=True)
class TopologyRequest(Request["NodeTopologies"]):
    """Connections between the GPUs and NICs of each host."""

    facts: Mapping[str, Facts] | None = field(default=None, hash=False)


@dataclass(frozen=True)
class ExpectRequest(Request["Expectation"]):
    """Bandwidth to expect of an ``operation`` on a group of ``nodes``, by default all nodes of a kind."""

    nodes: int | None = None
    gib: float | None = None
    facts: Mapping[str, Facts] | None = field(default=None, hash=False)
    operation: Operation = "all_reduce"

    def __post_init__(self) -> None:
        """Raise `InputError` if the operation is unknown."""
        check_words("operation", [self.operation], OPERATIONS)


@dataclass(frozen=True)
class PlaceRequest(Request["Placement"]):
    """Place of every rank of ``layout``. ``all_nodes`` includes unhealthy nodes, ``force`` allows slow layouts.

    Nodes that a validation saw at most ``max_age`` seconds ago are not asked again. With ``gpus_by_node``, the number
    of GPUs by host name, no node is asked at all. With ``replaced`` hosts (patterns), the layout is that of the launch
    directory ``earlier``, and all ranks of other hosts stay where they are.
    """

    layout: str = "dp=all"
    order: str = "tp-cp-ep-dp-pp"
    all_nodes: bool = False
    allow_fewer: bool = False
    force: bool = False
    facts: Mapping[str, Facts] | None = field(default=None, hash=False)
    measured: Measurement | None = None
    max_age: float = 600.0
    gpus_by_node: Mapping[str, int] | None = field(default=None, hash=False)
    replaced: Sequence[str] = ()
    earlier: Path = Path("launch")


@dataclass(frozen=True)
class PlanRequest(Request["LayoutPlan"]):
    """Fastest layouts of a model: ``model`` is a ``config.json`` or its content; without it, ``sizes`` says its sizes.

    ``cluster`` is a number of nodes and their profile (``16xhgx-h100``); without it, the hosts are used, and those that
    a validation saw at most ``max_age`` seconds ago are not asked again. ``why_not`` and ``against`` are layouts to
    compare with, ``calibration`` is a file of ``gpuops plan calibrate``. ``host_gib`` is the memory of a node, by
    default as the hosts report it; ``nvme_gib`` is the size of its NVMe drives. With ``tokens``, or ``days`` of
    training without a failure, the plan says when the job finishes; a checkpoint, a restart after a failure, and the
    repair of a node take so many seconds.
    """

    model: Path | Mapping[str, Any] | None = field(default=None, hash=False)
    sizes: Mapping[str, int] | None = field(default=None, hash=False)
    cluster: str = ""
    global_batch: int | None = None
    sequence: int | None = None
    precision: Precision = "bf16"
    optimizer: Optimizer = "adam"
    framework: Framework = "megatron"
    strategy: str = ""
    why_not: Sequence[str] = ()
    against: str = ""
    explain: bool = False
    top: int = 5
    all_nodes: bool = False
    calibration: Path | None = None
    facts: Mapping[str, Facts] | None = field(default=None, hash=False)
    max_age: float = 600.0
    days: float | None = None
    tokens: int | None = None
    checkpoint_seconds: float = 60.0
    restart_seconds: float = 600.0
    repair_seconds: float = 172800.0
    host_gib: float | None = None
    nvme_gib: float | None = None


@dataclass(frozen=True)
class RenderRequest(Request["Launch"]):
    """Files that start ``command`` on ``placement`` with the launch ``target``.

    ``image`` is the container image of the job, and ``mounts`` are directories of the node in it: ``SOURCE:TARGET``.
    ``queue`` is the queue or partition of a scheduler, and ``time_seconds`` its time limit for the job (0: none).
    The ranks meet at ``port`` of ``master``, by default at a port of the job's own on its first node.
    """

    placement: Placement
    target: str
    command: Sequence[str] = ("train.py",)
    name: str = "train"
    port: int | None = None
    model: Path | Mapping[str, Any] | ModelSpec | None = field(default=None, hash=False)
    force: bool = False
    image: str = ""
    mounts: Sequence[str] = ()
    queue: str = ""
    master: str = ""
    time_seconds: int = 0


_OF_LAUNCHER = frozenset(
    "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE MASTER_ADDR MASTER_PORT".split()
)
"""The variables of a rank that torchrun, accelerate and gpuops itself set."""


@dataclass(frozen=True)
class LaunchRequest(Request["JobRun"]):
    """Start of a job: of the rendered files in ``launch``, or of ``command`` on the ranks of ``placement``.

    Every node starts its processes in ``workdir``, by default that of the files, or the current one. ``environment`` is
    added to that of the job. After a failure the rest gets ``grace`` seconds between TERM and KILL. The logs go to
    ``logs``, a directory that must not exist. With ``dry_run`` nothing is started. The ranks of ``placement`` meet at
    ``port`` of ``master``, by default at a port of the job's own on its first node; launch files have their own.
    """

    launch: Path | None = None
    placement: Placement | None = None
    command: Sequence[str] = ()
    name: str = "train"
    port: int | None = None
    workdir: str = ""
    environment: Mapping[str, str] | None = field(default=None, hash=False, repr=False)
    preflight: bool = True
    force_busy: Sequence[str] = ()
    logs: Path | None = None
    grace: float = 10.0
    dry_run: bool = False
    master: str = ""

    def __post_init__(self) -> None:
        """Raise `InputError` unless there is exactly one source of the job, with a command for a placement."""
        if (self.launch is None) == (self.placement is None):
            raise InputError("launch needs a directory of launch files, or a placement and a command; not both")
        if (self.placement is None) == bool(self.command):
            raise InputError("launch needs a command for a placement; launch files have their own")
        if self.launch is not None and (self.master or self.port is not None):
            raise InputError("launch files have their own master and port; render them again with --master and --port")
        if own := [name for name in self.environment or () if name in _OF_LAUNCHER]:
            where = " to gpuops render" if self.launch is not None else ""
            remedy = f"; pass --master and --port{where}" if own[0].startswith("MASTER") else "; omit it"
            raise InputError(f"{own[0]}: the launcher sets it on every rank, whatever the environment is{remedy}")


@dataclass(frozen=True)
class ProvisionRequest(Request["Record"]):
    """Run of ``playbook``, which is a name, a file or a `Playbook` object; with ``check`` nothing is changed.

    ``extra_vars`` override the variables of the playbook and of the inventory. ``resume`` continues an interrupted
    run; ``retry`` starts a new run on the hosts that failed in an earlier one.
    """

    playbook: str | Playbook
    check: bool = False
    extra_vars: Mapping[str, Any] | None = field(default=None, hash=False)
    tags: Sequence[str] = ()
    skip_tags: Sequence[str] = ()
    start_at: str = ""
    resume: str = ""
    retry: str = ""
    force: bool = False
    break_lock: bool = False


@dataclass(frozen=True)
class FixRequest(Request["Repair"]):
    """Fix for the finding of ``check``; with ``check_only`` it is only shown.

    With ``bundle`` each node's evidence is kept before its first change, as `BundleRequest` collects it.
    """

    check: str
    check_only: bool = False
    force: bool = False
    save_run: bool = True
    bundle: bool = True
    break_lock: bool = False


@dataclass(frozen=True)
class BundleRequest(Request["Bundles"]):
    """Evidence of each host for its vendor, as one archive per host in ``directory``. Nothing is changed on a host.

    nvidia-bug-report.sh is killed after ``report_timeout`` seconds. ``safe_mode`` and ``extra_system_data`` are its
    options; the second writes backtraces of all CPUs to the host's kernel log.
    """

    directory: Path = Path()
    safe_mode: bool = False
    extra_system_data: bool = False
    report_timeout: float = 600.0


@dataclass(frozen=True)
class HostKeysRequest(Request["Answers[HostKeys]"]):
    """Keys that hosts show, and those that are recorded."""


@dataclass(frozen=True)
class TrustRequest(Request["Answers[HostKeys]"]):
    """Recording of the keys that hosts show; one must have ``fingerprint``, if set. ``replace`` drops old keys."""

    fingerprint: str | None = None
    replace: bool = False


@dataclass(frozen=True)
class OnboardRequest(Request["Onboarding"]):
    """Onboarding of hosts through every gate except ``without``; admitted hosts join ``group`` of the inventory."""

    playbook: str = "onboard"
    group: str = ""
    burn_in: float = 1800.0
    without: Sequence[str] = ()
    engine: str = "auto"
    break_lock: bool = False
    save_run: bool = True


@dataclass(frozen=True)
class AdmitRequest(Request["Transition"]):
    """Admission of hosts to jobs; with ``force`` even without the proof that onboarding gives."""

    reason: str = "by hand"
    force: bool = False


@dataclass(frozen=True)
class DrainRequest(Request["Transition"]):
    """Drain of hosts: no new jobs start, and running ones get ``wait`` seconds to end.

    With ``force`` even if that closes more nodes than the project's cap of a day.
    """

    reason: str
    wait: float = 0.0
    force: bool = False


@dataclass(frozen=True)
class SetStateRequest(Request["Transition"]):
    """Change of hosts to ``repair``, ``rma``, ``retired`` or ``new``."""

    state: str
    reason: str
