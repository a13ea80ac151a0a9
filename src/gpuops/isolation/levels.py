"""What transfers reach around an uplink: over other uplinks, and inside its unit."""

from __future__ import annotations

import statistics

from gpuops.isolation.parts import Part
from gpuops.isolation.readings import Readings, upper_quartile


def level_alone(uplink: Part, readings: Readings) -> float:
    """Return what transfers over other uplinks reach while nothing disturbs them; 1 if that is unknown.

    A link of an oversubscribed spine may be slower than a NIC. Then single transfers are slow on every path, to the
    same degree, and no uplink is at fault; the spine of one rail may be slow. Three in four paths may have a fault:
    the level is the upper quartile of all, or of those of the uplink's rail if that is lower.
    """
    by_path: dict[tuple[int, object], list[float]] = {}
    for reading in readings.between:
        group = reading.figure.group
        is_crossing = group.rail is not None and reading.ratio and readings.crosses(reading)
        if is_crossing and not uplink.crossed_by(reading.figure, readings.fabric) and readings.is_undisturbed(reading):
            units = frozenset(readings.fabric.unit_of.get(node) for node in group.nodes)
            by_path.setdefault((group.rail or 0, units), []).append(reading.at_line_rate)
    every = [(rail, statistics.median(ratios)) for (rail, _), ratios in by_path.items()]
    own = [level for rail, level in every if rail == uplink.number]
    return min([1.0, *(upper_quartile(sorted(levels)) for levels in (own, [level for _, level in every]) if levels)])


def usual_inside(uplink: Part, readings: Readings) -> float:
    """Return the median of what transfers inside the unit reach on the uplink's rail; 1 if there are none."""
    ports = (Part("nic", node, uplink.number) for node in readings.fabric.units[uplink.owner])
    inside = [r.at_line_rate for port in ports for r in readings.of(port) if r.ratio and not readings.crosses(r)]
    return statistics.median(inside) if inside else 1.0
