"""No part's error counters rise from run to run more often than by chance."""

from collections.abc import Iterator

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.trends import Record, climbing, past


@check(
    needs=past,
    severity="warn",
    tags=("quick", "over-time", "gpu", "network"),
    applies_to="nodes with at least two runs in the store",
    catches="an NVLink, cable, memory or drive that has not failed yet, but counts errors run after run",
    fix="follow the advice of the finding for the part that it names",
)
def counters_over_time(record: Record, _profile: Profile) -> Iterator[Finding | Unknown | NotApplicable]:
    """A counter is compared with its own value in the last runs, and its rises with those of all similar parts.

    Counting starts again after a reboot, a reset or a move of the card; counts that a card itself stores follow its
    serial number. A counter that rose in more of the last 4, 6, 10, 20 or 40 intervals than chance explains is a
    finding until the counter rests: at most one false alarm in 100 node-months, if rises are independent. More than ten
    NVLink recoveries, or 120 symbol errors an hour, are a finding at once. If the counters of several similar parts
    rise as often, none of them is blamed; a part that always counted as much is not named again.

    Source: marin-community/marin issue 9086 (505 recoveries of one link of 5,760, five days before its Xid 149); NVIDIA
    NVSentinel, docs/configuration/nic-health-monitor.md (symbol errors).
    """
    yield from climbing(record)
