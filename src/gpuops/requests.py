"""Requests: what a user can ask for, as frozen data; `gpuops.Cluster.ask` carries them out.

Their fields are the keywords of the methods of `gpuops.Cluster` and the options of the command line. Numbers without a
unit in their name are seconds; ``gib`` is GiB. ``facts`` are used if they hold what is needed; what they lack is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuops.collective.request import NVLINK_ENGINES, MeasureRequest, check_words
from gpuops.reasons import Request

if TYPE_CHECKING:
    from gpuops.collective.measurement import Measurement
    from gpuops.collective.nvlink import NvlinkComparison
    from gpuops.collective.preflight.diagnosis import Diagnosis
    from gpuops.facts import Facts
    from gpuops.judging import Level
    from gpuops.placement import Placement
    from gpuops.playbook.play import Playbook
    from gpuops.playbook.record import Record
    from gpuops.render import Launch
    from gpuops.results.answers import Answers
    from gpuops.results.expectation import Expectation
    from gpuops.results.health import Report
    from gpuops.results.life import Onboarding, Transition
    from gpuops.results.repair import Repair
    from gpuops.shell import Completed
    from gpuops.transport.host_keys import HostKeys

__all__ = [
    "AdmitRequest",
    "DrainRequest",
    "ExpectRequest",
    "FactsRequest",
    "FixRequest",
    "HostKeysRequest",
    "MeasureRequest",
    "NvlinkRequest",
    "OnboardRequest",
    "PingRequest",
    "PlaceRequest",
    "PreflightRequest",
    "ProvisionRequest",
    "RenderRequest",
    "RunRequest",
    "SetStateRequest",
    "TrustRequest",
    "ValidateRequest",
]


@dataclass(frozen=True)
class PingRequest(Request["Answers[float]"]):
    """Which hosts answer."""


@dataclass(frozen=True)
class FactsRequest(Request["Answers[Facts]"]):
    """The facts that ``probes`` collect, by name; all by default."""

    probes: Sequence[str] = ()
    keep_answers: bool = False


@dataclass(frozen=True)
class RunRequest(Request["Answers[Completed]"]):
    """One command on every host: a line for its sh, or the exact words."""

    command: str | Sequence[str]
    timeout: float = 60.0
    become: bool = False


@dataclass(frozen=True)
class ValidateRequest(Request["Report"]):
    """What is wrong with each host. ``only`` and ``skip`` name checks or tags; ``burn_in`` is how long a load lasts."""

    level: Level = "quick"
    only: Sequence[str] = ()
    skip: Sequence[str] = ()
    engine: str = "auto"
    force_busy: Sequence[str] = ()
    burn_in: float = 1800.0
    facts: Mapping[str, Facts] | None = field(default=None, hash=False)
    keep_answers: bool = False


@dataclass(frozen=True)
class ExpectRequest(Request["Expectation"]):
    """What an all-reduce should give; ``nodes`` in one group, all of a kind by default."""

    nodes: int | None = None
    gib: float | None = None
    facts: Mapping[str, Facts] | None = field(default=None, hash=False)


@dataclass(frozen=True)
class NvlinkRequest(Request["NvlinkComparison"]):
    """What NVLink gains; ``train`` is a Python of the hosts with torch, for ``steps`` of ``batch`` samples a GPU."""

    engine: str = "auto"
    gib: float | None = None
    force_busy: Sequence[str] = ()
    libnccl: Path | None = None
    train: str | None = None
    steps: int = 200
    batch: int = 4
    row_timeout: float = 900.0

    def __post_init__(self) -> None:
        """Raise `InputError` for an engine that does not use NVLink."""
        check_words("engine", [self.engine], ("auto", *NVLINK_ENGINES))


@dataclass(frozen=True)
class PreflightRequest(Request["Diagnosis"]):
    """Why the launch ``command`` cannot start; ``hostfile_text`` has the content of the files that it names."""

    command: Sequence[str]
    force_busy: Sequence[str] = ()
    hostfile_text: Mapping[str, str] | None = field(default=None, hash=False)


@dataclass(frozen=True)
class PlaceRequest(Request["Placement"]):
    """Where every rank of ``layout`` runs. ``all_nodes`` takes unhealthy ones too, ``force`` breaks rules of speed."""

    layout: str
    order: str = "tp-cp-ep-dp-pp"
    all_nodes: bool = False
    allow_fewer: bool = False
    force: bool = False
    facts: Mapping[str, Facts] | None = field(default=None, hash=False)
    measured: Measurement | None = None


@dataclass(frozen=True)
class RenderRequest(Request["Launch"]):
    """The files that start ``command`` on ``placement`` with launch ``target``."""

    placement: Placement
    target: str
    command: Sequence[str] = ("train.py",)
    name: str = "train"
    port: int = 29500
    model: Path | Mapping[str, Any] | None = field(default=None, hash=False)
    force: bool = False


@dataclass(frozen=True)
class ProvisionRequest(Request["Record"]):
    """Bring hosts to the state that ``playbook`` describes, a name, a file or one made by the program.

    With ``check`` nothing is changed. ``extra_vars`` override the variables of the playbook and of the inventory.
    ``resume`` goes on with a run that broke off, ``retry`` starts a new one on the hosts that failed in a run.
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
    """Apply the fix of the finding of ``check``; with ``check_only`` it is only shown."""

    check: str
    check_only: bool = False
    force: bool = False


@dataclass(frozen=True)
class HostKeysRequest(Request["Answers[HostKeys]"]):
    """The keys that hosts show, beside those that are recorded."""


@dataclass(frozen=True)
class TrustRequest(Request["Answers[HostKeys]"]):
    """Record the keys that hosts show; with ``fingerprint`` that key alone, with ``replace`` in place of old ones."""

    fingerprint: str | None = None
    replace: bool = False


@dataclass(frozen=True)
class OnboardRequest(Request["Onboarding"]):
    """Take hosts through every gate but ``without``, and write admitted ones into ``group`` of the inventory."""

    playbook: str = "onboard"
    group: str = ""
    burn_in: float = 1800.0
    without: Sequence[str] = ()
    engine: str = "auto"
    break_lock: bool = False


@dataclass(frozen=True)
class AdmitRequest(Request["Transition"]):
    """Let hosts take jobs; ``force`` without the proof that onboarding gives."""

    reason: str = "by hand"
    force: bool = False


@dataclass(frozen=True)
class DrainRequest(Request["Transition"]):
    """Let no more jobs start, and ``wait`` for those that run."""

    reason: str
    wait: float = 0.0


@dataclass(frozen=True)
class SetStateRequest(Request["Transition"]):
    """Make hosts ``repair``, ``rma``, ``retired`` or ``new``."""

    state: str
    reason: str
