"""How many GPUs a machine should have at least, by what is known of it beside its profile."""

from __future__ import annotations

from gpuops.inventory import Power
from gpuops.probing import Unknown
from gpuops.profile import Profile
from gpuops.trends.past import Record


def least_gpus(profile: Profile, record: Record | Unknown) -> tuple[int, str]:
    """Return the number that declared power cables and earlier runs show, and what shows it; 0 if nothing does."""
    power: Power | None = profile.get("power.declared")
    with_cable = max((cable.gpu + 1 for cable in power.gpu_cables), default=0) if power else 0
    before = 0 if isinstance(record, Unknown) else record.past.gpus_before
    if with_cable >= before:
        return with_cable, f"the inventory declares a power cable of GPU {with_cable - 1}"
    return before, "an earlier run saw them"
