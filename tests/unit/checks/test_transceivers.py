from dataclasses import replace

import pytest

from gpuops.probes.network.transceivers import OpticalReading
from gpuops.probing import Unknown

RANGE = (-10.41, 6.0)


def having(machine, **changes):
    ports = machine.values["transceivers"]
    return machine.but(transceivers={**ports, "mlx5_3": replace(ports["mlx5_3"], **changes)})


def outcome(machine):
    verdict = machine.judge("transceivers")
    return verdict.status, [(f.part, f.severity) for f in verdict.findings]


FAIL = ("fail", [("mlx5_3", "fail")])
WARN = ("warn", [("mlx5_3", "warn")])
PASS = ("pass", [])


@pytest.mark.parametrize(
    ("dbm", "expected"), [(-10.4, PASS), (-11.4, PASS), (-11.5, FAIL), (7.0, PASS), (7.1, FAIL), (0.0, PASS)]
)
@pytest.mark.parametrize("direction", ["rx_dbm", "tx_dbm"])
def test_power_beyond_the_modules_range_and_1_db(h100, direction, dbm, expected):
    assert outcome(having(h100, **{direction: OpticalReading((1.9, dbm, 2.0), *RANGE)})) == expected


@pytest.mark.parametrize(("celsius", "expected"), [(54, PASS), (64.9, PASS), (65, WARN), (75, FAIL)])
def test_temperature(h100, celsius, expected):
    assert outcome(having(h100, celsius=OpticalReading((float(celsius),), -5.0, 75.0))) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"effective_ber": 15e-255}, PASS),
        ({"effective_ber": 1e-13, "raw_ber": 1e-6}, PASS),
        ({"effective_ber": 2e-12}, FAIL),
        ({"effective_ber": 2e-12, "minutes": 3.0}, PASS),
        ({"recommendation": "No issue was observed"}, PASS),
        ({"recommendation": "Bad signal integrity", "raw_ber": 9e-8}, PASS),
        ({"recommendation": "Bad signal integrity", "raw_ber": 2e-5}, FAIL),
        ({"recommendation": "Cable compliance code is not supported"}, WARN),
        ({"state": "Polling", "effective_ber": 1.0}, PASS),
    ],
)
def test_errors_and_recommendations(h100, changes, expected):
    assert outcome(having(h100, **changes)) == expected


def test_without_mft_it_does_not_apply_and_a_refused_port_is_unknown(h100):
    assert outcome(h100.but(transceivers={})) == ("skipped", [])
    verdict = h100.but(transceivers={"mlx5_0": Unknown("sudo: a password is required", needs_root=True)})
    assert verdict.judge("transceivers").needs_root
