"""DeepSpeed's own estimates of model states, to compare with: what its users know as ``estimate_zero*``.

Source: deepspeed 0.19.8, ``estimate_zero2_model_states_mem_needs`` in ``runtime/zero/stage_1_and_2.py`` and
``estimate_zero3_model_states_mem_needs`` in ``stage3.py``. They count no activations, and round to whole bytes.
"""

from __future__ import annotations

from typing import NamedTuple


class ModelStates(NamedTuple):
    """Bytes of host memory a node, and of memory a GPU."""

    host_bytes: int
    gpu_bytes: int


def zero2_states(
    parameters: int, gpus_per_node: int, nodes: int, *, offload: bool, buffer_factor: float = 1.5
) -> ModelStates:
    """Return the model states of ZeRO 2: 16-bit weights on each GPU, the other 18 bytes a parameter sharded."""
    gpus = nodes * gpus_per_node
    if offload:
        return ModelStates(int(parameters * max(4 * gpus, 16) * buffer_factor), 2 * parameters)
    return ModelStates(
        int(parameters * 4 * gpus_per_node * buffer_factor), 2 * parameters + int(18 * parameters / gpus)
    )


def zero3_states(  # one argument for each of DeepSpeed's
    parameters: int,
    largest_layer: int,
    gpus_per_node: int,
    nodes: int,
    *,
    offload_optimizer: bool,
    offload_parameters: bool,
    zero_init: bool = True,
    buffer_factor: float = 1.5,
) -> ModelStates:
    """Return the model states of ZeRO 3: 18 bytes a parameter sharded, and the largest layer gathered in 4."""
    gathered, gpus = 4 * largest_layer, nodes * gpus_per_node
    if not offload_optimizer:
        loaded = largest_layer if zero_init else parameters
        return ModelStates(int(loaded * 4 * gpus_per_node * buffer_factor), gathered + int(18 * parameters / gpus))
    on_host = (18 if offload_parameters else 16) * (1 / nodes)
    each = on_host if zero_init else max(4 * gpus_per_node, on_host)
    on_gpu = 0 if offload_parameters else int(2 * parameters / gpus)
    return ModelStates(int(_product(parameters, each, on_host, nodes) * buffer_factor), gathered + on_gpu)


def _product(parameters: int, each: float, on_host: float, nodes: int) -> float:
    """Return ``parameters`` times ``each`` in the order in which DeepSpeed multiplies, so that it rounds alike."""
    return parameters * round(on_host * nodes) * (1 / nodes) if each == on_host else parameters * each
