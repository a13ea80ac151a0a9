import os
import stat
import subprocess

import pytest

from gpuops import Failed, NeedsOperator
from gpuops.errors import DocumentError

ROW = {
    "index": "0", "ecc.mode.pending": "Enabled", "mig.mode.pending": "Disabled", "compute_mode": "Default",
    "power.limit": "700.00", "power.min_limit": "200.00", "power.max_limit": "700.00",
    "ecc.mode.current": "Enabled", "mig.mode.current": "Disabled",
}  # fmt: skip
SCRIPT = "/usr/local/lib/gpuops/gpu-settings.sh"
SLICES = "/usr/local/lib/gpuops/mig-slices.sh"
QUIET = """\
4 0 dr-xr-xr-x 8 root root 0 Nov 20 13:00 /proc/driver/nvidia
5 0 lrwxrwxrwx 1 root root 0 Nov 20 13:00 /proc/1/exe -> /usr/lib/systemd/systemd
"""
COMPUTING = """\
6 0 lrwxrwxrwx 1 alice alice 0 Nov 20 13:00 /proc/77/exe -> /usr/bin/python3
7 0 lrwx------ 1 alice alice 64 Nov 20 13:00 /proc/77/fd/3 -> /dev/nvidia0
"""


@pytest.fixture
def gpu(node):
    """One GPU that nobody uses, which does what the scripts say, and its row."""
    row = dict(ROW)

    def smi(words):
        return 0, ", ".join(row[field] for field in words[1].partition("=")[2].split(",")) + "\n"

    def switch(mode):
        def switched(words):
            wanted, index = words[-2:]
            assert index == "0"
            row[f"{mode}.mode.pending"] = {"0": "Disabled", "1": "Enabled"}[wanted]
            return 0

        return switched

    node.answers.update({
        "nvidia-smi": smi, "sh -c mode=$1; shift; for": switch("ecc"), "sh -c clients=": switch("mig"),
        "find /proc": QUIET,
    })  # fmt: skip
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
    assert found.stop == Failed(f"GPU 0 allows power limits of 200.00 to 700.00 W, not {watts} W")


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


@pytest.fixture
def cut(gpu):
    """A GPU in MIG mode that nobody uses, and its slices, which a script would make."""
    gpu.row.update({"mig.mode.pending": "Enabled", "mig.mode.current": "Enabled"})
    gpu.slices = []

    def listed(_):
        uuid = "{0}-01234567-89ab-cdef-0123-456789abcde{1}"
        rows = [f"  MIG {name}     Device  {n}: (UUID: {uuid.format('MIG', n)})\n" for n, name in enumerate(gpu.slices)]
        return 0, f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {uuid.format('GPU', 0)})\n{''.join(rows)}"

    gpu.answers["nvidia-smi -L"] = listed
    return gpu


def test_a_gpu_is_cut_now_and_at_every_boot(cut, apply, look):
    wish = {"mig": True, "mig_slices": ["3g.40gb", "2g.20gb", "1g.10gb+me"]}
    cut.answers["sh -c clients="] = lambda words: cut.slices.extend(wish["mig_slices"][::-1]) or 0
    assert "partition GPU 0 into 3g.40gb 2g.20gb 1g.10gb+me" in apply(cut, "gpu_settings", **wish)
    assert "enabled" in cut.units["gpuops-mig-slices.service"]["UnitFileState"]
    assert "\nBefore=nvidia-dcgm.service docker.service" in cut.files["/etc/systemd/system/gpuops-mig-slices.service"]
    assert look(cut, "gpu_settings", **wish).changes == []


def test_what_runs_now_is_the_script_of_the_boot_while_nobody_has_the_gpus(cut, look):
    cut.slices = ["7g.80gb"]
    change = look(cut, "gpu_settings", mig=True, mig_slices=["3g.40gb", "3g.40gb"]).changes[-1]
    assert change.command.words[-2:] == ("sh", SLICES)
    assert "nvidia-dcgm" in change.command.words[4].split()
    assert (change.before, change.after) == ("GPU 0: 7g.80gb\n", "GPU 0: 3g.40gb 3g.40gb\n")


def test_a_gpu_in_use_is_not_cut(cut, look):
    cut.answers["find /proc"] = QUIET + COMPUTING
    found = look(cut, "gpu_settings", mig=True, mig_slices=["7g.80gb"])
    assert found.stop == NeedsOperator("GPUs are in use (pid 77 python3): end these processes first")
    cut.slices = ["7g.80gb"]
    assert look(cut, "gpu_settings", mig=True, mig_slices=["7g.80gb"]).stop is None


def test_a_gpu_whose_mode_waits_for_a_boot_is_cut_by_it(cut, apply):
    cut.row["mig.mode.current"] = "Disabled"
    done = apply(cut, "gpu_settings", mig=True, mig_slices=["7g.80gb"])
    assert "write /run/reboot-required" in done
    assert not any(what.startswith("cut") for what in done)
    assert SLICES in cut.files


def test_a_mode_that_holds_at_once_asks_for_no_boot(cut, apply):
    """From Hopper on no reset is needed."""
    cut.row.update({"mig.mode.pending": "Disabled", "mig.mode.current": "Disabled"})
    switched = cut.answers["sh -c clients="]

    def at_once(words):
        said = switched(words)
        cut.row["mig.mode.current"] = cut.row["mig.mode.pending"]
        return said

    cut.answers["sh -c clients="] = at_once
    assert apply(cut, "gpu_settings", mig=True) == ["mig enabled on GPU 0"]


@pytest.mark.parametrize("mig", [True, False])
def test_on_a_node_in_use_the_mode_stays(cut, look, mig):
    cut.row.update({"mig.mode.pending": "Disabled" if mig else "Enabled"})
    cut.answers["find /proc"] = QUIET + COMPUTING
    assert isinstance(look(cut, "gpu_settings", mig=mig).stop, NeedsOperator)


def test_slices_that_nobody_tells_are_not_assumed(cut, look):
    cut.answers["nvidia-smi -L"] = "GPU 0: garbled\n"
    assert isinstance(look(cut, "gpu_settings", mig=True, mig_slices=["7g.80gb"]).stop, Failed)


MIG = """\
#!/bin/sh
cd "{}"
case "$*" in
    --query-gpu=*) printf '0, Enabled\n1, Disabled\n2, Enabled\n'; exit ;;
    -L) for gpu in 0 1 2; do echo "GPU $gpu: NVIDIA H100 (UUID: GPU-$gpu)"; cat "$gpu"; done; exit ;;
esac
echo "$*" >>told
gpu=$3
case "$4" in
    0) [ ! -s "$2" ] ;;
    -dci) [ -s "$gpu" ] ;;
    -dgi) [ -s "$gpu" ] && [ ! -e busy ] && : >"$gpu" ;;
    -cgi) [ ! -s "$gpu" ] && printf '  MIG %s  Device 0: (x)\\n' $(echo "$5" | tr , ' ') >"$gpu" ;;
esac
"""


@pytest.fixture
def run(tmp_path):
    """Runs words with a made-up nvidia-smi, its GPUs cut like this; the exit code, and what it was told to change."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(MIG.format(tmp_path))
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)

    def run(words, *made):
        for gpu, names in enumerate(made):
            (tmp_path / str(gpu)).write_text("".join(f"  MIG {name}  Device 0: (x)\n" for name in names.split()))
        (tmp_path / "told").write_text("")
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run(words, env=environment, capture_output=True, check=False)
        return done.returncode, (tmp_path / "told").read_text().splitlines()

    return run


@pytest.fixture
def boot(cut, look, run, tmp_path):
    """Runs the script of the boot."""
    changes = look(cut, "gpu_settings", mig=True, mig_slices=["3g.40gb", "1g.10gb"]).changes
    (script,) = [change.after for change in changes if SLICES in change.what]
    return lambda *made: run(["sh", "-c", script.replace("/run/gpuops-boot", str(tmp_path / "ran"))], *made)


def test_only_a_gpu_whose_slices_differ_is_cut_anew(boot):
    assert boot("1g.10gb 3g.40gb", "", "7g.80gb") == (
        0,
        ["mig -i 2 -dci", "mig -i 2 -dgi", "mig -i 2 -cgi 3g.40gb,1g.10gb -C"],
    )
    assert boot("1g.10gb 3g.40gb", "", "1g.10gb 3g.40gb") == (0, [])


def test_after_a_boot_there_is_nothing_to_take_away(boot):
    code, told = boot("", "", "")
    assert code == 0
    assert [line for line in told if "-cgi" in line] == [f"mig -i {gpu} -cgi 3g.40gb,1g.10gb -C" for gpu in (0, 2)]


def test_slices_in_use_are_a_failure(boot, tmp_path):
    (tmp_path / "busy").touch()
    assert boot("7g.80gb", "", "")[0] != 0


def test_a_gpu_is_whole_before_it_leaves_the_mode(cut, look, run):
    (change,) = look(cut, "gpu_settings", mig=False).changes
    assert change.what == "mig disabled on GPU 0"
    told = ["mig -i 0 -dci", "mig -i 0 -dgi", "-i 0 -mig 0"]
    assert run(change.command.words[5:], "7g.80gb") == (0, told)
    assert run(change.command.words[5:], "") == (0, told)


@pytest.mark.parametrize("wrong", [{"mig_slices": ["1g.10gb"]}, {"mig": True, "mig_slices": ["$(reboot)"]}])
def test_slices_need_the_mode_and_names_of_profiles(node, look, wrong):
    with pytest.raises(DocumentError, match="mig_slices"):
        look(node, "gpu_settings", **wrong)
