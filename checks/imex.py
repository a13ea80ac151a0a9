"""The IMEX service of a node is ready, and so are those of the other nodes of its NVLink domain."""

from collections.abc import Iterator

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.probes.host.services import Service, services
from gpuops.probes.nvidia.gpus import Gpu, gpus
from gpuops.probes.nvidia.imex import ImexDomain, imex_channels, imex_domain, imex_state

_UNIT = "nvidia-imex"


@check(
    needs=(gpus, services, imex_state, imex_domain, imex_channels),
    tolerates=(services, imex_state, imex_domain, imex_channels),
    severity="fail",
    tags=("quick", "nvlink", "nvidia-smi"),
    settles_seconds=300,
    applies_to="racks whose NVLink connects nodes (NVL72), if nvidia-imex is enabled on them",
    catches="jobs across the rack that hang at their start, or fail to open the memory of other nodes",
    fix=f"systemctl restart {_UNIT}; compare its nodes_config.cfg with those of the other nodes; see its log",
    fix_in_common="compare nodes_config.cfg and the version of nvidia-imex on the nodes of this domain",
)
def imex(
    gpus: tuple[Gpu, ...],
    units: dict[str, Service] | Unknown,
    state: str | Unknown,
    domain: ImexDomain | Unknown,
    channels: bool | Unknown,  # noqa: FBT001 - a check gets its values in the order of its needs
    _profile: Profile,
) -> Iterator[Finding | Unknown | NotApplicable]:
    """An enabled service runs, its state is READY, and the domain is UP.

    If NVLink ends in each node, the service is not judged. Nor is a service that is not enabled: under Kubernetes, or
    with a prolog, it runs only while a job needs it. If this node is ready but others of its domain are not, that is a
    warning that names them. Missing channels are information, because a prolog may create them. Source: NVIDIA IMEX
    guide, and DCGM's dcgm_fields.h (states); NVIDIA/NVSentinel, issue 1471, and NVIDIA/aicr, issue 2641 (false alarms
    without a domain, and without a job).
    """
    if not any(gpu.nvlink_domain for gpu in gpus):
        yield NotApplicable("NVLink ends in each node")
        return
    unit = units if isinstance(units, Unknown) else units.get(_UNIT, Unknown(f"systemd does not report {_UNIT}"))
    if isinstance(unit, Unknown):
        yield unit
    elif not unit.running and unit.enabled != "enabled":
        yield NotApplicable(f"{_UNIT} is not enabled: it runs only while a job needs it")
    elif not unit.running:
        message = f"{_UNIT} is enabled and not running: {unit.active}"
        yield Finding(message, expected="active", found=unit.active, part="imex")
    else:
        yield from _judge(state, domain)
        if channels is False:
            message = "there is no IMEX channel: a job needs one from a prolog, or from NVreg_CreateImexChannel0=1"
            yield Finding(message, part="imex", severity="info", code="channels")


def _judge(state: str | Unknown, domain: ImexDomain | Unknown) -> Iterator[Finding | Unknown]:
    if isinstance(state, Unknown):
        yield state
    elif state != "READY":
        yield Finding(f"{_UNIT} is not ready: {state}", expected="READY", found=state, part="imex")
        return
    if isinstance(domain, Unknown):
        yield domain
    elif domain.status != "UP":
        waits_for = tuple(name for name, word in domain.state_by_node.items() if word != "READY")
        others = ", ".join(f"{name} {domain.state_by_node[name]}" for name in waits_for[:4])
        yield Finding(
            f"the IMEX domain is {domain.status}{': ' if others else ''}{others}",
            expected="UP",
            found=domain.status,
            part="imex",
            severity="warn",
            code="domain",
            fix=f"look at {_UNIT} on {', '.join(waits_for[:4]) or 'the other nodes'}",
            waits_for=waits_for,
        )
