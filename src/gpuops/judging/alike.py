"""What parts of a node share has one cause, and is one finding: a setting of all GPUs, the feed of power supplies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from gpuops.inventory.names import node_set
from gpuops.judging.finding import Finding
from gpuops.probes.nvidia.nvidia_smi import Gpu
from gpuops.probing import PartName, Unknown

T = TypeVar("T")
_FEWEST = 2


def judge_alike(
    gpus: Sequence[Gpu], judge: Callable[[Gpu, str], Iterable[T]], fewest: int = _FEWEST
) -> Iterator[T | Finding]:
    """Yield what ``judge`` yields of each GPU; what all that report it share, at least ``fewest``, on the node.

    ``judge`` is called with a GPU and the option of nvidia-smi that selects it, `` -i 3``, which is empty for all GPUs.
    """
    judgements_by_gpu = [(gpu, list(judge(gpu, f" -i {gpu.index}"))) for gpu in gpus]
    reporting = [(gpu, own) for gpu, own in judgements_by_gpu if not any(isinstance(each, Unknown) for each in own)]
    is_comparable = len(reporting) >= fewest and 2 * len(reporting) > len(gpus)
    keys = [set(map(_key, own)) for _, own in reporting] if is_comparable else []
    shared = set.intersection(*keys) - {None} if keys else set()
    if shared:
        yield from _on_node(judge(reporting[0][0], ""), shared, [gpu for gpu, _ in reporting], len(gpus))
    yield from (each for _, own in judgements_by_gpu for each in own if _key(each) not in shared)


def _key(judgement: object) -> tuple[str, ...] | None:
    """Return what two findings have in common if they are the same but for the part; None for other judgements."""
    if not isinstance(judgement, Finding):
        return None
    values = (judgement.message, judgement.code, judgement.severity, judgement.expected, judgement.found)
    return tuple(map(str, values))


def _on_node(
    judgements: Iterable[object], shared: set[tuple[str, ...] | None], gpus: Sequence[Gpu], count: int
) -> Iterator[Finding]:
    names = node_set(gpu.subject for gpu in gpus)
    on = f"all {count} GPUs ({names})" if len(gpus) == count else f"{len(gpus)} of {count} GPUs ({names})"
    for each in judgements:
        if isinstance(each, Finding) and _key(each) in shared:
            yield replace(each, message=f"{each.message}, on {on}", part="node")


def unfed_supplies(names: Iterable[str], found: str, expected: str, lost: str, *, fails: bool) -> Finding:
    """Return the finding on the feed of the supplies ``names``, whose input is ``found``.

    ``lost`` is what the BMC says of their redundancy, empty if nothing. Unless it ``fails``, it is a warning.
    """
    each = list(dict.fromkeys(names))
    listed = ", ".join(each)
    return Finding(
        f"{len(each)} power supplies have no input: {listed}{'; ' if lost else ''}{lost}",
        expected=expected,
        found=found,
        fix="look at what feeds these supplies together first: the PDU, its breaker, the cords; then at the supplies",
        part=PartName("power feed", f"power feed of {listed}"),
        severity=None if fails else "warn",
        code="supply",
    )
