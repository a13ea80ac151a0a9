"""The decision rules of Hugging Face's guide "Efficient training on multiple GPUs", as data: explanation and check.

The search does not follow them. It is compared with them, and where it disagrees, the figures say why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gpuops.layout import Layout
from gpuops.planner.candidates import Candidates
from gpuops.planner.hardware import ClusterSpec
from gpuops.planner.memory import USABLE, largest_layer, memory, state_bytes
from gpuops.planner.model import TransformerSpec
from gpuops.planner.training import TrainingSetup

_FAST_NETWORK_GB_PER_S = 20.0
"""Bus bandwidth per GPU from which a network counts as fast: 200 Gbit/s for each GPU. The guide sets no number."""


@dataclass(frozen=True)
class Situation:
    """What the rules ask: how many GPUs and nodes, whether things fit one GPU, and whether the links are fast."""

    gpus: int
    nodes: int
    gpus_per_node: int
    fits_one: bool
    largest_layer_fits: bool
    fast_node: bool
    fast_network: bool


def situation(model: TransformerSpec, cluster: ClusterSpec, training: TrainingSetup) -> Situation:
    """Return the situation of a model on a cluster; it fits if one GPU trains it with micro-batches of one sample.

    The largest layer counts with its gradients and the optimizer's states, which a pipeline cannot share.
    """
    alone = Candidates.product(dp=1, mbs=1, recompute=np.array([0, 1, 2]))
    room = USABLE * cluster.gpu.memory_bytes
    return Situation(
        cluster.gpus,
        cluster.nodes,
        cluster.gpus_per_node,
        bool((memory(model, cluster, training, alone).total <= room).any()),
        state_bytes(training) * largest_layer(model) <= room,
        cluster.has_nvlink,
        cluster.network_gb_per_s >= _FAST_NETWORK_GB_PER_S,
    )


@dataclass(frozen=True)
class GuideRule:
    """A rule: when it applies, the strategies that it recommends, the first first, and what it says."""

    name: str
    applies: Callable[[Situation], bool]
    recommends: tuple[str, ...]
    text: str


def _always(_: Situation) -> bool:
    return True


RULES: tuple[GuideRule, ...] = (
    GuideRule("R1", lambda s: s.gpus == 1 and s.fits_one, (), "one GPU, and the model fits: no parallelism"),
    GuideRule(
        "R1", lambda s: s.gpus == 1 and not s.fits_one, ("ZeRO-Offload", "ZeRO-Infinity"),
        "one GPU, and the model does not fit: ZeRO with host memory, and NVMe",
    ),
    GuideRule(
        "R2", lambda s: s.nodes == 1 and s.gpus > 1 and s.fits_one, ("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3"),
        "one node, and the model fits one GPU: DDP, or ZeRO, which may be slower or faster",
    ),
    GuideRule(
        "R3", lambda s: s.nodes == 1 and s.gpus > 1 and not s.fits_one and s.fast_node, ("1F1B", "ZeRO-3", "TP"),
        "one node with NVLink, and the model does not fit one GPU: PP, ZeRO and TP are about as fast",
    ),
    GuideRule(
        "R4", lambda s: s.nodes == 1 and s.gpus > 1 and not s.fits_one and not s.fast_node, ("1F1B", "TP", "ZeRO-3"),
        "one node without NVLink, and the model does not fit one GPU: PP is faster than TP and ZeRO",
    ),
    GuideRule("R5", lambda s: s.gpus > 1, (), "TP stays inside a node: tp is at most the GPUs of one"),
    GuideRule(
        "R6", lambda s: not s.largest_layer_fits, ("TP", "memory-centric tiling"),
        "the largest layer does not fit one GPU: TP, since PP alone cannot help, or ZeRO with tiling",
    ),
    GuideRule(
        "R7", lambda s: s.nodes > 1 and s.fast_network, ("ZeRO-3", "DP+PP+TP", "ZeRO+3D"),
        "several nodes with a fast network: ZeRO, without changes to the model, or PP+TP+DP",
    ),
    GuideRule(
        "R8", lambda s: s.nodes > 1 and not s.fast_network and not s.fits_one, ("ZeRO+3D",),
        "several nodes with a slow network, and little memory: DP+PP+TP+ZeRO-1",
    ),
    GuideRule("R9", lambda s: s.gpus > 1, (), "with PP, ZeRO 1 at most, and only the optimizer is offloaded"),
    GuideRule("R10", _always, (), "global batch = micro-batch x chunks x dp; one chunk is naive model parallelism"),
    GuideRule("R11", _always, (), "DP+PP needs 4 GPUs, DP+PP+TP needs 8"),
    GuideRule("R12", lambda s: s.gpus > 1, (), "DDP has one exchange a batch, DP has five and stays on one node"),
)  # fmt: skip


def rules_for(facts: Situation) -> tuple[GuideRule, ...]:
    """Return the rules that apply, in their order."""
    return tuple(rule for rule in RULES if rule.applies(facts))


def keeps(rule: GuideRule, layout: Layout, facts: Situation) -> bool:
    """Return True if ``layout`` keeps a rule that recommends nothing but forbids something."""
    forbidden = {
        "R5": layout.tp > facts.gpus_per_node,
        "R9": layout.pp > 1 and (layout.zero > 1 or layout.offload == "nvme"),
        "R11": min(layout.dp, layout.pp) > 1 and layout.ranks < (8 if layout.tp > 1 else 4),
        "R1": facts.gpus == 1 and layout.ranks > 1,
    }
    return not forbidden.get(rule.name, False)
