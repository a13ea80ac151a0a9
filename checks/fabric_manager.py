"""The fabric manager is running, has the driver's version, and has added every GPU to the NVLink fabric."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.judging.alike import judge_alike
from gpuops.judging.majority import majority
from gpuops.probes.host.services import Service, services
from gpuops.probes.nvidia.driver import Driver, InstalledDriver, driver, installed_driver
from gpuops.probes.nvidia.fabric_manager import FabricManager
from gpuops.probes.nvidia.fabric_manager import fabric_manager as probe
from gpuops.probes.nvidia.gpus import Gpu, gpus

_UNIT = "nvidia-fabricmanager"
_FEWEST = 3
"""GPUs that do not join the fabric alike have a common cause; a choice."""
_RACK = "inspect the NVLink switches of the rack and the fabric manager that runs on them; its nodes do not run one"
_OWN_IN_RACK = f"see journalctl -u {_UNIT}; disable it if the rack's own fabric manager runs on its NVLink switches"
_REJOIN_ALL = (
    "see the log of the fabric manager, then reset all GPUs together; if it stays, have the baseboard inspected"
)
_REJOIN = "drain the node and reset GPU {0}; if it stays, have the NVSwitch and its links inspected"


@check(
    needs=(gpus, services, probe, driver, installed_driver),
    tolerates=(gpus, services, probe, driver, installed_driver),
    uses=("nvswitch", "nvlink.domain_gpus"),
    severity="fail",
    tags=("quick", "start", "nvlink", "driver", "nvidia-smi"),
    settles_seconds=300,
    applies_to="machines with NVSwitches, and GPUs in an NVLink fabric",
    catches='"system not yet initialized" from CUDA, or collectives that fail or fall back to slow paths',
    fix=f"systemctl enable --now {_UNIT}; if it fails, see journalctl -u {_UNIT}",
    fix_in_common="look at what they share: an update without the fabric manager, or the rack's NVLink switches",
)
def fabric_manager(
    gpus: tuple[Gpu, ...] | Unknown,
    units: dict[str, Service] | Unknown,
    manager: FabricManager | Unknown,
    loaded: Driver | Unknown,
    on_disk: InstalledDriver | Unknown,
    profile: Profile,
) -> Iterator[Finding | Unknown | NotApplicable]:
    """Only machines with NVSwitches (``nvswitch`` in the profile) need one; every GPU that is in a fabric is judged.

    Source: NVIDIA Fabric Manager User Guide: its version must be the driver's, and a GPU of Hopper or later is ready
    when its fabric state is Completed and its status Success. The health of a GPU's routes is judged if the GPU reports
    it; a healthy HGX H100 does not. Routes that are recovering are a warning, because the recovery ends by itself or in
    another state. What all GPUs of a node report alike is one finding on the node.

    If the node has no systemd unit for the fabric manager, it may run in a container or on the hypervisor. Then the
    state that the GPUs report decides, as on an NVL72 rack, which is managed from outside its nodes. A unit that has
    failed there is a finding, too.
    """
    listed = () if isinstance(gpus, Unknown) else gpus
    in_fabric = tuple(gpu for gpu in listed if gpu.fabric_state)
    domain_gpus = profile.get("nvlink.domain_gpus")
    fabric = [*_without_state(listed, domain_gpus), *_judge_fabric(in_fabric, is_rack=bool(domain_gpus))]
    if not profile.get("nvswitch"):
        own = None if isinstance(units, Unknown) else units.get(_UNIT)
        if in_fabric and own and own.active == "failed":
            yield replace(_not_running(own, []), fix=_OWN_IN_RACK if domain_gpus else "")
        if not (fabric or in_fabric):
            yield NotApplicable("the machine is not known to have NVSwitches")
        yield from map(_of_rack, fabric) if domain_gpus else fabric
        return
    unit = units if isinstance(units, Unknown) else units.get(_UNIT, Unknown(f"systemd does not report {_UNIT}"))
    if isinstance(unit, Service) and not unit.running and (unit.installed or not in_fabric):
        yield from (part for part in fabric if isinstance(part, Unknown))
        yield _not_running(unit, list(_judge_version(manager, loaded, on_disk)))
        return
    if isinstance(unit, Unknown) or unit.running:
        yield from _judge_version(manager, loaded, on_disk)
    yield from (part for part in (unit, gpus) if isinstance(part, Unknown))
    yield from fabric


def _of_rack(part: Finding | Unknown) -> Finding | Unknown:
    """Return a finding that names no remedy of its own with that of a rack, whose switches are outside its nodes."""
    return replace(part, fix=_RACK) if isinstance(part, Finding) and not part.fix else part


def _not_running(unit: Service, versions: list[Finding | Unknown]) -> Finding:
    """Return one finding, with the wrong version as the reason if there is one: such a manager stops at once."""
    state = unit.active if unit.installed else "not installed"
    message, fix = f"{_UNIT} is not running: {state}", ""
    other = next((f for f in versions if isinstance(f, Finding)), None)
    if not unit.installed:
        fix = f"install {_UNIT} of the driver's version, then systemctl enable --now {_UNIT}"
    elif other:
        message, fix = f"{message}; {other.message}", other.fix
    return Finding(message, expected="active", found=state, fix=fix, part="fabricmanager")


def _without_state(listed: tuple[Gpu, ...], domain_gpus: int | None) -> Iterator[Finding | Unknown]:
    """Yield the GPUs that should be in a fabric and report no state; MIG takes a GPU out of it."""
    if not domain_gpus and not any(gpu.fabric_state for gpu in listed):
        return

    def judge(gpu: Gpu, selection: str) -> Iterator[Finding | Unknown]:
        if gpu.fabric_state:
            return
        peers = [peer.fabric_state for peer in listed if peer.name == gpu.name]
        completed = peers.count("Completed")
        if gpu.faulty_fields or gpu.fabric_status or gpu.fabric_clique_id:  # only the state cannot be read
            reason = ""
        elif 2 * completed > len(peers):
            reason = f"{completed} of {len(peers)} GPUs of its model are Completed"
        else:
            reason = "its clique is 0" if domain_gpus and gpu.fabric_clique_id == 0 else ""
        if reason:
            message = f"not in the NVLink fabric: it reports no state, and {reason}"
            fix = _rejoin(gpu, selection, is_rack=bool(domain_gpus))
            yield Finding(message, expected="Completed", found="no state", fix=fix, part=gpu.part)
        else:
            yield Unknown(f"{gpu.label} does not report its state in the NVLink fabric")

    yield from judge_alike([gpu for gpu in listed if not gpu.mig_mode], judge, _FEWEST)


def _rejoin(gpu: Gpu, selection: str, *, is_rack: bool) -> str:
    """Return what to do about one GPU, or about all of a node; empty for a rack, which has its own remedy."""
    if selection:
        return _REJOIN.format(gpu.index)
    return "" if is_rack else _REJOIN_ALL


def _judge_fabric(gpus_in_fabric: tuple[Gpu, ...], *, is_rack: bool) -> Iterator[Finding]:
    yield from _apart(gpus_in_fabric)
    yield from judge_alike(gpus_in_fabric, partial(_judge_gpu, is_rack=is_rack), _FEWEST)


def _judge_gpu(gpu: Gpu, selection: str, *, is_rack: bool) -> Iterator[Finding]:
    faults = _faults(gpu)
    if gpu.fabric_recovering or (not faults and gpu.fabric_access_recovering):
        told = "; ".join(["its routes are recovering", *faults])
        fix = "look again in a minute; if it does not end, reset the GPU when idle"
        yield Finding(f"fabric: {told}", expected="Healthy", found=told, fix=fix, part=gpu.part, severity="warn")
    elif faults:
        told = "; ".join(faults)
        fix = _rejoin(gpu, selection, is_rack=is_rack) if gpu.fabric_state == "Completed" or not selection else ""
        expected = "Completed, Success, Healthy"
        yield Finding(f"fabric: {told}", expected=expected, found=told, fix=fix, part=gpu.part)


def _apart(gpus_in_fabric: tuple[Gpu, ...]) -> Iterator[Finding]:
    """Yield the GPUs that are in another NVLink domain than most of the node; another clique may be a partition.

    A GPU whose domain or clique cannot be read is in no other one.
    """
    ready = [gpu for gpu in gpus_in_fabric if gpu.fabric_state == "Completed"]
    ready = [gpu for gpu in ready if gpu.fabric_cluster_uuid is not None and gpu.fabric_clique_id is not None]
    most = majority((gpu.fabric_cluster_uuid, gpu.fabric_clique_id) for gpu in ready)
    for gpu in ready:
        own = (gpu.fabric_cluster_uuid, gpu.fabric_clique_id)
        if most and own != most.value:
            found, expected = (f"domain {uuid}, clique {clique}" for uuid, clique in (own, most.value))
            message = "not in the NVLink domain and clique of the node's other GPUs"
            fix = f"compare the partitions of the NVLink manager with what is wanted, then reset GPU {gpu.index}"
            told = Finding(message, expected=expected, found=found, fix=fix, part=gpu.part, code="apart")
            yield told if own[0] != most.value[0] else replace(told, severity="warn")


def _faults(gpu: Gpu) -> list[str]:
    """Return what is wrong with the GPU's place in the fabric, in nvidia-smi's words; what it does not report is not.

    NVML's mask of the health has two bits for each word: not supported, true, and false are three values.
    """
    words = [gpu.fabric_health, gpu.fabric_bandwidth, gpu.fabric_configuration]
    healthy = ({None, "Healthy"}, {None, "Full"}, {None, "None"})
    labels = ("health", "bandwidth", "configuration")
    told = [f"{label} {word}" for label, word, good in zip(labels, words, healthy, strict=True) if word not in good]
    if gpu.fabric_route_unhealthy:
        told.append("route unhealthy")
    if gpu.fabric_state != "Completed" or gpu.fabric_status not in {None, "Success"}:
        told.insert(0, ", ".join(filter(None, (gpu.fabric_state, gpu.fabric_status))))
    return told


def _judge_version(
    manager: FabricManager | Unknown, loaded: Driver | Unknown, on_disk: InstalledDriver | Unknown
) -> Iterator[Finding | Unknown]:
    """Yield a finding unless the version matches the installed module: then `driver-loaded` reports the reboot."""
    yield from (part for part in (manager, loaded) if isinstance(part, Unknown))
    if isinstance(manager, Unknown) or isinstance(loaded, Unknown):
        return
    here, theirs = loaded.loaded_version, manager.version
    if theirs != here and not (isinstance(on_disk, InstalledDriver) and theirs == on_disk.version):
        message = f"fabric manager {theirs} does not match driver {here}"
        fix = (
            f"install nvidia-fabricmanager {here} and restart it (systemctl enable {_UNIT}; systemctl restart {_UNIT})"
        )
        yield Finding(message, expected=here, found=theirs, fix=fix, part="fabricmanager")
