"""How a model is trained: batch, sequence length, number formats, and what the training program does besides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpuops.errors import LayoutError
from gpuops.planner.gpus import Precision

Optimizer = Literal["adam", "adam8bit", "sgd"]
Framework = Literal["megatron", "deepspeed", "fsdp"]


@dataclass(frozen=True)
class TrainingSetup:
    """A training job: sequences of ``sequence`` tokens, ``global_batch`` of them for each step of the optimizer.

    ``fp32_gradients``: gradients are summed in fp32, as Megatron-LM does with bf16. ``flash_attention``: attention
    scores are not stored. ``tp_overlap``, ``dp_overlap``: communication runs beside products of matrices.
    ``framework`` decides what ZeRO 3 costs, what the pipeline sends and how fast attention is. ``dropout``: its masks
    are stored. ``one_process``: PyTorch's DataParallel, one process with a thread for each GPU of a node.
    ``keeps_all``: a pipeline runs all micro-batches forward before any goes back (GPipe), so it keeps all activations.
    ``tiled``: linear layers that do not fit are computed in tiles, one after the other (DeepSpeed's TiledLinear).
    """

    sequence: int
    global_batch: int
    precision: Precision = "bf16"
    optimizer: Optimizer = "adam"
    framework: Framework = "megatron"
    fp32_gradients: bool = True
    flash_attention: bool = True
    tp_overlap: bool = False
    dp_overlap: bool = True
    dropout: bool = False
    one_process: bool = False
    keeps_all: bool = False
    tiled: bool = False

    def __post_init__(self) -> None:
        for name, value in (("sequence", self.sequence), ("global_batch", self.global_batch)):
            if value < 1:
                raise LayoutError(f"{name} must be 1 or more, not {value}")

    @property
    def tokens(self) -> int:
        """Tokens of one step."""
        return self.sequence * self.global_batch
