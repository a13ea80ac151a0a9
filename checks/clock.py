"""The node's clock is right and something keeps it right."""

from collections.abc import Iterator

from gpuops import Finding, Profile, Unknown, check
from gpuops.probes.host.clock import Clock
from gpuops.probes.host.clock import clock as probe

_LARGEST_OFFSET_SECONDS = 0.1


@check(
    needs=probe,
    severity="warn",
    tags=("quick", "host"),
    catches="logs that cannot be put in order, tokens and certificates that are refused, make-like tools that misjudge",
    fix="install and start chrony (or systemd-timesyncd) and give it a time server that the node can reach",
)
def clock(state: Clock, _profile: Profile) -> Iterator[Finding | Unknown]:
    """Synchronized, and within 0.1 s of its source: our own figure, ten times what NTP keeps on a busy network.

    Where nothing on the node says whether it is synchronized, that is unknown.
    """
    offset = state.offset_seconds
    if offset is not None and abs(offset) > _LARGEST_OFFSET_SECONDS:
        direction = "ahead of" if offset > 0 else "behind"
        message = f"{abs(offset):.1f} s {direction} {state.source or 'its source'}"
        fix = "chronyc makestep; then find why chrony did not keep it"
        within = f"within {_LARGEST_OFFSET_SECONDS}"
        yield Finding(message, expected=within, found=offset, unit="s", fix=fix, part="clock")
    elif state.synchronized is False:
        yield Finding("not synchronized", expected="synchronized", found="not synchronized", part="clock")
    elif state.synchronized is None:
        yield Unknown("nothing on the node tells whether its clock is synchronized")
