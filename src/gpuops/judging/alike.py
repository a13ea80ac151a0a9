"""What all GPUs of a node share, such as a setting, has one cause: it is one finding on the node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from gpuops.inventory.names import node_set
from gpuops.judging.finding import Finding
from gpuops.probes.nvidia.nvidia_smi import Gpu
from gpuops.probing import Unknown

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
