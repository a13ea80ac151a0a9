import pytest

from gpuops import Failed
from gpuops.errors import DocumentError

ROW = {
    "index": "0", "ecc.mode.pending": "Enabled", "mig.mode.pending": "Disabled", "compute_mode": "Default",
    "power.limit": "700.00", "power.min_limit": "200.00", "power.max_limit": "700.00",
    "ecc.mode.current": "Enabled", "mig.mode.current": "Disabled",
}  # fmt: skip
SCRIPT = "/usr/local/lib/gpuops/gpu-settings.sh"


@pytest.fixture
def gpu(node):
    """One GPU that does what nvidia-smi is told, and its row."""
    row = dict(ROW)

    def smi(words):
        if words[1].startswith("--query-gpu="):
            return 0, ", ".join(row[field] for field in words[1].partition("=")[2].split(",")) + "\n"
        mode = {"-e": "ecc.mode.pending", "-mig": "mig.mode.pending"}[words[3]]
        row[mode] = "Enabled" if words[4] == "1" else "Disabled"
        return 0

    node.answers["nvidia-smi"] = smi
    node.row = row
    return node


def whats(found):
    return [change.what for change in found.changes]


def test_without_any_wish_nothing_is_asked(node, look):
    assert look(node, "gpu_settings").changes == []


def test_modes_that_a_reset_brings_are_noted(gpu, apply):
    assert apply(gpu, "gpu_settings", ecc=False, mig=True) == [
        "ecc disabled on GPU 0",
        "mig enabled on GPU 0",
        "write /run/reboot-required",
        "write /run/reboot-required.pkgs",
    ]
    assert gpu.row["ecc.mode.pending"] == "Disabled"
    gpu.row.update({"ecc.mode.current": "Disabled", "mig.mode.current": "Enabled"})
    gpu.files.pop("/run/reboot-required")
    assert apply(gpu, "gpu_settings", ecc=False, mig=True) == []


def test_what_the_driver_forgets_is_set_now_and_at_every_boot(gpu, look):
    given = {"power_limit_watts": 600, "compute_mode": "exclusive-process", "clocks_mhz": [1200, 1980]}
    found = look(gpu, "gpu_settings", **given)
    (script,) = [change.after for change in found.changes if SCRIPT in change.what]
    assert script.splitlines()[2:5] == [
        "nvidia-smi -pl 600",
        "nvidia-smi -c EXCLUSIVE_PROCESS",
        "nvidia-smi -lgc 1200,1980",
    ]
    assert "settings of the GPUs, now" in whats(found)


def test_a_gpu_that_drifted_is_set_again(gpu, apply, look):
    gpu.row["power.limit"] = "600.00"
    apply(gpu, "gpu_settings", power_limit_watts=600)
    assert look(gpu, "gpu_settings", power_limit_watts=600).changes == []
    gpu.row["power.limit"] = "700.00"
    assert whats(look(gpu, "gpu_settings", power_limit_watts=600)) == ["settings of the GPUs, now"]


@pytest.mark.parametrize("watts", [100, 701])
def test_a_limit_that_the_gpu_does_not_take_is_refused(gpu, look, watts):
    found = look(gpu, "gpu_settings", power_limit_watts=watts)
    assert found.stop == Failed(f"GPU 0 takes power limits of 200.00 to 700.00 W, not {watts} W")


@pytest.mark.parametrize(("mig", "refused"), [(True, True), (False, False)])
def test_a_mode_that_a_gpu_has_not_can_only_be_off(gpu, look, mig, refused):
    gpu.row.update({"mig.mode.pending": "[N/A]", "mig.mode.current": "[N/A]"})
    found = look(gpu, "gpu_settings", mig=mig)
    assert isinstance(found.stop, Failed) == refused
    assert found.changes == []


@pytest.mark.parametrize("said", [(9, "NVIDIA-SMI has failed because …\n"), (0, ""), (0, "0, Enabled\n")])
def test_what_nvidia_smi_does_not_tell_is_not_assumed(node, look, said):
    node.answers["nvidia-smi"] = said
    assert isinstance(look(node, "gpu_settings", ecc=True).stop, Failed)


@pytest.mark.parametrize("wrong", [{"clocks_mhz": [1]}, {"clocks_mhz": [2, 1]}, {"memory_clocks_mhz": [0, 1]}])
def test_wrong_parameters_are_refused(node, look, wrong):
    with pytest.raises(DocumentError, match="gpu_settings"):
        look(node, "gpu_settings", **wrong)
