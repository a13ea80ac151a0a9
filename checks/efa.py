"""Every EFA adapter has its driver, libfabric lists it, and each node has as many as the others."""

from collections.abc import Iterator, Mapping

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.judging.majority import FEWEST_NODES, majority
from gpuops.probes.host.pci import PciDevice, pci_devices
from gpuops.probes.network.efa import EfaProvider, efa_provider, is_efa


@check(
    needs=(pci_devices, efa_provider),
    tolerates=(efa_provider,),
    scope="group",
    severity="fail",
    tags=("quick", "network"),
    applies_to="cloud machines with EFA adapters",
    catches="a node that lost an adapter, or whose NCCL falls back to TCP because libfabric does not find EFA",
    fix="stop and start the instance, so that it gets other hardware; if it stays, report it to the provider",
)
def efa(
    nodes: Mapping[str, tuple[tuple[PciDevice, ...], EfaProvider | Unknown]], _profile: Profile
) -> Iterator[Finding | Unknown | NotApplicable]:
    """Adapters on the PCI bus are bound to the driver ``efa``, and libfabric's provider ``efa`` lists all of them.

    The majority of at least three nodes decides how many there are. Their ports are not judged, because the driver
    always reports them as active. libfabric may be missing on the host: jobs then bring their own. Source: Linux,
    efa_main.c (PCI ids, driver); AWS, EFA user guide (fi_info); NVIDIA/NVSentinel, nic-health-monitor (ports that are
    always active).
    """
    adapters = {node: [device for device in own if is_efa(device)] for node, (own, _) in nodes.items()}
    if not any(adapters.values()):
        yield NotApplicable("there is no EFA adapter")
        return
    most = majority(map(len, adapters.values()), fewest=FEWEST_NODES)
    for node, own in adapters.items():
        yield from _judge(node, own, nodes[node][1])
        if most and len(own) < most.value:
            message = f"{len(own)} EFA adapters, {most.value} on {most.count} of {most.total} nodes"
            yield Finding(message, expected=most.value, found=len(own), part="efa", host=node, code="count")


def _judge(node: str, adapters: list[PciDevice], provider: EfaProvider | Unknown) -> Iterator[Finding | Unknown]:
    bound = [adapter for adapter in adapters if adapter.driver == "efa"]
    if len(bound) < len(adapters):
        places = ", ".join(adapter.place for adapter in adapters if adapter not in bound)
        fix = "load the driver (modprobe efa), or install it with the EFA installer; see the kernel log for its error"
        message = f"{len(bound)} of {len(adapters)} EFA adapters have their driver (without: {places})"
        yield Finding(message, expected=len(adapters), found=len(bound), part="efa", host=node, fix=fix, code="driver")
    elif isinstance(provider, Unknown) and adapters:
        yield Unknown(f"{node}: {provider.why}")
    elif isinstance(provider, EfaProvider) and provider.installed and len(provider.adapters) < len(adapters):
        fix = "reinstall libfabric with the EFA installer, and allow the user to open /dev/infiniband"
        message = f"libfabric lists {len(provider.adapters)} of {len(adapters)} EFA adapters"
        yield Finding(
            message,
            expected=len(adapters),
            found=len(provider.adapters),
            part="efa",
            host=node,
            fix=fix,
            code="provider",
        )
