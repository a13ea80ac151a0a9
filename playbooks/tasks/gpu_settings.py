"""Settings of the GPUs: ECC, MIG, who may compute on them, power limit and clocks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpuops import Change, Command, Failed, Plan, task, use

_FIELDS = ("index", "ecc.mode.pending", "mig.mode.pending", "compute_mode", "power.limit", "power.min_limit",
           "power.max_limit", "ecc.mode.current", "mig.mode.current")  # fmt: skip
_MODES = {"default": "Default", "exclusive-process": "Exclusive_Process", "prohibited": "Prohibited"}
_WORDS = ("Enabled", "Disabled")  # "[N/A]" where the GPU has no such mode
_AFTER = ("nvidia-persistenced.service", "nvidia-fabricmanager.service")


@dataclass(frozen=True)
class Params:
    """``ecc`` and ``mig`` mode, on or off; ``compute_mode``; ``power_limit_watts`` of each GPU.

    ``clocks_mhz`` and ``memory_clocks_mhz`` lock the clocks between two values, lowest and highest. What is left out
    stays as it is. Which slices MIG makes is not set here: see NVIDIA's mig-parted.
    """

    ecc: bool | None = None
    mig: bool | None = None
    compute_mode: Literal["default", "exclusive-process", "prohibited"] | None = None
    power_limit_watts: int | None = None
    clocks_mhz: tuple[int, ...] = ()
    memory_clocks_mhz: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Two clocks, in order."""
        for clocks in (self.clocks_mhz, self.memory_clocks_mhz):
            if clocks and not (len(clocks) == 2 and 0 < clocks[0] <= clocks[1]):
                raise ValueError(f"clocks are the lowest and the highest in MHz, found {list(clocks)}")

    @property
    def script(self) -> str:
        """What the driver forgets at every boot."""
        lines = {
            f"-pl {self.power_limit_watts}": self.power_limit_watts is not None,
            f"-c {_MODES.get(self.compute_mode or '', '').upper()}": self.compute_mode is not None,
            f"-lgc {','.join(map(str, self.clocks_mhz))}": bool(self.clocks_mhz),
            f"-lmc {','.join(map(str, self.memory_clocks_mhz))}": bool(self.memory_clocks_mhz),
        }
        return "".join(f"nvidia-smi {line}\n" for line, wanted in lines.items() if wanted)


@task
def gpu_settings(params: Params) -> Plan:
    """ECC and MIG are kept by the GPU, and a reset or a reboot makes them hold; the rest is set again at every boot.

    Clocks that somebody else unlocked are not noticed, as nvidia-smi does not tell them. A power limit that a GPU does
    not allow is refused.
    """
    if params == Params():
        return
    answer = yield Command(("nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"), 60)
    gpus = [dict(zip(_FIELDS, line.split(", "), strict=False)) for line in answer.out.splitlines()]
    if answer.exit != 0 or not gpus or any(len(gpu) != len(_FIELDS) for gpu in gpus):
        yield Failed(f"nvidia-smi does not tell the settings of the GPUs: {answer.last_words() or 'it says nothing'}")
    yield from _modes(params, gpus)
    yield from _allowed(params, gpus)
    if params.script:
        about, due = "settings of the GPUs", not all(_is_so(params, gpu) for gpu in gpus)
        yield from use("boot_script", name="gpu-settings", about=about, script=params.script, after=_AFTER, due=due)


def _modes(params: Params, gpus: list[dict[str, str]]) -> Plan:
    """What the GPU itself keeps; what only a reset brings is noted."""
    waits = False
    for mode, wanted, option in (("ecc", params.ecc, "-e"), ("mig", params.mig, "-mig")):
        if wanted is None:
            continue
        word = "Enabled" if wanted else "Disabled"
        for gpu in gpus:
            pending, current = gpu[f"{mode}.mode.pending"], gpu[f"{mode}.mode.current"]
            if pending not in _WORDS and wanted:
                yield Failed(f"GPU {gpu['index']} has no {mode} mode")
            if pending in _WORDS and pending != word:
                command = ("nvidia-smi", "-i", gpu["index"], option, str(int(wanted)))
                yield Change(f"{mode} {word.lower()} on GPU {gpu['index']}", Command(command, 120, become="always"))
            waits |= current in _WORDS and current != word
    if waits:
        yield from use("reboot_required", reason="nvidia-gpu-mode")


def _allowed(params: Params, gpus: list[dict[str, str]]) -> Iterator[Failed]:
    """A power limit that one of the GPUs refuses."""
    for gpu in gpus if params.power_limit_watts is not None else ():
        low, high = _watts(gpu["power.min_limit"]), _watts(gpu["power.max_limit"])
        if low is None or high is None or not low <= (params.power_limit_watts or 0) <= high:
            told = f"{gpu['power.min_limit']} to {gpu['power.max_limit']} W"
            yield Failed(f"GPU {gpu['index']} takes power limits of {told}, not {params.power_limit_watts} W")


def _is_so(params: Params, gpu: dict[str, str]) -> bool:
    """Whether the GPU says what it is set to; clocks it does not tell."""
    limit, mode = params.power_limit_watts, params.compute_mode
    return (limit is None or _watts(gpu["power.limit"]) == limit) and (
        mode is None or gpu["compute_mode"] == _MODES[mode]
    )


def _watts(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
