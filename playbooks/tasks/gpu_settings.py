"""Settings of the GPUs: ECC, MIG and its slices, compute mode, power limit and clocks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpuops import Change, Command, Failed, Plan, Unknown, task, use
from gpuops.probes.nvidia.nvidia_smi.listing import parse_gpu_list

_FIELDS = ("index", "ecc.mode.pending", "mig.mode.pending", "compute_mode", "power.limit", "power.min_limit",
           "power.max_limit", "ecc.mode.current", "mig.mode.current")  # fmt: skip
_MODES = {"default": "Default", "exclusive-process": "Exclusive_Process", "prohibited": "Prohibited"}
_WORDS = ("Enabled", "Disabled")  # "[N/A]" if the GPU has no such mode
_AFTER = ("nvidia-persistenced.service", "nvidia-fabricmanager.service")
_BEFORE = ("nvidia-dcgm.service", "docker.service", "slurmd.service", "kubelet.service")
_SWITCH = {
    "ecc": 'mode=$1; shift; for gpu; do nvidia-smi -i "$gpu" -e "$mode" || exit; done',
    # a GPU with slices does not leave the mode
    "mig": """\
mode=$1; shift
for gpu; do
    if [ "$mode" = 0 ]; then nvidia-smi mig -i "$gpu" -dci; nvidia-smi mig -i "$gpu" -dgi; fi
    nvidia-smi -i "$gpu" -mig "$mode" || exit
done
""",
}
# A GPU with the desired slices keeps them, because jobs may use their names. The driver does not remove a slice in use;
# then there is no room for others, which it reports. The service that updates CDI does not notice slices
# (NVIDIA/cloud-native-docs).
_CUT = """\
wanted="{sorted}" listed=$(nvidia-smi -L)
for gpu in $(nvidia-smi --query-gpu=index,mig.mode.current --format=csv,noheader | sed -n "s/, Enabled$//p"); do
    made=$(echo "$listed" | awk -v gpu="$gpu:" '/^GPU/ {{ours = $2 == gpu}} ours && $1 == "MIG" {{print $2}}' |
        LC_ALL=C sort | xargs)
    [ "$made" != "$wanted" ] || continue
    nvidia-smi mig -i "$gpu" -dci || true
    nvidia-smi mig -i "$gpu" -dgi || true
    nvidia-smi mig -i "$gpu" -cgi {slices} -C
done
! command -v nvidia-ctk >/dev/null || nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml
"""


@dataclass(frozen=True)
class Params:
    """``ecc`` and ``mig`` switch these modes on or off; ``compute_mode`` and ``power_limit_watts`` apply to each GPU.

    ``clocks_mhz`` and ``memory_clocks_mhz`` lock the clocks between a lowest and a highest value. ``mig_slices`` are
    the profiles (``nvidia-smi mig -lgip``) into which each GPU is partitioned, the largest first: ``[3g.40gb,
    2g.20gb]``. Parameters that are not set leave the GPU's setting as it is.
    """

    ecc: bool | None = None
    mig: bool | None = None
    mig_slices: tuple[str, ...] = ()
    compute_mode: Literal["default", "exclusive-process", "prohibited"] | None = None
    power_limit_watts: int | None = None
    clocks_mhz: tuple[int, ...] = ()
    memory_clocks_mhz: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Raise `ValueError` unless the clocks are in order, and the profiles come with the mode that they need."""
        for clocks in (self.clocks_mhz, self.memory_clocks_mhz):
            if clocks and not (len(clocks) == 2 and 0 < clocks[0] <= clocks[1]):
                raise ValueError(f"clocks must be the lowest and the highest in MHz, found {list(clocks)}")
        for name in self.mig_slices:
            if not re.fullmatch(r"\d+g\.\d+gb([+-][a-z.]+)*", name):
                raise ValueError(f'mig_slices must be names of profiles such as 1g.10gb, found "{name}"')
        if self.mig_slices and not self.mig:
            raise ValueError("mig_slices needs mig: true")

    @property
    def script(self) -> str:
        """The commands for the settings that the driver forgets at every boot."""
        lines = {
            f"-pl {self.power_limit_watts}": self.power_limit_watts is not None,
            f"-c {_MODES.get(self.compute_mode or '', '').upper()}": self.compute_mode is not None,
            f"-lgc {','.join(map(str, self.clocks_mhz))}": bool(self.clocks_mhz),
            f"-lmc {','.join(map(str, self.memory_clocks_mhz))}": bool(self.memory_clocks_mhz),
        }
        return "".join(f"nvidia-smi {line}\n" for line, is_set in lines.items() if is_set)


@task
def gpu_settings(params: Params) -> Plan:
    """The GPU stores ECC and MIG mode, which apply at once or after a reboot; the rest is set at every boot.

    Clocks that another program unlocked go unnoticed, because nvidia-smi does not report locked clocks. A power limit
    that a GPU does not allow is refused. MIG mode and slices change only while the GPUs are not in use. The program
    that assigns slices, such as the device plugin of Kubernetes, reads them when it starts, so notify a handler that
    restarts it.
    """
    if params == Params():
        return
    answer = yield Command(("nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"), 60)
    gpus = [dict(zip(_FIELDS, line.split(", "), strict=False)) for line in answer.out.splitlines()]
    if answer.exit != 0 or not gpus or any(len(gpu) != len(_FIELDS) for gpu in gpus):
        yield Failed(f"cannot read the GPU settings from nvidia-smi: {answer.last_words() or 'no output'}")
    yield from _modes(params, gpus)
    yield from _allowed(params, gpus)
    if params.mig_slices:
        yield from _slices(params, [gpu["index"] for gpu in gpus if gpu["mig.mode.current"] == "Enabled"])
    if params.script:
        about, due = "settings of the GPUs", not all(_is_so(params, gpu) for gpu in gpus)
        yield from use("boot_script", name="gpu-settings", about=about, script=params.script, after=_AFTER, due=due)


def _modes(params: Params, gpus: list[dict[str, str]]) -> Plan:
    """Set the modes that the GPU stores, and record a reboot if one is needed."""
    waits = False
    for mode, enabled in (("ecc", params.ecc), ("mig", params.mig)):
        if enabled is not None:
            waits |= yield from _switched(mode, gpus, on=enabled)
    if waits:
        yield from use("reboot_required", reason="nvidia-gpu-mode")


def _switched(mode: str, gpus: list[dict[str, str]], *, on: bool) -> Plan:
    """Set one mode on every GPU; return whether it waits for a reboot. MIG needs none if nothing else uses the GPU."""
    word, pending = "Enabled" if on else "Disabled", f"{mode}.mode.pending"
    lacking = [gpu["index"] for gpu in gpus if gpu[pending] not in _WORDS]
    if lacking and on:
        yield Failed(f"GPU {', '.join(lacking)} has no {mode} mode")
    wrong = [gpu["index"] for gpu in gpus if gpu[pending] in _WORDS and gpu[pending] != word]
    title, words = f"{mode} {word.lower()} on GPU {', '.join(wrong)}", ("sh", "-c", _SWITCH[mode], "sh", str(int(on)))
    if wrong and mode == "mig":
        yield from use("gpu_exclusive", title=title, words=[*words, *wrong])
    elif wrong:
        yield Change(title, Command((*words, *wrong), timeout_seconds=120, become="always"))
    return not wrong and any(gpu[f"{mode}.mode.current"] in {*_WORDS} - {word} for gpu in gpus)


def _slices(params: Params, indices: list[str]) -> Plan:
    """Give each GPU in MIG mode the desired slices; the others get them at the boot that enables the mode."""
    desired_slices = sorted(params.mig_slices)
    script = _CUT.format(sorted=" ".join(desired_slices), slices=",".join(params.mig_slices))
    unit = {"name": "mig-slices", "about": "slices of the GPUs", "after": _AFTER, "before": _BEFORE}
    path = yield from use("boot_script", script=script, at_boot_only=True, **unit)
    answer = yield Command(("nvidia-smi", "-L"), timeout_seconds=60)
    listed = parse_gpu_list(answer.out)
    if answer.exit != 0 or isinstance(listed, Unknown):
        yield Failed(f"cannot list the GPU slices with nvidia-smi: {answer.last_words() or 'no output'}")
        return
    made = {str(gpu.index): [device.profile for device in gpu.mig_devices] for gpu in listed}
    wrong = [index for index in indices if sorted(made.get(index, ())) != desired_slices]
    if wrong:
        title = f"partition GPU {', '.join(wrong)} into {' '.join(params.mig_slices)}"
        before = "".join(f"GPU {index}: {' '.join(made.get(index, ())) or 'no slices'}\n" for index in wrong)
        after = "".join(f"GPU {index}: {' '.join(params.mig_slices)}\n" for index in wrong)
        yield from use("gpu_exclusive", title=title, words=["sh", path], before=before, after=after)


def _allowed(params: Params, gpus: list[dict[str, str]]) -> Iterator[Failed]:
    """Yield a failure for each GPU that refuses the power limit."""
    for gpu in gpus if params.power_limit_watts is not None else ():
        low, high = _watts(gpu["power.min_limit"]), _watts(gpu["power.max_limit"])
        if low is None or high is None or not low <= (params.power_limit_watts or 0) <= high:
            limits = f"{gpu['power.min_limit']} to {gpu['power.max_limit']} W"
            yield Failed(f"GPU {gpu['index']} allows power limits of {limits}, not {params.power_limit_watts} W")


def _is_so(params: Params, gpu: dict[str, str]) -> bool:
    """Return True if the GPU reports its settings; it does not report clocks."""
    limit, mode = params.power_limit_watts, params.compute_mode
    return (limit is None or _watts(gpu["power.limit"]) == limit) and (
        mode is None or gpu["compute_mode"] == _MODES[mode]
    )


def _watts(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
