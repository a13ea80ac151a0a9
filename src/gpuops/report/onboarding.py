"""Text report of onboarding: the gates at which nodes stopped."""

from __future__ import annotations

from gpuops.report.page import fold
from gpuops.results.life import Onboarding


def stopped(result: Onboarding) -> str:
    """Return ``gpu[01-03] at burn-in, gpu07 at pair``."""
    hosts_by_gate: dict[str, list[str]] = {}
    for host, node in result.nodes.items():
        if node.stopped_at:
            hosts_by_gate.setdefault(node.stopped_at, []).append(host)
    return ", ".join(f"{fold(hosts)} at {gate}" for gate, hosts in hosts_by_gate.items())
