import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.nvidia.nvidia_smi.gpu import Process, RemappedRows, Smi
from gpuops.probes.nvidia.nvidia_smi.query import parse_query
from gpuops.probing import Unknown

HEAD = """
==============NVSMI LOG==============

Timestamp                                 : Fri Jun 21 02:03:08 2024
Driver Version                            : 610.57.04 [Deprecated; use KMD Version instead]
CUDA Version                              : 13.3

Attached GPUs                             : {}
"""
GPU = """GPU 00000000:53:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Persistence Mode                      : Enabled
    MIG Mode
        Current                           : Disabled
        Pending                           : Disabled
    Serial Number                         : 1650123
    GPU UUID                              : GPU-566e6f65-c38e-b12f-4824-6944218668b9
    PCI
        Bus Id                            : 00000000:53:00.0
        GPU Link Info
            PCIe Generation
                Max                       : 5
                Current                   : 4
            Link Width
                Max                       : 16x
                Current                   : 8x
    Clocks Event Reasons
        Idle                              : Active
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : Active
        Display Clock Setting             : Not Active
    FB Memory Usage
        Total                             : 81559 MiB
        Used                              : 5 MiB
    Utilization
        Gpu                               : 7 %
    ECC Errors
        Volatile
            SRAM Correctable              : 1
            SRAM Uncorrectable Parity     : 2
            SRAM Uncorrectable SEC-DED    : 3
            DRAM Correctable              : 4
            DRAM Uncorrectable            : 5
    Retired Pages
        Pending Page Blacklist            : No
    Remapped Rows
        Correctable Error                 : 1
        Uncorrectable Error               : 0
        Pending                           : Yes
        Remapping Failure Occurred        : No
    Temperature
        GPU Current Temp                  : 36 C
        GPU T.Limit Temp                  : 50 C
        Memory Current Temp               : 44 C
    GPU Power Readings
        Instantaneous Power Draw          : 71.97 W
        Current Power Limit               : 700.00 W
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 2165
            Type                          : C
            Name                          : /usr/bin/python3 : a
            Used GPU Memory               : 25 MiB
        GPU instance ID                   : N/A
        Process ID                        : 2166
            Type                          : G
            Name                          : Xorg
            Used GPU Memory               : N/A
"""
END = """    Capabilities
        EGM                               : disabled
"""
WHOLE = HEAD.format(1) + GPU + END


def test_it_says_what_the_xml_says():
    value = parse_query(WHOLE)
    assert (value.driver_version, value.cuda_version, value.attached_gpus) == ("610.57.04", "13.3", 1)
    (gpu,) = value.gpus
    assert (gpu.address, gpu.name, gpu.serial) == ("0000:53:00.0", "NVIDIA H100 80GB HBM3", "1650123")
    assert gpu.uuid == "GPU-566e6f65-c38e-b12f-4824-6944218668b9"
    assert (gpu.persistence_mode, gpu.mig_mode) == (True, False)
    assert (gpu.pcie_generation, gpu.pcie_generation_max, gpu.pcie_width, gpu.pcie_width_max) == (4, 5, 8, 16)
    assert gpu.throttle_reasons == ("gpu_idle", "hw_thermal_slowdown")
    assert (gpu.memory_total_mib, gpu.memory_used_mib, gpu.utilization_percent) == (81559, 5, 7)
    assert (gpu.ecc_uncorrected_volatile, gpu.ecc_corrected_volatile, gpu.retired_pages_pending) == (10, 5, False)
    assert gpu.remapped_rows == RemappedRows(1, 0, pending=True, failure=False)
    assert (gpu.temperature_celsius, gpu.tlimit_celsius, gpu.memory_temperature_celsius) == (36, 50, 44)
    assert (gpu.power_draw_watts, gpu.power_limit_watts) == (71.97, 700.0)
    assert gpu.processes == (Process(2165, "/usr/bin/python3 : a", 25, "C"), Process(2166, "Xorg", None, "G"))


def test_no_process_differs_from_processes_untold():
    head = HEAD.format(1) + "GPU 00000000:53:00.0\n"
    assert parse_query(f"{head}    Processes                             : None\n").gpus[0].processes == ()
    assert parse_query(f"{head}    Processes                             : N/A\n").gpus[0].processes is None
    assert parse_query(f"{head}    Processes\n").gpus[0].processes is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "contains no driver version"),
        ("hello : world\n", "contains no driver version"),
        (HEAD.format(8) + GPU, "is truncated: it has 1 of 8 attached GPUs"),
        (HEAD.format(1) + "GPU 12:34\n", "no PCI address"),
    ],
)
def test_what_is_not_a_whole_answer_is_unknown_and_says_why(text, why):
    value = parse_query(text)
    assert isinstance(value, Unknown)
    assert why in value.why


def test_an_answer_that_ends_in_an_error_is_a_value_with_that_error():
    lost = "Unable to determine the device handle for GPU0000:CB:00.0: Unknown Error\n"
    value = parse_query(HEAD.format(8) + GPU + lost)
    assert (value.error.kind, value.error.addresses) == ("unknown-handle", ("0000:cb:00.0",))
    assert [gpu.address for gpu in value.gpus] == ["0000:53:00.0"]


@given(st.integers(min_value=0, max_value=len(WHOLE)))
def test_a_cut_text_knows_less_and_never_other_than_the_whole(length):
    value = parse_query(WHOLE[:length])
    assert isinstance(value, Unknown) or length > WHOLE.index("GPU 0000")
    if isinstance(value, Smi):
        whole = dataclasses.asdict(parse_query(WHOLE).gpus[0])
        cut = dataclasses.asdict(value.gpus[0])
        assert {name for name in cut if cut[name] is not None and cut[name] != whole[name]} == set()


@given(st.text())
def test_any_text_gets_an_answer(text):
    assert isinstance(parse_query(text), (Smi, Unknown))


@given(st.integers(min_value=0, max_value=len(WHOLE) - 1), st.characters(codec="utf-8"))
def test_a_damaged_character_never_raises(place, character):
    assert isinstance(parse_query(WHOLE[:place] + character + WHOLE[place + 1 :]), (Smi, Unknown))
