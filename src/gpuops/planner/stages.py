"""The stages of a pipeline: their layers, their parameters, and the micro-batches whose activations they keep.

If the layers do not divide, the last stage, or the first and the last one, have a layer less (`layout.splits_layers`).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from gpuops.planner.candidates import Candidates, Numbers
from gpuops.planner.model import TransformerSpec

Stage = Literal["first", "second", "last"]
"""The stages that can be the fullest: the first keeps most activations, the last has the logits, and the second has a
layer more than the first if the layers do not divide."""


def stage_layers(model: TransformerSpec, c: Candidates, stage: Stage = "second") -> Numbers:
    """Return the layers of a stage: every model chunk has as many as the fullest one, but for the missing layers."""
    full = np.ceil(model.blocks / (c.pp * c.vpp)) * c.vpp
    missing = full * c.pp - model.blocks
    shorter = {"first": missing == 2, "second": False, "last": (missing == 1) | (missing == 2)}
    return full - np.where(c.pp > 1, shorter[stage], 0)


def has_shorter_ends(model: TransformerSpec, c: Candidates) -> bool:
    """Return whether the first stage of any candidate has fewer layers than the second."""
    return bool((stage_layers(model, c, "first") < stage_layers(model, c)).any())


def layer_parameters(model: TransformerSpec) -> tuple[float, float]:
    """Return the parameters of a mean layer: those that all ranks of a data-parallel group share, and of experts."""
    parts = model.parameters()
    bias_and_norm = parts["biases"] + parts["norms"]
    return (parts["attention"] + parts["mlp"] + bias_and_norm) / model.blocks, parts["experts"] / model.blocks


def local_parameters(model: TransformerSpec, c: Candidates, stage: Stage = "first") -> tuple[Numbers, Numbers]:
    """Return the parameters of one GPU of a stage before ZeRO shards them: dense ones, and those of its experts."""
    dense, experts = layer_parameters(model)
    layers, ends = stage_layers(model, c, stage), model.parameters()
    output = ends["output"] or model.vocab * model.hidden
    own = {"first": ends["embeddings"], "second": 0, "last": output}[stage]
    outside = np.where(c.pp == 1, ends["embeddings"] + ends["output"], own)
    return (layers * dense + outside) / c.tp, layers * experts / (c.ep * c.tp)


def most_parameters(model: TransformerSpec, c: Candidates) -> tuple[Numbers, Numbers]:
    """Return the parameters of one GPU of the first or the second stage, whichever has more."""
    pairs = zip(local_parameters(model, c, "first"), local_parameters(model, c, "second"), strict=True)
    dense, experts = (np.maximum(first, second) for first, second in pairs)
    return dense, experts


def in_flight(c: Candidates, stage: Stage) -> Numbers:
    """Return the micro-batches whose activations a stage keeps: those of the stages behind it and its own.

    Interleaved stages run ahead by two passes of a model chunk for each stage behind, and once through the others
    (`pipeline.simulate_schedule` with its ``most_in_flight``).
    """
    behind: Numbers = {"first": c.pp - 1, "second": np.maximum(c.pp - 2, 0), "last": 0 * c.pp}[stage]
    interleaved = (2 * behind + (c.vpp - 1) * c.pp + 1) / c.vpp
    return np.asarray(np.minimum(np.where(c.vpp > 1, interleaved, behind + 1.0), c.chunks))
