"""nvidia-smi --gpu-reset: when it refuses, and what it clears."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpuops.lab.model import Gpu, Node
from gpuops.lab.tools.answer import Answer

FORMS = ("--gpu-reset", "-r")
_HOLDERS = ("nvidia-dcgm", "nvidia-persistenced", "nvidia-fabricmanager")
_INVALID, _NOT_PERMITTED, _IN_USE = 2, 4, 255


def reset(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``nvidia-smi --gpu-reset [-i GPU,…]`` prints; it needs root, and GPUs that are not in use."""
    named = words[2].split(",") if len(words) == 3 and words[1] == "-i" else []
    meant = [gpu for gpu in node.visible if not named or _names(gpu) & {name.upper() for name in named}]
    if len(words) > 1 and len(meant) != len(named):
        return Answer(out="No devices were found\n", code=_INVALID)
    if not root:
        return Answer(out="Unable to reset this GPU because of insufficient permissions.\n", code=_NOT_PERMITTED)
    held = [gpu for gpu in meant if gpu.processes or _is_held(node)]
    if held:
        return Answer(out=f"{_in_use(held[0])}Terminating early due to previous errors.\n", code=_IN_USE)
    lines = "".join(f"GPU {gpu.bus_id} was successfully reset.\n" for gpu in meant)
    fresh = node.changes.reset | {gpu.index for gpu in meant}
    return Answer(out=f"{lines}All done.\n", becomes=replace(node.changes, reset=fresh))


def _names(gpu: Gpu) -> set[str]:
    return {str(gpu.index), gpu.address.upper(), gpu.bus_id, gpu.uuid.upper()}


def _is_held(node: Node) -> bool:
    return any(unit in node.services and node.services[unit].active == "active" for unit in _HOLDERS)


def _in_use(gpu: Gpu) -> str:
    return (
        f"GPU {gpu.bus_id} is currently in use by one or more other processes (e.g. Fabric Manager, CUDA application, "
        "graphics application such as an X server, or a monitoring application such as another instance of "
        "nvidia-smi). Please first kill all processes using this GPU and all compute applications running in the "
        "system (even when they are running on other GPUs) and then try to reset the GPU again.\n"
    )
