import datetime as dt

import pytest

from gpuops.facts import Facts
from gpuops.lifecycle.fingerprint import differences, fingerprint_of
from gpuops.probes.network.ib import IbPort
from gpuops.probes.nvidia.driver import Driver
from gpuops.probes.nvidia.fabric_manager import FabricManager
from gpuops.probes.nvidia.nvidia_smi import Gpu, Smi, SmiError

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)


def gpu(index, serial):
    return Gpu(index, f"0000:{index:02x}:00.0", uuid=f"GPU-{serial}", serial=serial, vbios_version="96.00.74")


def port(device, firmware):
    return IbPort(device, 1, "ACTIVE", "LinkUp", 400.0, "InfiniBand", firmware)


VALUES = {
    "driver": Driver("580.95.05", open_kernel_modules=True),
    "fabric_manager": FabricManager("580.95.05"),
    "ib_ports": (port("mlx5_1", "28.39.1002"), port("mlx5_0", "28.39.1002")),
    "packages": {"doca-ofed": "3.2.1", "cuda-toolkit-13-0": "13.0.2"},
    "smi": Smi("580.95.05", "13.0", 2, (gpu(0, "166"), gpu(1, "165")), None),
}


def of(**changes):
    return fingerprint_of(Facts("gpu01", NOW, {**VALUES, **changes}))


def test_it_holds_what_tests_depend_on_in_an_order_of_its_own():
    assert of() == {
        "driver": ("580.95.05",),
        "fabric manager": ("580.95.05",),
        "network stack": ("doca-ofed 3.2.1",),
        "HCA firmware": ("mlx5_0 28.39.1002", "mlx5_1 28.39.1002"),
        "VBIOS": ("96.00.74",),
        "GPU UUIDs": ("GPU-165", "GPU-166"),
        "GPU serials": ("165", "166"),
    }


def test_cards_in_another_order_are_the_same_machine():
    other = Smi("580.95.05", "13.0", 2, (gpu(0, "165"), gpu(1, "166")), None)
    assert differences(of(), of(smi=other)) == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"driver": Driver("580.126.16", open_kernel_modules=True)}, "driver 580.95.05 → 580.126.16"),
        ({"ib_ports": (port("mlx5_0", "28.39.1002"), port("mlx5_1", "28.40"))},
         "HCA firmware mlx5_1 28.39.1002 → mlx5_1 28.40"),
        ({"packages": {"doca-ofed": "3.3.0"}}, "network stack doca-ofed 3.2.1 → doca-ofed 3.3.0"),
        ({"packages": {}}, "network stack doca-ofed 3.2.1 → the kernel's own"),
    ],
)  # fmt: skip
def test_what_changed_is_reported(changes, told):
    assert differences(of(), of(**changes)) == [told]


def test_a_swapped_card_is_told_by_its_number():
    swapped = Smi("580.95.05", "13.0", 2, (gpu(0, "166"), gpu(1, "999")), None)
    assert "GPU serials 165 → 999" in differences(of(), of(smi=swapped))


def test_a_card_that_is_gone_is_reported():
    one = Smi("580.95.05", "13.0", 1, (gpu(0, "166"),), None)
    assert "GPU serials 165 → none" in differences(of(), of(smi=one))


def test_what_nobody_could_look_at_is_left_out_and_is_no_difference():
    broken = Smi(None, None, 0, (), SmiError("gpu-lost", "GPU is lost", ()))
    blind = fingerprint_of(Facts("gpu01", NOW, {}))
    assert blind == {}
    assert differences(of(), blind) == []
    assert "GPU serials" not in of(smi=broken)
