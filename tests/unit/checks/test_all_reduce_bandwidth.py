from gpuops.isolation import Excluded
from gpuops.isolation.cabling import Cabling, build_fabric
from gpuops.isolation.evidence import Evidence, Measured
from gpuops.isolation.faults import parse_fault
from gpuops.isolation.node_evidence import all_reduce, to_answers
from gpuops.isolation.planning import next_round
from gpuops.isolation.simulation import Simulation
from gpuops.judging import discover
from gpuops.profile import NO_PROFILE

CHECK = discover()["all-reduce-bandwidth"]
FABRIC = build_fabric(Cabling(nodes=16, unit=8, leaves=8))


def shares(*faults, fabric=FABRIC):
    """What a measurement of a fabric with ``faults`` shows of each node."""
    evidence = Evidence(fabric)
    simulation = Simulation(fabric, [parse_fault(fault, fabric) for fault in faults])
    while (planned := next_round(evidence)) is not None:
        measured = Measured(planned, simulation.measure(planned))
        evidence = Evidence(fabric, (*evidence.rounds, measured))
    return {name: all_reduce.read(answer) for name, answer in to_answers(evidence, "nccl", {}).items()}


def judged(told):
    return list(CHECK.judge(told, NO_PROFILE))


def test_a_slow_nic_is_its_nodes_fault():
    (finding,) = judged(shares("gpu003:mlx5_5:slow=30"))
    assert (finding.host, finding.part, finding.code, finding.unit) == ("gpu003", "mlx5_5", "slow", "GB/s")
    assert finding.found < 0.8 * finding.expected
    assert "mlx5_5 at gpu003" in finding.fix


def test_a_slow_leaf_is_no_nodes_fault():
    (finding,) = judged(shares("leaf:L3:slow=40"))
    assert (finding.host, finding.part) == ("", "leaf:L3")


def test_where_all_is_well_nothing_is_said():
    assert judged(shares()) == []


def test_a_node_at_fault_before_the_load_is_a_finding():
    others = shares(fabric=FABRIC.without(frozenset({"gpu015"})))
    told = {**others, "gpu015": Excluded("gpu015", "defective", "clocks: 7 s behind", do="set its clock")}
    (finding,) = judged(told)
    assert (finding.host, finding.message, finding.fix) == ("gpu015", "clocks: 7 s behind", "set its clock")
