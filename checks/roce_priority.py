"""RoCE traffic is marked so that it has a lossless priority."""

from collections.abc import Iterator, Mapping

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.probes.network.ib import IbPort, ib_ports
from gpuops.probes.network.roce import FlowControl, NcclVariables, flow_control, nccl_variables, roce

_DSCP_BITS = 2  # the traffic class has two bits of ECN below the DSCP


@check(
    needs=(ib_ports, roce, flow_control, nccl_variables),
    tolerates=(flow_control, nccl_variables),
    uses=("nic.rails",),
    severity="warn",
    tags=("quick", "network"),
    catches="RDMA packets that are dropped under load, because PFC protects another priority than theirs",
    fix="set the traffic class (or NCCL_IB_TC) and PFC for the same priority; the task roce_qos sets them",
)
def roce_priority(
    ports: tuple[IbPort, ...],
    settings: Mapping[str, Mapping[str, str]],
    control: Mapping[str, FlowControl | Unknown] | Unknown,
    variables: NcclVariables | Unknown,
    profile: Profile,
) -> Iterator[Finding | Unknown | NotApplicable]:
    """On a port that trusts DSCP, the DSCP of the traffic class is mapped to a priority, and this one is lossless.

    If the session sets NCCL_IB_TC, that is the traffic class, otherwise the device's. A port without a traffic class or
    without PFC is only compared with other nodes, by `roce-settings`. Source: NVIDIA, RoCE configuration (DSCP-based
    quality of service with PFC); our own figure: it is a warning, because programs may choose a traffic class of their
    own.
    """
    declared = set(profile.get("nic.rails", ()))
    rails = [port for port in ports if port.device in declared] or list(ports)
    if {port.link_layer for port in rails} != {"Ethernet"}:
        yield NotApplicable("there are no RoCE rails")
        return
    for value in (control, variables):
        yield from [value] if isinstance(value, Unknown) else []
    if isinstance(control, Unknown):
        return
    own = {} if isinstance(variables, Unknown) else variables.values
    for device in sorted({port.device for port in rails}):
        flow = control.get(device)
        traffic_class = own.get("NCCL_IB_TC") or settings.get(device, {}).get("traffic class", "")
        if isinstance(flow, FlowControl) and traffic_class.isdecimal():
            yield from _judge(device, flow, int(traffic_class))
        elif isinstance(flow, Unknown):
            yield Unknown(f"{device}: flow control: {flow.why}")


def _judge(device: str, flow: FlowControl, traffic_class: int) -> Iterator[Finding]:
    dscp = traffic_class >> _DSCP_BITS
    priority = flow.priority_of(dscp)
    if flow.trust == "dscp" and flow.lossless and priority not in flow.lossless:
        lossless = ", ".join(map(str, flow.lossless))
        message = f"traffic class {traffic_class} (DSCP {dscp}) has priority {priority}, but PFC protects {lossless}"
        yield Finding(message, expected=lossless, found=priority, part=device)
