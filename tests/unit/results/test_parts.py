"""Parts of a node: which serial numbers identify one."""

import datetime as dt
from types import SimpleNamespace

import pytest

from gpuops.facts import Facts
from gpuops.probes.host.nvme import nvme_drives
from gpuops.probes.network.transceivers import Transceiver, transceivers
from gpuops.probes.nvidia.gpus import gpus
from gpuops.probing import Unknown
from gpuops.results.parts import is_placeholder, parts_of

AT = dt.datetime(2026, 11, 1, tzinfo=dt.timezone.utc)


@pytest.mark.parametrize(
    "serial",
    ["", "0", "0000", "00:00:00", "N/A", "[N/A]", "None", "unknown", "Not Specified", "To Be Filled By O.E.M."],
)
def test_a_number_that_stands_for_none_is_no_serial_number(serial):
    assert is_placeholder(serial)


@pytest.mark.parametrize("serial", ["1652698777001", "S64G12", "GPU-0", "a088:0300:0000:0000", "Nonesuch 7", "0001"])
def test_any_other_is_one(serial):
    assert not is_placeholder(serial)


def test_parts_have_a_number_of_their_own():
    values = {
        gpus.name: [SimpleNamespace(serial=number, uuid="GPU-1", subject="gpu0", name="H100") for number in ("0000",)],
        nvme_drives.name: [
            SimpleNamespace(name=name, serial=serial, model="PM9A3")
            for name, serial in (("nvme0", "S1"), ("nvme0n2", "S1"), ("nvme1", "0000"), ("nvme2", "N/A"))
        ],
        transceivers.name: {
            "mlx5_0": Transceiver("Active", module="CLT T-F4GS CWJ05", serial="CWJ05"),
            "mlx5_1": Transceiver("Polling", serial="N/A"),
            "mlx5_2": Unknown("no root"),
        },
    }
    found = parts_of(Facts("n1", AT, values))
    assert [(part.kind, part.slot, part.serial, part.model) for part in found] == [
        ("gpu", "gpu0", "GPU-1", "H100"),
        ("nvme", "nvme0", "S1", "PM9A3"),
        ("cable", "mlx5_0 cable", "CWJ05", "CLT T-F4GS"),
    ]
