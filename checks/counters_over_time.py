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
    """A counter is compared with its values in earlier runs, and its rises with those of all similar parts.

    Counting starts again after a reboot, after a reset, and if the card moves. Counts that a card itself stores follow
    its serial number. A counter is a finding if it rose in more of the last 4, 6, 10, 20 or 40 intervals than chance
    explains, until it rests. If rises are independent, that is at most one false alarm in 100 node-months. More than
    ten NVLink recoveries are a finding at once, and so are 120 symbol errors an hour. If the counters of several
    similar parts rise as often, none of them is blamed. A part that always counted as much is not named again.

    Source: marin-community/marin issue 9086 (505 recoveries of one link of 5,760, five days before its Xid 149); NVIDIA
    NVSentinel, docs/configuration/nic-health-monitor.md (symbol errors).
    """
    yield from climbing(record)
