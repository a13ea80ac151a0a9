"""The node's clock is correct and synchronized."""

from collections.abc import Iterator

from gpuops import Finding, Profile, Unknown, check
from gpuops.probes.host.clock import Clock
from gpuops.probes.host.clock import clock as probe
from gpuops.probes.host.services import Service, services

_LARGEST_OFFSET_SECONDS = 0.1
_PTP = ("phc2sys", "timemaster")


@check(
    needs=(probe, services),
    tolerates=(services,),
    severity="warn",
    tags=("quick", "host"),
    catches="logs out of order, rejected tokens and certificates, wrong decisions of make and similar tools",
    fix="install and start chrony (or systemd-timesyncd) with a time server that the node can reach",
    fix_in_common="look at the time server and the firewall: these nodes lost it together",
)
def clock(state: Clock, units: dict[str, Service] | Unknown, _profile: Profile) -> Iterator[Finding | Unknown]:
    """The clock is synchronized and within 0.1 s of its source.

    The limit is our own figure: ten times what NTP achieves on a busy network. If nothing on the node reports whether
    the clock is synchronized, the result is unknown. It is also unknown if linuxptp sets the clock, because the kernel
    does not report that.
    """
    ptp = [] if isinstance(units, Unknown) else [name for name in _PTP if name in units and units[name].running]
    offset = state.offset_seconds
    if offset is not None and abs(offset) > _LARGEST_OFFSET_SECONDS:
        direction = "ahead of" if offset > 0 else "behind"
        message = f"{abs(offset):.1f} s {direction} {state.source or 'its source'}"
        fix = "chronyc makestep; then find out why chrony did not correct it"
        within = f"within {_LARGEST_OFFSET_SECONDS}"
        yield Finding(message, expected=within, found=offset, unit="s", fix=fix, part="clock")
    elif ptp and not state.synchronized:
        yield Unknown(f"{ptp[0]} sets the clock by PTP, and does not report its offset")
    elif state.synchronized is False:
        yield Finding("not synchronized", expected="synchronized", found="not synchronized", part="clock")
    elif state.synchronized is None:
        yield Unknown("nothing on the node reports whether its clock is synchronized")
