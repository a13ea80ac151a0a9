from dataclasses import replace

from gpuops.probes.nvidia.nvlink_errors import LinkErrors
from gpuops.probing import Unknown


def counting(machine, gpu, number, **counts):
    links = {g: dict(own) for g, own in machine.values["link_errors"].items()}
    rates = {name: counts.pop(name) for name in ("effective_ber", "symbol_ber") if name in counts}
    links[gpu][number] = replace(links[gpu][number], counts={"recovery_errors": 0, **counts}, rates=rates)
    return machine.but(link_errors=links)


def outcome(machine):
    return [(f.part, f.severity, f.code) for f in machine.judge("nvlink-errors").findings]


def test_a_link_that_retrained_while_the_others_did_not(h100):
    machine = counting(h100, "gpu2", 14, total_link_recovery_events=505)
    assert outcome(machine) == [("gpu2", "warn", "recovered")]
    assert "link 14 (505 times)" in machine.judge("nvlink-errors").findings[0].message


def test_links_that_all_retrained_once_are_no_finding(h100):
    links = {
        gpu: {n: LinkErrors({"recovery_errors": 1}) for n in own} for gpu, own in h100.values["link_errors"].items()
    }
    assert outcome(h100.but(link_errors=links)) == []


def test_a_failed_recovery_is_a_fault(h100):
    assert outcome(counting(h100, "gpu2", 14, link_recovery_failed_events=1, total_link_recovery_events=3)) == [
        ("gpu2", "fail", "failed")
    ]


def test_the_effective_error_rate_decides_and_a_rate_of_zero_is_small(h100):
    assert outcome(counting(h100, "gpu2", 14, effective_ber=15e-255)) == []
    assert outcome(counting(h100, "gpu2", 14, effective_ber=2e-11)) == [("gpu2", "fail", "ber")]


def test_links_that_do_not_count_retraining_are_unknown(h100):
    links = {gpu: {0: LinkErrors({"crc_errors": 0})} for gpu in h100.values["link_errors"]}
    assert h100.but(link_errors=links).judge("nvlink-errors").status == "unknown"
    assert h100.but(link_errors={"gpu0": {}}).judge("nvlink-errors").status == "skipped"


def test_a_gpu_whose_links_were_not_read_hides_no_fault_of_another(h100):
    machine = counting(h100, "gpu2", 14, link_recovery_failed_events=1)
    machine = machine.but(link_errors={**machine.values["link_errors"], "gpu7": Unknown("GPU is lost")})
    assert outcome(machine) == [("gpu2", "fail", "failed")]
    alone = h100.but(link_errors={"gpu0": {}, "gpu7": Unknown("GPU is lost")}).judge("nvlink-errors")
    assert (alone.status, alone.why) == ("unknown", "gpu7: GPU is lost")
