import pytest

from gpuops.probes.nvidia.driver import InstalledDriver, driver, installed_driver, parse_driver, parse_modinfo
from gpuops.probing import Unknown

VERSION = "/proc/driver/nvidia/version"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.16  Release Build  (builder@host)  Mon Jan 5\n"
CLOSED = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024\nGCC version:  12.3.0\n"
)
FILES = {
    VERSION: OPEN,
    "/proc/driver/nvidia/gpus/0000:1b:00.0/information": "Model: NVIDIA H100\n",
    "/proc/driver/nvidia/gpus/0000:c3:00.0/information": "",
    "/proc/modules": "nvidia_uvm 4 0 - Live 0x0 (OE)\nnvidia_peermem 4 0 - Live 0x0\nnvidia 9 2 - Live 0x0 (OE)\n",
    "/proc/version": "Linux version 6.8.0\n",
}
MODINFO = """\
filename:       /lib/modules/5.15.0-112-generic/updates/dkms/nvidia.ko.zst
alias:          char-major-195-*
version:        580.126.16
supported:      external
license:        Dual MIT/GPL
srcversion:     1E2265D2AF1616FE7B5DC23
parm:           NVreg_RmMsg:charp
"""


def test_the_loaded_driver_its_gpus_and_all_modules(files_text):
    told = parse_driver(files_text(FILES))
    assert (told.loaded_version, told.open_kernel_modules) == ("580.126.16", True)
    assert told.gpu_addresses == ("0000:1b:00.0", "0000:c3:00.0")
    assert told.kernel_modules == {"nvidia", "nvidia_uvm", "nvidia_peermem"}


def test_the_closed_driver_is_told_from_the_open_one(files_text):
    told = parse_driver(files_text(FILES | {VERSION: CLOSED}))
    assert (told.loaded_version, told.open_kernel_modules) == ("550.90.07", False)


def test_a_kernel_that_lists_no_modules_tells_its_driver(files_text):
    told = parse_driver(files_text({path: text for path, text in FILES.items() if path != "/proc/modules"}))
    assert (told.loaded_version, told.kernel_modules) == ("580.126.16", frozenset())
    assert len(told.gpu_addresses) == 2


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({}, "the NVIDIA driver is not loaded"),
        ({VERSION: OPEN}, "the list of the driver's GPUs is truncated"),
        ({"/proc/modules": "nouveau 1 0 - Live 0x0\n"}, "the NVIDIA driver is not loaded"),
        ({"/proc/modules": "nvidia 1 0 - Live 0x0\n"}, "the NVIDIA driver does not report its version"),
        ({"/proc/modules": "nvidia 1 0\n", VERSION: "NVRM version: garbage\n"}, "the NVIDIA driver does not report"),
    ],
)
def test_without_a_driver_it_is_unknown_why(files, why, files_text, answer):
    told = driver.read(answer(driver, files_text(files)))
    assert isinstance(told, Unknown)
    assert told.why.startswith(why)


def test_a_cut_answer_is_unknown(files_text):
    text = files_text(FILES)
    assert all(isinstance(parse_driver(text[:end]), Unknown) for end in range(len(text)))


def test_the_module_on_the_disk():
    path = "/lib/modules/5.15.0-112-generic/updates/dkms/nvidia.ko.zst"
    assert parse_modinfo(MODINFO) == InstalledDriver("580.126.16", "Dual MIT/GPL", path)


def test_a_cut_modinfo_never_shows_another_version():
    for end in range(len(MODINFO)):
        told = parse_modinfo(MODINFO[:end])
        assert isinstance(told, Unknown) or told == parse_modinfo(MODINFO)


def test_no_module_is_unknown(answer):
    told = installed_driver.read(answer(installed_driver, err="modinfo: ERROR: Module nvidia not found.\n", status=1))
    assert "Module nvidia not found" in told.why
