from dataclasses import replace

from gpuops.isolation import next_round
from gpuops.isolation.cabling import Cabling, build_fabric
from gpuops.isolation.evidence import Evidence, Measured
from gpuops.isolation.faults import parse_fault
from gpuops.isolation.simulation import Simulation


def test_a_node_that_never_ends_by_itself_is_asked_nothing_more():
    fabric = build_fabric(Cabling(nodes=7, unit=8, leaves=8))
    simulation = Simulation(fabric, [parse_fault("gpu006:hang", fabric)])
    evidence = Evidence(fabric)
    while (planned := next_round(evidence)) is not None:
        evidence = replace(evidence, rounds=(*evidence.rounds, Measured(planned, simulation.measure(planned))))
    later = evidence.rounds[1:]
    assert later
    assert all("gpu006" not in group.nodes for measured in later for group in measured.round.groups)
